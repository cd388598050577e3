"""Which certificates the options of ``certs`` ask for."""

from collections.abc import Iterable

from psofed.common.errors import InvalidValueError
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.transport.certificates import BROKER, SERVER, Certificates


def gateways_of(texts: Iterable[str]) -> dict[str, int]:
    """Read ``NAME`` or ``NAME=N``.

    Examples
    --------
    >>> gateways_of(["roof=20", "hall"])
    {'roof': 20, 'hall': 100}
    """
    gateways = {}
    for text in texts:
        name, given, clients = text.partition("=")
        if given and not (clients.isascii() and clients.isdigit() and int(clients) > 1):
            raise InvalidValueError("--gateway", text, "NAME, or NAME=N with N at least 2 clients")
        gateways[name] = int(clients) if given else ReplyLimits.max_clients
    return gateways


def names_to_renew(certificates: Certificates, names: Iterable[str]) -> list[str]:
    """Return the names to renew; ``all`` stands for broker, server and all nodes."""
    everybody = [BROKER, SERVER, *sorted(certificates.names())]
    return list(dict.fromkeys(name for given in names for name in (everybody if given == "all" else [given])))
