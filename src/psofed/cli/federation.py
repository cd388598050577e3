"""``psofed federation``: PSO-Fed with real clients over a real network."""

from psofed.cli.federation_client import client
from psofed.cli.federation_run import demo, export, predict, resume, rollback, run, stop
from psofed.cli.federation_server import certs, revoke, server, status

HELP = "Run PSO-Fed with real clients: demo on one machine, or certs, server, client and run on several."
COMMANDS = (demo, run, resume, stop, rollback, export, predict, certs, revoke, server, status, client)
