"""No process outlives the command that has started it; `test_federation_processes.py` kills one as well."""

import os
import signal

import pytest
from deployments import PSOFED
from families import family, living

from psofed.federation.deploy.processes import Supervisor, wait_until

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.takes(15)]


def test_nothing_is_left_running_after_an_interrupt(tmp_path):
    """The demo, ended by Ctrl-C once its nodes are up, stops every process it has started."""
    with Supervisor(tmp_path / "logs") as supervisor:
        command = [*PSOFED, "demo", "--nodes", "2", "--rounds", "500", "--home", str(tmp_path / "demo")]
        demo = supervisor.start("demo", command, dict(os.environ))
        wait_until(lambda: "/500:" in demo.tail(), 120.0, "the demo to start", check=supervisor.check)
        everybody = family(demo.pid)
        assert len(everybody) > 5  # the demo, SuperLink, SuperExec, ServerApp and two nodes
        demo.process.send_signal(signal.SIGINT)
        wait_until(lambda: not demo.is_running, 180.0, "the demo to end")
        assert demo.process.returncode == 130
        wait_until(lambda: not living(everybody), 180.0, "its processes to end")
    assert (tmp_path / "demo" / "logs" / "superlink.log").stat().st_size > 0
