"""Many training runs: recipes x noises x seeds as cells, several at a time.

``FOLDER/runs`` and ``FOLDER/submissions``   one folder per cell
``FOLDER/table.csv``                         mean rSum on test beside the printed one, one line per recipe and noise

``A + B`` in place of a recipe is a cell too: the mean of two recipes' similarities, as SGRAF's.

The same command resumes: it skips finished cells and continues the others from their last complete epoch.
"""

import hashlib
import json
import multiprocessing
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

from pydantic import Field, ValidationError, model_validator
from rich.console import Console
from rich.table import Column
from rich.table import Table as PrintedTable

from baselines.engine.job import TrainingJob
from baselines.engine.printed import printed_row
from baselines.engine.progress import TrainingProgress
from baselines.engine.recipe import Recipe, with_settings
from baselines.engine.run_folder import RunFolder
from baselines.engine.slurm import job_pool
from baselines.kit.batches import Features
from baselines.recipes import TABLES, on_dataset, recipe_names
from baselines.recipes.ablation import Ablation, ablations
from ncl_bench.data import dataset_spec
from ncl_bench.errors import NclBenchError, NoiseError, RecipeError, SubmissionError, first_problem
from ncl_bench.evaluation.evaluate import evaluate_folder
from ncl_bench.evaluation.submission import SUBMISSION_FILE, read_submission
from ncl_bench.files import as_csv, is_leftover, sole_owner, write_text
from ncl_bench.noise.draw import NoiseUnit
from ncl_bench.noise.files import read_noise_file
from ncl_bench.papers import printed_sum, rows_by_recipe
from ncl_bench.precision import Precision
from ncl_bench.processes import worker_pool
from ncl_bench.progress import live_bar
from ncl_bench.schema import Record, read_yaml
from ncl_bench.shown import Text

NOISES = ("none", "caption-40", "caption-60", "image-40")
SEEDS = (0, 1, 2)
TUNED = "_tuned"
Shares = Any
"""Shared array of floats in [0, 1]: progress of each training."""
AND = " + "
"""Between the recipes of a mean."""
_FILES = ("runs", "submissions", "leaderboard", "jobs", "tuned", "table.csv")


Noises = Annotated[tuple[str, ...], Field(min_length=1)]
"""Training noises, such as ``none`` and ``caption-60``."""


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
    """One table: measured at equal steps (docs/measured-tables.md), or as papers print it (docs/reproduce.md).

    Attributes:
        title: title of the table.
        steps: mean number of gradient steps per network; by default each recipe's own schedule.
        recipes: names of shipped recipes, or of two that are averaged (``A + B``), each with its training noises, such
            as ``none`` and ``caption-60``. A file may list names instead, and state the ``noises`` of all.
        seeds: training seeds; the seed of the tuning must differ.
        tuning: tuning of every recipe, whose tuned versions are trained too; None trains the recipes as they are.
    """

    title: Text
    steps: Annotated[int, Field(ge=1)] | None = None
    recipes: Annotated[dict[str, Noises], Field(min_length=1)]
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    tuning: Tuning | None = None

    @model_validator(mode="before")
    @classmethod
    def _same_noises(cls, content: Any) -> Any:
        if not isinstance(content, dict) or not isinstance(content.get("recipes"), list):
            return content
        rest = {key: value for key, value in content.items() if key != "noises"}
        return rest | {"recipes": dict.fromkeys(content["recipes"], content.get("noises", ()))}

    @model_validator(mode="after")
    def _is_tuned_apart(self) -> Self:
        if self.tuning is not None and self.tuning.seed in self.seeds:
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
            known = ", ".join([*table_names(), *ablations()])
            raise RecipeError(f"no table {source!r}: neither a file nor one of {known}")
        try:
            return cls.model_validate(read_yaml(path))
        except ValidationError as error:
            raise RecipeError(f"{path}: {first_problem(error)}") from None
        except SubmissionError as error:
            raise RecipeError(str(error)) from None

    @property
    def settings(self) -> list[str]:
        """Recipe options that the table sets."""
        return [] if self.steps is None else [f"steps={self.steps}"]

    def trained(self) -> dict[str, Noises]:
        """Return the recipes with their noises, each followed by its tuned version if tuning changed it."""
        shipped, chosen = set(recipe_names()), {}
        for name, noises in self.recipes.items():
            chosen[name] = noises
            tuned = f"{name}{TUNED}"
            if tuned in shipped and Recipe.load(tuned) != Recipe.load(name):
                chosen[tuned] = noises
        return chosen


