"""Reports and charts as values, and everything that turns them into something to look at.

A result makes a :class:`Report`, and a :class:`~psofed.render.charts.Chart` of its picture. This package renders both
and knows nothing else: `text` and `markup` (HTML, LaTeX) write reports, `figures` (Matplotlib) draws.
`numbers` decides how a number is written, `style` how anything is coloured.
"""

from psofed.render.report import Column, Kind, Measured, NextStep, Report, Reported, Table

__all__ = ["Column", "Kind", "Measured", "NextStep", "Report", "Reported", "Table"]
