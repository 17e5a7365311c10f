"""Commands of the reference methods, from features to training and scores; each imports torch when it runs."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import StringIO
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperGroup

from baselines.doctor import cuda_devices, gpu_check
from ncl_bench.cli import doctor
from ncl_bench.cli.options import (
    LARGEST_SEED,
    DevImages,
    NoiseRatio,
    NoiseSeed,
    NoiseUnit,
    Root,
    SplitSeed,
    TestImages,
    finite,
)
from ncl_bench.errors import NclBenchError, Stopped
from ncl_bench.extras import require
from ncl_bench.plugins import command_name, loaded
from ncl_bench.precision import Precision

T = TypeVar("T")

NoiseFile = Annotated[
    Path | None,
    typer.Option("--noise-file", help="The noise file of the training, if it was given one."),
]
Keep = Annotated[
    Path | None, typer.Option("--keep", help="The --keep folder of the training, if it was given one.")
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option("--device", help="Device of the networks; auto takes a GPU if there is one."),
]
Arithmetic = Annotated[Precision, typer.Option("--precision", help="Arithmetic of the networks.")]
Features = Annotated[
    Literal["auto", "mapped", "gpu"],
    typer.Option(
        "--features",
        help="Place of the training features: read from disk as needed (mapped), or kept on the device (gpu). auto "
        "takes gpu if they fit into half of the GPU's free memory.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Override a recipe option, such as method.epochs=10; repeatable.",
    ),
]
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
Target = Annotated[Path, typer.Option("--to", help="Folder to write.")]


def _require_torch() -> None:
    require("baselines", "torch", needed_by="this command")


def _refuse_unknown(recipes: Iterable[str]) -> None:
    """Refuse an unknown recipe name before torch is imported, which takes seconds."""
    from baselines.recipes import is_shipped

    for recipe in recipes:
        if not Path(recipe).is_file():
            is_shipped(recipe)


@contextmanager
def _one_voice() -> Iterator[None]:
    """Print an error once for all processes; every process still exits with the same code.

    The first process prints it. A lost process may be the first one, so the first process of each machine reports that.
    """
    try:
        yield
    except (NclBenchError, Stopped) as error:
        from baselines.kit.distributed import ProcessLost, first_of_machine, rank

        if not (first_of_machine() if isinstance(error, ProcessLost) else rank() == 0):
            sys.stderr = StringIO()
        raise


recipes_app = typer.Typer(
    help="List and show the shipped recipes: method, dataset, backbone and options.",
    invoke_without_command=True,
)


@recipes_app.callback()
def list_recipes(
    context: typer.Context,
    match: Annotated[str, typer.Option(help="List only names that contain this text.")] = "",
) -> None:
    """List the shipped recipes, or show one in full.

    Example: ncl-bench recipes --match digits
    """
    if context.invoked_subcommand:
        return
    if loaded():
        from baselines.engine.recipe import names_with_plugins as all_names
    else:
        from baselines.recipes import recipe_names as all_names

    names = [name for name in all_names() if match in name]
    if not names:
        raise NclBenchError(f"no recipe's name contains {match!r}; see all with `ncl-bench recipes`")
    typer.echo("\n".join(names))


@recipes_app.command()
def show(recipe: Annotated[str, typer.Argument(help="Recipe file, or name of a recipe.")]) -> None:
    """Print every option of a recipe, its command, and the results that papers report for it.

    The output is itself a recipe: save it to a file, edit it, and train that file.

    Example: ncl-bench recipes show ncr/flickr30k_sgr
    """
    _refuse_unknown([recipe])
    _require_torch()
    from baselines.engine.printed import described

    typer.echo(described(recipe))


def train(
    recipe: Annotated[str, typer.Argument(help="Recipe file, or name of a shipped recipe.")],
    to: Target,
    noise_ratio: NoiseRatio = None,
    noise_unit: NoiseUnit = None,
    noise_seed: NoiseSeed = None,
    noise_file: Annotated[
        Path | None, typer.Option(help="Noise file to use in place of drawn noise.")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=LARGEST_SEED, help="Training seed: initialisation, batch order and dropout."),
    ] = 0,
    root: Root = None,
    device: Device = "auto",
    precision: Arithmetic = "32-true",
    features: Features = "auto",
    settings: Settings = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Train on the pairs alone that this folder of `ncl-bench audit apply` keeps."),
    ] = None,
    no_history: Annotated[
        bool,
        typer.Option(
            "--no-history", help="Do not keep what the method believes of every pair after each epoch."
        ),
    ] = False,
) -> None:
    """Train a recipe. The same command resumes an interrupted run.

    Example: ncl-bench train ncr/digits_vse_infinity --noise-ratio 0.6 --set method.epochs=2 --to runs/ncr
    """
    _refuse_unknown([recipe])
    _require_torch()
    from rich.console import Console

    from baselines.engine.job import TrainingJob
    from baselines.engine.recipe import Recipe, with_settings
    from baselines.engine.run_folder import RunFolder
    from baselines.engine.statement import noise_of
    from baselines.engine.train import Trainer, TrainingProgress
    from baselines.kit.distributed import rank
    from ncl_bench.data import dataset_spec
    from ncl_bench.evaluation.statement import opening_line

    changed, differences = with_settings(Recipe.load(recipe), settings or ())
    job = TrainingJob(
        changed, noise_ratio, noise_unit, noise_seed, noise_file, seed, root, precision, differences, keep
    )
    with _one_voice():
        trainer = Trainer(job, RunFolder(to), device, features=features, keep_divisions=not no_history)
        if rank() == 0:
            noise = noise_of(trainer.train_split.noise, dataset_spec(changed.dataset))
            typer.echo(opening_line(changed.dataset, noise, job.title, str(trainer.device)), err=True)
        finished = trainer.folder.finished
        with TrainingProgress(len(trainer.plans), Console(stderr=True, quiet=rank() > 0)) as progress:
            outcome = trainer.run(progress)
        if rank() == 0:
            best = f"{outcome.best_epoch + 1} of {outcome.epochs}"
            if finished:
                typer.echo(
                    f"{to} is already finished, nothing was trained; choose another --to to train again"
                )
            typer.echo(f"best on dev: epoch {best}, rSum {outcome.dev['r_sum']:.1f}")
            _say_how_to_score(to, root)


def score(
    to: Target,
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Finished runs; the similarities of several are averaged, as for SGRAF."),
    ] = None,
    zero_shot: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Recipe whose pre-trained backbone is scored without training; replaces RUNS.",
        ),
    ] = None,
    embeddings: Annotated[
        bool,
        typer.Option(
            "--embeddings",
            help="Write image and caption embeddings in place of similarities (clip, vse_infinity and vsrn only).",
        ),
    ] = False,
    root: Root = None,
    device: Device = "auto",
    precision: Arithmetic = "32-true",
    settings: Settings = None,
) -> None:
    """Score the test split once and write a submission.

    A run is scored with the precision and options it was trained with; --precision and --set need --zero-shot.

    Example: ncl-bench score runs/ncr --to submissions/ncr
    """
    _require_torch()
    from baselines.engine.job import TrainingJob
    from baselines.engine.recipe import Recipe, with_settings
    from baselines.engine.submit import submit, submit_zero_shot
    from baselines.kit.distributed import rank

    if (runs is None) == (zero_shot is None):
        raise NclBenchError("expected either finished runs, or --zero-shot and a recipe; give one of the two")
    if runs and (settings or precision != "32-true"):
        raise NclBenchError(
            "--set and --precision need --zero-shot: a run is scored as it was trained; leave them out"
        )

    def say(line: str) -> None:
        if rank() == 0:
            typer.echo(line, err=True)

    with _one_voice():
        if runs:
            submit(runs, to, root=root, embeddings=embeddings, device=device, say=say)
        elif zero_shot:
            recipe, _ = with_settings(Recipe.load(zero_shot), settings or ())
            submit_zero_shot(
                TrainingJob(recipe, root=root, precision=precision),
                to,
                embeddings=embeddings,
                device=device,
                say=say,
            )
        if rank() == 0:
            typer.echo(f"next: {command_name()} evaluate {quote(str(to))}")


def plot(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    noise_file: NoiseFile = None,
    keep: Keep = None,
    root: Root = None,
    device: Device = "auto",
) -> None:
    """Draw a run's curves and, where the run has the data, the papers' figures, as SVG and CSV.

    Example: ncl-bench plot runs/ncr
    """
    _require_torch()
    from baselines.engine.run_folder import RunFolder
    from baselines.plot import plot_run

    for path in plot_run(
        RunFolder(run),
        root,
        noise_file=noise_file,
        keep=keep,
        device=device,
        say=partial(typer.echo, err=True),
    ):
        typer.echo(path)


class _OneOrMoreRuns(TyperGroup):
    """``audit RUN...`` and ``audit apply FOLDER``: what is no command below it is a run to audit."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["runs", *args]
        return super().parse_args(ctx, args)


