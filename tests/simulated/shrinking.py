"""Find what breaks a promise: a seed for a deliberate break, and the incidents that matter in a finding."""

from collections.abc import Sequence

from breaks import BREAKS, broken
from plans import Incident, Plan, draw_plan
from simulated_federation import expected_models
from simulation import Finding, simulate


def find_break(name: str, rounds: int, most: int) -> tuple[int, Finding] | None:
    """Break the code, and return the first of `most` seeds that finds it, with the finding."""
    shows_in = set(BREAKS[name].shows_in)
    for seed in range(most):
        plan = draw_plan(seed, rounds)
        if shows_in and shows_in.isdisjoint(incident.kind for incident in plan.incidents):
            continue
        try:
            with broken(name):
                simulate(plan)
        except Finding as finding:
            return seed, finding
    return None


def shrink(finding: Finding, most_runs: int = 60) -> Finding:
    """Return a finding of the same promise with as few incidents as `most_runs` attempts allow."""
    plan, promise = finding.simulation.plan, promise_of(finding)
    expected = expected_models(plan) if plan.exact else None
    runs = 0

    def attempt(incidents: Sequence[Incident]) -> Finding | None:
        nonlocal runs
        runs += 1
        try:
            simulate(plan.only(incidents), expected)
        except Finding as other:
            return other if promise_of(other) == promise else None
        return None

    best, left = finding, list(finding.simulation.happened)  # what had not happened yet does not matter
    left.sort(key=lambda incident: (incident.round_number, incident.after))
    size = max(1, len(left) // 2)
    while size and runs < most_runs:
        place = 0
        while place < len(left) and runs < most_runs:
            fewer = left[:place] + left[place + size :]
            found = attempt(fewer)
            if found is None:
                place += size
            else:
                best, left = found, fewer
        size //= 2
    return best


def promise_of(finding: Finding) -> str:
    """Return the name of the promise that was broken."""
    return str(finding).partition(":")[0]


def tell(finding: Finding) -> str:
    """Return what happened, in words."""
    simulation = finding.simulation
    plan: Plan = simulation.plan
    lines = [
        f"A federation of {', '.join(plan.nodes)}; {plan.participants} are asked in a round of at most "
        f"{plan.deadline:g} s.",
        *(f"{when:10.3f} s  {text}" for when, text in simulation.world.story),
        f"Broken promise: {finding}",
    ]
    return "\n".join(lines)
