"""Does federating help on this table? Every way to learn at its best, and an answer with its uncertainty."""

from psofed.advice.advice import Advice, LearningMethod
from psofed.advice.adviser import advise
from psofed.advice.stations import Station

__all__ = ["Advice", "LearningMethod", "Station", "advise"]
