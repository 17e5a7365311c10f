"""What a sweep trains: a grid of recipes, noises and seeds, as jobs.

``A + B`` in place of a recipe is a job too: the mean of two recipes' similarities, as SGRAF's.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from baselines.recipes import Ablation, ablations, on_dataset, table_file, tuned_options
from baselines.training.recipe import Recipe, with_settings
from ncl_bench.data import dataset_spec
from ncl_bench.data.spec import refuse_noise
from ncl_bench.errors import (
    NclBenchError,
    NoiseError,
    RecipeError,
    listed,
    named,
)
from ncl_bench.evaluation.call import is_submission
from ncl_bench.names import Text
from ncl_bench.noise.draw import Noise
from ncl_bench.noise.files import read_noise_file
from ncl_bench.papers import rows_by_recipe
from ncl_bench.schema import Precision, Record, checked
from ncl_bench.yaml import read_yaml

if TYPE_CHECKING:  # torch, which a wrong name need not wait for
    from baselines.training.job import TrainingJob
    from baselines.training.run_folder import RunFolder

NOISES = ("none", "caption-40", "caption-60", "image-40")
SEEDS = (0, 1, 2)
TUNED_SUFFIX = "_tuned"
AND = " + "
"""Between the recipes of a mean."""
T = TypeVar("T")
Noises = Annotated[tuple[str, ...], Field(min_length=1)]
"""Training noises, such as ``none`` and ``caption-60``."""


class Tuning(Record):
    """Tuning of every recipe of a grid.

    Attributes:
        trials: number of trials per recipe; the first one is the unchanged recipe.
        noise: training noise of the trials, which are compared on dev.
        seed: seed of the trainings and of the drawn options.
    """

    trials: PositiveInt = 12
    noise: str = "caption-60"
    seed: NonNegativeInt = 1000


class Grid(Record):
    """A table to train: at equal steps (docs/make-a-table.md), or as papers print it (docs/reproduce.md).

    Attributes:
        title: title of the table.
        steps: mean number of gradient steps per network; by default each recipe's own schedule.
        recipes: names of shipped recipes, or of two that are averaged (``A + B``, or ``A + A`` for two seeds), each
            with its training noises. A file may list names instead, and state the ``noises`` of all.
        controls: likewise, recipes that are trained as they are and never tuned.
        seeds: training seeds; the seed of the tuning must differ.
        tuning: tuning of every recipe, whose tuned versions are trained too; None trains the recipes as they are.
    """

    title: Text
    steps: PositiveInt | None = None
    recipes: Annotated[dict[str, Noises], Field(min_length=1)]
    controls: dict[str, Noises] = Field(default_factory=dict)
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    tuning: Tuning | None = None

    @model_validator(mode="before")
    @classmethod
    def _same_noises(cls, content: dict[str, Any]) -> dict[str, Any]:
        listed = {
            key: value for key in ("recipes", "controls") if isinstance(value := content.get(key), list)
        }
        # a file of equal noises for all states them once; other keys are read as they are
        rest = {key: value for key, value in content.items() if not (listed and key == "noises")}
        return rest | {key: dict.fromkeys(names, content.get("noises", ())) for key, names in listed.items()}

    @model_validator(mode="after")
    def _is_tuned_apart(self) -> Self:
        if self.tuning is not None and self.tuning.seed in self.seeds:
            raise ValueError(f"tuning.seed is {self.tuning.seed}, which is also in seeds; choose another one")
        return self

    @classmethod
    def load(cls, source: str) -> Self:
        """Read and check a grid: the name of a shipped table, or a YAML file."""
        path = table_file(source)
        return checked(cls, read_yaml(path), str(path), RecipeError)

    @property
    def settings(self) -> list[str]:
        """Recipe options that the grid sets."""
        return [] if self.steps is None else [f"steps={self.steps}"]

    def trained(self) -> dict[str, Noises]:
        """Return recipes and controls with their noises; its tuned version follows a recipe that tuning changed."""
        chosen = {}
        for name, noises in self.recipes.items():
            chosen[name] = noises
            tuned = f"{name}{TUNED_SUFFIX}"
            # a search that chose the default options would train the same row twice
            if tuned_options(tuned):
                chosen[tuned] = noises
        return chosen | self.controls


@dataclass(frozen=True)
class Job:
    """One recipe, or the mean of several, under one noise with one seed, to train, score on test and evaluate.

    Attributes:
        recipe: name of a shipped recipe or a file, or several joined by `` + ``; a recipe that stands there twice is
            trained with two seeds.
        noise: training noise, such as ``none`` and ``caption-60``.
        folder: folder of the sweep.
        noise_file: noise file of this noise, in place of drawn noise.
        variant: row of an ablation table.
        draw: seed of the noise, also of the members of a mean; by default the standard seed.
    """

    recipe: str
    noise: str
    seed: int
    folder: Path
    root: Path | None = None
    precision: Precision = "32-true"
    settings: tuple[str, ...] = ()
    noise_file: Path | None = None
    variant: str = ""
    draw: int | None = None
    split: ClassVar[str] = "test"

    @property
    def members(self) -> list[Self]:
        """The jobs that are trained for it: itself, or those whose similarities are averaged."""
        recipes = self.recipe.split(AND)
        # A + A has the seeds 0 and 1, then 2 and 3: no two means share a run
        seeds = [self.seed * recipes.count(each) + recipes[:n].count(each) for n, each in enumerate(recipes)]
        return [replace(self, recipe=each, seed=seed) for each, seed in zip(recipes, seeds, strict=True)]

    @property
    def title(self) -> str:
        """Recipe and settings."""
        return " ".join((self.recipe, *self.settings))

    @property
    def name(self) -> str:
        """Name of the job's folders."""
        recipes = ("-".join(Path(name.removesuffix(".yaml")).parts[-2:]) for name in self.recipe.split(AND))
        # the title of an ablation's row, in letters that a folder may have
        variant = re.sub("[^a-z0-9]+", "-", self.variant.lower()).strip("-")
        draw = "" if self.draw is None else f"draw{self.draw}"
        return "-".join(filter(None, ("+".join(recipes), variant, self.noise, f"seed{self.seed}", draw)))

    def on(self, dataset: str) -> Self:
        """Return the same job on another dataset, without added noise where the dataset has its own."""
        noise = "none" if dataset_spec(dataset).noise == "natural" else self.noise
        moved = [on_dataset(name, dataset) for name in self.recipe.split(AND)]
        settings = dict.fromkeys(setting for _, needed in moved for setting in needed)
        recipe = AND.join(name for name, _ in moved)
        job = replace(self, recipe=recipe, noise=noise, settings=(*settings, *self.settings))
        # an option that the other dataset's recipe lacks is refused before anything is trained
        for member in job.members:
            with_settings(Recipe.load(member.recipe), member.settings)
        return job

    @property
    def run(self) -> "RunFolder":
        """Folder of the training."""
        from baselines.training.run_folder import RunFolder

        return RunFolder(self.folder / "runs" / self.name)

    @property
    def submission(self) -> Path:
        """Folder of the scores and the result."""
        return self.folder / "submissions" / self.name

    @property
    def training(self) -> "TrainingJob":
        """What is trained, with the settings."""
        return self.training_of(*with_settings(Recipe.load(self.recipe), self.settings))

    def training_of(self, recipe: Recipe, settings: Mapping[str, Any]) -> "TrainingJob":
        """Build the training of a recipe under the job's noise and seed."""
        from baselines.training.job import TrainingJob

        noise = Noise.parse(self.noise)
        return TrainingJob(
            recipe,
            noise_ratio=noise.ratio,
            noise_unit=noise.unit or "caption",
            noise_seed=self.draw,
            noise_file=self.noise_file,
            seed=self.seed,
            root=self.root,
            precision=self.precision,
            settings=settings,
        )

    @property
    def finished(self) -> bool:
        """Whether its rSum is available."""
        return is_submission(self.submission)


