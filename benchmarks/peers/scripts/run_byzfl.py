"""ByzFL's rules, on models of all entries; its own training loop is for image classifiers."""

import sys
from unittest.mock import MagicMock

# Its benchmark of image classifiers imports torchvision, which its rules do not need, and which breaks beside a PyTorch
# for processors alone.
sys.modules |= {name: MagicMock() for name in ("torchvision", "torchvision.datasets", "torchvision.transforms")}

import byzfl
from common import rate_of_shared_model, read_job, report, run_shared_model

job = read_job()
f = job.tolerated
mixing, trimmed = byzfl.NNM(f=f), byzfl.TrMean(f=f)
rules = {
    "average": byzfl.Average(),
    "median": byzfl.Median(),
    "trimmed mean": trimmed,
    "Krum": byzfl.Krum(f=f),
    "multi-Krum": byzfl.MultiKrum(f=f),
    "geometric median": byzfl.GeometricMedian(),
    "NNM, then trimmed mean": lambda sent: trimmed(mixing(sent)),
}
msd, rates = {}, {}
for name, rule in rules.items():
    seconds = []
    msd[f"ByzFL, {name}"] = run_shared_model(job, rule, seconds)
    rates[f"ByzFL, {name}"] = rate_of_shared_model(job, seconds[0])
report(["byzfl", "torch", "numpy"], msd=msd, rates=rates)
