"""Does federating help on this table? Every way to learn at its best, and an answer with its uncertainty."""

from psofed.studies.advice.advice import Advice, LearningMethod, Station
from psofed.studies.advice.adviser import advise

__all__ = ["Advice", "LearningMethod", "Station", "advise"]
