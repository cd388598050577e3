"""Does federating help on this table? Every way to learn at its best, and an answer with its uncertainty."""

from psofed.advice.advice import Advice, Method, Station, advise

__all__ = ["Advice", "Method", "Station", "advise"]
