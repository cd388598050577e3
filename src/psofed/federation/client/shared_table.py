"""One table with the rows of many clients, read once for all of them.

A gateway's file is parsed as it grows, and every row goes to the queue of its client. A client joins with its first
row. If the file is replaced, clients without a row in the new one leave. Rows of clients that a gateway cannot have are
skipped: nobody who adds a row stops the others.

If too many rows wait, the table is not read further until some are taken, and clients without any read it by
themselves. That is slow where rows of others lie between theirs. So if some clients have many more than others, these
rows are forgotten instead, and their clients read them by themselves.
"""

import logging
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from psofed.common.errors import PsofedError
from psofed.common.logs import OncePerChange
from psofed.data.values import client_name
from psofed.federation.client.columns import OpenTable, TableSource, read_value, warn_of_replaced
from psofed.federation.client.sources import Position, Samples, collect
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.names import MAX_CLIENTS, is_client_name

_log = logging.getLogger("psofed.federation")

_MOST_ROWS = 100_000  # that wait in queues


class SharedTable:
    """A table of many clients.

    Parameters
    ----------
    table : TableSource
        With a client column, and no client.
    """

    def __init__(self, table: TableSource) -> None:
        self.table = table
        self._feed: _TableQueues | None = None  # a node works for one run at a time
        self._columns: ColumnNames | None = None
        self._is_news = OncePerChange()

    def names(self) -> tuple[str, ...]:
        """Read what the file has gained, and return the clients that it has rows of."""
        if self._feed is None:
            found: set[str] = set()
            rows = _client_rows(self.table, self.table.open(), with_values=False)
            deque(_admitted(rows, found, self._is_news), maxlen=0)
        else:
            self._feed.refresh()
            found = self._feed.names
        return tuple(sorted(found))

    def columns(self) -> ColumnNames | None:
        """Return the names of the columns, None if there is no header line."""
        if self._columns is None:
            self._columns = self.table.columns()
        return self._columns

    def source(self, client: str) -> "ClientRows":
        """Return the rows of one client."""
        return ClientRows(self, client)

    def feed(self, columns: ColumnNames | None) -> "_TableQueues":
        """Return the queues of the clients' rows, with a run's columns."""
        if self._feed is None or self._feed.columns != columns:
            table = self.table if columns is None else self.table.choose(columns)
            feed = _TableQueues(table, columns, self._is_news)
            feed.refresh()
            self._feed = feed
        return self._feed


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
        self.shared.feed(columns)
        return replace(self, chosen=columns)

    def read(self, start: Position, limit: int) -> Samples:
        """Return the client's rows from `start` on, as far as the table was read."""
        return self.shared.feed(self.chosen).read(self.client, start, limit)


@dataclass(frozen=True)
class _Row:
    values: tuple[float, ...]
    offset: int
    mark: str
    skipped: int  # rows of this client before it that held no sample


@dataclass
class _Queue:
    rows: deque[_Row] = field(default_factory=deque)
    first: int | None = None  # number of the client's sample that comes first; None until the client has read
    until: int = 0  # the client reads its rows behind these up to this offset by itself; 0 if there are none
    skipped: int = 0
    problem: str = ""


