"""The clients: drawn fleets, your own data, features."""

from psofed.fleet.fleet import Fleet, draw_fleet, draw_inputs

__all__ = ["Fleet", "draw_fleet", "draw_inputs"]
