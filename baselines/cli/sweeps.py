"""``ncl-bench sweep``, ``tune`` and ``quickstart``: many runs at once."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from ncl_bench.cli.options import Json, Option, made_from
from ncl_bench.errors import NclBenchError
from ncl_bench.progress import hint

Executor = Annotated[
    Literal["here", "slurm"],
    typer.Option(
        "--executor", help="Place of the runs: processes of this command (here), or the SLURM queue (slurm)."
    ),
]
SLURM = Option(metavar="NAME=VALUE", kind=list[str])


@made_from(
    "baselines:sweep",
    recipes=Option(metavar="recipe"),
    slurm=SLURM,
)
def sweep(
    executor: Executor = "here",
    as_json: Json = False,
    **given: Any,
) -> None:
    """Train, score and evaluate recipes under several noises and seeds, and print a table of means.

    --table sets recipes, means of several runs, noises, seeds and steps; arguments select some of them, by a recipe's
    name or by a method alone. Beside our means stand the numbers that papers print; a table ablation_... trains the
    rows of a paper's ablation. The same command resumes.

    Example: ncl-bench sweep ncr/digits_vse_infinity --noise caption-60 --seed 0 --seed 1 --to sweep
    """
    from baselines.recipes import refuse_unknown

    table = given["table"]
    refuse_unknown(*(() if table else given["recipes"]))  # before torch is imported
    from rich.console import Console

    from baselines.calls import sweep as run
    from baselines.recipes import ablations
    from baselines.training.plan import plan_to_print
    from baselines.training.sweep import ablation_to_print, table_to_print

    given["slurm"] = _slurm_options(executor, given["slurm"])
    means = run(**given)
    if as_json:
        typer.echo((means.reset_index() if given["plan"] else means).to_json(orient="records", indent=2))
        return
    if given["plan"]:
        Console().print(plan_to_print(means))
        return
    ablation = ablations().get(table)
    Console().print(ablation_to_print(ablation, means) if ablation else table_to_print(means))
    hint(f"next: ncl-bench leaderboard add {quote(str(Path(given['to'], 'submissions')))}/*")


@made_from("baselines.calls:tune", recipes=Option(metavar="recipe"), slurm=SLURM)
def tune(executor: Executor = "here", **given: Any) -> None:
    """Tune a recipe by random search, and write the best options as a new recipe.

    The recipe's `search` section names the options and their ranges. Trials are compared on dev; test stays unread.
    --table sets recipes, steps, trials, noise and seed; arguments select some of its recipes. The same command resumes.

    Example: ncl-bench tune ncr/digits_vse_infinity --set steps=1500 --to tuning
    """
    from baselines.recipes import refuse_unknown

    refuse_unknown(*(() if given["table"] else given["recipes"]))  # before torch is imported
    from rich.console import Console

    from baselines.calls import tune as run
    from baselines.training.plan import plan_to_print

    given["slurm"] = _slurm_options(executor, given["slurm"])
    found = run(**given)
    if not isinstance(found, list):
        Console().print(plan_to_print(found))
        return
    for path in found:
        typer.echo(f"wrote {path} and every trial beside it")


@made_from(
    "baselines.quickstart:quickstart",
    to=Option("--to", default=Path("quickstart")),
    dataset=Option("--dataset"),
    device=Option("--device", "[auto|cpu|cuda]"),
)
def quickstart(**given: Any) -> None:
    """Run the whole pipeline on an embedded dataset in minutes: noise, training, scores, evaluation, leaderboard.

    Example: ncl-bench quickstart --to quickstart
    """
    from baselines.quickstart import quickstart as run_quickstart

    run_quickstart(**given)


def _slurm_options(executor: str, given: Sequence[str] | None) -> dict[str, Any] | None:
    """Read the options of the SLURM jobs; None if this command runs them itself."""
    if executor == "slurm":
        from baselines.training.slurm import read_options

        return read_options(given or ())
    if given:
        raise NclBenchError(f"--slurm {given[0]} only applies to SLURM jobs; fix: add --executor slurm")
    return None
