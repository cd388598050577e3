"""Run every benchmark of this folder and print its table; with --write-readme, put it into README and docs."""

import argparse
import importlib
import pkgutil
import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGES = (FOLDER.parent / "README.md", *sorted((FOLDER.parent / "docs").glob("*.md")))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [m.name for m in pkgutil.iter_modules([str(FOLDER)]) if not (m.ispkg or m.name.startswith("_"))]
    parser.add_argument("names", nargs="*", help=f"which to run: {', '.join(names)} (default: all)")
    parser.add_argument(
        "--write-readme", action="store_true", help="replace the tables in the README and docs"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    for name in arguments.names or names:
        table = importlib.import_module(f"benchmarks.{name}").run()
        print(f"\n## {name}\n\n{table}\n", flush=True)
        if arguments.write_readme:
            write_into_readme(name, table)


def write_into_readme(name: str, table: str) -> None:
    """Replace what stands between the benchmark's markers, on the pages that have them."""
    pattern = rf"(<!-- bench:{name} -->\n).*?(\n?<!-- /bench:{name} -->)"
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        changed = re.sub(pattern, lambda m: m[1] + table + "\n" + m[2].lstrip("\n"), text, flags=re.S)
        if changed != text:
            page.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    main()