def table_names() -> list[str]:
    """Names of the shipped tables, sorted; those of ablations are others."""
    return sorted({path.stem for path in TABLES.glob("*.yaml")} - ablations().keys())


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
    """One recipe, or the mean of several, under one noise with one seed: trained, scored on test and evaluated.

    Attributes:
        recipe: name of a shipped recipe or a file, or several joined by `` + ``.
        noise_file: noise file of this noise, in place of drawn noise.
        variant: row of an ablation table.
    """

    recipe: str
    noise: NoiseCell
    seed: int
    folder: Path
    root: Path | None = None
    precision: Precision = "32-true"
    settings: tuple[str, ...] = ()
    noise_file: Path | None = None
    variant: str = ""
    split: ClassVar[str] = "test"

    @property
    def members(self) -> list[Self]:
        """The cells that are trained for it: itself, or those whose similarities are averaged."""
        return [replace(self, recipe=recipe) for recipe in self.recipe.split(AND)]

    @property
    def title(self) -> str:
        """Recipe and settings."""
        return " ".join((self.recipe, *self.settings))

    @property
    def name(self) -> str:
        """Name of the cell's folders."""
        recipes = ("-".join(Path(name.removesuffix(".yaml")).parts[-2:]) for name in self.recipe.split(AND))
        variant = re.sub("[^a-z0-9]+", "-", self.variant.lower()).strip("-")
        return "-".join(filter(None, ("+".join(recipes), variant, str(self.noise), f"seed{self.seed}")))

    def on(self, dataset: str) -> Self:
        """The same cell on another dataset, without added noise where the dataset has its own.

        Raises:
            NclBenchError: there is no such dataset, or the recipe does not fit it.
        """
        noise = NoiseCell("caption", 0) if dataset_spec(dataset).noise == "natural" else self.noise
        moved = [on_dataset(name, dataset) for name in self.recipe.split(AND)]
        settings = dict.fromkeys(setting for _, needed in moved for setting in needed)
        recipe = AND.join(name for name, _ in moved)
        cell = replace(self, recipe=recipe, noise=noise, settings=(*settings, *self.settings))
        for member in cell.members:
            with_settings(Recipe.load(member.recipe), member.settings)
        return cell

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
            noise_file=self.noise_file,
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
        """Train or resume, then score test; ``index`` is the cell's place in the shared progress array.

        The members of a mean are finished before.
        """
        from baselines.engine.submit import submit

        runs = [member.run.path for member in self.members]
        if len(runs) == 1:
            self.fit(device, features, index)
        submit(runs, self.submission, root=self.root, device=device, console=Console(quiet=True))

    def fit(self, device: str, features: Features, index: int) -> None:
        """Train or resume, without scoring."""
        from baselines.engine.train import Trainer

        trainer = Trainer(self.job, self.run, device, features=features)
        with SharedProgress(len(trainer.plans), index) as progress:
            trainer.run(progress)

    def r_sum(self) -> float:
        """Evaluate the submission and return its rSum on test.

        Raises:
            NclBenchError: the submission was trained with another precision, budget, noise or settings.
        """
        self._check_training()
        report, _ = evaluate_folder(self.submission, self.submission, root=self.root)
        return report.splits["test"].r_sum

    def _check_training(self) -> None:
        from baselines.engine.statement import stated_settings

        submission = read_submission(self.submission)
        training, jobs = submission.training, [member.job for member in self.members]
        if training is None:
            return
        problem, job = "", jobs[0]
        if self.noise.percent and (submission.noise.seed is None) != (self.noise_file is not None):
            problem = f"on {'drawn noise' if self.noise_file else 'the noise of a file'}"
        elif training.precision != self.precision:
            problem = f"in {training.precision}, not in {self.precision}"
        elif training.budget != job.recipe.steps:
            there, asked = (
                training.budget or "no given number of",
                job.recipe.steps or "the epochs of the plan",
            )
            problem = f"for {there} steps, not for {asked}"
        elif training.settings != stated_settings(jobs):
            problem = f"with other settings ({training.settings or 'none'})"
        if problem:
            raise NclBenchError(f"{self.submission} was trained {problem}; choose a new folder with --to")


def move_to_dataset(cells: Sequence[Cell], dataset: str) -> list[Cell]:
    """Move cells to another dataset, each once.

    A dataset with natural noise gets no control that trains on the clean pairs, because these are unknown.

    Raises:
        NclBenchError: there is no such dataset, or a recipe does not fit it.
    """
    if dataset_spec(dataset).noise == "natural":
        cells = [cell for cell in cells if not cell.members[0].job.recipe.clean_only] or cells
    return list(dict.fromkeys(cell.on(dataset) for cell in cells))