audit_app = typer.Typer(
    cls=_OneOrMoreRuns,
    help="Find the wrong training pairs of finished runs (`audit RUN... --to FOLDER`), and keep the others (`apply`).",
    no_args_is_help=True,
)


@audit_app.command("runs")
def audit_runs(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Finished runs on the same data and noise; several are averaged. For LEMoN also two files of "
            "embeddings of a training split, images first, with --dataset."
        ),
    ],
    to: Target,
    noise_file: NoiseFile = None,
    keep: Keep = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV file with the columns pair_id and label (matches, partly, wrong, cannot say), for natural noise "
            "(default: the labels of the dataset, if it has some)."
        ),
    ] = None,
    method: Annotated[
        Literal["lemon"] | None,
        typer.Option(help="Score pairs by LEMoN, from embeddings (default: by the method of each run)."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset of the embeddings.")] = None,
    noise_ratio: NoiseRatio = None,
    noise_unit: NoiseUnit = None,
    noise_seed: NoiseSeed = None,
    root: Root = None,
    device: Device = "auto",
) -> None:
    """Write a table of all training pairs and a page of the most suspicious ones; `audit RUN` is short for it.

    Example: ncl-bench audit runs/ncr --to audit

    Example: ncl-bench audit images.npy captions.npy --method lemon --dataset flickr30k --noise-ratio 0.4 --to audit
    """
    require("baselines", "torch", "jinja2", needed_by="this command")
    from baselines.audit import write_audit, write_lemon
    from ncl_bench.data import load_dataset

    if dataset is None:
        if (noise_ratio, noise_unit, noise_seed) != (None, None, None):
            raise NclBenchError(
                "a run records its noise; leave --noise-ratio, --noise-unit and --noise-seed out"
            )
        result = write_audit(
            runs, to, root, noise_file=noise_file, keep=keep, labels=labels, method=method, device=device
        )
    else:
        if method is None or len(runs) != 2 or keep is not None:
            raise NclBenchError(
                "--dataset is for LEMoN on two files of embeddings; give them with --method lemon and without --keep, "
                "or leave --dataset out"
            )
        train = load_dataset(
            dataset,
            split="train",
            noise_ratio=noise_ratio,
            noise_unit=noise_unit,
            noise_seed=noise_seed,
            noise_file=noise_file,
            root=root,
        )
        result = write_lemon((runs[0], runs[1]), to, train, root=root, labels=labels, device=device)
    for remark in result.remarks:
        typer.echo(remark)
    for column, found in result.detection.items():
        division = found.own or found.best
        typer.echo(
            f"{column.replace('_', ' ')}: AUROC {found.auroc:.3f}; wrong pairs at {division.threshold:g}"
            f"{'' if found.own else ' (best F1)'}: precision {division.precision:.3f}, recall {division.recall:.3f}"
        )
    for column, each in result.labelled.detection.items() if result.labelled else ():
        for other, measured in each.items():
            auroc = measured.auroc
            typer.echo(
                f"{column.replace('_', ' ')}, {other} against matches: AUROC {auroc.value:.3f} "
                f"({auroc.low:.3f} to {auroc.high:.3f})"
            )
    if result.first_wrong is not None:
        typer.echo(f"{result.first_wrong} of the {min(200, result.n_pairs)} most suspicious pairs are wrong")
    typer.echo(f"open {to / 'index.html'}")
    threshold = "THRESHOLD" if result.threshold is None else f"{result.threshold:g}"
    typer.echo(f"next: {command_name()} audit apply {quote(str(to))} --threshold {threshold} --to cleaned")


@audit_app.command("apply")
def audit_apply(
    audit: Annotated[Path, typer.Argument(help="Folder that `ncl-bench audit` wrote.")],
    to: Target,
    threshold: Annotated[
        float | None,
        typer.Option(
            callback=finite,
            help="Keep the pairs whose clean probability is above it (default: 0.5, none for LEMoN).",
        ),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            help="Keep all pairs but those of this list, which the page exports; replaces --threshold."
        ),
    ] = None,
) -> None:
    """Write which pairs to keep, for `train --keep` and load_dataset(keep=...); no feature is copied.

    The posterior stands in for the clean probability of methods that have none.

    Example: ncl-bench audit apply audit --threshold 0.5 --to cleaned

    Example: ncl-bench audit apply audit --ids chosen.csv --to cleaned
    """
    if None not in (threshold, ids):
        raise NclBenchError("--threshold and --ids each say which pairs to keep; give one of them")
    _require_torch()
    from baselines.audit import apply_audit

    kept = apply_audit(audit, to, threshold=threshold, ids=ids)
    typer.echo(f"{to} keeps {kept.n_kept:,} of {kept.n_pairs:,} pairs")
    typer.echo(
        f"next: {command_name()} train RECIPE --keep {quote(str(to))}, with the noise of the audited run"
    )


