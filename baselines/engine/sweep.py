"""Many training runs: recipes x noises x seeds as cells, several at a time.

``FOLDER/runs`` and ``FOLDER/submissions``   one folder per cell
``FOLDER/table.csv``                         mean rSum on test, one line per recipe and noise

The same command resumes: it skips finished cells and continues the others from their last complete epoch.
"""

import hashlib
import multiprocessing
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import Field, ValidationError, model_validator
from rich.console import Console
from rich.table import Column
from rich.table import Table as PrintedTable

from baselines.engine.job import TrainingJob
from baselines.engine.progress import TrainingProgress
from baselines.engine.recipe import Recipe, with_settings
from baselines.engine.run_folder import RunFolder
from baselines.engine.slurm import job_pool
from baselines.kit.batches import Features
from baselines.recipes import TABLES, recipe_names
from ncl_bench.errors import NclBenchError, RecipeError, SubmissionError, first_problem
from ncl_bench.evaluation.evaluate import evaluate_folder
from ncl_bench.evaluation.submission import SUBMISSION_FILE, read_submission
from ncl_bench.files import as_csv, is_leftover, sole_owner, write_text
from ncl_bench.noise.draw import NoiseUnit
from ncl_bench.precision import Precision
from ncl_bench.processes import worker_pool
from ncl_bench.progress import live_bar
from ncl_bench.schema import Record, Text, read_yaml

NOISES = ("none", "caption-40", "caption-60", "image-40")
SEEDS = (0, 1, 2)
TUNED = "_tuned"
Shares = Any
"""Shared array of floats in [0, 1]: progress of each training."""
_FILES = ("runs", "submissions", "leaderboard", "jobs", "tuned", "table.csv")


class Tuning(Record):
    """Tuning of every recipe of a table.

    Attributes:
        trials: number of trials per recipe; the first one is the unchanged recipe.
        noise: training noise of the trials, which are compared on dev.
        seed: seed of the trainings and of the drawn options.
    """

    trials: Annotated[int, Field(ge=1)] = 12
    noise: str = "caption-60"
    seed: Annotated[int, Field(ge=0)] = 1000


class Table(Record):
    """One measured table (docs/measured-tables.md).

    Attributes:
        title: title of the table.
        steps: mean number of gradient steps per network.
        recipes: names of shipped recipes; their tuned versions are trained too.
        noises: training noises, such as ``none`` and ``caption-60``.
        seeds: training seeds; the seed of the tuning must differ.
        tuning: tuning of every recipe.
    """

    title: Text
    steps: Annotated[int, Field(ge=1)]
    recipes: Annotated[tuple[str, ...], Field(min_length=1)]
    noises: Annotated[tuple[str, ...], Field(min_length=1)]
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    tuning: Tuning = Tuning()

    @model_validator(mode="after")
    def _is_tuned_apart(self) -> Self:
        if self.tuning.seed in self.seeds:
            raise ValueError(f"tuning.seed is {self.tuning.seed}, which is also in seeds; choose another one")
        return self

    @classmethod
    def load(cls, source: str) -> Self:
        """Read and check a table.

        Args:
            source: name of a shipped table, or a YAML file.

        Raises:
            RecipeError: there is no such table, or it is invalid.
        """
        path = Path(source) if Path(source).is_file() else TABLES / f"{source}.yaml"
        if not path.is_file():
            raise RecipeError(f"no table {source!r}: neither a file nor one of {', '.join(table_names())}")
        try:
            return cls.model_validate(read_yaml(path))
        except ValidationError as error:
            raise RecipeError(f"{path}: {first_problem(error)}") from None
        except SubmissionError as error:
            raise RecipeError(str(error)) from None

    def trained(self) -> list[str]:
        """Return the recipes, each followed by its tuned version if tuning changed it."""
        shipped = set(recipe_names())
        chosen = []
        for name in self.recipes:
            chosen.append(name)
            tuned = f"{name}{TUNED}"
            if tuned in shipped and Recipe.load(tuned) != Recipe.load(name):
                chosen.append(tuned)
        return chosen


