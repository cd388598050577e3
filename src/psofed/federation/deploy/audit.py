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

_log = logging.getLogger("psofed.federation")

_LARGEST = 64 << 20  # bytes, after which a file of records becomes ….1 and begins again


def add_record(path: Path, event: str, **values: Any) -> None:
    """Add a line; a disk that is full is said in the log, and nothing else stops."""
    plain = {key: clean_text(value) if isinstance(value, str) else value for key, value in values.items()}
    now = datetime.datetime.fromtimestamp(scheduler().time(), datetime.UTC).isoformat(timespec="seconds")
    line = json.dumps({"time": now, "event": event, **plain}) + "\n"
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
