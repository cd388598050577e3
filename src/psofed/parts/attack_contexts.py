"""Arguments of attacks: what attackers know, about one entry, all uploads of an iteration, or a sample."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray

_NOBODY: IntArray = np.zeros(0, np.int64)


class Upload(NamedTuple):
    """One entry that an attacker is about to upload: the argument of attacks with ``knows = "upload"``.

    Attributes
    ----------
    value : float
        What an honest client would send.
    entry, client, iteration : int
        Which entry of the model it is, whose, and when.
    normal : float
        A standard normal number of this client, iteration and entry alone.
    common_normal : float
        A standard normal number of this iteration and entry, the same for all attackers.
    group : int array (any,)
        The Byzantine clients of this attack, ascending, whether or not they attack in this iteration.
    byzantine : int array (any,)
        The Byzantine clients of all groups, ascending.
    """

    value: float
    entry: int
    client: int
    iteration: int
    normal: float
    common_normal: float
    group: IntArray = _NOBODY
    byzantine: IntArray = _NOBODY


class UploadAndServer(NamedTuple):
    """``knows = "server"``: also the server's value of the entry."""

    value: float
    entry: int
    client: int
    iteration: int
    normal: float
    common_normal: float
    server: float
    group: IntArray = _NOBODY
    byzantine: IntArray = _NOBODY


class UploadAndAccomplices(NamedTuple):
    """``knows = "accomplices"``: also the clean uploads of all who attack in this iteration.

    Attributes
    ----------
    accomplices : array (count,)
        Clean numbers of this entry by all who attack in this iteration, the client itself included, in the order
        of clients.
    accomplice_clients : int array (count,)
        Who sent them.
    """

    value: float
    entry: int
    client: int
    iteration: int
    normal: float
    common_normal: float
    server: float
    accomplices: FloatArray
    accomplice_clients: IntArray = _NOBODY
    group: IntArray = _NOBODY
    byzantine: IntArray = _NOBODY


class UploadAndEveryone(NamedTuple):
    """``knows = "everyone"``: also the clean uploads of everyone; such an attacker is omniscient.

    Attributes
    ----------
    honest : array (count,)
        Numbers of this entry by all participants who do not attack in this iteration, in the order of clients;
        empty if nobody else shares the entry.
    """

    value: float
    entry: int
    client: int
    iteration: int
    normal: float
    common_normal: float
    server: float
    accomplices: FloatArray
    honest: FloatArray
    accomplice_clients: IntArray = _NOBODY
    group: IntArray = _NOBODY
    byzantine: IntArray = _NOBODY


# Values of `Attack.knows`, from least to most, and the context that each gives.
KNOWLEDGE: dict[str, type[Upload | UploadAndServer | UploadAndAccomplices | UploadAndEveryone]] = {
    "upload": Upload,
    "server": UploadAndServer,
    "accomplices": UploadAndAccomplices,
    "everyone": UploadAndEveryone,
}


class Conspiracy(NamedTuple):
    """All uploads of an iteration as vectors: the argument of ``craft``, which therefore knows everyone's uploads.

    Clients are in the order of their numbers.

    Attributes
    ----------
    honest : array (H, E)
        By how much each participant who does not attack now would change the server's model; 0 in entries it does not
        share. E is the number of entries that anybody shares.
    honest_shared : bool array (H, E)
        Which entries each of them shares.
    honest_clients : int array (H,)
        Who they are.
    accomplices, accomplices_shared : arrays (A, E)
        Likewise, of those who attack now: what they would honestly send.
    accomplice_clients : int array (A,)
        Who they are.
    group, byzantine : int arrays
        The Byzantine clients of this attack, and of all groups, whether or not they attack now.
    server : array (E,)
        The server's own numbers.
    entries : int array (E,)
        Which entries of the model these are, ascending.
    common_normals : array (E,)
        Standard normal numbers of this iteration and entry.
    num_clients, dimension, iteration : int
        K, D and n.
    memory : array (any,)
        Kept from iteration to iteration, zeros at first; its length is ``group_memory_size``.
    client_memory : array (K, any)
        The memory of each client, zeros at first and filled by ``remember``; of the size ``memory_size``.
    scratch : array (any,)
        Scratch memory of at least P² + 2 · P + 2 · E numbers.
    """

    honest: FloatArray
    honest_shared: NDArray[np.bool_]
    honest_clients: NDArray[np.int64]
    accomplices: FloatArray
    accomplices_shared: NDArray[np.bool_]
    server: FloatArray
    entries: NDArray[np.int64]
    common_normals: FloatArray
    num_clients: int
    dimension: int
    iteration: int
    memory: FloatArray
    scratch: FloatArray
    accomplice_clients: IntArray
    group: IntArray
    byzantine: IntArray
    client_memory: FloatArray


class Moment(NamedTuple):
    """A Byzantine client after its local step: the argument of an attack's ``remember``.

    Attributes
    ----------
    model : array (D,)
        The client's model.
    client, iteration : int
        Whose, and when.
    """

    model: FloatArray
    client: int
    iteration: int


class Sample(NamedTuple):
    """A sample that an attacker is about to learn from.

    Attributes
    ----------
    inputs : array (D,)
        x, or its features.
    label : float
        y.
    normals : array (D,)
        Standard normal numbers of this client and iteration.
    client, iteration : int
        Whose, and when.
    group, byzantine : int arrays
        The Byzantine clients of this attack, and of all groups, ascending.
    """

    inputs: FloatArray
    label: float
    normals: FloatArray
    client: int
    iteration: int
    group: IntArray = _NOBODY
    byzantine: IntArray = _NOBODY