class _TableQueues:
    """The queues of a table's clients, for one choice of columns."""

    def __init__(self, table: TableSource, columns: ColumnNames | None, is_news: OncePerChange) -> None:
        self.table = table
        self.columns = columns
        self._is_news = is_news
        self.names: set[str] = set()
        self._queues: dict[str, _Queue] = {}
        self._position = Position()
        self._waiting = 0

    def refresh(self) -> None:
        """Read further rows, unless too many are waiting."""
        if self._waiting >= _MOST_ROWS and not self._make_room():
            return
        opened = self.table.open(self._position)
        if opened.replaced:
            warn_of_replaced(self.table.path)
            self._position = Position()
            self.names.clear()
            for queue in self._queues.values():
                queue.until = 0  # gone
        rows = _client_rows(self.table, opened, with_values=True)
        for row in _admitted(rows, self.names, self._is_news):
            self._position = row.position
            queue = self._queues.setdefault(row.client, _Queue())
            if queue.until:
                queue.until = row.position.offset
                continue
            if row.problem:
                queue.skipped, queue.problem = queue.skipped + 1, row.problem
                continue
            queue.rows.append(_Row(row.values, row.position.offset, row.position.mark, queue.skipped))
            queue.skipped = 0
            self._waiting += 1
            if self._waiting >= _MOST_ROWS and not self._make_room():
                return

    def _make_room(self) -> bool:
        """Forget rows of the clients that have most; False if all have alike."""
        lengths = [len(queue.rows) for queue in self._queues.values()]
        if 2 * min(lengths) >= max(lengths):
            return False
        kept = _MOST_ROWS // (2 * len(lengths))
        for queue in self._queues.values():
            if len(queue.rows) > kept:
                queue.until, queue.skipped = queue.until or queue.rows[-1].offset, 0
                self._waiting -= len(queue.rows) - kept
                queue.rows = deque(islice(queue.rows, kept))
        return True

    def read(self, client: str, start: Position, limit: int) -> Samples:
        """Return the rows of `client` from `start` on."""
        queue = self._queues.setdefault(client, _Queue())
        if queue.first is None:
            self._begin(queue, start)
        assert queue.first is not None  # made by _begin
        behind = start.samples - queue.first
        has_none = behind >= len(queue.rows)
        if behind < 0 or (has_none and (self._waiting >= _MOST_ROWS or start.offset < queue.until)):
            found = replace(self.table, client=client).read(start, limit)
            if has_none:
                self._catch_up(queue, found.end_after(start))
            return found
        for _ in range(min(behind, len(queue.rows))):
            queue.rows.popleft()
            queue.first += 1
            self._waiting -= 1
        position, ends, rows = start, [], []
        for row in islice(queue.rows, limit):
            position = Position(position.samples + 1, row.offset, position.skipped + row.skipped, row.mark)
            rows.append(row.values)
            ends.append(position)
        return collect(rows, ends, self.table.dimension or len(self.table.features), position, queue.problem)

    def _catch_up(self, queue: _Queue, position: Position) -> None:
        """Queue a client's rows again once it has read those that were forgotten, and no others."""
        if 0 < queue.until <= position.offset <= self._position.offset:
            self._waiting -= len(queue.rows)
            queue.rows.clear()
            queue.first, queue.until = position.samples, 0

    def _begin(self, queue: _Queue, start: Position) -> None:
        """Leave out the rows that were read before this process began, unless they were in another file."""
        at = next((row for row in queue.rows if row.offset == start.offset), None)
        was_replaced = self._position.offset < start.offset or (at is not None and at.mark != start.mark)
        while not was_replaced and queue.rows and queue.rows[0].offset <= start.offset:
            queue.rows.popleft()
            self._waiting -= 1
        queue.first = start.samples


@dataclass(frozen=True)
class _ClientRow:
    client: str
    values: tuple[float, ...]
    position: Position
    problem: str


def _admitted(rows: Iterator[_ClientRow], names: set[str], is_news: OncePerChange) -> Iterator[_ClientRow]:
    """Yield the rows of clients that a gateway can have, and add their names; others are told of once."""
    for row in rows:
        if not is_client_name(row.client):
            problem = "skipping rows whose client name is not valid, such as"
        elif row.client not in names and len(names) >= MAX_CLIENTS:
            problem = f"skipping rows of clients beyond the first {MAX_CLIENTS:,}, such as"
        else:
            names.add(row.client)
            yield row
            continue
        if is_news(problem, problem):
            _log.warning("%s: %s", problem, row.client[:40])


def _client_rows(table: TableSource, opened: OpenTable, with_values: bool) -> Iterator[_ClientRow]:
    """Yield whose row it is, its inputs and target, where it ends, and what is wrong with it."""
    header, delimiter = opened.header, opened.delimiter
    if not header:
        return
    if table.client_column not in header:
        raise PsofedError(f"{table.path}: no column {table.client_column}; there are {', '.join(header)}")
    features, target = table.choose_from(header) if with_values else ((), "")
    at = [header.index(name) for name in (*features, target) if name]
    client_at = header.index(table.client_column)
    for offset, row, mark in opened.rows:
        if len(row) <= client_at or not (client := client_name(row[client_at])):
            continue  # nobody's row
        values: tuple[float, ...] = ()
        problem = ""
        try:
            if len(row) != len(header):
                raise PsofedError(f"{len(row)} fields where the header has {len(header)}")
            values = tuple(read_value(header[k], row[k], delimiter) for k in at)
            if with_values and math.isnan(values[-1]):
                raise PsofedError(f"no value of {target}")
        except PsofedError as error:
            problem = str(error)
        yield _ClientRow(client, values, Position(0, offset, 0, mark), problem)
