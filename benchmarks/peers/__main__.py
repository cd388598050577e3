"""Install each peer into an environment of its own, run the same job in all of them, and tabulate."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.__main__ import write_into_pages
from benchmarks.peers._environments import PEERS, PeerError, install, run
from benchmarks.peers._job import write_job
from benchmarks.peers._psofed import measure
from benchmarks.peers._tables import tables

CACHE = Path.home() / ".cache" / "psofed-peers"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    names = [peer.name for peer in PEERS]
    parser.add_argument(
        "names", nargs="*", help=f"which to run: {', '.join(names)} (default: all; others stay as they are in --out)"
    )
    parser.add_argument("--folder", type=Path, default=CACHE, help="where environments are kept (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/peers.json"), help="results (%(default)s)")
    parser.add_argument(
        "--torch-version", default="2.13.0",
        help="of PyTorch; 2.13.0+cpu takes a smaller file where your index has one (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--write-docs", action="store_true", help="replace the tables of the comparison in docs/")
    parser.add_argument("--tables-only", action="store_true", help="run nothing; take what --out holds")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    results: dict[str, Any] = {}
    if arguments.out.exists() and (arguments.names or arguments.tables_only):
        results = json.loads(arguments.out.read_text(encoding="utf-8"))
    if not arguments.tables_only:
        results |= run_peers(arguments.names or names, arguments.folder, arguments.torch_version)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
    for name, table in tables(results).items():
        print(f"\n## {name}\n\n{table}\n")
        if arguments.write_docs:
            write_into_pages(name, table)
    if failed := [name for name, result in results.items() if "error" in result]:
        sys.exit(f"could not be measured: {', '.join(failed)}")


def run_peers(names: list[str], folder: Path, torch_version: str) -> dict[str, Any]:
    """Return the results of psofed and of each peer; where one failed, its error."""
    folder.mkdir(parents=True, exist_ok=True)
    job = folder / "job.npz"
    write_job(job)
    print("psofed …", flush=True)
    results = {"psofed": measure()}
    for peer in PEERS:
        if peer.name not in names:
            continue
        print(f"{peer.name} …", flush=True)
        try:
            results[peer.name] = run(peer, install(peer, folder, torch_version), job)
        except PeerError as error:
            print(error, file=sys.stderr)
            results[peer.name] = {"error": str(error)}
    return results


if __name__ == "__main__":
    main()
