"""Your own data: a table with one row per observation, split into clients and streamed row by row.

``table`` reads and checks the file, ``standardise`` scales it without looking ahead, ``stream`` holds what clients
then see, ``baselines`` is what the same data give without a federation, ``scenario`` fits a scenario to the data.
"""

from psofed.own_data.stream import OwnData, read_data

__all__ = ["OwnData", "read_data"]
