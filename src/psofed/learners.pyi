# For type checkers; written by `make docs`.
from psofed.parts.learners.built_in import LMS as LMS
from psofed.parts.learners.built_in import NLMS as NLMS
from psofed.parts.learners.built_in import RLS as RLS
from psofed.parts.learners.built_in import LeakyLMS as LeakyLMS
from psofed.parts.learners.built_in import SignLMS as SignLMS