def cells_of(
    folder: Path,
    recipes: Sequence[str] | Mapping[str, Sequence[str]],
    noises: Sequence[str] = NOISES,
    seeds: Sequence[int] = SEEDS,
    *,
    root: Path | None = None,
    precision: Precision = "32-true",
    settings: Sequence[str] = (),
    noise_files: Path | None = None,
) -> list[Cell]:
    """Return every combination once, seed by seed, so that a sweep stopped early has complete tables of fewer seeds.

    Args:
        folder: folder of the sweep.
        recipes: names of shipped recipes, or files; as a mapping, each with the noises that it is trained under.
        noises: training noises, such as ``none`` and ``caption-40``.
        seeds: training seeds.
        root: folder of prepared datasets.
        precision: arithmetic of the networks.
        settings: overridden options of every recipe, such as ``method.epochs=10``.
        noise_files: folder of noise files, which stand for drawn noise of unit ``image``.

    Raises:
        NclBenchError: a recipe, setting or noise is unknown or invalid, or a noise file is missing.
    """
    parsed = [NoiseCell.parse(noise) for noise in noises]
    datasets = {
        recipe: with_settings(Recipe.load(name), settings)[0].dataset
        for recipe in recipes
        for name in recipe.split(AND)
    }
    files = {
        dataset: {} if noise_files is None else image_noise_files(noise_files, dataset, parsed)
        for dataset in datasets.values()
    }
    cells = (
        Cell(recipe, noise, seed, folder, root, precision, tuple(settings), files[dataset].get(noise))
        for seed in seeds
        for noise in parsed
        for recipe, dataset in datasets.items()
        if not isinstance(recipes, Mapping) or str(noise) in recipes[recipe]
    )
    return list(dict.fromkeys(cells))


def image_noise_files(folder: Path, dataset: str, noises: Sequence[NoiseCell]) -> dict[NoiseCell, Path]:
    """Find the noise files of unit ``image`` below a folder; what papers share comes first.

    Args:
        folder: folder of ``.npy`` files; those of other datasets and units are passed over.
        dataset: name of the dataset.
        noises: noises that are trained.

    Raises:
        NclBenchError: an image noise has no file.
    """
    found: dict[NoiseCell, tuple[bool, Path]] = {}
    for path in sorted(folder.rglob("*.npy")):
        with suppress(NoiseError):
            _, record = read_noise_file(path, dataset_spec(dataset), "image")
            noise = NoiseCell("image", round(100 * record.ratio))
            if noise not in found or (record.published and not found[noise][0]):
                found[noise] = record.published is not None, path
    for noise in noises:
        if noise.unit == "image" and noise not in found:
            raise NclBenchError(
                f"{folder} holds no file with {noise} of {dataset}; put the file there, or leave --noise-files out to "
                "draw the noise"
            )
    return {noise: path for noise, (_, path) in found.items()}


def cells_of_ablation(
    folder: Path,
    table: Ablation,
    seeds: Sequence[int],
    *,
    root: Path | None = None,
    precision: Precision = "32-true",
    settings: Sequence[str] = (),
) -> list[Cell]:
    """Return every row of an ablation table, seed by seed.

    Raises:
        RecipeError: a recipe or setting is unknown or invalid.
    """
    cells, noise = [], NoiseCell.parse(table.noise)
    for seed in seeds:
        for row in table.rows:
            recipe = row.recipe or table.recipe
            own = [f"{name}={json.dumps(value)}" for name, value in row.settings.items()]
            given = (f"steps={table.steps}", *own, *settings)
            with_settings(Recipe.load(recipe), given)
            cells.append(Cell(recipe, noise, seed, folder, root, precision, given, variant=row.title))
    return cells


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
        rSum on test of each cell, and of the members of means.

    Raises:
        NclBenchError: the folder holds something else, or a cell fails; finished cells stay.
    """
    members = list(dict.fromkeys(member for cell in cells for member in cell.members))
    means = [cell for cell in cells if cell not in members]
    with owned(folder):
        results = finish_all(folder, members, jobs, device, features, slurm)
        results |= finish_all(folder, means, jobs, device, features, slurm)
        write_text(folder / "table.csv", table_as_csv(results))
    return results


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock the folder of a sweep or a search; refuse a folder that holds something else.

    Raises:
        NclBenchError: the folder has other content, or another process writes there.
    """
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


