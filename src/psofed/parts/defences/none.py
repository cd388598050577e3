"""No defence, as a name: for sweeps and the command line."""

from typing import ClassVar

from psofed.parts.base import Defence


class None_(Defence):  # noqa: N801 (None itself is Python's)
    """Watches nobody: a scenario with it is one without a defence."""

    kind: ClassVar[str] = "none"

    def suspicion(self, evidence, memory):
        """Return 0."""
        return 0.0