def table_names() -> list[str]:
    """Names of the shipped tables, sorted."""
    return sorted(path.stem for path in TABLES.glob("*.yaml"))


@dataclass(frozen=True)
class NoiseCell:
    """``none``, or a unit and a ratio in per cent, such as ``caption-40``."""

    unit: NoiseUnit
    percent: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name such as ``caption-40``.

        Raises:
            NclBenchError: not such a name.
        """
        if text == "none":
            return cls("caption", 0)
        found = re.fullmatch(r"(caption|image|similar)-([1-9]\d?)", text)
        if found is None:
            raise NclBenchError(
                f"noise {text!r}: expected none, or unit-per cent such as caption-40, image-60, similar-40"
            )
        return cls(cast(NoiseUnit, found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.unit}-{self.percent}" if self.percent else "none"


@dataclass(frozen=True)
class Cell:
    """One recipe under one noise with one seed: trained, scored on test and evaluated."""

    recipe: str
    noise: NoiseCell
    seed: int
    folder: Path
    root: Path | None = None
    precision: Precision = "32-true"
    settings: tuple[str, ...] = ()
    split: ClassVar[str] = "test"

    @property
    def title(self) -> str:
        """Recipe and settings."""
        return " ".join((self.recipe, *self.settings))

    @property
    def name(self) -> str:
        """Name of the cell's folders."""
        recipe = "-".join(Path(self.recipe).with_suffix("").parts[-2:])
        return f"{recipe}-{self.noise}-seed{self.seed}"

    @property
    def run(self) -> RunFolder:
        """Folder of the training."""
        return RunFolder(self.folder / "runs" / self.name)

    @property
    def submission(self) -> Path:
        """Folder of the scores and the result."""
        return self.folder / "submissions" / self.name

    @property
    def job(self) -> TrainingJob:
        """Training job of the cell."""
        recipe, settings = with_settings(Recipe.load(self.recipe), self.settings)
        return self.job_of(recipe, settings)

    def job_of(self, recipe: Recipe, settings: Mapping[str, Any]) -> TrainingJob:
        """Build the job of a recipe under the cell's noise and seed."""
        ratio, unit = self.noise.percent / 100, self.noise.unit
        return TrainingJob(
            recipe,
            noise_ratio=ratio,
            noise_unit=unit,
            seed=self.seed,
            root=self.root,
            precision=self.precision,
            settings=settings,
        )

    @property
    def finished(self) -> bool:
        """Whether :meth:`r_sum` is available."""
        return (self.submission / SUBMISSION_FILE).exists()

    def train(self, device: str, features: Features, index: int) -> None:
        """Train or resume, then score test; ``index`` is the cell's place in the shared progress array."""
        from baselines.engine.submit import submit

        self.fit(device, features, index)
        quiet = Console(quiet=True)
        submit([self.run.path], self.submission, root=self.root, device=device, console=quiet)

    def fit(self, device: str, features: Features, index: int) -> None:
        """Train or resume, without scoring."""
        from baselines.engine.train import Trainer

        trainer = Trainer(self.job, self.run, device, features=features)
        with SharedProgress(len(trainer.plans), index) as progress:
            trainer.run(progress)

    def r_sum(self) -> float:
        """Evaluate the submission and return its rSum on test.

        Raises:
            NclBenchError: the submission was trained with another precision, budget or settings.
        """
        self._check_training()
        report, _ = evaluate_folder(self.submission, self.submission, root=self.root)
        return report.splits["test"].r_sum

    def _check_training(self) -> None:
        from baselines.engine.statement import stated_settings

        training = read_submission(self.submission).training
        if training is None:
            return
        problem, job = "", self.job
        if training.precision != self.precision:
            problem = f"in {training.precision}, not in {self.precision}"
        elif training.budget != job.recipe.steps:
            there, asked = (
                training.budget or "no given number of",
                job.recipe.steps or "the epochs of the plan",
            )
            problem = f"for {there} steps, not for {asked}"
        elif training.settings != stated_settings([job]):
            problem = f"with other settings ({training.settings or 'none'})"
        if problem:
            raise NclBenchError(f"{self.submission} was trained {problem}; choose a new folder with --to")


