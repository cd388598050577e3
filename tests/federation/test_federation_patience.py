"""Slow and silent nodes: how long a round waits for them, and how often they are asked."""

import time

import numpy as np
import pytest
from flwr.proto.node_pb2 import NodeInfo

from psofed.common.errors import InvalidValueError
from psofed.federation import PSOFed
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.server.checks import Conduct
from psofed.federation.server.patience import Patience
from psofed.federation.testing import InProcessGrid

pytestmark = pytest.mark.federation

DEADLINE = 60.0
NODES = ("a", "b", "c", "d")


def simulate(rounds, times, patience, deadline=DEADLINE):
    """Return the seconds of each round in which all nodes are asked; `times` are the nodes' answer times."""
    lasted = []
    for n in range(1, rounds + 1):
        answers = {node: times(node, n) for node in NODES}
        wait = patience.begin(list(answers), deadline)
        missing = set(answers)
        for node, seconds in sorted(answers.items(), key=lambda pair: pair[1]):
            if seconds > wait.ends(missing):
                break
            wait.answered(node, seconds)
            missing.discard(node)
        lasted.append(wait.ends(missing) if missing else max(answers.values()))
        wait.close(lasted[-1])
    return lasted


def test_without_a_majority_a_round_waits_until_its_deadline():
    wait = Patience(3.0, 0.0).begin(NODES, DEADLINE)
    wait.answered("a", 0.0)
    wait.answered("b", 0.0)
    assert wait.ends({"c", "d"}) == DEADLINE
    wait.answered("c", 1.0)
    assert wait.ends({"d"}) == 3.0


def test_a_minority_that_answers_at_once_cuts_nobody_off():
    """Of five nodes two answer at once; the wait follows the fastest of the others."""
    wait = Patience(3.0, 0.0).begin([*NODES, "e"], DEADLINE)
    for node, seconds in {"a": 0.0, "b": 0.0, "c": 2.0}.items():
        wait.answered(node, seconds)
    assert wait.ends({"d", "e"}) == 6.0


@pytest.mark.parametrize("answer_time", [np.inf, DEADLINE - 0.01, 5.0])
def test_a_node_that_is_always_slow_delays_the_others_by_its_grace_and_then_by_the_factor(answer_time):
    patience = Patience(3.0, 10.0)
    lasted = simulate(200, lambda node, n: answer_time if node == "d" else 0.4, patience)
    undisturbed = 0.4 * len(lasted)
    assert max(lasted) <= 3 * 0.4 + 10.0
    assert lasted[-1] <= 3 * 0.4 / (1 - 0.05) + 1e-9  # it gets a twentieth back, and spends it
    assert sum(lasted) <= 3.3 * undisturbed + 10.0


def test_a_node_that_stalls_once_is_waited_for():
    lasted = simulate(20, lambda node, n: 8.0 if (node, n) == ("d", 10) else 0.4, Patience(3.0, 10.0))
    assert lasted == [0.4] * 9 + [8.0] + [0.4] * 10


def test_credit_is_given_back_to_a_node_that_has_recovered():
    patience = Patience(3.0, 10.0)
    simulate(1, lambda node, n: np.inf if node == "d" else 1.0, patience)
    assert patience.used["d"] > 9.0
    simulate(250, lambda node, n: 1.0, patience)
    assert patience.used == {}


def test_without_patience_every_round_waits_for_its_deadline():
    lasted = simulate(3, lambda node, n: np.inf if node == "d" else 0.4, Patience(0.0, 10.0))
    assert lasted == [DEADLINE] * 3


def test_rests_double_with_every_miss_and_an_answer_ends_them():
    conduct, asked = Conduct(ReplyLimits(rest_rounds=2)), []
    for n in range(1, 140):
        if conduct.may_play("late", n):
            asked.append(n)
            conduct.note("late", "no-reply", n)
    assert np.diff(asked).tolist() == [3, 5, 9, 17, 33, 33, 33]
    assert conduct.strikes("late") == 0
    assert conduct.benched == set()
    conduct = Conduct.from_mapping(conduct.to_mapping(), conduct.limits)
    conduct.forgive("late")
    conduct.note("late", "no-reply", 200)
    assert conduct.may_play("late", 203)


@pytest.mark.parametrize("bad", [{"patience": 0.5}, {"patience": -1.0}, {"grace": -1.0}, {"grace": np.inf}])
def test_bad_settings_are_named(bad):
    with pytest.raises(InvalidValueError, match=next(iter(bad))):
        ReplyLimits(**bad)


class SlowGrid(InProcessGrid):
    """A grid on which the replies of some nodes arrive late: `delays` are seconds, by node."""

    def __init__(self, apps, delays):
        super().__init__(apps)
        self.delays = delays
        self._due = {}

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        for message_id, message in zip(ids, messages, strict=True):
            self._due[message_id] = time.monotonic() + self.delays.get(message.metadata.dst_node_id, 0.0)
        return ids

    def pull_messages(self, message_ids):
        return super().pull_messages([key for key in message_ids if time.monotonic() >= self._due[key]])


