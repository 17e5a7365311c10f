"""Random search for the best options of a recipe; trials are jobs that are compared on dev only.

The first trial is the unchanged recipe. The options of every other trial depend only on the seed, the trial's number
and the option's name. So the same trials result however many run at once, and every method gets the same number.

``FOLDER/runs/RECIPE/trial-03``     the training of a trial
``FOLDER/tuned/RECIPE_tuned.csv``   every finished trial
``FOLDER/tuned/RECIPE_tuned.yaml``  options of the best trial, as a recipe
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import yaml

from baselines.kit.batches import Features, derive_seed
from baselines.training.grids import TUNED_SUFFIX, Job, Tuning
from baselines.training.job import TrainingJob
from baselines.training.recipe import Between, OneOf, Recipe, options_of, with_settings, with_values
from baselines.training.step import Diverged
from baselines.training.sweep import Progress, finish_all, owned, train_run
from ncl_bench.errors import NclBenchError
from ncl_bench.files import write_text
from ncl_bench.noise.draw import Noise
from ncl_bench.tables import as_csv


@dataclass(frozen=True)
class Trial(Job):
    """One training of a search, compared on dev; trial 0 is the unchanged recipe."""

    number: int = 0
    split: ClassVar[str] = "dev"

    @property
    def name(self) -> str:
        return f"{short_name(self.recipe)}/trial-{self.number:02d}"

    @property
    def base(self) -> Recipe:
        """Recipe with the settings that all trials share."""
        return with_settings(Recipe.load(self.recipe), self.settings)[0]

    @property
    def values(self) -> dict[str, Any]:
        """Drawn options of the trial by dotted name; empty for trial 0."""
        if self.number == 0:
            # trial 0 is the recipe as it is, so that tuning cannot be worse on dev
            return {}
        return {name: drawn(among, self.seed, self.number, name) for name, among in self.base.search.items()}

    @property
    def training(self) -> TrainingJob:
        return self.training_of(with_values(self.base, self.values)[0], {})

    @property
    def finished(self) -> bool:
        return self.run.finished or self.diverged.is_file()

    @property
    def diverged(self) -> Path:
        """File that says why the loss was not finite; without it, it was."""
        return self.run.path / "diverged.txt"

    @property
    def best_epoch(self) -> int | None:
        """Best epoch on dev, from 1; None if the loss was not finite."""
        return self.run.read_outcome().best_epoch + 1 if self.run.finished else None


def train_trial(trial: Trial, device: str, features: Features, progress: Progress) -> None:
    """Train or resume a trial; a loss that is not finite ends it for good."""
    try:
        train_run(trial, device, features, progress)
    except Diverged as error:
        write_text(trial.diverged, f"{error}\n")


def r_sum_on_dev(trial: Trial) -> float:
    """Return the rSum on dev of the best epoch; 0 if the loss was not finite."""
    job, noise = trial.training, trial.run.read_run().identity()["noise"]
    asked = {"ratio": job.noise_ratio, "unit": job.noise_unit if job.noise_ratio else noise["unit"]}
    trial.run.refuse_another(recipe=job.recipe.model_dump(mode="json"), seed=job.seed, noise=noise | asked)
    return trial.run.read_outcome().dev["r_sum"] if trial.run.finished else 0.0


def short_name(recipe: str) -> str:
    """Return method and name of a recipe or its file, such as ``ncr/digits_vse_infinity``."""
    return "/".join(Path(recipe.removesuffix(".yaml")).parts[-2:])


def drawn(among: Between | OneOf, seed: int, number: int, name: str) -> Any:
    """Draw an option of a trial; floats are rounded to four significant digits."""
    random = np.random.default_rng(derive_seed(seed, "search", number, name))
    if isinstance(among, OneOf):
        return among.choice[int(random.integers(len(among.choice)))]
    whole = type(among.low) is type(among.high) is int
    if whole and not among.log:
        return int(random.integers(int(among.low), int(among.high) + 1))
    low, high = (float(np.log(end)) if among.log else float(end) for end in (among.low, among.high))
    value = random.uniform(low, high)
    # four digits, as a person would write it; rounding may leave the range
    value = float(np.clip(float(f"{np.exp(value) if among.log else value:.4g}"), among.low, among.high))
    return round(value) if whole else value


def trials_of(
    folder: Path,
    recipes: Sequence[str],
    tuning: Tuning,
    *,
    root: Path | None = None,
    settings: Sequence[str] = (),
) -> list[Trial]:
    """Return every trial of every recipe once; arguments as for :func:`jobs_of`."""
    Noise.parse(tuning.noise)
    chosen = dict.fromkeys(recipes)
    for recipe in chosen:
        if not with_settings(Recipe.load(recipe), settings)[0].search:
            raise NclBenchError(
                f"recipe {recipe} has no search section; add one with the options to tune and their ranges"
            )
    return [
        Trial(recipe, tuning.noise, tuning.seed, folder, root, settings=tuple(settings), number=number)
        for recipe in chosen
        for number in range(tuning.trials)
    ]


def tune(
    folder: Path,
    trials: Sequence[Trial],
    *,
    at_once: int = 2,
    device: str = "auto",
    slurm: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Train every unfinished trial, and write each recipe's table of trials and its best options.

    Args:
        folder: folder to write.
        trials: trials from :func:`trials_of`.
        at_once, device, slurm: as for :func:`sweep`.

    Returns:
        YAML file with the best options of each recipe.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.recipe, []).append(trial)

    def record(trial: Trial, results: Mapping[Trial, float]) -> None:
        _write_study(groups[trial.recipe], results)

    with owned(folder):
        results = finish_all(
            folder, trials, train_trial, r_sum_on_dev, at_once, device, "auto", slurm, record
        )
        return [_write_study(group, results) for group in groups.values()]


def _write_study(trials: Sequence[Trial], results: Mapping[Trial, float]) -> Path:
    """Write the table of a recipe's finished trials and, when all are finished, its best options as a recipe.

    Args:
        trials: trials of the recipe, by number.
        results: rSum on dev of the finished trials.

    Returns:
        Path of the tuned recipe.
    """
    first, done = trials[0], [trial for trial in trials if trial in results]
    # ties go to the first trial, so that the unchanged recipe wins them
    best = max(trials, key=results.__getitem__) if len(done) == len(trials) else None
    names = list(first.base.search)
    lines: list[list[object]] = [["trial", *names, "dev_rsum", "best_epoch", "chosen"]]
    for trial in done:
        options = options_of(trial.training.recipe)
        chosen = "yes" if trial == best else ""
        lines.append(
            [trial.number, *map(options.get, names), f"{results[trial]:.1f}", trial.best_epoch, chosen]
        )
    path = first.folder / "tuned" / f"{short_name(first.recipe)}{TUNED_SUFFIX}.yaml"
    write_text(path.with_name(f"{path.stem}.csv"), as_csv(lines))
    if best is not None:
        write_text(path, _variant(best, len(trials)))
    return path


def _variant(best: Trial, n_trials: int) -> str:
    """Write the best trial's options as the text of a tuned recipe."""
    steps = best.base.steps
    length = "" if steps is None else f", {steps} steps per network"
    content: dict[str, Any] = {}
    for name, value in best.values.items():
        section, _, option = name.rpartition(".")
        (content.setdefault(section, {}) if section else content)[option] = value
    content["note"] = (
        f"The best of {n_trials} trials on dev under {best.noise} noise, seed {best.seed}{length}"
        + ("." if best.values else "; it is the recipe as it was.")
    )
    return yaml.safe_dump(content, sort_keys=False, width=110)
