"""Settings of ``psofed explore``."""

from psofed.common.options import option
from psofed.common.settings import Settings


class ExplorerSettings(Settings):
    """Where the explorer is served."""

    group = "Page"

    port: int = option(default=0, low=0, high=65535, text="port to listen on; 0 picks a free one")
    browser: bool = option(default=True, text="open the page in a browser, or only print its address")
