"""``psofed advise``: find out whether federating helps on a table."""

from pathlib import Path

from psofed.cli.flags import Given
from psofed.cli.inputs import ScenarioInput
from psofed.cli.outputs import PlotOutput, compute
from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.settings.advice import AdviceSettings
from psofed.settings.data import DataSettings


class AdviceOutput(PlotOutput):
    """Where advice goes."""

    out: Path | None = option(
        default=None, text="save everything (.json), the clients (.csv), or the plan for `federation run` (.toml)"
    )


def advise(settings: AdviceSettings, source: ScenarioInput, reading: Given[DataSettings], output: AdviceOutput) -> None:
    """Find out whether your clients should federate, how, and with what confidence.

    Each client alone, federations with each number of shared parameters, and all data pooled are tuned on the past and
    judged by what follows. A scenario file or --set describes the federation: num_participants (all by default),
    model, selection, pre-aggregation, defence, attack (what Byzantine clients do).
    """
    if source.data is None and source.file is None:
        raise PsofedError("advise needs --data TABLE: a CSV or Parquet file, one row per observation.")
    output.check(output.out)
    if output.out is not None:
        from psofed.studies.advice.advice import check_out

        check_out(output.out)
    if chosen := next((name for name in ("num_shared", "stepsize") if name in source.values), None):
        raise PsofedError(f"--set {chosen}: advise finds the best {chosen} itself; leave it out.")
    scenario = source.fit(reading, everybody=True)
    if scenario.data.rows is None:
        raise PsofedError(f"{source.file} has no data of your own: add --data TABLE, or name a file in [data].")
    from psofed.studies.advice import advise as run_advice

    advice = compute("comparing", run_advice, scenario, settings, "runs")
    output.present(advice, source, reading, settings, out=output.out)