def import_checkpoint(
    file: Annotated[Path, typer.Argument(help="Checkpoint (.tar, .pth) written by the published code.")],
    method: Annotated[str, typer.Option(help="Method that trained it.")],
    dataset: Annotated[str, typer.Option(help="Dataset it was trained on.")],
    to: Target,
    noise_ratio: Annotated[
        float | None,
        typer.Option(callback=finite, help="Noise ratio of its training pairs, in [0, 1); 0 means no noise."),
    ] = None,
    noise_unit: NoiseUnit = None,
    noise_seed: NoiseSeed = None,
    noise_file: Annotated[Path | None, typer.Option(help="Noise file it was trained with.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=LARGEST_SEED, help="Training seed, if known."),
    ] = None,
    selection: Annotated[
        Literal["dev", "test", "none"] | None,
        typer.Option(
            help="Split that chose the epoch (default: the one that the method's published code uses)."
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Language of the captions (default: the dataset's first).")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Tokenizer (default: the language's own).")] = None,
    root: Root = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Backbone option that the weights do not reveal, such as backbone.direction=i2t; repeatable.",
        ),
    ] = None,
) -> None:
    """Convert a published checkpoint into a run folder that can be scored; nothing is unpickled.

    Example: ncl-bench import-checkpoint best.tar --method ncr --dataset flickr30k --noise-ratio 0.4 --to runs/ncr
    """
    _require_torch()
    from baselines.published.import_checkpoint import Statement
    from baselines.published.import_checkpoint import import_checkpoint as import_file

    statement = Statement(
        method,
        dataset,
        noise_ratio,
        noise_unit,
        noise_seed,
        noise_file,
        seed,
        selection,
        language,
        tokenizer,
        root,
        tuple(settings or ()),
    )
    for remark in import_file(file, statement, to):
        typer.secho(f"WARNING: {remark}", fg="yellow", bold=True, err=True)
    _say_how_to_score(to, root)


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
    _refuse_unknown(() if table else recipe or ())
    _require_torch()
    from baselines.engine.sweep import Table, Tuning
    from baselines.engine.tune import trials_of
    from baselines.engine.tune import tune as run_tune
    from baselines.recipes.ablation import ablations

    if table in ablations():
        raise NclBenchError(f"--table {table} is an ablation, which is not tuned; fix: choose another table")
    said = {"trials": trials, "noise": noise, "seed": seed}
    said = {option: value for option, value in said.items() if value is not None}
    names: Sequence[str] = recipe or ()
    chosen = settings or []
    if table:
        if said:
            raise NclBenchError(
                f"--table {table} already sets --{next(iter(said))}; fix: leave one of the two out"
            )
        found = Table.load(table)
        if found.tuning is None:
            raise NclBenchError(
                f"--table {table} trains its recipes as they are and has no tuning section; fix: leave --table out and "
                "name recipes with a `search` section"
            )
        names, tuning = list(_rows(table, recipe, found.recipes)), found.tuning
        chosen = [*found.settings, *chosen]
    else:
        tuning = Tuning.model_validate(said)
    every = trials_of(to, names, tuning, root=root, settings=chosen)
    for path in run_tune(to, every, jobs=jobs, device=device, slurm=_slurm_options(executor, slurm)):
        typer.echo(f"wrote {path} and every trial beside it")


def sweep(
    to: Target,
    recipe: Annotated[
        list[str] | None, typer.Argument(help="Recipe files, or names of shipped recipes.")
    ] = None,
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
            help="Print runs, steps, arithmetic, bytes on disk and the least hours of what is left, and stop.",
        ),
    ] = False,
) -> None:
    """Train, score and evaluate recipes under several noises and seeds, and print a table of means.

    --table sets recipes, means of several runs, noises, seeds and steps; arguments select some of them, by a recipe's
    name or by a method alone. Beside our means stand the numbers that papers print; a table ablation_... trains the
    rows of a paper's ablation. The same command resumes.

    Example: ncl-bench sweep ncr/digits_vse_infinity --noise caption-60 --seed 0 --seed 1 --to sweep
    """
    if not (recipe or table):
        raise NclBenchError("expected recipes or a table to train; fix: name some, or add --table NAME")
    _refuse_unknown(() if table else recipe or ())
    _require_torch()
    from rich.console import Console

    from baselines.engine.sweep import (
        NOISES,
        SEEDS,
        Table,
        ablation_to_print,
        cells_of,
        cells_of_ablation,
        move_to_dataset,
        table_to_print,
    )
    from baselines.engine.sweep import sweep as run_sweep
    from baselines.recipes.ablation import ablations

    names: Sequence[str] | Mapping[str, Sequence[str]] = recipe or ()
    noises: Sequence[str] = noise or NOISES
    seeds: Sequence[int] = seed or SEEDS
    chosen = settings or []
    ablation = ablations().get(table)
    if dataset and not table:
        raise NclBenchError(
            "--dataset moves a table to another dataset; fix: add --table NAME, or leave it out"
        )
    if dataset and noise_files:
        raise NclBenchError("--noise-files holds noise of the table's own dataset; fix: leave --dataset out")
    if ablation is not None:
        _narrowed(table, "recipe", recipe, [ablation.recipe])
        _narrowed(table, "noise", noise, [ablation.noise])
        seeds = _narrowed(table, "seed", seed, ablation.seeds)
        cells = cells_of_ablation(to, ablation, seeds, root=root, precision=precision, settings=chosen)
    else:
        if table:
            found = Table.load(table)
            names = _rows(table, recipe, found.trained())
            noises = _narrowed(table, "noise", noise, list(dict.fromkeys(chain(*names.values()))))
            seeds = _narrowed(table, "seed", seed, found.seeds)
            chosen = [*found.settings, *chosen]
        cells = cells_of(
            to,
            names,
            noises,
            seeds,
            root=root,
            precision=precision,
            settings=tuple(chosen),
            noise_files=noise_files,
        )
    if dataset:
        cells = move_to_dataset(cells, dataset)
    if plan:
        from baselines.engine.plan import BOUND, left_to_do, table_of_work

        Console(width=max(Console().width, 110)).print(table_of_work(left_to_do(cells)))
        typer.echo(BOUND)
        return
    results = run_sweep(
        to, cells, jobs=jobs, device=device, features=features, slurm=_slurm_options(executor, slurm)
    )
    Console().print(table_to_print(results) if ablation is None else ablation_to_print(ablation, results))
    typer.echo(f"next: {command_name()} leaderboard add {quote(str(to / 'submissions'))}/*")


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
    _require_torch()
    from baselines.quickstart import quickstart as run_quickstart

    run_quickstart(to, dataset, device)


