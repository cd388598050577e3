"""Report of a simulation, and the chart of its learning curves."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.common.types import FloatArray
from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.charts import Chart, Scale, Series, log_bins
from psofed.render.numbers import count, counted, decibels, listed, percent, sentence_case, significant
from psofed.results.estimates import students_factor
from psofed.results.metrics import BASELINE_TITLES, label_of
from psofed.results.reports import measured
from psofed.scenario import Scenario
from psofed.scenario.describe import describe_scenario

if TYPE_CHECKING:
    from psofed.results.simulation import SimulationResult

# A change within the tail that the headline mentions; a smaller one is only noted.
_UNSETTLED = 0.1


def simulation_report(result: "SimulationResult") -> Report:
    """Return what a simulation found: steady state, traffic, what to know of it and what to try next."""
    tables = [_steady_state(result)]
    if data := result.details.get("data"):
        tables += [_baselines(result, data), _clients(data["clients"])]
    return Report(
        headline(result),
        f"{sentence_case(describe_scenario(result.scenario))}; {counted(result.trials, 'trial')}, seed {result.seed}.",
        tuple(tables),
        tuple(remarks(result)),
        _next_step(result),
        result.chart,
    )


def headline(result: "SimulationResult") -> str:
    """Return the answer in a sentence."""
    diverged, trials = result.diverged_trials.size, result.trials
    value = result.network_mse
    threat = byzantine_words(result.scenario)
    if diverged == trials:
        every = "The only trial" if trials == 1 else f"All {count(trials)} trials"
        return f"{every} diverged{threat}."
    middle = value.typical[0]
    if math.isnan(middle):
        return f"No error was measured{threat}."
    if "data" in result.details and not diverged:
        return _data_headline(result, middle)
    level = f"{decibels(middle)} (lower is better)"
    if diverged:
        if math.isinf(middle):
            return f"{count(diverged)} of {count(trials)} trials diverged{threat}."
        return (
            f"{count(diverged)} of {count(trials)} trials diverged{threat}; "
            f"the median network MSE over all trials is {level}."
        )
    if not value.is_typical:
        return f"The median network MSE over the trials is {level}{threat}."
    if is_unsettled(result):
        return f"The network MSE has not settled{threat}: it is {level} over the last {count(result.tail)} iterations."
    return f"The network MSE settles at {level}{threat}."


def _data_headline(result: "SimulationResult", mse: float) -> str:
    data = result.details["data"]
    alone, (better, judged) = data["baselines"]["alone"], _winners(data)
    if alone is None or not alone > 0:
        return f"The federation's MSE is {significant(mse)} (lower is better)."
    average = data["baselines"]["average"]
    stepsize, safe = result.scenario.mean_stepsize, data.get("safe_stepsize")
    if min(mse, alone) > average and safe is not None and stepsize > safe:
        return (
            f"Both diverge at stepsize {significant(stepsize)}: the federation's MSE is {significant(mse)} and that of "
            f"learning alone {significant(alone)}, where forecasting the mean has {significant(average)} (lower is "
            f"better); try stepsize {significant(safe, 2)}."
        )
    joint = "; it is" if (mse <= alone) == (2 * better > judged) else ", but"
    return (
        f"The federation's MSE is {significant(mse)}, {percent(abs(1 - mse / alone))} "
        f"{'lower' if mse <= alone else 'higher'} than learning alone ({significant(alone)}){joint} better for "
        f"{better} of {counted(judged, 'client')}."
    )


def _winners(data: dict[str, Any]) -> tuple[int, int]:
    """Return how many clients the federation is better for, and how many were judged."""
    judged = [client for client in data["clients"] if client["mse"] is not None]
    return sum(client["mse"] < client["alone_mse"] for client in judged), len(judged)


def is_unsettled(result: "SimulationResult") -> bool:
    """Whether the network MSE still changes so much that its level is no steady state."""
    return abs(result.unsteady_metrics.get("network_mse", 0.0)) > _UNSETTLED


def byzantine_words(scenario: Scenario) -> str:
    """Return who attacks, as part of a sentence."""
    if not scenario.num_byzantine:
        return ""
    return f" with {count(scenario.num_byzantine)} of {count(scenario.num_clients)} clients Byzantine"


def remarks(result: "SimulationResult") -> list[str]:
    """Return sentences on divergence, heavy tails, a steady state not reached, and how it was computed."""
    lines = []
    diverged = result.diverged_trials
    if diverged.size:
        first = count(result.diverged_at[diverged].min())
        which = "The trial" if diverged.size == 1 else "The first of these trials"
        lines.append(f"{which} diverged at iteration {first}.")
    if result.stopping is not None:
        lines.append(_describe_stopping(result))
    heavy = [label_of(metric).title for metric, value in result.estimates().items() if value.is_heavy_tailed]
    if heavy:
        lines.append(
            f"A few extreme trials dominate the mean of the {listed(heavy)}; another seed may give another mean. "
            "The median over the trials is shown instead, with an interval that holds for heavy tails."
        )
    unsteady = result.unsteady_metrics.items()
    changes = [f"{label_of(metric).title} ({percent(change, 1, signed=True)})" for metric, change in unsteady]
    if changes:
        is_data = "data" in result.details
        remedy = "the data may not be stationary" if is_data else "more iterations would show where they settle"
        lines.append(f"Not steady within the last {count(result.tail)} iterations: {listed(changes)}; {remedy}.")
    if result.tracking is not None:
        lines.append(result.tracking.describe())
    if result.defence is not None:
        lines.append(result.defence.describe())
    if "privacy" in result.details:
        spent = result.details["privacy"]
        lines.append(
            f"Privacy spent towards the server: ε = {significant(spent['epsilon'])} at "
            f"δ = {significant(spent['delta'])}, by the client with the most uploads ({count(spent['uploads'])})."
        )
    return [*lines, *(f"{note}." for note in result.notes), *result.details.get("data", {}).get("notes", ())]


def _describe_stopping(result: "SimulationResult") -> str:
    stopping, margin = result.stopping, result.margin
    assert stopping is not None
    wanted = f"±{significant(stopping.precision, 2)} dB"
    reach = f"±{significant(margin, 2)} dB" if math.isfinite(margin) else "unbounded"
    interval = f"the 95 % interval of the {label_of(stopping.metric).title} is {reach}"
    if margin <= stopping.precision:
        most = f" of at most {count(stopping.trials)}" if result.trials < stopping.trials else ""
        return f"Stopped after {count(result.trials)}{most} trials: {interval} ({wanted} was asked for)."
    return f"All {count(result.trials)} trials were run: {interval}, wider than the {wanted} asked for."


def learning_curves(result: "SimulationResult") -> Chart:
    """Return the mean learning curves in dB, with 95 % bands; metrics with another unit are left out.

    Points are means over bins that grow with the iteration, so that the steady state can be read.
    """
    series = []
    shown = [metric for metric in result.curve if label_of(metric).in_decibels]
    for colour, metric in enumerate(shown):
        if np.isfinite(result.curve[metric]).any():
            label = f"{label_of(metric).title}, steady state {decibels(result[metric].typical[0])}"
            series.append(curve_series(result, metric, label, colour))
    diverged = f", {count(result.diverged_trials.size)} diverged" if result.diverged_trials.size else ""
    title = f"{sentence_case(describe_scenario(result.scenario))}\n({counted(result.trials, 'trial')}{diverged})"
    return Chart(title, Scale("iteration", log=True), Scale("error (dB), lower is better"), tuple(series))


def curve_series(result: "SimulationResult", metric: str, label: str, colour: int) -> Series:
    """Return one metric's mean and 95 % band over the iterations.

    Within a bin of iterations the mean of their standard errors is taken: never less than the standard error of the
    bin's mean, whatever the iterations have to do with each other.
    """
    errors = np.nan_to_num(result.curve_standard_error[metric])
    x, mean, error = log_bins(result.iterations.astype(np.float64), result.curve[metric], errors)
    factor = students_factor(result.trials) if result.trials > 1 else 0.0
    with np.errstate(invalid="ignore"):
        low: FloatArray = np.maximum(mean - factor * error, 0.05 * mean)
        high = mean + factor * error
    return Series(label, x, to_decibels(mean), to_decibels(low), to_decibels(high), colour=colour)


def _steady_state(result: "SimulationResult") -> Table:
    columns = (
        Column(""),
        Column("steady state", Kind.LEVEL, interval=True),
        Column("linear", Kind.NUMBER, digits=5),
        Column("standard error", Kind.NUMBER, digits=2),
    )
    rows = []
    for metric, value in result.estimates().items():
        if math.isnan(value.mean):
            continue  # not measured
        shown, label = measured(value), label_of(metric)
        error = value.standard_error if value.is_typical else None
        unit = f" ({label.shown_unit})" if label.shown_unit and not label.in_decibels else ""
        rows.append((f"{label.title}{unit}", shown if label.in_decibels else None, shown.value, error))
    last = f"last {count(result.tail)} of {counted(result.scenario.iterations, 'iteration')}"
    traffic = result.communication
    sent = (
        f"Values sent per iteration: {count(traffic.numbers_down)} down and {count(traffic.numbers_up)} up, "
        f"{percent(traffic.ratio_to_full_sharing)} of full sharing."
    )
    return Table(f"Steady state ({last})", columns, tuple(rows), (sent,))


def _baselines(result: "SimulationResult", data: dict[str, Any]) -> Table:
    better, judged = _winners(data)
    best = {"federation": better, "alone": judged - better}
    rows: list[tuple[str, Measured, str]] = [
        ("federation", measured(result.network_mse), f"{best['federation']} of {judged} clients")
    ]
    for name, title in BASELINE_TITLES.items():
        words = f"{best[name]} of {judged} clients" if name in best else ""
        rows.append((title, Measured(data["baselines"][name]), words))
    columns = (Column(""), Column("MSE", Kind.NUMBER), Column("best for"))
    notes = (
        "MSE over the last iterations, in variances of the target: 1 is no better than its mean (lower is better).",
        "Trials differ in participants, masks and attack; the data stay the same.",
    )
    return Table("With and without a federation", columns, tuple(rows), notes)


def _clients(clients: list[dict[str, Any]]) -> Table:
    """Return every client's errors by name."""
    rows = []
    for client in clients:
        mse, alone = client["mse"], client["alone_mse"]
        gain = 1 - mse / alone if mse is not None and alone else None
        remark = "Byzantine" if client["is_byzantine"] else ""
        rows.append((client["name"], client["samples"], alone, mse, gain, remark))
    columns = (
        Column("client"),
        Column("samples", Kind.COUNT),
        Column("alone", Kind.NUMBER),
        Column("federation", Kind.NUMBER),
        Column("gain", Kind.PERCENT),
        Column("remark"),
    )
    return Table("MSE of each client", columns, tuple(rows))


