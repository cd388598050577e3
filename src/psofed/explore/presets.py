"""Scenarios to start from: the user's file or table, the README's fleet, and the paper's figures."""

from psofed.scenario import Scenario


def readme_fleet() -> Scenario:
    """Return the README's fleet, at its best stepsize."""
    from psofed.parts.attacks.by_value import Gaussian

    return Scenario(num_clients=50, dimension=5, stepsize=0.077, attack=Gaussian(num_byzantine=15))


def make_presets(scenario: Scenario | None = None) -> dict[str, Scenario]:
    """Return all presets by title; the page opens with the first, the user's scenario if there is one."""
    from psofed.paper.figures import figure_names, load_figure

    presets = {}
    if scenario is not None:
        presets["Your file" if scenario.data.rows is None else "Your data"] = scenario
    presets["README: 50 clients, 15 Byzantine"] = readme_fleet()
    for name in figure_names():
        plan = load_figure(name)
        presets[f"Figure {name.removeprefix('fig')}: {plan.title}"] = plan.example()
    return presets
