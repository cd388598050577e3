"""PSO-Fed with real clients: a core without a transport, MQTT for fleets, and a plain app for Flower.

Someone with machines uses ``psofed federation …`` (``pip install -e '.[federation]'``). A Flower user imports
:class:`PSOFed` for the ServerApp and :func:`partial_sharing` for the ClientApp (``pip install -e '.[flower]'``);
nothing of Flower is imported before one of them is used.
"""

from psofed.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__file__)
