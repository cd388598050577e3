"""Apply parts to the arrays of one trial in plain Python, for the reference, the federation and the debugger.

The engine does the same in compiled loops over many trials, and is tested against this.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.parts.base import Aggregation, Attack, Learner, PreAggregation
from psofed.parts.contexts import KNOWLEDGE, AllUpdates, Conspiracy, Numbers, Updates, Upload, scratch_size
from psofed.parts.part import call_with_memory

# Largest memory of an attack or a learner, in values per trial; more would exhaust the machine's memory.
MOST_MEMORY = 20_000_000

# Beyond this the sum of squares of two numbers and more overflows; such a number counts as not sent.
LARGEST = 1e150


def check_size(name: str, size: int) -> None:
    """Refuse a part that keeps more values per trial than the limit."""
    if size > MOST_MEMORY:
        raise NotCoveredError(f"{name} keeps {size:,} values per trial; the limit is {MOST_MEMORY:,}")


def check_memory(part: Attack | Learner | None, num_clients: int, dimension: int) -> None:
    """Refuse an attack or a learner whose clients together keep more than the limit."""
    if part is None:
        return
    size = num_clients * part.memory_size(dimension)
    if isinstance(part, Attack):
        size += part.group_memory_size(num_clients, dimension)
    check_size(f'{part.family}.kind = "{part.kind}" with {num_clients} clients and {dimension} entries', size)


def corrupt_uploads(
    attack: Attack,
    uploads: FloatArray,
    attacking: NDArray[np.bool_],
    *,
    server: FloatArray,
    clients: NDArray[Any],
    iteration: int,
    normals: FloatArray,
    common_normals: FloatArray,
    num_clients: int | None = None,
    memory: FloatArray | None = None,
    client_memory: FloatArray | None = None,
    group: NDArray[Any] | None = None,
    byzantine: NDArray[Any] | None = None,
) -> FloatArray:
    """Return the uploads as the server receives them.

    Parameters
    ----------
    attack : Attack
        What the attackers do.
    uploads : array (P, D)
        Models of the participants; NaN where an entry is not shared.
    attacking : bool array (P,)
        Who of them attacks.
    server : array (D,)
        w_n.
    clients : int array (P,)
        Numbers of the participants, ascending.
    iteration : int
        n.
    normals, common_normals : array (P, D), array (D,)
        Standard normal numbers of each participant, and of all.
    num_clients : int, optional
        K; by default just enough for the `clients`.
    memory : array (any,), optional
        Memory of the whole group, if the attack keeps one; it is changed.
    client_memory : array (K, any), optional
        Memory of each client, likewise.
    group, byzantine : int arrays, optional
        Byzantine clients of this attack and of all groups; by default those who attack, and the group.

    Examples
    --------
    >>> from psofed.parts.attacks import ConstantBias
    >>> uploads, attacking = np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([True, False])
    >>> nothing = np.zeros((2, 2))
    >>> corrupt_uploads(ConstantBias(num_byzantine=1, bias=2.0), uploads, attacking, server=nothing[0],
    ...                 clients=np.arange(2), iteration=0, normals=nothing, common_normals=nothing[0])
    array([[ 3., nan],
           [ 2.,  3.]])
    """
    received = uploads.copy()
    shared = ~np.isnan(uploads)
    total = int(clients.max(initial=-1)) + 1 if num_clients is None else num_clients
    if client_memory is None:
        client_memory = np.zeros((total, attack.memory_size(len(server))))
    who = np.asarray(clients)
    group = who[attacking] if group is None else group
    members = (group, group if byzantine is None else byzantine)
    if attack.defines("craft"):
        kept = np.zeros(attack.group_memory_size(total, len(server))) if memory is None else memory
        if attacking.any() or kept.size:
            entries = np.flatnonzero(shared.any(axis=0))
            sent, own = shared[:, entries], server[entries].astype(np.float64)
            changes = np.where(sent, received[:, entries] - own, 0.0)
            crafted = changes[attacking]
            seen: Any = Conspiracy(
                changes[~attacking], sent[~attacking], who[~attacking], changes[attacking], sent[attacking], own,
                entries, common_normals[entries], total, len(server), iteration, kept,
                np.empty(scratch_size(*changes.shape)), who[attacking], *members, client_memory,
            )  # fmt: skip
            attack.craft(seen, crafted)
            received[np.ix_(attacking, entries)] = np.where(sent[attacking], own + crafted, np.nan)
        return received
    level = KNOWLEDGE.index(attack.knows)
    for p, i in zip(*np.nonzero(shared & attacking[:, None]), strict=True):
        accomplices, honest = shared[:, i] & attacking, shared[:, i] & ~attacking
        seen = Upload(
            float(uploads[p, i]), int(i), int(clients[p]), iteration, float(normals[p, i]), float(common_normals[i]),
            float(server[i]) if level > 0 else math.nan, uploads[accomplices & (level > 1), i],
            uploads[honest & (level > 2), i], who[accomplices & (level > 1)], *members,
        )  # fmt: skip
        memory_of_client = client_memory[clients[p]] if client_memory.size else client_memory.ravel()
        received[p, i] = call_with_memory(attack.corrupt, seen, memory_of_client)
    return received


def mix_uploads(pre: PreAggregation, uploads: FloatArray, server: FloatArray, *, uniforms: FloatArray) -> FloatArray:
    """Return the mixed uploads that the rule receives instead of those of the participants.

    Parameters
    ----------
    pre : PreAggregation
        How they are mixed.
    uploads : array (P, D)
        Models of the participants; NaN where an entry was not sent.
    server : array (D,)
        w_n.
    uniforms : array (P,)
        A random number in [0, 1) of each participant.

    Returns
    -------
    array (P', D)
        NaN in entries that no participant in the mixture shared.
    """
    usable = np.abs(uploads) <= LARGEST
    entries = np.flatnonzero(usable.any(axis=0))
    shared = usable[:, entries]
    own = server[entries].astype(np.float64)
    changes = np.where(shared, uploads[:, entries] - own, 0.0)
    weights = np.zeros((pre.uploads_after(len(uploads)), len(uploads)))
    if len(entries):
        pre.weigh(AllUpdates(changes, shared, own, uniforms, np.empty(scratch_size(*changes.shape))), weights)
    mixed = np.full((len(weights), len(server)), np.nan)
    held = ((weights != 0.0).astype(np.int64) @ shared.astype(np.int64)) > 0
    mixed[:, entries] = np.where(held, own + weights @ changes, np.nan)
    return mixed


def combine_uploads(
    rule: Aggregation,
    uploads: FloatArray,
    server: FloatArray,
    own_step: FloatArray | None = None,
    memory: FloatArray | None = None,
    clients: NDArray[Any] | None = None,
    num_clients: int | None = None,
) -> FloatArray:
    """Return the server's next model.

    Parameters
    ----------
    rule : Aggregation
        The rule.
    uploads : array (P, D)
        Models of the participants; NaN where an entry was not sent.
    server : array (D,)
        w_n.
    own_step : array (D,), optional
        The server's step on its root data, for rules that have some.
    memory : array (any,), optional
        What the rule remembers; it is changed.
    clients : int array (P,), optional
        Who the participants are; 0 … P − 1 by default.
    num_clients : int, optional
        K; P by default.

    Examples
    --------
    >>> from psofed.parts.aggregations import Mean, Median
    >>> uploads = np.array([[1.0, np.nan], [3.0, 2.0]])
    >>> combine_uploads(Mean(), uploads, np.array([0.0, 1.0]))
    array([2. , 1.5])
    """
    usable = np.abs(uploads) <= LARGEST
    following, entries = server.astype(np.float64), np.flatnonzero(usable.any(axis=0))
    total = len(uploads) if num_clients is None else num_clients
    kept = np.zeros(rule.memory_size(total, len(server))) if memory is None else memory
    if rule.over == "entries":
        participants = len(uploads)
        fewest = min(rule.fewest_numbers(), participants)
        for i in entries:
            numbers = uploads[usable[:, i], i]
            missing = np.full(max(fewest - len(numbers), 0), server[i])
            seen = Numbers(np.concatenate([numbers, missing]), float(server[i]), int(i))
            agreed = call_with_memory(rule.combine, seen, kept)
            following[i] += len(numbers) / participants * (agreed - server[i])
        return following
    answered = usable.any(axis=1)
    if not answered.any():
        return following
    shared = usable[answered][:, entries]
    changes = np.where(shared, uploads[answered][:, entries] - server[entries], 0.0)
    step = np.zeros_like(server) if own_step is None else own_step
    scratch = np.empty(scratch_size(*changes.shape))
    numbers = np.arange(len(uploads)) if clients is None else np.asarray(clients)
    updates = Updates(changes, shared, following[entries], step[entries], scratch, entries, numbers[answered], total)
    if rule.writes_change():
        agreed = np.zeros(len(entries))
        call_with_memory(rule.combine, updates, kept, agreed)
    else:
        agreed = call_with_memory(rule.combine, updates, kept)
    following[entries] += answered.mean() * agreed
    return following
