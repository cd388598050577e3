"""Payoff of the demo: the same streams without its protection."""

import pytest

from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.demo import demo_settings
from psofed.federation.deploy.payoff import DemoPayoff, _replay, pay_off
from psofed.federation.deploy.superlink import Home
from psofed.federation.flower import number_of_key, public_key_of
from psofed.render import Report

pytestmark = pytest.mark.federation


def test_the_defence_keeps_the_error_below_that_of_the_same_streams_without_it(tmp_path):
    home, settings = Home(tmp_path), demo_settings(4, 20, seed=0, defended=True)
    made = make_credentials(home.credentials.folder, [], [f"node-{k}" for k in range(4)])
    numbers = [number_of_key(public_key_of(path)) for path in made.public_keys()]
    curve = _replay(settings, numbers)  # as the real nodes would run it, to rounding
    about = {"first_round": 3}
    payoff = pay_off({"learning_curve": {"server_msd": curve}, "suspects": {"node-0": about}}, settings, home)
    full, partial, defended = payoff.curves.values()
    assert partial[0] == defended[0], "the same streams, masks and lies"
    assert full[-1] > partial[-1] > defended[-1]
    assert payoff.headline.startswith("The Byzantine node-0 was found in round 3; error 0.")


def test_a_node_that_was_not_found_is_said_so():
    payoff = DemoPayoff("node-0", None, {"without": [1.0, 2.0], "with": [1.0, 0.5]})
    assert payoff.headline == "The Byzantine node-0 was not found; error 0.5 instead of 2."
    report = str(Report(payoff.headline, tables=(payoff.table(),)))
    assert [line.split() for line in report.splitlines()[-2:]] == [
        ["without", "▄█", "3.0"],
        ["with", "▄▁", "−3.0"],
    ]
