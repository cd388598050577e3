"""Processes that do not outlive their parent: ``python guard.py PARENT COMMAND …`` starts such a command.

Run as a file and not as a module, so that nothing of psofed need be imported. The signal is SIGKILL: Flower's handlers
of milder ones can wait for a lock that the interrupted code holds, and then the process stays for ever.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of Linux's prctl; kept across exec


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, however it dies; only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    """Become the command, to be killed with the parent, which is named by its process id."""
    parent, *command = sys.argv[1:]
    die_with_parent()
    if sys.platform == "linux" and os.getppid() != int(parent):
        sys.exit("the parent has died already")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
