"""No defence, as a name: for sweeps and the command line."""

from typing import ClassVar

from psofed.common.types import FloatArray
from psofed.parts import Defence
from psofed.parts.contexts import Evidence


class None_(Defence):  # noqa: N801 (None itself is Python's)
    """No defence: every client is included."""

    kind: ClassVar[str] = "none"

    def suspicion(self, evidence: Evidence, memory: FloatArray) -> float:
        """Return 0."""
        return 0.0