def jobs_of(
    folder: Path,
    recipes: Sequence[str] | Mapping[str, Sequence[str]],
    noises: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    *,
    settings: Sequence[str] = (),
    noise_files: Path | None = None,
) -> list[Job]:
    """Return every combination once, seed by seed, so that a sweep stopped early has complete tables of fewer seeds.

    Args:
        folder: folder of the sweep.
        recipes: names of shipped recipes, or files; as a mapping, each with the noises that it is trained under.
        noises: training noises, such as ``none`` and ``caption-40`` (default: :data:`NOISES`; ``none`` on a dataset
            with natural noise).
        seeds: training seeds.
        settings: overridden options of every recipe, such as ``method.epochs=10``.
        noise_files: folder of noise files, which stand for drawn noise of unit ``image``.
    """
    # a misspelt noise is refused before recipes are read
    for noise in noises or ():
        Noise.parse(noise)
    datasets = {
        recipe: with_settings(Recipe.load(name), settings)[0].dataset
        for recipe in recipes
        for name in recipe.split(AND)
    }
    under = {dataset: _noises_of(dataset, noises) for dataset in datasets.values()}
    files: dict[str, dict[str, Path]] = {}
    if noise_files is not None:
        files = {dataset: image_noise_files(noise_files, dataset, named) for dataset, named in under.items()}
    # seeds come first: after each of them the table is whole
    jobs = (
        Job(
            *(recipe, noise, seed, folder),
            settings=tuple(settings),
            noise_file=files.get(dataset, {}).get(noise),
        )
        for seed in seeds
        for noise in dict.fromkeys(chain(*under.values()))
        for recipe, dataset in datasets.items()
        if noise in under[dataset] and (not isinstance(recipes, Mapping) or noise in recipes[recipe])
    )
    # the same recipe may be named twice
    return list(dict.fromkeys(jobs))


