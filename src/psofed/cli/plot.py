"""``psofed plot``: draw the learning curves of a saved result."""

from pathlib import Path
from typing import Annotated

import typer

from psofed.cli.common import Plugins, load_plugins


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(plot)


def plot(
    result: Annotated[
        Path, typer.Argument(metavar="RESULT", help="A result, saved as NetCDF by another command.")
    ],
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="What to write (.png, .svg or .pdf).")],
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Draw the learning curves of a saved result."""
    from psofed.plots.curves import check_picture_format, plot_learning_curves, save_figure
    from psofed.results import load_result

    check_picture_format(picture)
    load_plugins(plugins)
    save_figure(plot_learning_curves(load_result(result)), picture)
