"""Start a command that is ended when its parent dies, even by kill -9: ``python guard.py PARENT COMMAND …``.

Run as a file and not as a module, so that nothing of psofed need be imported.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of Linux's prctl; kept across exec


def main() -> None:
    """Ask the kernel for a SIGTERM on the death of the parent (a process id), then become the command."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit("the parent has died already")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
