"""``psofed federation``: PSO-Fed with real clients over a real network."""

from psofed.cli.federation.nodes import client, predict
from psofed.cli.federation.running import demo, export, resume, rollback, run, stop
from psofed.cli.federation.serving import certs, revoke, server, status

HELP = "Run PSO-Fed with real clients: demo on one machine, or certs, server, client and run on several."
COMMANDS = (demo, run, resume, stop, rollback, export, predict, certs, revoke, server, status, client)