def features(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of images, or a .csv or .tsv file with a column `image` and, if you like, `split`."
        ),
    ],
    to: Target,
    encoder: Annotated[
        str, typer.Option(help="Image encoder: efficientnet-lite0, or a timm model with a grid of features.")
    ] = "efficientnet-lite0",
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Encoder weights, as safetensors or a state dict (default: the published weights)."
        ),
    ] = None,
    grid: Annotated[
        int, typer.Option(min=1, help="Regions per side: 4 gives 16 regions, 1 a single vector per image.")
    ] = 4,
    pca: Annotated[
        int | None,
        typer.Option(
            min=1, help="Principal components to keep, fitted on the training images (default: all)."
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16"], typer.Option(help="Number type of the features.")
    ] = "float16",
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPLIT=FILE",
            help="File with the image names of a split, one per line; give it for train, dev and test.",
        ),
    ] = None,
    dev: DevImages = None,
    test: TestImages = None,
    seed: SplitSeed = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch of the encoder.")] = 32,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that decode images (default: one per core).")
    ] = None,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Skip and list files that are not readable images."),
    ] = False,
    device: Device = "auto",
) -> None:
    """Turn your images into region features that `prepare` reads.

    The same command resumes: it encodes in chunks of 1,000 images and skips finished chunks.

    Example: ncl-bench features photos --to features
    """
    _require_torch()
    from baselines.encoders import load_encoder
    from baselines.features import FeatureOptions, extract, list_images
    from ncl_bench.progress import bar

    listing = list_images(source, split or ())
    options = FeatureOptions(grid, pca, dtype, dev, test, seed, batch_size, skip_damaged)
    network = load_encoder(encoder, weights, device)
    done = extract(listing, network, to, options, workers=workers or os.cpu_count() or 1, progress=bar)
    for name, reason in done.skipped.items():
        typer.echo(f"left out: {listing.folder / name} {reason}")
    images = ", ".join(f"{name} {count:,}" for name, count in done.images.items())
    regions = "1 region" if grid == 1 else f"{grid * grid} regions"
    typer.echo(f"{images} images, {regions} of {done.feature_dim} numbers each, in {to}")


