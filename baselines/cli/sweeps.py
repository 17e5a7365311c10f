"""``ncl-bench sweep``, ``tune`` and ``quickstart``: many runs at once."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from baselines.cli.options import Arithmetic, Device, Features, Settings, Target
from ncl_bench.cli.options import LARGEST_SEED, Json, Root
from ncl_bench.errors import NclBenchError
from ncl_bench.plugins import command_name
from ncl_bench.progress import hint

Executor = Annotated[
    Literal["here", "slurm"],
    typer.Option(
        "--executor", help="Place of the runs: processes of this command (here), or the SLURM queue (slurm)."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Runs to train at once, one thread each.")]
Slurm = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        metavar="NAME=VALUE",
        help="Option of every SLURM job, such as partition=gpu, time=600 (minutes) or gpus_per_node=1; repeatable.",
    ),
]


def sweep(
    recipe: Annotated[
        list[str] | None, typer.Argument(help="Recipe files, or names of shipped recipes.")
    ] = None,
    to: Target = Path("sweep"),
    noise: Annotated[
        list[str] | None,
        typer.Option(
            help="Training noise: none, caption-40, image-60, ...; repeatable "
            "(default: none, caption-40, caption-60 and image-40)."
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, max=LARGEST_SEED, help="Training seed; repeatable (default: 0, 1 and 2)."),
    ] = None,
    jobs: Jobs = 2,
    executor: Executor = "here",
    slurm: Slurm = None,
    root: Root = None,
    device: Device = "auto",
    precision: Arithmetic = "32-true",
    features: Features = "auto",
    settings: Settings = None,
    table: Annotated[
        str,
        typer.Option(
            help="Table to train: a shipped one (docs/reproduce.md, docs/measured-tables.md), or a file."
        ),
    ] = "",
    paper: Annotated[
        str, typer.Option(help="With --table: train only the rows that this paper prints, such as NCR.")
    ] = "",
    dataset: Annotated[
        str, typer.Option(help="With --table: train on this dataset (docs/measured-tables.md).")
    ] = "",
    noise_files: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the papers' noise files of unit image, which replace drawn noise (docs/noise.md)."
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Print the runs and gradient steps that are left, and stop; needs no data.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Train, score and evaluate recipes under several noises and seeds, and print a table of means.

    --table sets recipes, means of several runs, noises, seeds and steps; arguments select some of them, by a recipe's
    name or by a method alone. Beside our means stand the numbers that papers print; a table ablation_... trains the
    rows of a paper's ablation. The same command resumes.

    Example: ncl-bench sweep ncr/digits_vse_infinity --noise caption-60 --seed 0 --seed 1 --to sweep
    """
    from baselines.recipes import refuse_unknown

    refuse_unknown(*(() if table else recipe or ()))
    from rich.console import Console

    from baselines.calls import planned_jobs
    from baselines.calls import sweep as run
    from baselines.recipes import ablations
    from baselines.training.grids import plan_to_print
    from baselines.training.sweep import ablation_to_print, table_to_print

    asked: dict[str, Any] = {
        "recipes": recipe or (),
        "to": to,
        "noises": noise,
        "seeds": seed,
        "table": table,
        "paper": paper,
        "dataset": dataset,
        "noise_files": noise_files,
        "root": root,
        "precision": precision,
        "settings": settings or (),
    }
    if plan:
        Console().print(plan_to_print(planned_jobs(**asked)))
        return
    means = run(**asked, jobs=jobs, device=device, features=features, slurm=_slurm_options(executor, slurm))
    if as_json:
        typer.echo(means.to_json(orient="records", indent=2))
        return
    ablation = ablations().get(table)
    Console().print(ablation_to_print(ablation, means) if ablation else table_to_print(means))
    hint(f"next: {command_name()} leaderboard add {quote(str(to / 'submissions'))}/*")


def tune(
    recipe: Annotated[list[str] | None, typer.Argument(help="Recipes with a `search` section.")] = None,
    to: Target = Path("tuning"),
    table: Annotated[
        str,
        typer.Option(
            help="Measured table whose recipes are tuned: a shipped one (docs/measured-tables.md), or a file."
        ),
    ] = "",
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Trials of each recipe; the first is the unchanged recipe (default: 12)."),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="Training noise of the trials (default: caption-60)."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=LARGEST_SEED, help="Seed of training and of the drawn options (default: 1000)."
        ),
    ] = None,
    jobs: Jobs = 2,
    executor: Executor = "here",
    slurm: Slurm = None,
    root: Root = None,
    device: Device = "auto",
    settings: Settings = None,
) -> None:
    """Tune a recipe by random search, and write the best options as a new recipe.

    The recipe's `search` section names the options and their ranges. Trials are compared on dev; test stays unread.
    --table sets recipes, steps, trials, noise and seed; arguments select some of its recipes. The same command resumes.

    Example: ncl-bench tune ncr/digits_vse_infinity --set steps=1500 --to tuning
    """
    if not (recipe or table):
        raise NclBenchError("expected recipes or a table to tune; fix: name some, or add --table NAME")
    from baselines.recipes import refuse_unknown

    refuse_unknown(*(() if table else recipe or ()))
    from baselines.recipes import ablations
    from baselines.training.grids import Grid, Tuning, chosen_rows
    from baselines.training.tune import trials_of
    from baselines.training.tune import tune as run_tune

    said = {"trials": trials, "noise": noise, "seed": seed}
    said = {option: value for option, value in said.items() if value is not None}
    names, given = recipe or (), settings or []
    if table:
        grid = None if table in ablations() else Grid.load(table)
        if grid is None or grid.tuning is None:
            raise NclBenchError(
                f"--table {table} trains its recipes as they are and has no tuning section; fix: leave --table out and "
                "name recipes with a `search` section"
            )
        if said:
            raise NclBenchError(
                f"--table {table} already sets --{next(iter(said))}; fix: leave one of the two out"
            )
        names, tuning = list(chosen_rows(table, recipe, grid.recipes)), grid.tuning
        given = [*grid.settings, *given]
    else:
        tuning = Tuning.model_validate(said)
    every = trials_of(to, names, tuning, root=root, settings=given)
    for path in run_tune(to, every, at_once=jobs, device=device, slurm=_slurm_options(executor, slurm)):
        typer.echo(f"wrote {path} and every trial beside it")


def quickstart(
    to: Target = Path("quickstart"),
    dataset: Annotated[
        str | None,
        typer.Option(help="Embedded dataset (default: the first of `ncl-bench datasets`)."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Run the whole pipeline on an embedded dataset in minutes: noise, training, scores, evaluation, leaderboard.

    Example: ncl-bench quickstart --to quickstart
    """
    from baselines.quickstart import quickstart as run_quickstart

    run_quickstart(to, dataset, device)


def _slurm_options(executor: str, given: Sequence[str] | None) -> dict[str, Any] | None:
    """Read the options of the SLURM jobs; None if this command runs them itself."""
    if executor == "slurm":
        from baselines.training.slurm import read_options

        return read_options(given or ())
    if given:
        raise NclBenchError(f"--slurm {given[0]} only applies to SLURM jobs; fix: add --executor slurm")
    return None