def _next_step(result: "SimulationResult") -> NextStep:
    iterations = 4 * result.scenario.iterations
    if result.details.get("data"):
        return NextStep("Find out whether these clients should federate", "psofed.advise(data)", "psofed advise FILE")
    if result.diverged_trials.size:
        return NextStep("Find a stable stepsize", "psofed.tune(result.scenario)", "psofed tune FILE")
    if is_unsettled(result):
        return NextStep(
            "Simulate longer",
            f"psofed.simulate(result.scenario.replace(iterations={iterations}))",
            f"psofed simulate FILE --set iterations={iterations}",
        )
    if not _is_plain(result.scenario):
        return NextStep("Draw the learning curves", "result.plot()", "psofed simulate FILE --plot curves.png")
    return NextStep("Check it against the theory", "psofed.compare(result.scenario)", "psofed compare FILE")


def _is_plain(scenario: Scenario) -> bool:
    """Whether the theory covers a scenario for sure: a linear iteration without anything in its way."""
    s = scenario
    extras = (s.pre_aggregation, s.defence, s.drift, s.availability, s.delay, s.channel)
    return (
        s.aggregation.kind == "mean"
        and all(part is None for part in extras)
        and s.learner.linear() is not None
        and s.data.stream.is_independent
        and all(attack.affine() is not None for attack in s.attacks)
        and (s.algorithm.holds_models or s.algorithm.adds_mean_update)
    )