def _noises_of(dataset: str, noises: Sequence[str] | None) -> Sequence[str]:
    """The noises that runs on a dataset are trained under; natural noise takes none on top."""
    if dataset_spec(dataset).noise == "synthetic":
        return NOISES if noises is None else noises
    refuse_noise(dataset_spec(dataset), *(noise != "none" for noise in noises or ()))
    return ("none",)


def jobs_of_table(
    folder: Path,
    table: str,
    recipes: Sequence[str] | None = None,
    noises: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    *,
    dataset: str = "",
    settings: Sequence[str] = (),
    noise_files: Path | None = None,
) -> list[Job]:
    """Return the jobs of a table, of its grid or its ablation, or those that are asked for.

    Args:
        folder: folder of the sweep.
        table: name of a shipped table, or a file.
        recipes, noises, seeds: those of the table to train; all by default.
        dataset: dataset to train on, in place of the table's.
        settings, noise_files: as for :func:`jobs_of`.
    """
    if dataset:
        _noises_of(dataset, noises)  # refuses noise on top of natural noise
    if ablation := ablations().get(table):
        chosen(table, "recipe", recipes, [ablation.recipe])
        chosen(table, "noise", noises, [ablation.noise])
        seeds = chosen(table, "seed", seeds, ablation.seeds)
        jobs = jobs_of_ablation(folder, ablation, seeds, settings)
    else:
        grid = Grid.load(table)
        rows = chosen_rows(table, recipes, grid.trained())
        jobs = jobs_of(
            folder,
            rows,
            chosen(table, "noise", noises, list(dict.fromkeys(chain(*rows.values())))),
            chosen(table, "seed", seeds, grid.seeds),
            settings=(*grid.settings, *settings),
            noise_files=noise_files,
        )
    return move_to_dataset(jobs, dataset) if dataset else jobs


def jobs_of_ablation(
    folder: Path, table: Ablation, seeds: Sequence[int], settings: Sequence[str] = ()
) -> list[Job]:
    """Return every row of an ablation table, seed by seed."""
    jobs = []
    for seed in seeds:
        for row in table.rows:
            recipe = row.recipe or table.recipe
            # as the command line takes them; JSON is YAML
            own = [f"{name}={json.dumps(value)}" for name, value in row.settings.items()]
            given = (f"steps={table.steps}", *own, *settings)
            with_settings(Recipe.load(recipe), given)
            jobs.append(Job(recipe, table.noise, seed, folder, settings=given, variant=row.title))
    return jobs


def chosen(table: str, what: str, asked: Sequence[T] | None, known: Sequence[T]) -> Sequence[T]:
    """Return the values that are asked for, checked against the table, or all of the table's values."""
    for each in asked or ():
        if each not in known:
            raise NclBenchError(
                f"{named('table', table)} has no {what} {each}; fix: leave {named('table')} out, or choose from "
                f"{listed(_nearest_first(str(each), known))}"
            )
    # nothing asked for is all of it
    return asked or known


def _nearest_first(given: str, known: Sequence[object]) -> list[str]:
    """The known values, most similar to the given text first, equally similar ones in their order."""
    return sorted(map(str, known), key=lambda name: -SequenceMatcher(None, given, name).ratio())


