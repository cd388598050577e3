"""The settings of one node: its data, the privacy of its uploads, and the attack that it rehearses."""

from collections.abc import Sequence

from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.common.settings import Settings

_DATA, _PRIVACY, _ATTACK = "Data", "Privacy", "Rehearsed attack"  # headings in --help
_TABLE = ("target_column", "features", "client_column", "client")


class NodeOptions(Settings):
    """Settings of one node."""

    data: str = option(
        group=_DATA,
        default="",
        metavar="SOURCE",
        text="a .csv file, a .parquet file or folder, mqtt://HOST:PORT/TOPIC, or a generator as module:function",
    )
    target_column: str | None = option(
        group=_DATA, default=None, metavar="NAME", text="column to predict; by default the run's"
    )
    features: Sequence[str] = option(
        group=_DATA, default=(), metavar="A,B,C", text="columns to predict from; by default the run's"
    )
    client_column: str | None = option(
        group=_DATA, default=None, metavar="NAME", text="client ID column, if the table holds several clients"
    )
    client: str | None = option(
        group=_DATA,
        default=None,
        metavar="NAME",
        text="client whose rows this node reads; by default it is a gateway for all of them",
    )
    time_column: str | None = option(
        group=_DATA,
        default=None,
        metavar="NAME",
        text="field with the time of an MQTT sample, by which duplicates are recognised",
    )
    partition: int = option(
        group=_DATA, default=0, low=0, text="number of this node, for generators and synthetic data"
    )
    clip: float | None = option(
        group=_PRIVACY,
        default=None,
        low=0,
        open_low=True,
        text="make uploads differentially private: largest norm of an update",
    )
    multiplier: float | None = option(
        group=_PRIVACY,
        default=None,
        low=0,
        open_low=True,
        text="standard deviation of the privacy noise, as a multiple of --clip; by default 1",
    )
    delta: float | None = option(
        group=_PRIVACY,
        default=None,
        low=0,
        high=1,
        open_low=True,
        open_high=True,
        text="delta for which the privacy spent, epsilon, is reported",
    )
    byzantine: bool = option(group=_ATTACK, default=False, text="poison what this node uploads")
    attack: str | None = option(
        group=_ATTACK, default=None, metavar="KIND", text="kind of attack; by default the scenario's"
    )
    attack_probability: float | None = option(
        group=_ATTACK, default=None, low=0, high=1, text="probability of an attack in each round"
    )
    attack_strength: float | None = option(group=_ATTACK, default=None, text="strength of the attack")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.describes_table and not self.data:
            raise PsofedError(f"--{_flag(self._given(*_TABLE)[0])} describes a table: add --data TABLE.")
        if self.is_mqtt:
            self._check_mqtt()
        elif self.time_column is not None:
            raise PsofedError("--time-column describes MQTT samples: add --data mqtt://HOST:PORT/TOPIC.")
        elif self.client is not None and self.client_column is None:
            raise PsofedError("--client chooses rows by a column: add --client-column.")
        private = self._given("multiplier", "delta")
        if private and self.clip is None:
            raise PsofedError(f"--{private[0]} describes private uploads: add --clip.")
        attack = self._given("attack", "attack_probability", "attack_strength")
        if attack and not self.byzantine:
            raise PsofedError(f"--{_flag(attack[0])} describes an attack: add --byzantine.")

    def _check_mqtt(self) -> None:
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
    def describes_table(self) -> bool:
        """Whether any of its options is about a table."""
        return bool(self._given(*_TABLE))

    @property
    def is_gateway(self) -> bool:
        """Whether it works for all clients of its table."""
        return self.client_column is not None and self.client is None

    def _given(self, *names: str) -> list[str]:
        values = {name: getattr(self, name) for name in names}  # 0 is given, though it equals False
        return [name for name, value in values.items() if value is not False and value not in (None, (), "")]


def _flag(name: str) -> str:
    return name.replace("_", "-")
