# For type checkers; written by `make docs`.
from psofed.parts.availabilities.built_in import Bernoulli as Bernoulli
from psofed.parts.availabilities.built_in import Markov as Markov
from psofed.parts.availabilities.built_in import Schedule as Schedule
