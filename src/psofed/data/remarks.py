"""Remarks on your own data: rows and columns that were read, and how they were prepared."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from psofed.render import Column, Kind, Report, Table
from psofed.render.numbers import counted, listed
from psofed.settings.data import DataSettings

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_MOST_LISTED = 5


def data_report(data: "OwnData") -> Report:
    """Return samples of each client, and what was done to them."""
    table = data.table
    return Report(
        f"{counted(data.num_clients, 'client')} with {counted(sum(data.samples), 'sample')} of "
        f"{counted(data.num_columns, 'feature')}.",
        f"{Path(table.path).name}: {table.target_column} from {listed(table.features)}.",
        (
            Table(
                "",
                (Column("client"), Column("samples", Kind.COUNT)),
                tuple(zip(table.clients, data.samples, strict=True)),
            ),
        ),
        tuple(data_notes(data)),
    )


def data_notes(data: "OwnData") -> Iterator[str]:
    """Yield remarks on the data that matter for reading the results."""
    table = data.table
    if isinstance(data.settings, DataSettings) and data.settings.features is None:
        yield f"{table.target_column} is predicted from all other numeric columns: {listed(table.features)}."
    if table.left_out:
        columns = ", ".join(f"{name} ({holds})" for name, holds in table.left_out.items())
        yield f"columns were left out: {columns}."
    for name, client in table.out_of_order.items():
        yield f"rows are read in file order, but by {name} those of {client} go back in time: sort the file."
    if table.decimal_commas:
        yield f"decimal commas were read in {', '.join(table.decimal_commas)}."
    for name, reason in islice(data.left_out.items(), _MOST_LISTED):
        yield f"client {name} was left out: {reason}."
    if len(data.left_out) > _MOST_LISTED:
        yield f"{len(data.left_out) - _MOST_LISTED} more clients were left out for such reasons."
    if table.duplicates:
        repeats = counted(table.duplicates, "row repeats", "rows repeat")
        yield f"{repeats} an earlier one in every column; they count like all others."
    if table.missing:
        columns = ", ".join(f"{name} ({count})" for name, count in table.missing.items())
        yield f"missing values count as the client's running mean: {columns}."
    if dropped := sum(table.dropped):
        were = "was" if dropped == 1 else "were"
        yield f"{counted(dropped, 'row')} without {table.target_column} {were} left out."
    for name, clients in table.constant.items():
        where = "all clients" if len(clients) == data.num_clients else listed(clients, 3)
        yield f"column {name} never changes in {where} and is 0 there."
    for name, (code, rows) in table.missing_codes.items():
        yield (
            f"{name} is {code:g} in {counted(rows, 'row')}, far from all its other values: if this means that it is "
            "missing, leave it empty."
        )
    if data.clipped:
        yield f"{data.clipped} inputs beyond {data.settings.clip:g} standard deviations were set to that."
    if min(data.samples) < max(data.samples):
        yield (
            f"clients have {min(data.samples)} to {max(data.samples)} samples; one that has used up its own takes "
            "no more steps, does not count in the MSE, and still exchanges its model."
        )
