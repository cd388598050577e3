"""How long a round waits for nodes that have not answered yet.

Until more than half of the nodes asked have answered, a round waits for all of them, up to its deadline. Let t be the
time by which more than half had answered. From then on node k is waited for until

    max(s, factor · t) + c_k        (never beyond the deadline)

with s half a second and c_k the *credit* of the node: seconds by which it may still delay the others. The credit starts
at `grace`. Every second that the others wait for the node beyond max(s, factor · t) is taken from it, and every round
gives back a twentieth of the time the round took. So a node that stalls once is waited for, and a node that is always
slow or silent delays the federation by `grace` seconds in all; later it can stretch a round to `factor` times its usual
length, and only in the rounds for which it is asked (see :class:`psofed.federation.server.checks.Strikes` for its
rests).

More than half of the nodes set t, so a minority that answers at once cannot cut the others off.
"""

from collections.abc import Collection, Mapping

_SHORTEST = 0.5  # seconds; cutting off shorter waits gains nothing
_GIVEN_BACK = 0.05  # of a round's duration, to each node


class Patience:
    """The waiting time that each node has used up.

    Parameters
    ----------
    factor : float
        How many times longer than most nodes a node may take. 0 to wait for every node until the deadline.
    grace : float
        Seconds by which a node may delay the others beyond that, before it is cut off.
    used : mapping, optional
        From :attr:`used`: seconds of the grace used up, by node.

    Examples
    --------
    >>> patience = Patience(factor=3.0, grace=10.0)
    >>> wait = patience.begin(["pump-1", "pump-2", "pump-3"], deadline=60.0)
    >>> wait.answered("pump-1", 0.4)
    >>> wait.ends({"pump-2", "pump-3"})  # no majority yet
    60.0
    >>> wait.answered("pump-2", 0.5)
    >>> wait.ends({"pump-3"})  # 3 · 0.5 s, and 10 s of grace
    11.5
    """

    def __init__(self, factor: float, grace: float, used: Mapping[str, float] | None = None) -> None:
        self.factor = factor
        self.grace = grace
        self.used: dict[str, float] = dict(used or {})

    def begin(self, asked: Collection[str], deadline: float) -> "Wait":
        """Return the wait for the answers of a round, which ends after `deadline` seconds at the latest."""
        return Wait(self, asked, deadline)


class Wait:
    """The wait for one round's answers; all times are in seconds since the round began."""

    def __init__(self, patience: Patience, asked: Collection[str], deadline: float) -> None:
        self.deadline = deadline
        self._patience = patience
        self._asked = list(asked)
        self._majority = len(self._asked) // 2 + 1
        self._times: dict[str, float] = {}
        self._usual: float | None = None  # the time that every node may take, once a majority has answered

    def answered(self, node: str, seconds: float) -> None:
        """Note when a node has answered; answers are noted in their order."""
        self._times.setdefault(node, seconds)
        if self._patience.factor and len(self._times) == self._majority and self._usual is None:
            self._usual = max(_SHORTEST, self._patience.factor * seconds)

    def ends(self, missing: Collection[str]) -> float:
        """Return when the wait for the `missing` nodes ends."""
        if self._usual is None or not missing:
            return self.deadline
        used, grace = self._patience.used, self._patience.grace
        if any(node not in used for node in missing):
            return min(self.deadline, self._usual + grace)
        return min(self.deadline, self._usual + max(max(0.0, grace - used[node]) for node in missing))

    def close(self, seconds: float) -> None:
        """End the wait: charge nodes that delayed the others, and return some credit to every node."""
        used, usual = self._patience.used, self._usual
        if usual is not None:
            for node in self._asked:
                delay = self._times.get(node, seconds) - usual
                if delay > 0.0:
                    used[node] = min(self._patience.grace, used.get(node, 0.0) + delay)
        for node, amount in list(used.items()):
            left = amount - _GIVEN_BACK * seconds
            if left > 0.0:
                used[node] = left
            else:
                del used[node]
