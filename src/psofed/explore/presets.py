"""Scenarios to start from: the user's file or table, the README's fleet, and the paper's figures."""

from dataclasses import dataclass

from psofed.scenario import Scenario

# Titles that fit into the menu, also on a phone.
_TITLES = {
    "fig1": "PSO-Fed and its rivals",
    "fig2": "shared parameters",
    "fig3": "attack strength",
    "fig4": "attack probability",
    "fig5": "probability and sharing",
    "fig6": "stepsize, Byzantine clients",
    "fig7": "stepsize, attack strength",
    "fig8": "small stepsizes",
    "fig9": "sources of error",
}


@dataclass(frozen=True)
class Preset:
    """A scenario to start from.

    Attributes
    ----------
    name, title : str
        Its name in messages between browser and server, and on the page.
    scenario : Scenario
        The scenario.
    other : Scenario, optional
        What it is compared with: another curve of the same figure.
    """

    name: str
    title: str
    scenario: Scenario
    other: Scenario | None = None

    @property
    def figure(self) -> str:
        """The paper's figure that it opens, if it does."""
        return "" if self.other is None else self.name


def readme_fleet() -> Scenario:
    """Return the README's fleet, at the stepsize that ``psofed tune`` recommends for it."""
    from psofed.parts.attacks.gaussian import Gaussian

    return Scenario(num_clients=50, dimension=5, stepsize=0.0766, attack=Gaussian(num_byzantine=15))


def make_presets(scenario: Scenario | None = None) -> dict[str, Preset]:
    """Return all presets by name; the page opens with the first, the user's scenario if there is one."""
    from psofed.paper.figures import figure_names, load_figure

    presets = []
    if scenario is not None and scenario.data.rows is not None:
        presets.append(Preset("own-data", "Your data", scenario))
    elif scenario is not None:
        presets.append(Preset("file", "Your file", scenario))
    presets.append(Preset("readme", "README: 50 clients, 15 Byzantine", readme_fleet()))
    for name in figure_names():
        plan = load_figure(name)
        presets.append(Preset(name, f"Fig. {name[3:]}: {_TITLES.get(name, plan.title)}", *plan.examples()))
    return {preset.name: preset for preset in presets}
