"""Conformance tests for your own parts: :func:`check_part` reports what a part gets wrong."""

from psofed.testing.check import PartReport, check_part

__all__ = ["PartReport", "check_part"]
