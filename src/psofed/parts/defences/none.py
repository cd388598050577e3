"""No defence, as a name: for sweeps and the command line."""

from typing import ClassVar

from psofed.common.types import FloatArray
from psofed.parts.base import Defence
from psofed.parts.contexts import Evidence


class None_(Defence):  # noqa: N801 (None itself is Python's)
    """Watches nobody: a scenario with it is one without a defence."""

    kind: ClassVar[str] = "none"

    def suspicion(self, evidence: Evidence, memory: FloatArray) -> float:
        """Return 0."""
        return 0.0
