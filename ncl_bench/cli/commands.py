"""The Typer app with every command.

The benchmark's own commands are modules of this package. ``baselines``, ``leaderboard`` and third-party packages add
theirs through the entry-point group ``ncl_bench.commands``, each as a function that receives the Typer app.
"""

import re
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ncl_bench import __version__
from ncl_bench.cli import data, displaced, doctor, evaluate, noise
from ncl_bench.errors import NclBenchError, Stopped
from ncl_bench.plugins import load_plugins

RESUMABLE = frozenset({"prepare", "train", "sweep", "tune", "quickstart", "features", "add-images"})
"""Commands that continue where they were stopped; the others are short and start over."""


class _Commands(TyperGroup):
    """Refuses an empty argument before a command reads it: Python takes an empty path for the current folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for number, argument in enumerate(args, 1):
            if argument == "" or re.fullmatch("--[a-z-]+=", argument):
                option = argument.rstrip("=") or (args[number - 2] if number > 1 else "")
                name = option if option.startswith("--") else f"argument {number}"
                raise NclBenchError(
                    f"{name} is empty; give a value, or leave it out (a shell variable that is not set is empty)"
                )
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Commands,
    name="ncl-bench",
    help="The benchmark suite for noisy-correspondence learning in image-text retrieval.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ncl-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            metavar="",
            help="Print the version and exit.",
        ),
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A .py file or module that registers methods, backbones or datasets; repeatable.",
        ),
    ] = None,
) -> None:
    Stopped.resumes = context.invoked_subcommand in RESUMABLE
    load_plugins(plugin or ())


for room in (data, noise, evaluate, doctor):
    room.register(app)
for entry_point in sorted(entry_points(group="ncl_bench.commands"), key=lambda e: e.name):
    try:
        entry_point.load()(app)
    except ModuleNotFoundError as error:  # Python found another package of this name first
        typer.echo(
            f"ncl-bench: commands of {entry_point.name} are not available; {displaced(error)}", err=True
        )
