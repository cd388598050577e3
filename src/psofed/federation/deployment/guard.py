"""Start a command that is ended when its parent dies, even by kill -9: ``python guard.py COMMAND …``.

Run as a file and not as a module, so that nothing of psofed need be imported.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of Linux's prctl; kept across exec


def main() -> None:
    """Ask the kernel for a SIGTERM on the parent's death, then become the command."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("the parent has died already")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
