"""The settings of one node: its server, its data, and the attack that it rehearses."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.options import option
from psofed.common.settings import Settings

_DATA, _LINK, _ATTACK = "Data", "Link", "Rehearsed attack"  # headings in --help
_TABLE = ("target_column", "features", "units", "client_column", "client")
LINK = ("bits", "reach", "rounding", "clip", "multiplier", "delta")
_CREDENTIALS = Path("psofed-federation/credentials")


def _check_server(name: str, value: Any) -> str:
    host, _, port = str(value).rpartition(":")
    if not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise InvalidValueError(name, value, "HOST:PORT, such as server.example:9092")
    return str(value)


class NodeOptions(Settings):
    """Settings of one node."""

    server: str = option(
        default="127.0.0.1:9092", metavar="HOST:PORT", check=_check_server, text="address of the server"
    )
    key: Path = option(default=_CREDENTIALS / "node-0.key", metavar="FILE", text="private key of this node")
    authority: Path = option(
        default=_CREDENTIALS / "ca.pem",
        flag="--ca",
        metavar="FILE",
        text="certificate of the authority that issued the server's certificate",
    )
    home: Path | None = option(
        default=None,
        metavar="DIR",
        text="folder for the model and logs of this node; by default psofed-NODE",
    )
    supernode: bool = option(default=False, text="run as Flower's own SuperNode, which is slower")
    predict_port: int | None = option(
        default=None,
        low=0,
        high=65535,
        text="answer predictions of this node's models on this port, for this machine only",
    )
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
    units: Sequence[str] = option(
        group=_DATA,
        default=(),
        metavar="A=UNIT,B=UNIT",
        text="units of these columns; a run that states others is refused",
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
    bits: int | None = option(
        group=_LINK, default=None, low=1, high=32, text="send each value in this many bits; with --reach"
    )
    reach: float | None = option(
        group=_LINK, default=None, low=0, open_low=True, text="largest value that --bits can represent"
    )
    rounding: str | None = option(
        group=_LINK,
        default=None,
        choices=("dithered", "stochastic"),
        text="how --bits rounds; by default dithered",
    )
    clip: float | None = option(
        group=_LINK,
        default=None,
        low=0,
        open_low=True,
        text="make uploads differentially private: largest norm of an update",
    )
    multiplier: float | None = option(
        group=_LINK,
        default=None,
        low=0,
        open_low=True,
        text="standard deviation of the privacy noise, as a multiple of --clip; by default 1",
    )
    delta: float | None = option(
        group=_LINK,
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
        if (self.bits is None) != (self.reach is None) or (self.rounding is not None and self.bits is None):
            raise PsofedError("--bits, --reach and --rounding belong together: add --bits and --reach.")
        private = self._given("multiplier", "delta")
        if private and self.clip is None:
            raise PsofedError(f"--{private[0]} describes a private link: add --clip.")
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

    @property
    def folder(self) -> Path:
        """Folder for the model and logs of this node."""
        return self.home if self.home is not None else Path(f"psofed-{self.key.stem}")

    def to_node_config(self) -> dict[str, str | int | float | bool]:
        """Return the flat mapping by which Flower tells a ClientApp about its node."""
        config: dict[str, str | int | float | bool] = {"partition": self.partition}
        for name in self._given(
            "data", *_TABLE, *LINK, "byzantine", "attack", "attack_probability", "attack_strength"
        ):
            value = getattr(self, name)
            config[_flag(name)] = ",".join(value) if isinstance(value, tuple) else value
        return config

    @classmethod
    def from_node_config(cls, config: Mapping[str, Any]) -> "NodeOptions":
        """Read what :meth:`to_node_config` gave; other entries, such as Flower's own, are left aside."""
        values = {name: config[_flag(name)] for name in cls.options() if _flag(name) in config}
        for name in ("features", "units"):
            if name in values:
                values[name] = [entry.strip() for entry in str(values[name]).split(",") if entry.strip()]
        return cls(**values)

    def _given(self, *names: str) -> list[str]:
        values = {name: getattr(self, name) for name in names}  # 0 is given, though it equals False
        return [name for name, value in values.items() if value is not False and value not in (None, (), "")]


def _flag(name: str) -> str:
    return name.replace("_", "-")
