"""Sweeps of any size: a grid of scenarios, cut into cells that any executor computes and a folder keeps.

`grid` says which scenarios, `cell` computes one of them, `store` keeps finished cells, `execute` runs those
that are missing, `result` labels what came out.
"""

from psofed.studies.sweeps.cell import Cell, CellResult, compute_cell
from psofed.studies.sweeps.execute import SweepInterrupted, run_cells
from psofed.studies.sweeps.grid import Axis, Grid, make_grid, read_grid
from psofed.studies.sweeps.result import SweepResult, load_result, run_sweep, sweep
from psofed.studies.sweeps.store import CellStore

__all__ = [
    "Axis",
    "Cell",
    "CellResult",
    "CellStore",
    "Grid",
    "SweepInterrupted",
    "SweepResult",
    "compute_cell",
    "load_result",
    "make_grid",
    "read_grid",
    "run_cells",
    "run_sweep",
    "sweep",
]
