"""Scenarios to start from: the user's file or table, the README's fleet, and the paper's figures."""

from dataclasses import dataclass

from psofed.scenario import Scenario


@dataclass(frozen=True)
class Preset:
    """A scenario to start from.

    Attributes
    ----------
    title : str
        Its name in the menu.
    scenario : Scenario
        The scenario.
    other : Scenario, optional
        What it is compared with: another curve of the same figure.
    """

    title: str
    scenario: Scenario
    other: Scenario | None = None


def readme_fleet() -> Scenario:
    """Return the README's fleet, at its best stepsize."""
    from psofed.parts.attacks.by_value import Gaussian

    return Scenario(num_clients=50, dimension=5, stepsize=0.077, attack=Gaussian(num_byzantine=15))


def make_presets(scenario: Scenario | None = None) -> dict[str, Preset]:
    """Return all presets by title; the page opens with the first, the user's scenario if there is one."""
    from psofed.paper.figures import figure_names, load_figure

    presets = [Preset("README: 50 clients, 15 Byzantine", readme_fleet())]
    if scenario is not None:
        presets.insert(0, Preset("Your file" if scenario.data.rows is None else "Your data", scenario))
    for name in figure_names():
        plan = load_figure(name)
        presets.append(Preset(f"Figure {name.removeprefix('fig')}: {plan.title}", *plan.examples()))
    return {preset.title: preset for preset in presets}
