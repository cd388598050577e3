"""A hostile outsider at the front door while a federation runs, all with real processes."""

import contextlib
import resource
import socket
import ssl
import sys
import time

import pytest
from families import family_memory

from psofed import Scenario
from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.processes import Supervisor, flower_environment, free_port, wait_until
from psofed.federation.deploy.server import client_command
from psofed.federation.deploy.superlink import Home
from psofed.federation.files import read_json

PSOFED = [sys.executable, "-c", "from psofed.cli import main; main()", "federation"]
HEAD = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (300 << 20)


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_flood_and_a_revoked_node_stop_no_round(tmp_path, many_files, record_property):
    home, port, names = Home(tmp_path / "server"), free_port(), ["pump-1", "pump-2", "pump-3"]
    credentials = make_credentials(home.credentials.folder, [], names)
    scenario = tmp_path / "s.toml"
    scenario.write_text(Scenario(num_clients=3, dimension=4, num_participants=3, iterations=9999).to_toml())
    environment = flower_environment(tmp_path / "flower")
    with Supervisor(tmp_path / "logs") as supervisor:
        server = supervisor.start(
            "server", [*PSOFED, "server", "--home", str(home.folder), "--port", str(port)], environment
        )
        wait_until(lambda: "listening on" in server.tail(), 120.0, "the server", supervisor.check)
        nodes = {}
        for k, name in enumerate(names):
            command = client_command(
                f"127.0.0.1:{port}",
                tmp_path / name,
                credentials.node_key(name),
                credentials.authority,
                {"partition": k},
            )
            nodes[name] = supervisor.start(name, command, environment)
        run = [*PSOFED, "run", str(scenario), "--home", str(home.folder), "--synthetic", "--min-nodes", "3"]
        run += ["--interval", "0.4"]
        supervisor.start("run", run, environment)

        def rounds():
            return read_json(home.status)["round"] if home.status.exists() else 0

        wait_until(lambda: rounds() >= 5, 120.0, "the first rounds", supervisor.check)
        before, first = family_memory(server), rounds()
        with contextlib.ExitStack() as stack:
            for k in range(1000):
                source = ("127.0.0.2" if k % 2 else "127.0.0.1", 0)
                with contextlib.suppress(OSError):
                    stack.enter_context(
                        socket.create_connection(("127.0.0.1", port), timeout=10, source_address=source)
                    )
            trusting = ssl.create_default_context(cafile=str(credentials.authority))
            for _ in range(400):
                with contextlib.suppress(OSError):
                    raw = socket.create_connection(("127.0.0.1", port), timeout=10)
                    half = stack.enter_context(trusting.wrap_socket(raw, server_hostname="127.0.0.1"))
                    half.sendall(HEAD[:50])
            sent = flood(port, trusting, HEAD) + flood(port, trusting, b"POST /v1/fleet/")
            during = rounds()
            wait_until(lambda: rounds() >= during + 5, 60.0, "rounds to go on", supervisor.check)
            grown = family_memory(server) - before
        record_property("grown", grown)
        record_property("accepted_without_a_key", sent)
        print(f"rounds {first} to {rounds()}; memory grew by {grown / 2**20:.1f} MB; {sent:,} bytes taken")
        assert grown < 100 << 20
        assert set(read_json(home.status)["conduct"]["counts"]) == set()

        revoked = supervisor.start(
            "revoke", [*PSOFED, "revoke", "pump-3", "--home", str(home.folder)], environment
        )
        wait_until(lambda: not nodes["pump-3"].is_running, 60.0, "the revoked node to give up")
        assert "does not know this node's key" in nodes["pump-3"].tail()
        assert revoked.process.wait(timeout=30) == 0
        supervisor.processes = [p for p in supervisor.processes if p not in (nodes["pump-3"], revoked)]
        wait_until(
            lambda: read_json(home.status)["last"]["participants"] == ["pump-1", "pump-2"],
            60.0,
            "rounds without it",
            supervisor.check,
        )
        files = [path for path in home.folder.rglob("*") if path.is_file()]
        assert [path for path in files if path.stat().st_mode & 0o077] == []


def flood(port, context, beginning):
    """Send 300 MB without a key, as far as they are taken, and return how many that were."""
    sent, chunk, deadline = 0, b"x" * (1 << 20), time.monotonic() + 60
    with contextlib.suppress(OSError):
        raw = socket.create_connection(("127.0.0.1", port), timeout=10)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.sendall(beginning)
            while sent < 300 << 20 and time.monotonic() < deadline:
                connection.sendall(chunk)
                sent += len(chunk)
    return sent
