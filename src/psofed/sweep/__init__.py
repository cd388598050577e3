"""Sweeps of any size: a grid of scenarios, cut into cells that any executor computes and a folder keeps.

`grid` says which scenarios, `cell` computes one of them, `store` keeps finished cells, `execute` runs those
that are missing, `result` labels what came out.
"""

from psofed.sweep.cell import Cell, CellResult, compute_cell
from psofed.sweep.execute import run_cells
from psofed.sweep.grid import Axis, Grid, read_grid
from psofed.sweep.result import SweepResult, run_sweep
from psofed.sweep.store import CellStore

__all__ = [
    "Axis",
    "Cell",
    "CellResult",
    "CellStore",
    "Grid",
    "SweepResult",
    "compute_cell",
    "read_grid",
    "run_cells",
    "run_sweep",
]
