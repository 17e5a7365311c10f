"""The commands `train`, `score`, `sweep` and `tune` as calls; the command line parses, calls these, and prints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pandas as pd
import yaml
from rich.console import Console

from baselines.kit.batches import Features
from baselines.kit.distributed import rank
from baselines.recipes import refuse_unknown
from baselines.training.job import TrainingJob
from baselines.training.recipe import Recipe, with_settings
from baselines.training.run_folder import RunFolder
from baselines.training.submit import submit, submit_zero_shot
from baselines.training.train import Trainer, TrainingProgress
from ncl_bench.arguments import Count, Seed, checked_arguments
from ncl_bench.data import dataset_spec
from ncl_bench.errors import NclBenchError, named
from ncl_bench.evaluation.submission import SUBMISSION_FILE, MatrixScores, read_submission
from ncl_bench.files import AnyPath, as_path
from ncl_bench.noise.draw import NoiseUnit, in_words
from ncl_bench.progress import is_quiet, opening_line, say
from ncl_bench.schema import Precision

if TYPE_CHECKING:
    from baselines.audit.result import AuditResult
    from baselines.training.grids import Job

Settings: TypeAlias = Mapping[str, Any] | Sequence[str]
"""Options of a recipe by name, ``{"method.epochs": 10}``, or as the command line has them, ``["method.epochs=10"]``."""
_OF_TRAINING = ("method.", "steps=", "gradient_clip=", "clean_only=")
"""Beginnings of settings that a network without training does not read."""


@dataclass(frozen=True)
class Run:
    """A training run in its folder.

    Example::

        run = baselines.train("ncr/digits_vse_infinity", noise_ratio=0.4, to="runs/ncr")
        run.history.plot(y="dev_r_sum")
        result = ncl_bench.evaluate(run.score())

    Attributes:
        path: the folder.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
    """

    path: Path
    root: Path | None = None

    @checked_arguments()
    def __init__(self, path: Path, root: Path | None = None) -> None:
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "root", root)

    @property
    def history(self) -> pd.DataFrame:
        """One row per epoch: ``phase``, ``loss``, the recalls on dev as ``dev_r_sum``, and the diagnosis."""
        epochs = [epoch.model_dump(mode="json") for epoch in RunFolder(self.path).read_history()]
        flat = pd.json_normalize(epochs, sep="_").set_index("index")
        return flat[[name for name in flat if "_histogram_" not in str(name)]]

    @property
    def best_epoch(self) -> int:
        """The best epoch on dev, from 0: a row of ``history``."""
        return RunFolder(self.path).read_outcome().best_epoch

    @property
    def dev(self) -> dict[str, float]:
        """Recalls and ``r_sum`` of the best epoch on dev."""
        return RunFolder(self.path).read_outcome().dev

    @property
    def finished(self) -> bool:
        """Whether the training has ended."""
        return RunFolder(self.path).finished

    def __fspath__(self) -> str:
        """The folder: a run stands wherever a path is expected."""
        return str(self.path)

    def __repr__(self) -> str:
        record = RunFolder(self.path).read_run()
        name = f"{record.recipe.method['name']} on {record.recipe.dataset}"
        state = "unfinished"
        if self.finished:
            state = f"best epoch {self.best_epoch}, rSum {self.dev.get('r_sum', float('nan')):.1f} on dev"
        return f"<Run {self.path}: {name}, seed {record.seed}, {state}>"

    @checked_arguments()
    def score(
        self,
        to: AnyPath | None = None,
        *,
        embeddings: bool = False,
        hubs: str | float | None = None,
        device: str = "auto",
    ) -> Path:
        """Score the test split once and write a submission; see :func:`score`.

        Args:
            to: folder to write (default: ``submission`` in the run's folder; a second call returns it unchanged).
            embeddings: write embeddings of images and captions in place of similarities.
            hubs: correct the similarities for hubs, see :func:`score`.
            device: ``cpu``, ``cuda``, or ``auto``, which takes a GPU if there is one.

        Returns:
            The folder of the submission, for :func:`ncl_bench.evaluate` and :func:`ncl_bench.compare`.
        """
        own = self.path / "submission"
        if to is None and (own / SUBMISSION_FILE).is_file():
            written = read_submission(own)
            if embeddings and all(isinstance(each, MatrixScores) for each in written.scores.values()):
                raise NclBenchError(f"{own} holds similarities already; give to=DIR for embeddings")
            # the same submission would be taken for one with the correction, or without
            if (hubs is None) != (written.correction is None):
                raise NclBenchError(f"{own} was scored with another {named('hubs')}; give to=DIR")
            return own
        return score(
            [self.path], to=to or own, embeddings=embeddings, hubs=hubs, root=self.root, device=device
        )

    @checked_arguments()
    def audit(self, to: AnyPath | None = None, *, device: str = "auto", **options: Any) -> "AuditResult":
        """Write a table of all training pairs and a page of the most suspicious ones.

        Args:
            to: folder to write (default: ``audit`` in the run's folder), which must not exist yet.
            device: ``cpu``, ``cuda``, or ``auto``, which takes a GPU if there is one.
            options: further ones of ``baselines.audit.write_audit``.
        """
        from baselines.audit import write_audit

        return write_audit([self.path], Path(to or self.path / "audit"), self.root, device=device, **options)

    @checked_arguments()
    def plot(self, *, device: str = "auto") -> list[Path]:
        """Draw the curves and, where the run has the data, the papers' figures, as SVG and CSV; return the files."""
        from baselines.plot import plot_run

        return plot_run(RunFolder(self.path), self.root, device=device, say=say)


@checked_arguments()
def train(
    recipe: AnyPath,
    *,
    to: AnyPath,
    noise_ratio: float | None = None,
    noise_unit: NoiseUnit | None = None,
    noise_seed: int | None = None,
    noise_file: AnyPath | None = None,
    seed: Seed = 0,
    root: AnyPath | None = None,
    device: str = "auto",
    precision: Precision = "32-true",
    features: Features = "auto",
    compile: Literal["off", "on"] = "off",
    settings: Settings = (),
    keep: AnyPath | None = None,
    history: bool = True,
) -> Run:
    """Train a recipe; the same call resumes an interrupted run, and returns a finished one at once.

    Example::

        run = baselines.train("ncr/digits_vse_infinity", noise_ratio=0.4, to="runs/ncr")

    Args:
        recipe: name of a shipped recipe (``ncl-bench recipes``), or a recipe file.
        to: folder of the run.
        noise_ratio: nominal noise ratio of the training pairs, in [0, 1) (default: clean pairs).
        noise_unit: unit that the noise moves: random captions (``caption``, the default), images with all their
            captions (``image``), captions to images of similar captions (``similar``) or to images of captions with
            a common noun (``noun``).
        noise_seed: seed of the noise (default: the standard seed of this noise setting).
        noise_file: noise file to use in place of drawn noise.
        seed: seed of initialisation, batch order and dropout.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        precision: arithmetic of the networks.
        features: place of the training features: read from disk as needed (``mapped``), or kept on the device
            (``gpu``); ``auto`` takes ``gpu`` if they fit into half of the GPU's free memory.
        compile: compile the networks' forward passes (docs/scale.md).
        settings: recipe options to override, such as ``method.epochs=10``. Also a mapping, ``{"method.epochs": 10}``.
        keep: folder of ``ncl-bench audit apply``, whose pairs alone are trained on (default: all pairs).
        history: keep what the method believes of every pair after each epoch.
    """
    refuse_unknown(str(recipe))
    changed, differences = _changed(recipe, settings)
    place = as_path(root)
    job = TrainingJob(
        changed,
        noise_ratio,
        noise_unit,
        noise_seed,
        as_path(noise_file),
        seed,
        place,
        precision,
        differences,
        as_path(keep),
    )
    folder, compiled = RunFolder(Path(to)), compile == "on"
    trainer = Trainer(job, folder, device, features=features, keep_estimates=history, compiled=compiled)
    if rank() == 0:
        noise = trainer.train_split.noise
        unit = "natural" if dataset_spec(changed.dataset).noise == "natural" else noise.unit
        words = in_words(unit, noise.ratio, noise.seed, noise.realised_ratio)
        say(opening_line(changed.dataset, words, job.title, str(trainer.device)))
    console = Console(stderr=True, quiet=rank() > 0 or is_quiet())
    with TrainingProgress(len(trainer.plans), console) as progress:
        trainer.run(progress)
    return Run(Path(to), place)


@checked_arguments()
def score(
    runs: AnyPath | Sequence[AnyPath] = (),
    *,
    to: AnyPath,
    zero_shot: AnyPath | None = None,
    embeddings: bool = False,
    hubs: str | float | None = None,
    root: AnyPath | None = None,
    device: str = "auto",
    precision: Precision = "32-true",
    settings: Settings = (),
) -> Path:
    """Score the test split once and write a submission.

    A run is scored with the precision and options it was trained with; ``precision`` and ``settings`` need
    ``zero_shot``.

    Example::

        submission = baselines.score("runs/ncr", to="submissions/ncr")
        baselines.score(["runs/sgr", "runs/saf"], to="submissions/sgraf")  # the mean of two runs

    Args:
        runs: a finished run, or several whose similarities are averaged, as for SGRAF; ``hub:USER/NAME@REVISION`` is a
            run on the Hugging Face Hub.
        to: folder to write; it must not exist, or be empty.
        zero_shot: recipe whose pre-trained backbone is scored without training; replaces ``runs``.
        embeddings: write embeddings of images and captions in place of similarities (``clip``, ``vse_infinity`` and
            ``vsrn`` only).
        hubs: correct the scores for hubs with this weight, such as 1, or ``auto``, which chooses 0, 0.5, 1 or 1.5 on
            dev (default: no correction). See :func:`ncl_bench.without_hubs`. Its bank is 10,000 training captions and
            all training images, without their pairing; dev also chooses 10 or 50 neighbours.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        precision: arithmetic of the networks.
        settings: recipe options to override, such as ``backbone.pretrained=openai``. Also a mapping.

    Returns:
        The folder of the submission, for :func:`ncl_bench.evaluate` and :func:`ncl_bench.compare`.
    """
    several = [runs] if isinstance(runs, str | PathLike) else list(runs)
    folders = [_run_folder(run) for run in several]
    if (not folders) == (zero_shot is None):
        raise NclBenchError("expected either finished runs, or --zero-shot and a recipe; give one of the two")
    if folders and (settings or precision != "32-true"):
        raise NclBenchError(
            "--set and --precision need --zero-shot: a run is scored as it was trained; leave them out"
        )

    idle = [each for each in _as_set(settings) if each.startswith(_OF_TRAINING)]
    if idle:
        raise NclBenchError(f"--set {idle[0]} has no effect, as nothing is trained; leave it out")

    def first_says(line: str) -> None:
        if rank() == 0:
            say(line)

    target, place = Path(to), as_path(root)
    console = Console(stderr=True, quiet=is_quiet())
    if zero_shot is None:
        submit(
            folders,
            target,
            root=place,
            embeddings=embeddings,
            hubs=hubs,
            device=device,
            console=console,
            say=first_says,
        )
    else:
        recipe, _ = _changed(zero_shot, settings)
        job = TrainingJob(recipe, root=place, precision=precision)
        submit_zero_shot(job, target, embeddings=embeddings, hubs=hubs, device=device, say=first_says)
    return target


@checked_arguments()
def sweep(
    recipes: str | Sequence[str] = (),
    *,
    to: AnyPath = "sweep",
    noises: Sequence[str] | None = None,
    seeds: Sequence[Seed] | None = None,
    table: str = "",
    paper: str = "",
    dataset: str = "",
    noise_files: AnyPath | None = None,
    draws: bool = False,
    jobs: Count = 2,
    slurm: Mapping[str, Any] | None = None,
    root: AnyPath | None = None,
    device: str = "auto",
    precision: Precision = "32-true",
    features: Features = "auto",
    settings: Settings = (),
    plan: bool = False,
    time: bool = False,
) -> pd.DataFrame:
    """Train, score and evaluate recipes under several noises and seeds; the same call resumes.

    Call it from a file whose main code is under ``if __name__ == "__main__":``: the runs are processes of their own.

    Example::

        means = baselines.sweep("ncr/digits_vse_infinity", noises=["caption-60"], seeds=[0, 1], to="sweep")

    Args:
        recipes: names of shipped recipes, or recipe files; with ``table``, those of its recipes or methods to train.
        to: folder to write.
        noises: training noise, such as ``none`` or ``caption-40`` (default: none, caption-40, caption-60 and image-40).
        seeds: training seed (default: 0, 1 and 2).
        table: table to train: a shipped one (docs/reproduce.md, docs/make-a-table.md), or a file.
        paper: with ``table``: train only the rows that this paper prints, such as NCR.
        dataset: with ``table``: train on this dataset (docs/make-a-table.md).
        noise_files: folder with the papers' noise files of unit image, which replace drawn noise (docs/noise.md).
        draws: draw the noise anew for every training seed, with the same seed (docs/noise.md).
        jobs: runs to train at once, one thread each.
        slurm: option of every SLURM job, such as ``partition=gpu``, ``time=600`` (minutes) or ``gpus_per_node=1``. From
            Python a mapping of them (default: the runs are processes of this one).
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        precision: arithmetic of the networks.
        features: place of the training features: read from disk as needed (``mapped``), or kept on the device
            (``gpu``); ``auto`` takes ``gpu`` if they fit into half of the GPU's free memory.
        settings: recipe options to override, such as ``method.epochs=10``. Also a mapping, ``{"method.epochs": 10}``.
        plan: count the runs and gradient steps that are left, and train nothing; needs no data.
        time: with ``plan``: time ten steps of every line on this computer, and state hours; needs the data.

    Returns:
        Mean and standard deviation of rSum on test over the seeds, one row per recipe and noise, beside the number that
        a paper prints; of an ablation table, its rows. ``to/submissions`` holds the submissions. With ``plan``, see
        :func:`baselines.training.plan.plan_of`.
    """
    from baselines.recipes import ablations
    from baselines.training.plan import plan_of
    from baselines.training.sweep import ablation_of, means_of
    from baselines.training.sweep import sweep as run

    _refuse_time_alone(plan, time)
    planned = planned_jobs(
        recipes,
        to=to,
        noises=noises,
        seeds=seeds,
        table=table,
        paper=paper,
        dataset=dataset,
        noise_files=noise_files,
        draws=draws,
        root=root,
        precision=precision,
        settings=settings,
    )
    if plan:
        return plan_of(planned, timed=time, device=device, features=features)
    results = run(Path(to), planned, at_once=jobs, device=device, features=features, slurm=slurm)
    ablation = ablations().get(table)
    return ablation_of(ablation, results) if ablation else means_of(results)


@checked_arguments()
def tune(
    recipes: str | Sequence[str] = (),
    *,
    to: AnyPath = "tuning",
    table: str = "",
    trials: Count | None = None,
    noise: str | None = None,
    seed: Seed | None = None,
    jobs: Count = 2,
    slurm: Mapping[str, Any] | None = None,
    root: AnyPath | None = None,
    device: str = "auto",
    settings: Settings = (),
    plan: bool = False,
    time: bool = False,
) -> list[Path] | pd.DataFrame:
    """Tune recipes by random search on dev, and write the best options of each as a recipe; the same call resumes.

    Args:
        recipes: recipes with a ``search`` section; with ``table``, those of its recipes to tune.
        to: folder to write.
        table: measured table whose recipes are tuned: a shipped one (docs/make-a-table.md), or a file.
        trials: trials of each recipe; the first is the unchanged recipe (default: 12).
        noise: training noise of the trials (default: caption-60).
        seed: seed of training and of the drawn options (default: 1000).
        jobs: runs to train at once, one thread each.
        slurm: option of every SLURM job, such as ``partition=gpu``, ``time=600`` (minutes) or ``gpus_per_node=1``. From
            Python a mapping of them (default: the runs are processes of this one).
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        settings: recipe options to override, such as ``method.epochs=10``. Also a mapping, ``{"method.epochs": 10}``.
        plan: count the runs and gradient steps that are left, and train nothing; needs no data.
        time: with ``plan``: time ten steps of every line on this computer, and state hours; needs the data.

    Returns:
        The written recipes. With ``plan``, see :func:`baselines.training.plan.plan_of`.
    """
    from baselines.recipes import ablations
    from baselines.training.grids import Grid, Tuning, chosen_rows
    from baselines.training.plan import plan_of
    from baselines.training.tune import trials_of
    from baselines.training.tune import tune as run

    names = [recipes] if isinstance(recipes, str) else list(recipes)
    if not (names or table):
        raise NclBenchError("expected recipes or a table to tune; fix: name some, or add --table NAME")
    _refuse_time_alone(plan, time)
    refuse_unknown(*(() if table else names))
    stated = {"trials": trials, "noise": noise, "seed": seed}
    stated = {option: value for option, value in stated.items() if value is not None}
    given = _as_set(settings)
    if table:
        grid = None if table in ablations() else Grid.load(table)
        if grid is None or grid.tuning is None:
            raise NclBenchError(
                f"--table={table} trains its recipes as they are and has no tuning section; fix: leave --table out and "
                "name recipes with a `search` section"
            )
        if stated:
            raise NclBenchError(
                f"--table={table} already sets --{next(iter(stated))}; fix: leave one of the two out"
            )
        names, tuning = list(chosen_rows(table, names or None, grid.recipes)), grid.tuning
        given = (*grid.settings, *given)
    else:
        tuning = Tuning.model_validate(stated)
    every = trials_of(Path(to), names, tuning, root=as_path(root), settings=given)
    if plan:
        return plan_of(every, timed=time, device=device)
    return run(Path(to), every, at_once=jobs, device=device, slurm=slurm)


def _refuse_time_alone(plan: bool, time: bool) -> None:
    if time and not plan:
        raise NclBenchError("--time times the steps of a plan; fix: add --plan, or leave it out")


def planned_jobs(
    recipes: str | Sequence[str],
    *,
    to: AnyPath,
    noises: Sequence[str] | None,
    seeds: Sequence[int] | None,
    table: str,
    paper: str,
    dataset: str,
    noise_files: AnyPath | None,
    draws: bool,
    root: AnyPath | None,
    precision: Precision,
    settings: Settings,
) -> "list[Job]":
    """The runs of a sweep; see :func:`sweep`."""
    from baselines.training.grids import SEEDS, jobs_of, jobs_of_table
    from baselines.training.sweep import of_paper

    names = [recipes] if isinstance(recipes, str) else list(recipes)
    if not (names or table):
        raise NclBenchError("expected recipes or a table to train; fix: name some, or add --table NAME")
    refuse_unknown(*(() if table else names))
    for option, listed in (("noise", noises), ("seed", seeds)):
        if listed is not None and not listed:
            raise NclBenchError(f"--{option} is empty; name one at least, or leave it out for the usual ones")
    for option, given, what in (
        ("dataset", dataset, "moves a table to another dataset"),
        ("paper", paper, "selects rows of a table"),
    ):
        if given and not table:
            raise NclBenchError(f"--{option} {what}; fix: add --table NAME, or leave it out")
    if dataset and noise_files:
        raise NclBenchError("--noise-files holds noise of the table's own dataset; fix: leave --dataset out")
    if draws and noise_files:
        raise NclBenchError("--draws draws noise and --noise-files reads it; fix: leave one of the two out")
    options: dict[str, Any] = {
        "root": as_path(root),
        "precision": precision,
        "settings": _as_set(settings),
        "noise_files": as_path(noise_files),
    }
    if table:
        found = jobs_of_table(Path(to), table, names or None, noises, seeds, dataset=dataset, **options)
        found = of_paper(found, paper) if paper else found
    else:
        found = jobs_of(Path(to), names, noises, SEEDS if seeds is None else seeds, **options)
    if not draws:
        return found
    if not any(job.noise != "none" for job in found):
        raise NclBenchError(
            "--draws has no effect without noise; fix: leave it out, or add --noise caption-40"
        )
    return [job if job.noise == "none" else replace(job, draw=job.seed) for job in found]


def _as_set(settings: Settings) -> tuple[str, ...]:
    """Settings as the command line has them, with YAML values."""
    if isinstance(settings, str):
        return (settings,)
    if not isinstance(settings, Mapping):
        return tuple(settings)
    texts = {name: yaml.safe_dump(x, default_flow_style=True, width=math.inf) for name, x in settings.items()}
    return tuple(f"{name}={text.removesuffix('...' + chr(10)).strip()}" for name, text in texts.items())


def _changed(recipe: AnyPath, settings: Settings) -> tuple[Recipe, dict[str, Any]]:
    return with_settings(Recipe.load(str(recipe)), _as_set(settings))


def _run_folder(given: AnyPath) -> Path:
    if not str(given).startswith("hub:"):
        return Path(given)
    from baselines.hub import fetch

    return fetch(str(given))
