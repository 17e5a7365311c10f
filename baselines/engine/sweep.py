"""Recipes x noise x seeds: every cell trained, scored and evaluated, several at a time, and a table of the means.

``FOLDER/runs`` and ``FOLDER/submissions`` hold one folder per cell; ``FOLDER/table.csv`` one line per recipe and noise.
Interrupted, the same command goes on where it stopped.
"""

import csv
import hashlib
import io
import multiprocessing
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Self, cast

from rich.console import Console
from rich.table import Column, Table

from baselines.engine.jobs import Jobs, JobSystem, job_pool
from baselines.engine.progress import TrainingProgress, progress_bar
from baselines.engine.recipe import Recipe, with_settings
from baselines.engine.records import Precision
from baselines.engine.run_folder import RunFolder, TrainingJob
from baselines.kit.batches import Features
from ncl_bench.errors import NclBenchError
from ncl_bench.evaluation.evaluate import evaluate_folder
from ncl_bench.evaluation.submission import SUBMISSION_FILE, read_submission
from ncl_bench.files import is_leftover, sole_owner, write_text
from ncl_bench.noise.draw import NoiseUnit
from ncl_bench.processes import worker_pool

NOISES = ("none", "caption-40", "caption-60", "image-40")
SEEDS = (0, 1, 2)
_FILES = ("runs", "submissions", "leaderboard", "jobs", "table.csv")


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
        found = re.fullmatch(r"(caption|image)-([1-9]\d?)", text)
        if found is None:
            raise NclBenchError(
                f"noise {text!r}: expected none, or unit-per cent such as caption-40, image-60"
            )
        return cls(cast(NoiseUnit, found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.unit}-{self.percent}" if self.percent else "none"


@dataclass(frozen=True)
class Cell:
    """One recipe under one noise with one seed, and its two folders."""

    recipe: str
    noise: NoiseCell
    seed: int
    folder: Path
    root: Path | None = None
    precision: Precision = "32-true"
    settings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The recipe, and how it was changed."""
        return " ".join((self.recipe, *self.settings))

    @property
    def name(self) -> str:
        """Of the cell's folders."""
        recipe = "-".join(Path(self.recipe).with_suffix("").parts[-2:])
        return f"{recipe}-{self.noise}-seed{self.seed}"

    @property
    def run(self) -> RunFolder:
        """Where it is trained."""
        return RunFolder(self.folder / "runs" / self.name)

    @property
    def submission(self) -> Path:
        """Where its scores and result are written."""
        return self.folder / "submissions" / self.name

    @property
    def job(self) -> TrainingJob:
        """What is trained."""
        recipe, settings = with_settings(Recipe.load(self.recipe), self.settings)
        return TrainingJob(
            recipe,
            noise_ratio=self.noise.percent / 100,
            noise_unit=self.noise.unit,
            seed=self.seed,
            root=self.root,
            precision=self.precision,
            settings=settings,
        )


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
    """Every combination once, seed by seed, so that a sweep that is stopped early has whole columns.

    Args:
        folder: of the sweep.
        recipes: names of shipped recipes, or files.
        noises: such as ``none`` and ``caption-40``.
        seeds: of the training.
        root: folder of prepared datasets.
        precision: ``32-true``, ``tf32`` or ``bf16-mixed``.
        settings: of every recipe, such as ``method.epochs=10``.

    Raises:
        NclBenchError: no such recipe, a setting that it refuses, or not a noise.
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
    system: JobSystem | None = None,
) -> dict[Cell, float]:
    """Train, score and evaluate every cell that is not finished yet, and write ``table.csv``.

    Args:
        folder: to write.
        cells: what to do, from :func:`cells_of`.
        jobs: runs at a time; each uses one thread, since networks as small as those of digits gain nothing from more.
        device: ``auto``, ``cpu`` or ``cuda``.
        features: ``auto``, ``mapped`` or ``gpu``, see :class:`baselines.engine.train.Trainer`.
        system: where runs go as jobs; processes of this command do them by default.

    Returns:
        Each cell's rSum on test.

    Raises:
        NclBenchError: the folder holds something else, or a cell fails; finished cells stay.
    """
    held = [path for path in folder.iterdir() if not is_leftover(path)] if folder.is_dir() else []
    if (folder.exists() and not folder.is_dir()) or any(path.name not in _FILES for path in held):
        raise NclBenchError(f"{folder} exists and holds something else; choose a new folder with --to")
    console = Console(stderr=True)
    shares = shared_shares(len(cells))
    workers = pool_of(system, folder / "jobs", jobs, shares, _job_name)
    with sole_owner(folder), workers as pool, progress_bar(console) as bar:
        futures: list[Future[float]] = []
        for index, cell in enumerate(cells):
            if system is not None and (cell.submission / SUBMISSION_FILE).exists():
                shares[index] = 1.0
                futures.append(Future())  # the queue is for runs
                futures[-1].set_result(_evaluated(cell))
            else:
                futures.append(pool.submit(_finish, index, cell, device, features))
        task = bar.add_task(f"{len(cells)} runs", total=len(cells), state="")
        for index in as_finished(futures, lambda: bar.update(task, completed=sum(shares))):
            console.print(f"{cells[index].name}: rSum {futures[index].result():.1f} on test", highlight=False)
            shares[index] = 1.0
        results = {cell: future.result() for cell, future in zip(cells, futures, strict=True)}
        write_text(folder / "table.csv", table_as_csv(results))
    return results


def table_as_csv(results: dict[Cell, float]) -> str:
    """Mean and sample standard deviation of rSum over seeds, one line per recipe and noise."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["recipe", "noise", "seeds", "rsum_mean", "rsum_std"])
    for (recipe, noise), values in _over_seeds(results).items():
        writer.writerow([recipe, noise, len(values), f"{mean(values):.1f}", _spread(values)])
    return lines.getvalue()


def table_to_print(results: dict[Cell, float]) -> Table:
    """The same numbers, one row per recipe and one column per noise."""
    groups = _over_seeds(results)
    noises = list(dict.fromkeys(str(cell.noise) for cell in results))
    table = Table(Column("rSum on test, mean ± std over seeds", overflow="fold"), *noises)
    for recipe in dict.fromkeys(recipe for recipe, _ in groups):
        found = (groups.get((recipe, noise), []) for noise in noises)
        table.add_row(recipe, *(f"{mean(v):.1f} ± {_spread(v) or '-'}" if v else "" for v in found))
    return table


def _over_seeds(results: dict[Cell, float]) -> dict[tuple[str, str], list[float]]:
    groups: dict[tuple[str, str], list[float]] = {}
    for cell in sorted(results, key=lambda cell: (cell.title, str(cell.noise), cell.seed)):
        groups.setdefault((cell.title, str(cell.noise)), []).append(results[cell])
    return groups


def _spread(values: Sequence[float]) -> str:
    return f"{stdev(values):.1f}" if len(values) > 1 else ""


Shares = Any
"""Shared array of floats in [0, 1]: how far each cell is."""


_shares: Shares = None


def shared_shares(n: int) -> Shares:
    """For ``n`` trainings that workers report on."""
    return multiprocessing.get_context("spawn").Array("d", n, lock=False)


def pool_of(
    system: JobSystem | None,
    folder: Path,
    n: int,
    shares: Shares,
    name_of: Callable[..., str] | None = None,
) -> AbstractContextManager[ProcessPoolExecutor | Jobs]:
    """Workers for trainings: processes of this command, or jobs, which tell of nothing before they are done."""
    if system is None:
        return worker_pool(n, begin_worker, (shares,))
    return job_pool(system, folder, n, begin_worker, ([0.0] * len(shares),), name_of)


def _job_name(_: int, cell: Cell, *others: object) -> str:
    """Of the job that does a cell, the same whoever asks for it."""
    folder = hashlib.sha256(str(cell.folder.absolute()).encode()).hexdigest()[:8]
    return f"ncl-bench-{folder}-{cell.name}"


def begin_worker(shares: Shares) -> None:
    """Begin a worker: keep where it reports."""
    import torch

    global _shares
    _shares = shares
    torch.set_num_threads(1)


class SharedProgress(TrainingProgress):
    """Tells the parent process how far a training is.

    Args:
        n_epochs: of the training.
        index: of its share.
    """

    def __init__(self, n_epochs: int, index: int) -> None:
        super().__init__(n_epochs, Console(quiet=True))
        self._index = index

    def advance(self, n_pairs: int) -> None:
        super().advance(n_pairs)
        _shares[self._index] = self._bar.tasks[0].percentage / 100


def _finish(index: int, cell: Cell, device: str, features: Features) -> float:
    from baselines.engine.score_run import submit
    from baselines.engine.train import Trainer

    if not (cell.submission / SUBMISSION_FILE).exists():
        trainer = Trainer(cell.job, cell.run, device, features=features)
        with SharedProgress(len(trainer.plans), index) as progress:
            trainer.run(progress)
        quiet = Console(quiet=True)
        submit([cell.run.path], cell.submission, root=cell.root, device=device, console=quiet)
    r_sum = _evaluated(cell)
    _shares[index] = 1.0
    return r_sum


def _evaluated(cell: Cell) -> float:
    """rSum on test of a cell that has been trained, as it is asked for now."""
    _check_training(cell)
    report, _ = evaluate_folder(cell.submission, cell.submission, root=cell.root)
    return report.splits["test"].r_sum


def _check_training(cell: Cell) -> None:
    from baselines.engine.statement import stated_settings

    training = read_submission(cell.submission).training
    if training is None:
        return
    if training.precision != cell.precision:
        raise NclBenchError(
            f"{cell.submission} was trained in {training.precision}, not in {cell.precision}; choose a new folder "
            "with --to"
        )
    if training.budget != cell.job.recipe.steps:
        raise NclBenchError(
            f"{cell.submission} was trained for {training.budget or 'no given number of'} steps, not for "
            f"{cell.job.recipe.steps or 'the epochs of the plan'}; choose a new folder with --to"
        )
    if training.settings != stated_settings([cell.job]):
        raise NclBenchError(
            f"{cell.submission} was trained with other settings ({training.settings or 'none'}); choose a new folder "
            "with --to"
        )


def as_finished(futures: Sequence[Future[Any]], on_wait: Callable[[], object]) -> Iterator[int]:
    """Numbers of the futures as they are done; ``on_wait`` is called meanwhile."""
    waiting = list(range(len(futures)))
    while waiting:
        on_wait()
        done = [index for index in waiting if futures[index].done()]
        yield from done
        waiting = [index for index in waiting if index not in done]
        time.sleep(0.5)