def test_a_slow_node_costs_a_run_less_than_one_deadline_and_comes_back_when_it_is_fast(make_app):
    """With a deadline of ten minutes, the run ends only if no round waits for it."""
    grid = SlowGrid({node: make_app() for node in (11, 12, 13, 14)}, {14: 600.0})
    asked = []

    def recover(state):
        asked.append("14" in state.history[-1]["participants"])
        if state.round_number == 4:  # it was asked in rounds 1 and 4
            grid.delays = {}

    strategy = PSOFed(num_shared=2, limits=ReplyLimits(grace=0.2), on_round=recover)
    strategy.start(grid, np.zeros(6), num_rounds=12, timeout=600.0)
    assert asked == [n in (1, 4, 9, 10, 11, 12) for n in range(1, 13)]
    assert strategy.conduct.counts == {"14": {"no-reply": 2}}
    assert strategy.conduct.strikes("14") == 0
    # What it sent for rounds 1 and 4 arrived too late and counts nowhere.
    accepted = {record["round"] for record in strategy.state.history if "14" in record["accepted"]}
    assert accepted == {9, 10, 11, 12}


def test_nodes_that_left_and_came_back_are_not_waited_for_until_the_deadline(make_app, monkeypatch):
    """Restarted with another folder, they are online again at once, and their messages went with the old processes."""
    monkeypatch.setattr("psofed.federation.server.exchange._ROLL_CALL_EVERY", 0.05)
    monkeypatch.setattr("psofed.federation.server.exchange._AFTER_RETURN", 0.2)
    since = {}

    class Restarting(InProcessGrid):
        def get_nodes(self):
            return [NodeInfo(node_id=n, last_activated_at=since.get(n, "at first")) for n in self.apps]

        def push_messages(self, messages):
            sent = super().push_messages(messages)
            since.update(dict.fromkeys(self.silent, "just now"))
            return sent

    grid = Restarting({node: make_app() for node in (11, 12, 13, 14)})
    grid.silent = {11, 12, 13}
    strategy = PSOFed(2)
    started = time.monotonic()
    strategy.start(grid, np.zeros(4), num_rounds=1, timeout=600.0)
    assert time.monotonic() - started < 60.0
    assert strategy.state.history[0]["dropped"] == dict.fromkeys(("11", "12", "13"), "no-reply")


class LateGrid(InProcessGrid):
    """One node's replies arrive some rounds late."""

    slow, rounds = 14, 2

    def push_messages(self, messages):
        ids = super().push_messages(messages)
        for message_id, message in zip(ids, messages, strict=True):
            if message.metadata.dst_node_id == self.slow:
                self.delayed[message_id] = (len(self.calls) + self.rounds, self._replies.pop(message_id))
        self.calls.append(ids)
        return ids

    def pull_messages(self, message_ids):
        for message_id in message_ids:
            if message_id in self.delayed and self.delayed[message_id][0] <= len(self.calls) - 1:
                self._replies[message_id] = self.delayed.pop(message_id)[1]
        return super().pull_messages(message_ids)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_late_reply_counts_with_its_weight_on_the_entries_it_was_made_with(make_app, weight):
    grid = LateGrid({node: make_app(0.1) for node in (11, 12, 13, 14)})
    grid.calls, grid.delayed = [], {}
    models, uploads = [], []
    strategy = PSOFed(
        2,
        aggregation="mean",
        seed=3,
        limits=ReplyLimits(late_weight=weight, grace=0.0, max_deviation=0.0, rest_rounds=0),
        on_round=lambda state: models.append(state.model.copy()),
    )
    take = strategy.step.take
    strategy.step.take = lambda n, model, given, examples: (
        uploads.append({name: (shared, values.copy()) for name, (shared, values) in given.items()}),
        take(n, model, given, examples),
    )[1]
    strategy.start(grid, np.zeros(4), num_rounds=4, timeout=1.0)
    late = [record.get("late", {}) for record in strategy.state.history]
    if not weight:
        assert late == [{}] * 4
        assert "14" not in strategy.state.seen
        return
    assert late == [{}, {}, {"14": 2}, {"14": 2}]
    assert strategy.conduct.late == {"14": 2}
    assert strategy.state.seen["14"] == 2
    shared, values = uploads[2]["14"]
    masks = strategy.sharing.masks(4)
    np.testing.assert_array_equal(shared, masks.indices(2, 14))  # of round 1, which it answers
    others = [uploads[2][name] for name in ("11", "12", "13")]
    expected = models[1].copy()
    for entries, entry_values in [*others, (shared, values)]:
        expected[entries] += (entry_values - models[1][entries]) / 4
    np.testing.assert_allclose(models[2], expected, rtol=1e-12)


def test_a_late_reply_of_a_client_that_is_benched_meanwhile_does_not_count(make_app):
    grid = LateGrid({node: make_app(0.1) for node in (11, 12, 13, 14)})
    grid.calls, grid.delayed = [], {}
    strategy = PSOFed(2, limits=ReplyLimits(late_weight=0.5, grace=0.0, rest_rounds=0, bench_after=1))
    strategy.on_round = lambda state: strategy.conduct.note("14", "nan", 2)
    strategy.start(grid, np.zeros(4), num_rounds=4, timeout=1.0)
    assert len(grid.delayed) == 0  # it arrived
    assert "14" not in strategy.state.seen
