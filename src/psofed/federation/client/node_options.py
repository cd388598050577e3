"""The settings of one node: its data, the privacy of its uploads, and the attack that it rehearses."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.common.settings import Settings

# Settings by their heading in --help; most are not set unless a user sets them.
_data: Any = partial(option, group="Data", default=None)
_privacy: Any = partial(option, group="Privacy", default=None, low=0, open_low=True)
_attack: Any = partial(option, group="Rehearsed attack", default=None)

_ABOUT_TABLES = ("target_column", "features", "client_column", "client")
_ABOUT_ATTACKS = ("attack", "attack_probability", "attack_strength")


class NodeOptions(Settings):
    """Settings of one node."""

    data: str = _data(default="", metavar="SOURCE", text="a .csv file, or mqtt://HOST:PORT/TOPIC")
    target_column: str | None = _data(metavar="NAME", text="column to predict; by default the run's")
    features: Sequence[str] = _data(default=(), metavar="A,B,C", text="columns to predict from; by default the run's")
    client_column: str | None = _data(metavar="NAME", text="client ID column, if the table holds several clients")
    client: str | None = _data(
        metavar="NAME", text="client whose rows this node reads; by default it is a gateway for all of them"
    )
    time_column: str | None = _data(
        metavar="NAME", text="field with the time of an MQTT sample, by which duplicates are recognised"
    )
    partition: int = _data(default=0, low=0, text="number of this node, for synthetic data")
    clip: float | None = _privacy(text="make uploads differentially private: largest norm of an update")
    multiplier: float | None = _privacy(
        text="standard deviation of the privacy noise, as a multiple of --clip; by default 1"
    )
    delta: float | None = _privacy(
        high=1, open_high=True, text="delta for which the privacy spent, epsilon, is reported"
    )
    byzantine: bool = _attack(default=False, text="poison what this node uploads")
    attack: str | None = _attack(metavar="KIND", text="kind of attack; by default the scenario's")
    attack_probability: float | None = _attack(low=0, high=1, text="probability of an attack in each round")
    attack_strength: float | None = _attack(text="strength of the attack")

    def __post_init__(self) -> None:
        super().__post_init__()
        # What an option is about, which options they are, and what they need.
        for names, is_needed, about in (
            (_ABOUT_TABLES, not self.data, "describes a table: add --data TABLE."),
            (("time_column",), not self.is_mqtt, "describes MQTT samples: add --data mqtt://HOST:PORT/TOPIC."),
            (("multiplier", "delta"), self.clip is None, "describes private uploads: add --clip."),
            (_ABOUT_ATTACKS, not self.byzantine, "describes an attack: add --byzantine."),
        ):
            for name in names:
                if is_needed and getattr(self, name) not in (None, ()):
                    raise PsofedError(f"--{name.replace('_', '-')} {about}")
        if not self.is_mqtt:
            if self.client is not None and self.client_column is None:
                raise PsofedError("--client chooses rows by a column: add --client-column.")
            return
        if not self.features or self.target_column is None:
            raise PsofedError("--data mqtt:// needs --features and --target-column, the fields of a payload.")
        if self.client_column is not None:
            raise PsofedError("--client-column: an MQTT sample's client is the level {client} of its topic.")
        if self.client is not None and "/{client}" not in self.data:
            raise PsofedError("--client names a level of an MQTT topic: write {client} in its place.")

    @property
    def is_mqtt(self) -> bool:
        """Whether its samples come from an MQTT broker."""
        return self.data.startswith(("mqtt://", "mqtts://"))

    @property
    def is_gateway(self) -> bool:
        """Whether it works for all clients of its table."""
        return self.client_column is not None and self.client is None
