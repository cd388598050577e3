"""One server for all tests of this folder, and three nodes for most; each test leaves them running."""

import pytest
from deployments import NAMES, Deployment

ONE_WORKER = True


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A deployment without nodes, for tests that bring their own: they come first, in `test_a_servers_guests.py`."""
    with Deployment(tmp_path_factory.mktemp("federation"), NAMES) as deployed:
        deployed.start_server()
        yield deployed


@pytest.fixture(scope="session")
def deployment(server):
    """The same with three nodes. The first is Byzantine, for `deployments.SCENARIO` and others with an attack."""
    server.start_node(0, "--byzantine")
    server.start_node(1)
    server.start_node(2)
    return server
