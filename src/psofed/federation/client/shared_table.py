"""One table with the rows of many clients.

A gateway's file is scanned as it grows, and where each client's rows begin is kept, so that a client reads its own rows
alone. A client joins with its first row. If the file is replaced, clients without a row in the new one leave. Rows of
clients that a gateway cannot have are skipped: nobody who adds a row stops the others.
"""

import logging
from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.logs import OncePerChange
from psofed.federation.client.columns import TableSource, client_of, warn_of_replaced
from psofed.federation.client.sources import Position, Samples
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
        self._is_news = OncePerChange()

    def names(self) -> tuple[str, ...]:
        """Read what the file has gained, and return the clients that it has rows of."""
        table, opened = self.table, self.table.open(self._scanned)
        if opened.is_replaced:
            warn_of_replaced(table.path)
            self._scanned = Position()
            self._begins.clear()
            self._checked.clear()
        if opened.header and table.client_column not in opened.header:
            columns = ", ".join(opened.header)
            raise PsofedError(f"{table.path}: no column {table.client_column}; there are {columns}")
        client_at = opened.header.index(table.client_column) if opened.header else 0
        end = 0
        for row in opened.rows:
            end = row.end
            client = client_of(row.fields, client_at)
            if client and self._admits(client):
                self._begins.setdefault(client, array("q")).append(row.begin)
        if end:
            self._scanned = Position(offset=end, mark=opened.mark(end))
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

    def source(self, client: str) -> "ClientRows":
        """Return the rows of one client."""
        return ClientRows(self, replace(self.table, client=client))

    def read(self, table: TableSource, start: Position, limit: int) -> Samples:
        """Return the rows of `table.client` from `start` on, as far as the table was scanned."""
        if not self._scanned.offset:
            self.names()
        client, begins = table.client, self._begins.get(table.client, array("q"))
        if client in self._checked and bisect_left(begins, start.offset) == len(begins):
            return Samples(np.empty((0, len(table.features))), np.empty(0), start)
        self._checked.add(client)
        return table.read(start, limit, begins)


@dataclass(frozen=True)
class ClientRows:
    """A source: the rows of one client of a shared table."""

    shared: SharedTable
    table: TableSource

    def choose(self, columns: ColumnNames | None) -> "ClientRows":
        """Return the same rows with the run's columns in the run's order, or refuse by name."""
        return replace(self, table=self.table.choose(columns))

    def read(self, start: Position, limit: int) -> Samples:
        """Return the client's rows from `start` on, as far as the table was scanned."""
        return self.shared.read(self.table, start, limit)
