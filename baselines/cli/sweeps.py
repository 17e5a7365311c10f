"""``ncl-bench sweep``, ``tune`` and ``quickstart``: many runs at once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from baselines.calls import Planned, Search, Sweep
from baselines.quickstart import quickstart as run_quickstart
from ncl_bench.cli.from_calls import Json, Option, made_from
from ncl_bench.errors import NclBenchError, named
from ncl_bench.progress import hint

Executor = Annotated[
    Literal["here", "slurm"],
    typer.Option(
        "--executor", help="Place of the runs: processes of this command (here), or the SLURM queue (slurm)."
    ),
]
Plan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Count the runs and gradient steps that are left, and train nothing; needs no data.",
    ),
]
NAMES = Option(metavar="recipe", default=())
SLURM = Option(metavar="NAME=VALUE", kind=list[str])
TIME = Option(
    help="With --plan: time ten steps of every line on this computer, and state hours; needs the data."
)


@made_from(Sweep.of, Sweep.plan, Sweep.run, recipes=NAMES, slurm=SLURM, time=TIME)
def sweep(
    recipes: Sequence[str],
    table: str,
    executor: Executor = "here",
    plan: Plan = False,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Train, score and evaluate recipes under several noises and seeds, and print a table of means.

    --table sets recipes, means of several runs, noises, seeds and steps; arguments select some of them, by a recipe's
    name or by a method alone. Beside our means stand the numbers that papers print; a table ablation_... trains the
    rows of a paper's ablation. The same command resumes.

    Example: ncl-bench sweep ncr/digits_vse_infinity --noise caption-60 --seed 0 --seed 1 --to sweep
    """
    plan = plan or given["time"]
    doing = _taken(given, executor, plan)
    made = Sweep.of(recipes, table=table, **given)
    if plan:
        _print_plan(made, doing, as_json)
        return
    means = made.run(**doing)
    if as_json:
        typer.echo(means.to_json(orient="records", indent=2))
        return
    from rich.console import Console

    from baselines.recipes import ablations
    from baselines.training.sweep import ablation_to_print, table_to_print

    ablation = ablations().get(table)
    Console().print(ablation_to_print(ablation, means) if ablation else table_to_print(means))
    hint(f"next: ncl-bench leaderboard add {quote(str(Path(given['to'], 'submissions')))}/*")


@made_from(Search.of, Search.plan, Search.run, recipes=NAMES, slurm=SLURM, time=TIME, features=None)
def tune(recipes: Sequence[str], executor: Executor = "here", plan: Plan = False, **given: Any) -> None:
    """Tune a recipe by random search, and write the best options as a new recipe.

    The recipe's `search` section names the options and their ranges. Trials are compared on dev; test stays unread.
    --table sets recipes, steps, trials, noise and seed; arguments select some of its recipes. The same command resumes.

    Example: ncl-bench tune ncr/digits_vse_infinity --set steps=1500 --to tuning
    """
    plan = plan or given["time"]
    doing = _taken(given, executor, plan)
    made = Search.of(recipes, **given)
    if plan:
        _print_plan(made, doing)
        return
    for path in made.run(**doing):
        typer.echo(f"wrote {path} and every trial beside it")


@made_from(
    run_quickstart,
    to=Option("--to", default=Path("quickstart")),
    dataset=Option("--dataset"),
    device=Option("--device", "[auto|cpu|cuda]"),
)
def quickstart(**given: Any) -> None:
    """Run the whole pipeline on an embedded dataset in minutes: noise, training, scores, evaluation, leaderboard.

    Example: ncl-bench quickstart --to quickstart
    """
    run_quickstart(**given)


def _taken(given: dict[str, Any], executor: str, plan: bool) -> dict[str, Any]:
    """Take out of the options what :meth:`Planned.plan` or ``run`` does with the runs."""
    time, slurm, jobs = (given.pop(name) for name in ("time", "slurm", "jobs"))
    how = {name: given.pop(name) for name in ("device", "features") if name in given}
    if executor != "slurm" and slurm:
        raise NclBenchError(
            f"{named('slurm', slurm[0])} only applies to SLURM jobs; fix: add {named('executor', 'slurm')}"
        )
    if plan:
        return how | {"time": time}
    if executor == "slurm":
        from baselines.training.slurm import read_options

        slurm = read_options(slurm or ())
    return how | {"jobs": jobs, "slurm": slurm}


def _print_plan(made: Planned, how: Mapping[str, Any], as_json: bool = False) -> None:
    if as_json:
        typer.echo(made.plan(**how).reset_index().to_json(orient="records", indent=2))
        return
    from rich.console import Console

    from baselines.training.plan import plan_of, plan_to_print  # without pandas, which is slow to import

    Console().print(plan_to_print(plan_of(made.jobs, **how)))
    # a table's noise is added to the pairs, also to a user's own
    typer.echo(f"added noise: {', '.join(dict.fromkeys(job.noise for job in made.jobs))}")
