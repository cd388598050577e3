"""The federation's commands on a node's machine."""

import contextlib

import typer

from psofed.cli.federation.common import LogOptions, ready, say
from psofed.cli.inputs import Plugins
from psofed.cli.outputs import Output, print_json
from psofed.federation.deploy.options import ClientOptions, PredictOptions


def client(options: ClientOptions, logs: LogOptions, plugins: Plugins) -> None:
    """Run one client of a federation, a node, until Ctrl-C; with --client-column alone, a gateway for many clients.

    It learns from its own data, which stay on this machine, and exchanges parameters with the server.
    """
    with ready(), contextlib.suppress(KeyboardInterrupt):
        logs.start()
        plugins.load()
        from psofed.federation.deploy.node import run_node

        run_node(options)


def predict(options: PredictOptions, output: Output) -> None:
    """Predict the target for every row of a table, in its own unit if the model comes with a scaling."""
    with ready(network=False):
        from psofed.federation.deploy.export import describe, load_model, predict_rows

        loaded = load_model(options.model)
        say(describe(loaded))
        predictions = list(predict_rows(loaded, options.data, tuple(options.features)))
        if output.as_json:
            print_json({"predictions": predictions})
            return
        for value in predictions:
            typer.echo(f"{value:.10g}")
