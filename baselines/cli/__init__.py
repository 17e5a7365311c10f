"""Commands of the reference methods, a module per group; each command imports torch when it runs."""

import typer

from baselines.cli.audit import audit_app
from baselines.cli.features import features
from baselines.cli.hub import hub_app
from baselines.cli.recipes import recipes_app
from baselines.cli.runs import import_checkpoint, plot, score, train
from baselines.cli.sweeps import quickstart, sweep, tune
from ncl_bench.cli.commands import CHECKS, GPU_CHECKS


def register(app: typer.Typer) -> None:
    """Add the commands to the app, and checks of torch and CUDA to `ncl-bench doctor`."""
    CHECKS.append("baselines.doctor:cuda_devices")
    GPU_CHECKS.append("baselines.doctor:gpu_check")
    app.add_typer(recipes_app, name="recipes")
    app.add_typer(audit_app, name="audit")
    app.add_typer(hub_app, name="hub")
    for command in (train, score, plot, import_checkpoint, tune, sweep, quickstart, features):
        app.command()(command)