def cells_of(
    folder: Path,
    recipes: Sequence[str],
    noises: Sequence[str] = NOISES,
    seeds: Sequence[int] = SEEDS,
    *,
    root: Path | None = None,
    precision: Precision = "32-true",
    settings: Sequence[str] = (),
) -> list[Cell]:
    """Return every combination once, seed by seed, so that a sweep stopped early has complete tables of fewer seeds.

    Args:
        folder: folder of the sweep.
        recipes: names of shipped recipes, or files.
        noises: training noises, such as ``none`` and ``caption-40``.
        seeds: training seeds.
        root: folder of prepared datasets.
        precision: arithmetic of the networks.
        settings: overridden options of every recipe, such as ``method.epochs=10``.

    Raises:
        NclBenchError: a recipe, setting or noise is unknown or invalid.
    """
    parsed = [NoiseCell.parse(noise) for noise in noises]
    for recipe in recipes:
        with_settings(Recipe.load(recipe), settings)
    cells = (
        Cell(recipe, noise, seed, folder, root, precision, tuple(settings))
        for seed in seeds
        for noise in parsed
        for recipe in recipes
    )
    return list(dict.fromkeys(cells))


def sweep(
    folder: Path,
    cells: Sequence[Cell],
    *,
    jobs: int = 2,
    device: str = "auto",
    features: Features = "auto",
    slurm: Mapping[str, Any] | None = None,
) -> dict[Cell, float]:
    """Train, score and evaluate every unfinished cell, and write ``table.csv``.

    Args:
        folder: folder to write.
        cells: cells from :func:`cells_of`.
        jobs: number of runs at once; each uses one thread, since small networks gain nothing from more.
        device: ``auto``, ``cpu`` or ``cuda``.
        features: ``auto``, ``mapped`` or ``gpu``, see :class:`baselines.engine.train.Trainer`.
        slurm: options of SLURM jobs; None trains in processes of this command.

    Returns:
        rSum on test of each cell.

    Raises:
        NclBenchError: the folder holds something else, or a cell fails; finished cells stay.
    """
    with owned(folder):
        results = finish_all(folder, cells, jobs, device, features, slurm)
        write_text(folder / "table.csv", table_as_csv(results))
    return results


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock the folder of a sweep or a search; refuse a folder that holds something else."""
    held = [path for path in folder.iterdir() if not is_leftover(path)] if folder.is_dir() else []
    if (folder.exists() and not folder.is_dir()) or any(path.name not in _FILES for path in held):
        raise NclBenchError(f"{folder} exists and holds something else; choose a new folder with --to")
    with sole_owner(folder):
        yield


def finish_all(
    folder: Path,
    cells: Sequence[Cell],
    jobs: int,
    device: str,
    features: Features,
    slurm: Mapping[str, Any] | None,
    record: Callable[[Cell, Mapping[Cell, float]], object] = lambda *_: None,
) -> dict[Cell, float]:
    """Finish every cell and return its rSum; after each cell, ``record`` gets all results so far."""
    console = Console(stderr=True)
    results: dict[Cell, float] = {}

    def say(cell: Cell, r_sum: float) -> None:
        results[cell] = r_sum
        console.print(f"{cell.name}: rSum {r_sum:.1f} on {cell.split}", highlight=False)
        record(cell, results)

    for cell in cells:
        if cell.finished:
            say(cell, cell.r_sum())
    missing = [cell for cell in cells if cell not in results]
    if missing:
        shares = multiprocessing.get_context("spawn").Array("d", len(missing), lock=False)
        with _workers(slurm, folder, min(jobs, len(missing)), shares) as submit, live_bar(console) as bar:
            waiting = {
                submit(_job_name(cell), _finish, index, cell, device, features): cell
                for index, cell in enumerate(missing)
            }
            before = len(results)
            task = bar.add_task(f"{len(cells)} runs", total=len(cells), completed=before, state="")
            while waiting:
                done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda each: each.exception() is not None):  # errors last
                    say(waiting.pop(future), future.result())
                bar.update(task, completed=before + sum(shares))
    return {cell: results[cell] for cell in cells}


@contextmanager
def _workers(
    slurm: Mapping[str, Any] | None, folder: Path, n: int, shares: Shares
) -> Iterator[Callable[..., Future[float]]]:
    """Yield a function that submits a named call: to processes of this command, or to SLURM."""
    if slurm is None:
        with worker_pool(n, begin_worker, (shares,)) as pool:
            yield lambda _, *call: pool.submit(*call)
    else:
        with job_pool(slurm, folder / "jobs", n, begin_worker) as pool:
            yield pool.submit


def _job_name(cell: Cell) -> str:
    """Return the SLURM job name of a cell, the same in every command."""
    folder = hashlib.sha256(str(cell.folder.absolute()).encode()).hexdigest()[:8]
    return f"ncl-bench-{folder}-{cell.name.replace('/', '-')}"


def _finish(index: int, cell: Cell, device: str, features: Features) -> float:
    if not cell.finished:  # a job of a killed command may have done it meanwhile
        cell.train(device, features, index)
    r_sum = cell.r_sum()
    if _shares is not None:
        _shares[index] = 1.0
    return r_sum


_shares: Shares | None = None


def begin_worker(shares: Shares | None = None) -> None:
    """Start a worker with one thread; a SLURM job has no shared progress array."""
    import torch

    global _shares
    _shares = shares
    torch.set_num_threads(1)


class SharedProgress(TrainingProgress):
    """Progress of a training that the parent process shows.

    Args:
        n_epochs: number of epochs of the training.
        index: place in the shared progress array.
    """

    def __init__(self, n_epochs: int, index: int) -> None:
        super().__init__(n_epochs, Console(quiet=True))
        self._index = index

    def advance(self, n_pairs: int, loss: float | None = None) -> None:
        super().advance(n_pairs)
        if _shares is not None:
            _shares[self._index] = self._bar.tasks[0].percentage / 100


def table_as_csv(results: Mapping[Cell, float]) -> str:
    """Format mean and sample standard deviation of rSum over seeds, one line per recipe and noise."""
    lines = [
        (recipe, noise, len(values), f"{mean(values):.1f}", _spread(values))
        for (recipe, noise), values in _over_seeds(results).items()
    ]
    return as_csv([("recipe", "noise", "seeds", "rsum_mean", "rsum_std"), *lines])


def table_to_print(results: Mapping[Cell, float]) -> PrintedTable:
    """Format the same numbers with one row per recipe and one column per noise."""
    groups = _over_seeds(results)
    noises = list(dict.fromkeys(str(cell.noise) for cell in results))
    table = PrintedTable(Column("rSum on test, mean ± std over seeds", overflow="fold"), *noises)
    for recipe in dict.fromkeys(recipe for recipe, _ in groups):
        found = (groups.get((recipe, noise), []) for noise in noises)
        table.add_row(recipe, *(f"{mean(v):.1f} ± {_spread(v) or '-'}" if v else "" for v in found))
    return table


def _over_seeds(results: Mapping[Cell, float]) -> dict[tuple[str, str], list[float]]:
    groups: dict[tuple[str, str], list[float]] = {}
    for cell in sorted(results, key=lambda cell: (cell.title, str(cell.noise), cell.seed)):
        groups.setdefault((cell.title, str(cell.noise)), []).append(results[cell])
    return groups


def _spread(values: Sequence[float]) -> str:
    return f"{stdev(values):.1f}" if len(values) > 1 else ""
