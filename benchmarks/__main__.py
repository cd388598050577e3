"""Run every benchmark of this folder and print its table; with --write, put it into README and docs.

A page has the whole table between ``<!-- bench:NAME -->`` and ``<!-- /bench:NAME -->``, or a part of it between
``<!-- bench:NAME columns 1 3 rows "label" "other label" -->`` and the same end: columns by number, rows by their first
cell. A table too long for a page is kept whole in ``docs/tables/NAME.csv``.
"""

import argparse
import csv
import importlib
import io
import pkgutil
import re
import shlex
from itertools import pairwise
from pathlib import Path

from benchmarks._timing import markdown_table

FOLDER = Path(__file__).parent
DOCS = FOLDER.parent / "docs"
PAGES = (FOLDER.parent / "README.md", *sorted(DOCS.glob("*.md")))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    names = [m.name for m in pkgutil.iter_modules([str(FOLDER)]) if not m.name.startswith("_") and not m.ispkg]
    parser.add_argument("names", nargs="*", help=f"which to run: {', '.join(names)} (default: all)")
    parser.add_argument("--write", action="store_true", help="replace the tables in the README and docs")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    for name in arguments.names or names:
        table = importlib.import_module(f"benchmarks.{name}").run()
        print(f"\n## {name}\n\n{table}\n", flush=True)
        if arguments.write:
            write_into_pages(name, table)


def write_into_pages(name: str, table: str) -> None:
    """Replace a benchmark's table on all pages with its markers, and its CSV file if it has one."""
    if (file := DOCS / "tables" / f"{name}.csv").exists():
        file.write_text(to_csv(table), encoding="utf-8")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (changed := with_table(text, name, table)) != text:
            page.write_text(changed, encoding="utf-8")


def with_table(text: str, name: str, table: str) -> str:
    """Return a page with `table`, or the part of it that is asked for, between the benchmark's markers."""
    pattern = rf"(<!-- bench:{name}( [^\n]*)? -->\n).*?(<!-- /bench:{name} -->)"

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{part_of(table, match[2] or '')}\n{match[3]}"

    return re.sub(pattern, fill, text, flags=re.S)


def to_csv(table: str) -> str:
    r"""Return the rows of a Markdown table as CSV.

    >>> to_csv("| a | b |\n|---|---:|\n| x, y | 1 |\n\nA sentence.")
    'a,b\n"x, y",1\n'
    """
    lines = [line for line in table.splitlines() if line.startswith("|")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([cell.strip() for cell in line.strip("|").split("|")] for line in lines[:1] + lines[2:])
    return text.getvalue()


def from_csv(text: str) -> str:
    r"""Return the Markdown table that a CSV file was made from.

    >>> from_csv(to_csv("| a | b |\n| --- | ---: |\n| x, y | 1 |"))
    '| a | b |\n| --- | ---: |\n| x, y | 1 |'
    """
    headings, *rows = csv.reader(io.StringIO(text))
    return markdown_table(headings, rows)


def part_of(table: str, wanted: str) -> str:
    r"""Return the columns and rows of a table that a marker asks for; all if it asks for none.

    >>> print(part_of("| a | b |\n|---|---|\n| x | 1 |\n| y | 2 |", 'columns 2 rows "y"'))
    | b |
    |---|
    | 2 |
    """
    words = shlex.split(wanted)
    if not words:
        return table
    ends = [words.index(word) for word in ("columns", "rows") if word in words] + [len(words)]
    given = {words[at]: words[at + 1 : end] for at, end in pairwise(ends)}
    if not given or ends[0] != 0:
        raise SystemExit(f"a marker says {wanted!r}; it takes columns NUMBER … rows LABEL …")
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    if rows := given.get("rows"):
        labels = [cells[0].strip() for cells in lines]
        if missing := [label for label in rows if label not in labels[2:]]:
            raise SystemExit(f"a marker asks for rows {missing}; the table has {labels[2:]}")
        lines = lines[:2] + [cells for cells in lines[2:] if cells[0].strip() in rows]
    columns = [int(number) - 1 for number in given.get("columns", [])] or range(len(lines[0]))
    return "\n".join("|" + "|".join(cells[i] for i in columns) + "|" for cells in lines)


if __name__ == "__main__":
    main()
