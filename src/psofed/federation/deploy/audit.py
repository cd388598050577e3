"""Records for operators, one JSON object per line: the audit (``audit.jsonl``), and all runs (``runs.jsonl``)."""

import datetime
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psofed.common.disk import disk
from psofed.common.files import reason_of
from psofed.common.scheduler import scheduler
from psofed.federation.protocol.names import clean_text
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.clients import KINDS, Strikes

_log = logging.getLogger("psofed.federation")

_ACCIDENTS = ("no-reply", "error")
_LARGEST = 64 << 20  # bytes, after which a file of records becomes ….1 and begins again


def now() -> str:
    """Return the time, UTC."""
    return datetime.datetime.fromtimestamp(scheduler().time(), datetime.UTC).isoformat(timespec="seconds")


def add_record(path: Path, event: str, **values: Any) -> None:
    """Add a line; a disk that is full is said in the log, and nothing else stops."""
    plain = {key: clean_text(value) if isinstance(value, str) else value for key, value in values.items()}
    line = json.dumps({"time": now(), "event": event, **plain}) + "\n"
    try:
        if disk().exists(path) and path.stat().st_size > _LARGEST:
            disk().rename(path, path.with_name(f"{path.name}.1"))
        disk().append(path, line.encode())
    except OSError as error:
        _log.warning("%s: cannot be written (%s): %s", path, reason_of(error), line.strip())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; one that was cut short is left out."""
    records = []
    for line in disk().read(path).splitlines() if disk().exists(path) else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def describe_record(record: Mapping[str, Any]) -> str:
    """Return a record as a line for a person.

    Examples
    --------
    >>> describe_record({"time": "2026-01-01T00:00:00+00:00", "event": "strike", "client": "north", "round": 3})
    '2026-01-01T00:00:00+00:00  strike  client north, round 3'
    """
    values = [f"{key} {value}" for key, value in record.items() if key not in ("time", "event") and value != ""]
    return f"{record.get('time', '?')}  {record.get('event', '?')}  {', '.join(values)}"


class RoundAudit:
    """Turns the rounds of a run into audit lines: strikes, bans, and clients that the defence excludes.

    Parameters
    ----------
    path : path
        The audit's file.
    strikes : Strikes
        Of the state that the run begins with.
    """

    def __init__(self, path: Path, strikes: Strikes, suspects: Mapping[str, Any]) -> None:
        self.path = path
        self._banned = strikes.banned
        self._limits = strikes.limits
        self._out = _excluded(suspects)

    def note(self, state: ServerState) -> None:
        """Add what the last round of `state` shows."""
        entry, banned = state.history[-1], Strikes(self._limits, **state.strikes).banned
        for client, kind in entry["dropped"].items():
            if kind not in _ACCIDENTS:
                reason = entry["reasons"].get(client) or KINDS[kind]
                add_record(self.path, "strike", client=client, round=entry["round"], kind=kind, reason=reason)
        for client in sorted(banned - self._banned):
            add_record(self.path, "banned", client=client, round=entry["round"])
        out = _excluded(state.suspects)
        for event, clients in (("excluded", out - self._out), ("readmitted", self._out - out)):
            for client in sorted(clients):
                add_record(self.path, event, client=client, round=entry["round"])
        self._banned, self._out = banned, out


def _excluded(suspects: Mapping[str, Any]) -> set[str]:
    return {name for name, about in suspects.get("nodes", {}).items() if about["out"]}
