"""One table with the rows of many clients.

A gateway's file is scanned as it grows, and where each client's rows begin is kept, so that a client reads its own rows
alone. A client joins with its first row. If the file is replaced, clients without a row in the new one leave. Rows of
clients that a gateway cannot have are skipped: nobody who adds a row stops the others.
"""

import logging
from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace

from psofed.common.errors import PsofedError
from psofed.common.logs import OncePerChange
from psofed.federation.client.columns import TableSource, client_of, warn_of_replaced
from psofed.federation.client.sources import Position, Samples, collect
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.names import MAX_CLIENTS, is_client_name

_log = logging.getLogger("psofed.federation")


class SharedTable:
    """A table of many clients.

    Parameters
    ----------
    table : TableSource
        With a client column, and no client.
    """

    def __init__(self, table: TableSource) -> None:
        self.table = table
        self._begins: dict[str, array[int]] = {}  # of each client's rows, 8 bytes per row
        self._scanned = Position()
        self._checked: set[str] = set()  # clients whose position belongs to the current file
        self._chosen: tuple[ColumnNames | None, TableSource] = (None, table)
        self._columns: ColumnNames | None = None
        self._is_news = OncePerChange()

    def names(self) -> tuple[str, ...]:
        """Read what the file has gained, and return the clients that it has rows of."""
        table, opened = self.table, self.table.open(self._scanned)
        if opened.replaced:
            warn_of_replaced(table.path)
            self._scanned = Position()
            self._begins.clear()
            self._checked.clear()
        if opened.header and table.client_column not in opened.header:
            columns = ", ".join(opened.header)
            raise PsofedError(f"{table.path}: no column {table.client_column}; there are {columns}")
        client_at = opened.header.index(table.client_column) if opened.header else 0
        for row in opened.rows:
            self._scanned = Position(0, row.end, 0, row.mark)
            client = client_of(row.fields, client_at)
            if client and self._admits(client):
                self._begins.setdefault(client, array("q")).append(row.begin)
        return tuple(sorted(self._begins))

    def _admits(self, client: str) -> bool:
        """Return whether a gateway can have this client; if not, that is logged once."""
        if client in self._begins:
            return True
        problem = ""
        if not is_client_name(client):
            problem = "skipping rows whose client name is not valid, such as"
        elif len(self._begins) >= MAX_CLIENTS:
            problem = f"skipping rows of clients beyond the first {MAX_CLIENTS:,}, such as"
        if problem and self._is_news(problem, problem):
            _log.warning("%s: %s", problem, client[:40])
        return not problem

    def columns(self) -> ColumnNames | None:
        """Return the names of the columns, None if there is no header line."""
        if self._columns is None:
            self._columns = self.table.columns()
        return self._columns

    def choose(self, columns: ColumnNames | None) -> TableSource:
        """Return the table with a run's columns; a node works for one run at a time."""
        if self._chosen[0] != columns:
            self._chosen = columns, self.table if columns is None else self.table.choose(columns)
        return self._chosen[1]

    def source(self, client: str) -> "ClientRows":
        """Return the rows of one client."""
        return ClientRows(self, client)

    def read(self, client: str, start: Position, limit: int, columns: ColumnNames | None) -> Samples:
        """Return a client's rows from `start` on, as far as the table was scanned."""
        if not self._scanned.offset:
            self.names()
        table, begins = self.choose(columns), self._begins.get(client, array("q"))
        if client in self._checked and bisect_left(begins, start.offset) == len(begins):
            return collect([], [], table.dimension or len(table.features), start)
        self._checked.add(client)
        return replace(table, client=client).read(start, limit, begins)


@dataclass(frozen=True)
class ClientRows:
    """A source: the rows of one client of a shared table."""

    shared: SharedTable
    client: str
    chosen: ColumnNames | None = None

    @property
    def units(self) -> tuple[tuple[str, str], ...]:
        """Units of the table's columns, where they are known."""
        return self.shared.table.units

    def columns(self) -> ColumnNames | None:
        """Return the names of the table's columns."""
        return self.shared.columns()

    def choose(self, columns: ColumnNames) -> "ClientRows":
        """Return the same rows with the run's columns in the run's order, or refuse by name."""
        self.shared.choose(columns)
        return replace(self, chosen=columns)

    def read(self, start: Position, limit: int) -> Samples:
        """Return the client's rows from `start` on, as far as the table was scanned."""
        return self.shared.read(self.client, start, limit, self.chosen)
