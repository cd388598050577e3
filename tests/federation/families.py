"""A process with all its descendants, for tests: their ids and memory, and killing all of them at once.

Commands under test start processes in new groups, so a group is not enough here; parents are followed instead.
"""

import contextlib
import os
import signal
from pathlib import Path


def family(pid):
    """Return the living processes that descend from `pid`, and `pid` itself if it lives."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found, more = set(), {pid} & set(parents)
    while more:
        found |= more
        more = {child for child, parent in parents.items() if parent in more} - found
    return sorted(found)


def command_of(pid):
    """Return the command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def living(pids):
    """Return those of `pids` that are still running."""
    return [pid for pid in pids if pid in family(pid)]


def kill_family(process):
    """Kill a process and all its descendants at once, as when the power fails."""
    for pid in family(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.process.wait(timeout=180)


def family_memory(process, but="", kind="Pss"):
    """Return the bytes that a process and its descendants, but those with this in their command, hold or share."""
    total = 0
    for pid in family(process.pid):
        if but and but in command_of(pid):
            continue
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(f"{kind}:"):
                    total += 1024 * int(line.split()[1])
    return total
