"""Where to start from: the README's fleet, the paper's figures, and what the command line named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.fleet.own_data import OwnData


@dataclass(frozen=True)
class Preset:
    """A scenario to start from.

    Attributes
    ----------
    name, title : str
        What it is called in the code and on the page.
    mapping : mapping
        The scenario.
    own_data : bool
        Whether it learns from the table that the command line named.
    """

    name: str
    title: str
    mapping: Mapping[str, Any]
    own_data: bool = False


def readme_fleet() -> Scenario:
    """Return the README's fleet, at the stepsize that ``psofed tune`` recommends for it."""
    from psofed.parts.attacks.gaussian import Gaussian

    return Scenario(num_clients=50, dimension=5, stepsize=0.0766, attack=Gaussian(num_byzantine=15))


def make_presets(scenario: Scenario | None = None, data: "OwnData | None" = None) -> dict[str, Preset]:
    """Return all presets by name; the first is what the page opens with.

    Parameters
    ----------
    scenario : Scenario, optional
        The user's own file; with `data`, what is fitted to them.
    data : OwnData, optional
        The user's own table.
    """
    from psofed.paper.figures import figure_names, load_figure

    presets = []
    if data is not None:
        from psofed.fleet.fitting import fit_scenario

        fitted = scenario if scenario is not None else fit_scenario(data, {})
        presets.append(Preset("own-data", "Your data", fitted.to_mapping(), own_data=True))
    elif scenario is not None:
        presets.append(Preset("file", "Your file", scenario.to_mapping()))
    presets.append(Preset("readme", "README: 50 clients, 15 Byzantine", readme_fleet().to_mapping()))
    for name in figure_names():
        plan: Any = load_figure(name)
        presets.append(Preset(name, f"Fig. {name[3:]}: {_title(plan)}", plan.base.to_mapping()))
    return {preset.name: preset for preset in presets}


def _title(plan: Any) -> str:
    """Return a figure's title; of one that gives it only when it is built, what its module says it is."""
    import sys

    about = (sys.modules[type(plan).__module__].__doc__ or "").split("\n")[0]
    return str(getattr(plan, "title", "")) or about.partition(": ")[2].rstrip(".")
