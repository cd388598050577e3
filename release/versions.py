"""Prints versions as pip's --constraint takes them, by name and version only: no hosts, no hashes.

``python release/versions.py`` prints what is installed here of psofed, its extras and all they need; ``make
constraints`` keeps that as ``release/constraints.txt``, the versions a release was tested with. ``--oldest`` prints the
lower bounds of pyproject.toml instead: ``make dist-oldest`` tries the wheel on them.
"""

import argparse
import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Print one kind of constraints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oldest", action="store_true", help="the lower bounds of pyproject.toml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    if parser.parse_args().oldest:
        # Old versions of Typer need an old Click, as the federation's extra says.
        print("\n".join(oldest([*project["dependencies"], *extras["parquet"], *extras["federation"]])))
        return
    wanted = [*project["dependencies"], *(text for name in extras for text in extras[name])]
    print("# Versions that this release was tested with; written by `make constraints`.")
    print("\n".join(installed(wanted)))


def oldest(requirements: list[str]) -> list[str]:
    """Return the lower bounds as exact versions, and what has none as it is.

    >>> oldest(["numpy>=2.2,<3", "click<8.4"])
    ['numpy==2.2', 'click<8.4']
    """
    return [re.sub(r"^([\w.-]+).*?>=([\w.]+).*$", r"\1==\2", text) for text in requirements]


def installed(requirements: list[str]) -> list[str]:
    """Return the installed versions of what is required, and of what that requires, in order of their names."""
    versions: dict[str, str] = {}
    done: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that is not installed here, or something for another platform
        for extra in ("", *wanted.extras):
            if (name, extra) not in done:
                done.add((name, extra))
                needs = [Requirement(text) for text in importlib.metadata.requires(name) or []]
                waiting += [need for need in needs if not need.marker or need.marker.evaluate({"extra": extra})]
    versions.pop("psofed", None)
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


if __name__ == "__main__":
    main()
