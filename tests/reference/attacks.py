"""Attacks for tests, by the fields of an ``[attack]`` table."""

from psofed import Attack
from psofed.scenario.accepted import as_part


def make_attack(**options) -> Attack:
    """Make an attack of its kind and options; `strength` is whatever field is the attack's strength."""
    return as_part("attack", options)
