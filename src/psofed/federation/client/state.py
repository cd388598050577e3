"""A node's memory between rounds: each client's own full model, in the process and optionally on disk.

On disk it is filed under the run's session, which outlives the processes of both sides. All clients of a gateway are in
one file, which is written once per instruction however many of them have learned.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import write_atomically
from psofed.common.logs import log
from psofed.federation.protocol.archive import from_archive, read_file, to_archive
from psofed.federation.protocol.layout import Arrays, ModelLayout, Vector
from psofed.federation.protocol.names import node_number

KIND, STATE_FORMAT = "client-state", 6
_SESSIONS_KEPT = 4


@dataclass(frozen=True, eq=False)
class ClientState:
    """State of a client after a round it took part in.

    Attributes
    ----------
    epoch : int
        See :class:`psofed.federation.server.checkpoint.ServerState`.
    round_number : int
        The last round the client worked in.
    layout : ModelLayout
        Of the model.
    model : array (D,)
        w_{k,n+1}, its own.
    kept : mapping of str to array
        The arrays that are not shared.
    num_examples, metrics
        What it reported in that round, should the server ask again.
    records : mapping
        What the training and the privacy of uploads keep by name: mappings of texts, numbers, lists and arrays, or
        values with a method ``to_record()`` that returns one.
    downloaded : array (D,), optional
        The server's values as last downloaded, NaN where they never were, of a client whose uploads depend on them.
    """

    epoch: int
    round_number: int
    layout: ModelLayout
    model: Vector
    kept: Arrays
    num_examples: int
    metrics: Mapping[str, Any]
    records: Mapping[str, Any] = field(default_factory=dict)
    downloaded: Vector | None = None

    def __post_init__(self) -> None:
        if self.model.shape != (self.layout.dimension,):
            raise ValueError("a model of another size than its layout")


@dataclass(frozen=True, eq=False)
class NodeMemory:
    """All that a node keeps of one run.

    Attributes
    ----------
    session : str
        The run.
    node : str
        The node's name.
    clients : mapping
        By the clients' names at the node; the client of a node that is not a gateway has an empty name. A client that
        has not taken part yet is not there.
    """

    session: str
    node: str
    clients: Mapping[str, ClientState] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the memory as the content of a file."""
        layouts: dict[str, int] = {}
        clients = {
            name: {**vars(state), "layout": layouts.setdefault(state.layout.text, len(layouts))}
            for name, state in self.clients.items()
        }
        about = {KIND: STATE_FORMAT, "session": self.session, "node": self.node}
        return to_archive({**about, "layouts": list(layouts), "clients": clients})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "NodeMemory":
        """Read what :meth:`to_bytes` gave; a PsofedError says what is wrong with it."""
        document = from_archive(data, where, KIND, STATE_FORMAT)
        try:
            layouts = [ModelLayout.from_text(text) for text in document["layouts"]]
            clients = {
                name: ClientState(**{**entry, "layout": layouts[entry["layout"]]})
                for name, entry in document["clients"].items()
            }
            return cls(str(document["session"]), str(document["node"]), clients)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise PsofedError(f"{where} is not a client's state: {error}") from None

    @classmethod
    def load(cls, path: Path) -> "NodeMemory":
        """Read a file; a PsofedError says what is wrong with it."""
        return cls.from_bytes(read_file(path, KIND), str(path))


@dataclass(eq=False)
class MemoryStore:
    """Where a node keeps its memory: in this process and, if it has a folder, on disk.

    Parameters
    ----------
    folder : path or None
        Where files are.
    held : NodeMemory or None
        What is known in this process.
    """

    folder: Path | None = None
    held: NodeMemory | None = None

    def recall(self, session: str, node: str) -> NodeMemory:
        """Return what `node` keeps of `session`: what this process or the disk holds, or an empty memory.

        A damaged file is renamed, and the clients continue without it, as newcomers do.
        """
        if self.held is not None and self.held.session == session:
            return self.held
        if self.folder is not None and disk().exists(path := _path(self.folder, node, session)):
            try:
                self.held = NodeMemory.load(path)
                return self.held
            except PsofedError as error:
                damaged = path.with_name(f"{path.name}.damaged")
                disk().rename(path, damaged)
                log.warning("this node's state was damaged and is now %s; it starts again: %s", damaged, error)
        return NodeMemory(session, node)

    def commit(self, memory: NodeMemory, changed: Mapping[str, ClientState]) -> None:
        """Keep `memory` with the clients that have `changed`. If that fails, nothing has changed."""
        memory = replace(memory, clients={**memory.clients, **changed})
        if self.folder is not None:
            newest = _path(self.folder, memory.node, memory.session)
            write_atomically(newest, memory.to_bytes())
            begin = newest.name.partition("-")[0] + "-"
            files = [self.folder / name for name in disk().names(self.folder) if name.startswith(begin)]
            files = [path for path in files if path.suffix == ".npz" and path != newest]
            # Clocks jump: the file just written may look the oldest.
            for path in sorted(files, key=disk().modified, reverse=True)[_SESSIONS_KEPT - 1 :]:
                with contextlib.suppress(OSError):
                    disk().unlink(path)
        self.held = memory


def _path(folder: Path, node: str, session: str) -> Path:
    # Both come from elsewhere: nothing but letters and digits of the session may reach a file name.
    return folder / f"{node_number(node)}-{''.join(filter(str.isalnum, session))[:64]}.npz"
