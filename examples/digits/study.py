"""Does partial sharing save traffic and blunt model poisoning in a neural network? The study of docs/studies.md.

20 clients learn to read scikit-learn's handwritten digits with one network of 2,410 weights. Run in this folder, one
after the other::

    python study.py tune  --out tuned.json       # each method's stepsize, on seeds of their own
    python study.py check --out checked.json     # every case with the real strategies: same models? bytes
    python study.py run   --out results.json     # all cases, ten seeds
    python study.py show  --images ../../docs/images

The design, written down before the run: 100 rounds, everybody takes part in each, four local gradient steps in each;
data, split (Dirichlet 0.3), first weights, masks and noise follow from the seed, so methods are compared in pairs.
Clients 1 to 4 are Byzantine. A method's stepsize (0.1, 0.3 or 1) is the one with the best accuracy without attack
after 100 rounds, over seeds 1000 and 1001. Results are over seeds 0 to 9. The question is answered by the server's
accuracy on digits that nobody has learned from: after 100 rounds, and at equal bytes.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: more threads only wait for each other

import numpy as np
from direct import Method, describe, run_directly
from network import learn_with_numpy, split_digits

from psofed.parts.attacks import ConstantBias, Gaussian, LittleIsEnough, SignFlip
from psofed.parts.base import Attack

HERE = Path(__file__).parent
ROUNDS, LOOK_EVERY, SEEDS, TUNING_SEEDS = 100, 5, range(10), range(1000, 1002)
GRID = [(stepsize, 4) for stepsize in (0.1, 0.3, 1.0)]

SHARES = [Method("psofed", share) for share in (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)]
FLOWERS = [Method("fedmedian"), Method("multi-krum")]
WITH_RULE = [Method("psofed", 0.25, rule) for rule in ("median", "geometric-median")]
SAME_MASK = [Method("psfed", 0.25)]  # as psfed 0.1.2 does: uploads the entries that it has just downloaded
METHODS = [*SHARES, *FLOWERS, *WITH_RULE, *SAME_MASK]
# FedAvg is PSOFed with all entries shared (`check` compares them): its row in the tables is that of "psofed 100 %".
FEDAVG = Method("fedavg")

_WHO = {"clients": (1, 2, 3, 4), "probability": 1.0}
ATTACKS: dict[str, Attack | None] = {
    "none": None,
    "gaussian": Gaussian(variance=0.5, **_WHO),
    "bias": ConstantBias(bias=0.1, **_WHO),
    "flipped update": SignFlip(of="update", scale=2.0, **_WHO),
    "little is enough": LittleIsEnough(deviations=1.5, statistics="honest", **_WHO),
    "gaussian, p = 0.2": Gaussian(variance=0.5, **{**_WHO, "probability": 0.2}),
    "bias, p = 0.2": ConstantBias(bias=0.1, **{**_WHO, "probability": 0.2}),
}
FEW = [METHODS[place] for place in (1, 3, 5, 9)]  # 5 %, 25 %, 100 %, 25 % + geometric median
# In the order of importance, should there be no time for all.
CASES = [
    *((name, method) for method in METHODS for name in ("none", "gaussian")),
    *((name, method) for name in ("bias", "little is enough", "flipped update") for method in FEW),
    *((name, METHODS[place]) for name in ("gaussian, p = 0.2", "bias, p = 0.2") for place in (1, 3, 5)),
]


def run_case(method: Method, attack: Attack | None, seed: int, rounds: int) -> Any:
    """Run one case directly."""
    return run_directly(method, attack, seed, split_digits(seed), rounds=rounds, look_every=LOOK_EVERY)


def tune() -> dict[str, Any]:
    """Find each method's stepsize without attack, on seeds that are used for nothing else."""
    found = {}
    for method in METHODS:
        scores = {}
        for stepsize, steps in GRID:
            tried = replace(method, stepsize=stepsize, steps=steps)
            runs = [run_case(tried, None, seed, ROUNDS)[0] for seed in TUNING_SEEDS]
            scores[f"{stepsize:g} x {steps}"] = float(np.mean([run.accuracy[-1] for run in runs]))
        best = max(scores, key=lambda name: scores[name])
        stepsize, steps = best.split(" x ")
        found[method.name] = {"stepsize": float(stepsize), "steps": int(steps), "scores": scores}
        print(method.name, best, {name: round(score, 3) for name, score in scores.items()}, flush=True)
    return found


def tuned(method: Method, found: dict[str, Any]) -> Method:
    """Return the method with its own stepsize and steps."""
    own = found["psofed 100 %" if method.kind == "fedavg" else method.name]
    return replace(method, stepsize=own["stepsize"], steps=own["steps"])


def check(found: dict[str, Any], rounds: int = 3) -> dict[str, Any]:
    """Run every case with the real strategies for some rounds; compare with the direct run, count psofed's bytes."""
    from federations import run_federation

    report: dict[str, Any] = {}
    for name, method in [*CASES, *((name, FEDAVG) for name in ("none", "gaussian", "bias"))]:
        if method.kind == "psfed":
            continue  # only its masks are of interest here
        own = tuned(method, found)
        run, model = run_federation(own, ATTACKS[name], 0, learn_with_numpy, rounds=rounds, look_every=1)
        _, direct = run_case(own, ATTACKS[name], 0, rounds)
        report[f"{name} / {method.name}"] = {"largest_difference": float(np.abs(model - direct).max())}
        if method.kind == "psofed":
            steps = np.diff(run.bytes)
            sizes = {"bytes_first_round": int(steps[0]), "bytes_later_round": int(steps[-1])}
            report[f"{name} / {method.name}"] |= sizes
        print(name, method.name, report[f"{name} / {method.name}"], flush=True)
    return report


def run(found: dict[str, Any], part: int, parts: int, path: Path) -> None:
    """Run all cases, or every `parts`-th; the file is written after each, and what is in it is not run again."""
    done = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    known = {(entry["attack"], entry["method"]) for entry in done}
    for name, method in CASES[part::parts]:
        if (name, method.name) in known:
            continue
        own, began = tuned(method, found), time.process_time()
        runs = [run_case(own, ATTACKS[name], seed, ROUNDS)[0] for seed in SEEDS]
        done.append(
            {
                "attack": name, "method": method.name, **describe(own),
                "accuracy": [run.accuracy for run in runs], "own_accuracy": [run.own_accuracy for run in runs],
            }
        )  # fmt: skip
        path.write_text(json.dumps(done).replace('}, {"attack"', '},\n{"attack"') + "\n", encoding="utf-8")
        finals = [run.accuracy[-1] for run in runs]
        print(name, method.name, f"{np.mean(finals):.3f}", f"{time.process_time() - began:.1f} s", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tune", "check", "run", "show"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tuned", type=Path, default=HERE / "tuned.json")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th case, from the i-th on")
    parser.add_argument("--images", type=Path)
    given = parser.parse_args()
    if given.what == "show":
        from show import show

        show(HERE, given.images)
        return
    if given.what == "tune":
        given.out.write_text(json.dumps(tune(), indent=1) + "\n", encoding="utf-8")
        return
    found = json.loads(given.tuned.read_text(encoding="utf-8"))
    if given.what == "check":
        given.out.write_text(json.dumps(check(found), indent=1) + "\n", encoding="utf-8")
    else:
        part, parts = map(int, given.part.split("/"))
        run(found, part, parts, given.out)


if __name__ == "__main__":
    main()