def chosen_rows(
    table: str, asked: Sequence[str] | None, known: Mapping[str, Sequence[str]]
) -> Mapping[str, Sequence[str]]:
    """Return the table's recipes that are asked for, by name or by method, and the means of only such recipes."""
    rows = {row: row.split(AND) for row in known}
    names = {name for members in rows.values() for name in members}
    methods = {name.split("/")[0] for name in names}
    chosen(table, "recipe", asked, list(dict.fromkeys([*known, *sorted(names), *sorted(methods)])))
    return {
        row: known[row]
        for row, members in rows.items()
        if not asked or row in asked or all({name, name.split("/")[0]} & set(asked) for name in members)
    }


def move_to_dataset(jobs: Sequence[Job], dataset: str) -> list[Job]:
    """Move jobs to another dataset, each once.

    A dataset with natural noise gets no control that trains on the clean pairs, because these are unknown.
    """
    if dataset_spec(dataset).noise == "natural":
        jobs = [job for job in jobs if not job.members[0].training.recipe.clean_only] or jobs
    return list(dict.fromkeys(job.on(dataset) for job in jobs))


def of_paper(jobs: Sequence[Job], paper: str) -> list[Job]:
    """The jobs of the rows that one paper prints.

    Args:
        jobs: of a table.
        paper: its name, as tables show it: ``NCR`` or ``NCR, NeurIPS 2021``.
    """
    rows = rows_by_recipe()
    papers_of: dict[Job, set[str]] = {}
    for job in jobs:
        noise = Noise.parse(job.noise)
        units = {noise.unit, "unknown", "natural"} if noise.ratio else {"none", "natural"}
        papers_of[job] = {
            each.paper.short
            for each in rows.get(job.recipe, ())
            if each.row.noise_unit in units and (each.row.noise_ratio or 0) == noise.ratio
        }
    names = sorted(set().union(*papers_of.values()))
    asked = {name for name in names if paper.casefold() in (name.casefold(), name.split(",")[0].casefold())}
    if not asked:
        choice = (
            f"choose one of: {'; '.join(names)}"
            if names
            else f"no paper prints rows of it; leave {named('paper')} out"
        )
        raise NclBenchError(f"no row of this table is printed by {paper!r}; {choice}")
    return [job for job, papers in papers_of.items() if papers & asked]


def image_noise_files(folder: Path, dataset: str, noises: Sequence[str]) -> dict[str, Path]:
    """Find the noise files of unit ``image`` below a folder; what papers share comes first.

    Args:
        folder: folder of ``.npy`` files; those of other datasets and units are passed over.
        dataset: name of the dataset.
        noises: noises that are trained.
    """
    file_of: dict[str, tuple[bool, Path]] = {}
    for path in sorted(folder.rglob("*.npy")):
        # the folder may hold other arrays, which are no noise of this dataset
        with suppress(NoiseError):
            _, record = read_noise_file(path, dataset_spec(dataset), "image")
            if record.unit != "image":
                continue  # a file of one's own is another condition than the papers'
            noise = f"image-{round(100 * record.ratio)}"
            # among equals the first in order of names, so that two sweeps take the same file
            if noise not in file_of or (record.published and not file_of[noise][0]):
                file_of[noise] = record.published is not None, path
    # or the noise would be drawn, and the row would stand for another one
    missing = {noise for noise in noises if noise.startswith("image-")} - file_of.keys()
    if missing:
        raise NclBenchError(
            f"{folder} holds no file with {listed(sorted(missing))} of {dataset}; put it there, or leave "
            f"{named('noise_files')} out to draw the noise"
        )
    return {noise: path for noise, (_, path) in file_of.items()}


def planned_steps(job: Job) -> int:
    """Count the gradient steps of all networks of a run, from the size of the dataset alone."""
    recipe, ratio = job.training.recipe, Noise.parse(job.noise).ratio
    method = recipe.method_class
    # a schedule is stretched over the steps; a closed form takes none, whatever the recipe sets
    if recipe.steps is not None and not method.closed_form:
        return method.n_networks * recipe.steps
    n_pairs = dataset_spec(recipe.dataset).n_captions("train")
    # a control trains on the pairs that noise leaves right, about as many as are not drawn
    kept = round(n_pairs * (1 - ratio)) if recipe.clean_only else n_pairs
    return method.plan_steps(recipe.method_config, kept, recipe.batch_size)