class Mean(NamedTuple):
    """rSum on test of one recipe under one noise, beside what a paper prints.

    Attributes:
        recipe: recipe and settings.
        noise: training noise.
        seeds: number of seeds.
        r_sum: mean over the seeds, in [0, 600].
        spread: sample standard deviation over the seeds; None for one seed.
        printed: rSum that a paper prints; None where none does.
        paper: paper and table.
    """

    recipe: str
    noise: str
    seeds: int
    r_sum: float
    spread: float | None
    printed: float | None
    paper: str

    @property
    def apart(self) -> float | None:
        """Our mean minus the printed rSum, in standard deviations of the seeds; None where one is missing."""
        return None if self.printed is None or not self.spread else (self.r_sum - self.printed) / self.spread


def means_of(results: Mapping[Cell, float]) -> list[Mean]:
    """Return the mean over seeds of each recipe under each noise, sorted."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in sorted(results, key=lambda cell: (cell.title, str(cell.noise), cell.seed)):
        groups.setdefault((cell.title, str(cell.noise)), []).append(cell)
    rows = rows_by_recipe()
    found = []
    for (title, noise), cells in groups.items():
        first, values = cells[0], [results[cell] for cell in cells]
        named = not any(Path(name).is_file() for name in first.recipe.split(AND))
        row = printed_row(first.recipe, first.noise.unit, first.noise.percent / 100, rows) if named else None
        paper = f"{row.paper.short}; {row.row.table}" if row else ""
        spread = stdev(values) if len(values) > 1 else None
        printed = printed_sum(row.row) if row else None
        found.append(Mean(title, noise, len(values), mean(values), spread, printed, paper))
    return found


def table_as_csv(results: Mapping[Cell, float]) -> str:
    """Format mean and sample standard deviation of rSum over seeds, one line per recipe and noise."""
    columns = ("recipe", "noise", "seeds", "rsum_mean", "rsum_std", "printed", "stds_apart", "paper")
    lines = [
        (
            m.recipe,
            m.noise,
            m.seeds,
            *(_one_digit(x) for x in (m.r_sum, m.spread, m.printed, m.apart)),
            m.paper,
        )
        for m in means_of(results)
    ]
    return as_csv([columns, *lines])


def table_to_print(results: Mapping[Cell, float]) -> PrintedTable:
    """Format the same numbers with one row per recipe and one column per noise."""
    found = {(one.recipe, one.noise): one for one in means_of(results)}
    noises = list(dict.fromkeys(str(cell.noise) for cell in results))
    table = PrintedTable(Column("rSum on test, mean ± std over seeds", overflow="fold"), *noises)
    for recipe in dict.fromkeys(recipe for recipe, _ in found):
        table.add_row(recipe, *(_beside(found.get((recipe, noise))) for noise in noises))
    return table


def _beside(one: Mean | None) -> str:
    """Our mean and, below it, the printed rSum with the distance in standard deviations of the seeds."""
    if one is None:
        return ""
    ours = f"{one.r_sum:.1f} ± {_one_digit(one.spread) or '-'}"
    if one.printed is None:
        return ours
    apart = "" if one.apart is None else f" ({one.apart:+.1f} std)"
    return f"{ours}\n{one.printed:.1f} printed{apart}"


def ablation_to_print(table: Ablation, results: Mapping[Cell, float]) -> PrintedTable:
    """Format the rows of an ablation table: our rSum and what each row loses of the first, beside the paper's."""
    columns = ("seeds", "rSum, mean ± std", "drop", "printed rSum", "printed drop")
    shown = PrintedTable(Column(table.title, overflow="fold"), *columns, caption=table.source)
    of_row = {
        row.title: [r_sum for cell, r_sum in results.items() if cell.variant == row.title]
        for row in table.rows
    }
    full = mean(of_row[table.rows[0].title])
    for row in table.rows:
        values = of_row[row.title]
        spread = f"{stdev(values):.1f}" if len(values) > 1 else "-"
        ours = f"{mean(values):.1f} ± {spread}"
        drops = f"{100 * (full - mean(values)) / full:.1f} %", f"{table.printed_drop(row):.1f} %"
        shown.add_row(row.title, str(len(values)), ours, drops[0], f"{sum(row.printed):.1f}", drops[1])
    return shown


def _one_digit(number: float | None) -> str:
    return "" if number is None else f"{number:.1f}"
