# For type checkers; written by `make docs`.
from psofed.parts.availabilities.bernoulli import Bernoulli as Bernoulli
from psofed.parts.availabilities.markov import Markov as Markov
from psofed.parts.availabilities.schedule import Schedule as Schedule