def register(app: typer.Typer) -> None:
    """Add this room's commands to the app, and its checks to `ncl-bench doctor`."""
    doctor.CHECKS.append(cuda_devices)
    doctor.GPU_CHECKS.append(gpu_check)
    app.add_typer(recipes_app, name="recipes")
    app.add_typer(audit_app, name="audit")
    for command in (train, score, plot, import_checkpoint, tune, sweep, quickstart, features):
        app.command()(command)


def _narrowed(table: str, what: str, asked: Sequence[T] | None, found: Sequence[T]) -> Sequence[T]:
    """Return the values that the user asked for, checked against the table, or all of the table's values."""
    for each in asked or ():
        if each not in found:
            raise NclBenchError(
                f"--table {table} has no {what} {each}; fix: leave --table out, or choose from "
                f"{', '.join(map(str, found))}"
            )
    return asked or found


def _rows(
    table: str, asked: Sequence[str] | None, found: Mapping[str, Sequence[str]]
) -> Mapping[str, Sequence[str]]:
    """Return the table's recipes that the user asked for, by name or by method, and the means of only such recipes."""
    rows = {row: row.split(" + ") for row in found}
    known = {name for names in rows.values() for name in names}
    methods = {name.split("/")[0] for name in known}
    _narrowed(table, "recipe", asked, list(dict.fromkeys([*found, *sorted(known), *sorted(methods)])))
    return {
        row: found[row]
        for row, names in rows.items()
        if not asked or row in asked or all({name, name.split("/")[0]} & set(asked) for name in names)
    }


def _slurm_options(executor: str, given: Sequence[str] | None) -> dict[str, Any] | None:
    """Read the options of the SLURM jobs; None if this command runs them itself."""
    if executor == "slurm":
        from baselines.engine.slurm import read_options

        return read_options(given or ())
    if given:
        raise NclBenchError(f"--slurm {given[0]} only applies to SLURM jobs; fix: add --executor slurm")
    return None


def _say_how_to_score(run: Path, root: Path | None) -> None:
    where = "" if root is None else f" --root {quote(str(root))}"
    typer.echo(
        f"next: {command_name()} score {quote(str(run))}{where} --to {quote(f'submissions/{run.name}')}"
    )
