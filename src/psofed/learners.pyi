# For type checkers; written by `make docs`.
from psofed.parts.learners.leaky_lms import LeakyLMS as LeakyLMS
from psofed.parts.learners.lms import LMS as LMS
from psofed.parts.learners.nlms import NLMS as NLMS
from psofed.parts.learners.rls import RLS as RLS
from psofed.parts.learners.sign_lms import SignLMS as SignLMS
