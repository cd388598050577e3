"""PSO-Fed on Flower, for real: partial sharing of any model by real clients over a real network.

A Flower user imports two names, :class:`PSOFed` for the ServerApp and :func:`partial_sharing` for the
ClientApp. Someone with machines uses ``psofed federation …``. Needs ``pip install -e '.[federation]'``.
Nothing of Flower is imported outside this package.
"""

from psofed.common.lazy import lazy_names


def require_flower() -> None:
    """Raise a clear error if Flower is not installed."""
    from importlib.util import find_spec

    from psofed.common.errors import missing_package

    if find_spec("flwr") is None:
        raise missing_package("the federation", "Flower", "federation")


__getattr__, __dir__, __all__ = lazy_names(__file__, require_flower)
