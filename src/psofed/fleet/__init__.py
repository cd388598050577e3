"""Who the clients are: drawn fleets, tables of one's own data, features."""

from psofed.fleet.fleet import Fleet, draw_fleet, draw_inputs

__all__ = ["Fleet", "draw_fleet", "draw_inputs"]
