"""The calls `train`, `score`, `sweep` and `tune`; the commands of these names take their arguments from here.

This module imports nothing heavy, as ``--help`` reads its signatures; each call imports its work.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from ncl_bench.arguments import (
    AnyPath,
    Count,
    Features,
    NoiseUnit,
    Precision,
    Seed,
    as_list,
    as_path,
    checked_arguments,
    checked_fields,
)
from ncl_bench.errors import NclBenchError, named

if TYPE_CHECKING:
    import pandas as pd

    from baselines.audit.result import AuditResult
    from baselines.training.grids import Job
    from baselines.training.recipe import Recipe
    from baselines.training.run_folder import RunFolder
    from baselines.training.tune import Trial

Settings: TypeAlias = Mapping[str, Any] | Sequence[str]
"""Options of a recipe by name, ``{"method.epochs": 10}``, or as the command line has them, ``["method.epochs=10"]``."""
_OF_TRAINING = ("method.", "steps=", "gradient_clip=", "clean_only=")
"""Beginnings of settings that a network without training does not read."""


@checked_fields
@dataclass(frozen=True)
class Execution:
    """How a training is computed, on which no option of its recipe depends.

    Attributes:
        precision: arithmetic of the networks.
        features: place of the training features: read from disk as needed (``mapped``), or kept on the device
            (``gpu``); ``auto`` takes ``gpu`` if they fit into half of the GPU's free memory.
        compile: compile the networks' forward passes (docs/scale.md).
        history: keep what the method believes of every pair after each epoch.
    """

    precision: Precision = "32-true"
    features: Features = "auto"
    compile: Literal["off", "on"] = "off"
    history: bool = True


@checked_fields
@dataclass(frozen=True)
class Run:
    """A training run in its folder.

    Example::

        run = baselines.train("ncr/digits_vse_infinity", noise_ratio=0.4, to="runs/ncr")
        run.history.plot(y="dev_r_sum")
        result = ncl_bench.evaluate_submission(run.score())

    Attributes:
        path: the folder.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
    """

    path: Path
    root: Path | None = None

    @property
    def _folder(self) -> "RunFolder":
        from baselines.training.run_folder import RunFolder

        return RunFolder(self.path)

    @property
    def history(self) -> "pd.DataFrame":
        """One row per epoch: ``phase``, ``loss``, the recalls on dev as ``dev_r_sum``, and the diagnosis."""
        import pandas as pd

        epochs = [epoch.model_dump(mode="json") for epoch in self._folder.read_history()]
        flat = pd.json_normalize(epochs, sep="_").set_index("index")
        return flat[[name for name in flat if "_histogram_" not in str(name)]]

    @property
    def best_epoch(self) -> int:
        """The best epoch on dev, from 0: a row of ``history``."""
        return self._folder.read_outcome().best_epoch

    @property
    def dev(self) -> dict[str, float]:
        """Recalls and ``r_sum`` of the best epoch on dev."""
        return self._folder.read_outcome().dev

    @property
    def finished(self) -> bool:
        """Whether the training has ended."""
        return self._folder.finished

    def __fspath__(self) -> str:
        """The folder: a run stands wherever a path is expected."""
        return str(self.path)

    def __repr__(self) -> str:
        record = self._folder.read_run()
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
            The folder of the submission, for :func:`ncl_bench.evaluate_submission` and :func:`ncl_bench.compare`.
        """
        from ncl_bench.evaluation.submission import SUBMISSION_FILE, read_submission

        own = self.path / "submission"
        if to is None and (own / SUBMISSION_FILE).is_file():
            written = read_submission(own)
            matrices = embeddings and all(each.form == "matrix" for each in written.scores.values())
            # the same submission would be taken for one with the correction, or without
            if matrices or (hubs is None) != (written.correction is None):
                raise NclBenchError(
                    f"{own} was scored with another {named('hubs')} or {named('embeddings')}; give {named('to', 'DIR')}"
                )
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
    def plot(
        self, *, noise_file: AnyPath | None = None, keep: AnyPath | None = None, device: str = "auto"
    ) -> list[Path]:
        """Draw the curves and, where the run has the data, the papers' figures, as SVG and CSV; return the files.

        Args:
            noise_file: noise file of the training, if its noise came from one.
            keep: folder of ``ncl-bench audit apply`` that the training kept (default: all pairs).
            device: device of the networks; ``auto`` takes a GPU if there is one.
        """
        from baselines.plot import plot_run
        from ncl_bench.progress import say

        return plot_run(
            self._folder,
            self.root,
            noise_file=as_path(noise_file),
            keep=as_path(keep),
            device=device,
            say=say,
        )


def _formerly_train(recipe: Any, *, to: Any, execution: Any = None, **given: Any) -> Run:
    """Give precision, features, compile and history in execution=baselines.Execution(...)."""
    moved = {each.name: given.pop(each.name) for each in fields(Execution) if each.name in given}
    return train(recipe, to=to, execution=replace(execution or Execution(), **moved), **given)


@checked_arguments(formerly=_formerly_train, former=[each.name for each in fields(Execution)])
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
    settings: Settings = (),
    keep: AnyPath | None = None,
    execution: Execution = Execution(),
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
        settings: recipe options to override, such as ``method.epochs=10``. Also a mapping, ``{"method.epochs": 10}``.
        keep: folder of ``ncl-bench audit apply``, whose pairs alone are trained on (default: all pairs).
        execution: precision, place of the features, compilation, and what is kept.
    """
    from baselines.recipes import refuse_unknown

    refuse_unknown(str(recipe))  # before torch is imported
    from rich.console import Console

    from baselines.kit.distributed import rank
    from baselines.training.job import TrainingJob
    from baselines.training.run_folder import RunFolder
    from baselines.training.train import Trainer, TrainingProgress
    from ncl_bench.data import dataset_spec
    from ncl_bench.evaluation.submission import noise_of
    from ncl_bench.progress import is_quiet, opening_line, say

    changed, differences = _changed(recipe, settings)
    data_root = as_path(root)
    job = TrainingJob(
        changed,
        noise_ratio,
        noise_unit,
        noise_seed,
        as_path(noise_file),
        seed,
        data_root,
        execution.precision,
        differences,
        as_path(keep),
    )
    trainer = Trainer(
        job,
        RunFolder(Path(to)),
        device,
        features=execution.features,
        keep_estimates=execution.history,
        compiled=execution.compile == "on",
    )
    if rank() == 0:
        noise = noise_of(trainer.train_split.noise, dataset_spec(changed.dataset))
        say(opening_line(changed.dataset, noise.in_words, job.title, str(trainer.device)))
    console = Console(stderr=True, quiet=rank() > 0 or is_quiet())
    with TrainingProgress(len(trainer.plans), console) as progress:
        trainer.run(progress)
    return Run(Path(to), data_root)


def _formerly_score(*, zero_shot: Any, **given: Any) -> Path:
    """Score a backbone without training by baselines.calls.score_zero_shot(recipe, to=...)."""
    return score_zero_shot(zero_shot, **given)


@checked_arguments(formerly=_formerly_score, former=("precision", "settings"))
def score(
    runs: AnyPath | Sequence[AnyPath],
    *,
    to: AnyPath,
    embeddings: bool = False,
    hubs: str | float | None = None,
    root: AnyPath | None = None,
    device: str = "auto",
) -> Path:
    """Score the test split once and write a submission, with the precision and options of the training.

    Example::

        submission = baselines.score("runs/ncr", to="submissions/ncr")
        baselines.score(["runs/sgr", "runs/saf"], to="submissions/sgraf")  # the mean of two runs

    Args:
        runs: a finished run, or several whose similarities are averaged, as for SGRAF; ``hub:USER/NAME@REVISION`` is a
            run on the Hugging Face Hub.
        to: folder to write; it must not exist, or be empty.
        embeddings: write embeddings of images and captions in place of similarities (``clip``, ``vse_infinity`` and
            ``vsrn`` only).
        hubs: correct the scores for hubs with this weight, such as 1, or ``auto``, which chooses 0, 0.5, 1 or 1.5 on
            dev (default: no correction). See :func:`ncl_bench.without_hubs`. Its bank is 10,000 training captions and
            all training images, without their pairing; dev also chooses 10 or 50 neighbours.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        device: device of the networks; ``auto`` takes a GPU if there is one.

    Returns:
        The folder of the submission, for :func:`ncl_bench.evaluate_submission` and :func:`ncl_bench.compare`.
    """
    from rich.console import Console

    from baselines.training.submit import submit
    from ncl_bench.progress import is_quiet

    submit(
        [_run_folder(run) for run in as_list(runs)],
        Path(to),
        root=as_path(root),
        embeddings=embeddings,
        hubs=hubs,
        device=device,
        console=Console(stderr=True, quiet=is_quiet()),
        say=_first_says,
    )
    return Path(to)


@checked_arguments()
def score_zero_shot(
    recipe: AnyPath,
    *,
    to: AnyPath,
    embeddings: bool = False,
    hubs: str | float | None = None,
    root: AnyPath | None = None,
    device: str = "auto",
    precision: Precision = "32-true",
    settings: Settings = (),
) -> Path:
    """Score the pre-trained backbone of a recipe without training, and write a submission.

    Args:
        recipe: name of a shipped recipe, or a recipe file.
        to: folder to write; it must not exist, or be empty.
        embeddings: write embeddings of images and captions in place of similarities (``clip``, ``vse_infinity`` and
            ``vsrn`` only).
        hubs: correct the scores for hubs with this weight, such as 1, or ``auto``, which chooses 0, 0.5, 1 or 1.5 on
            dev (default: no correction). See :func:`ncl_bench.without_hubs`. Its bank is 10,000 training captions and
            all training images, without their pairing; dev also chooses 10 or 50 neighbours.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        precision: arithmetic of the networks.
        settings: recipe options to override, such as ``backbone.pretrained=openai``. Also a mapping.
    """
    from baselines.recipes import refuse_unknown

    refuse_unknown(str(recipe))  # before torch is imported
    from baselines.training.job import TrainingJob
    from baselines.training.submit import submit_zero_shot

    idle = [each for each in _as_set(settings) if each.startswith(_OF_TRAINING)]
    if idle:  # a submission would state an option that had no effect
        raise NclBenchError(
            f"{named('settings', idle[0])} has no effect, as nothing is trained; leave it out"
        )
    changed, _ = _changed(recipe, settings)
    job = TrainingJob(changed, root=as_path(root), precision=precision)
    submit_zero_shot(job, Path(to), embeddings=embeddings, hubs=hubs, device=device, say=_first_says)
    return Path(to)


@dataclass(frozen=True)
class Planned:
    """Runs of a sweep or a search: :meth:`plan` counts what is left of them, ``run`` trains it.

    Attributes:
        to: folder to write.
        jobs: the runs; see :mod:`baselines.training.grids`.
        table: name of their table; empty without one.
    """

    to: Path
    jobs: "Sequence[Job]"
    table: str = ""

    @checked_arguments()
    def plan(
        self, *, time: bool = False, device: str = "auto", features: Features = "auto"
    ) -> "pd.DataFrame":
        """Count the runs and gradient steps that are left, and train nothing; needs no data.

        Args:
            time: time ten steps of every line on this computer, and state hours; needs the data.
            device: device of the networks; ``auto`` takes a GPU if there is one.
            features: place of the training features, see :class:`Execution`.

        Returns:
            See :func:`baselines.training.plan.plan_of`.
        """
        import pandas as pd

        from baselines.training.plan import plan_of

        rows = plan_of(self.jobs, time=time, device=device, features=features)
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("left to do")


@dataclass(frozen=True)
class Sweep(Planned):
    """The runs of recipes under several noises and seeds.

    Example::

        baselines.Sweep.of(table="flickr30k", paper="NCR", to="sweep").plan()
    """

    @classmethod
    @checked_arguments()
    def of(
        cls,
        recipes: str | Sequence[str] = (),
        *,
        table: str = "",
        to: AnyPath = "sweep",
        noises: Sequence[str] | None = None,
        seeds: Sequence[Seed] | None = None,
        paper: str = "",
        dataset: str = "",
        noise_files: AnyPath | None = None,
        draws: bool = False,
        root: AnyPath | None = None,
        precision: Precision = "32-true",
        settings: Settings = (),
    ) -> "Sweep":
        """Combine recipes, noises and seeds, or take the rows of a table.

        Args:
            recipes: names of shipped recipes, or recipe files; with ``table``, those of its recipes or methods to
                train.
            table: table to train: a shipped one (docs/reproduce.md, docs/make-a-table.md), or a file.
            to: folder to write.
            noises: training noise, such as ``none`` or ``caption-40`` (default: none, caption-40, caption-60 and
                image-40). With a table, those of its noises.
            seeds: training seed (default: 0, 1 and 2). With a table, its own.
            paper: with ``table``: train only the rows that this paper prints, such as NCR.
            dataset: with ``table``: train on this dataset (docs/make-a-table.md).
            noise_files: folder with the papers' noise files of unit image, which replace drawn noise (docs/noise.md).
            draws: draw the noise anew for every training seed, with the same seed (docs/noise.md).
            root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
            precision: arithmetic of the networks.
            settings: recipe options to override, such as ``method.epochs=10``. Also a mapping,
                ``{"method.epochs": 10}``.
        """
        names = _names(recipes, table, "train")
        for name, each in {"noises": noises, "seeds": seeds}.items():
            if each is not None and not each:  # it would train nothing, in silence
                raise NclBenchError(
                    f"{named(name)} is empty; name one at least, or leave it out for the usual ones"
                )
        for what, value, does in (
            ("paper", paper, "selects rows of a table"),
            ("dataset", dataset, "moves a table to another dataset"),
        ):
            if value and not table:
                raise NclBenchError(
                    f"{named(what)} {does}; fix: add {named('table', 'NAME')}, or leave it out"
                )
        if noise_files is not None and (draws or dataset):
            other = "draws" if draws else "dataset"
            raise NclBenchError(
                f"{named('noise_files')} holds noise that was drawn for the table's own dataset; fix: leave "
                f"{named(other)} out"
            )
        from baselines.training.grids import SEEDS, jobs_of, jobs_of_table, of_paper

        options: Any = {"settings": _as_set(settings), "noise_files": as_path(noise_files)}
        if table:
            jobs = jobs_of_table(Path(to), table, names or None, noises, seeds, dataset=dataset, **options)
        else:
            jobs = jobs_of(Path(to), names, noises, seeds or SEEDS, **options)
        jobs = of_paper(jobs, paper) if paper else jobs
        made = [
            replace(
                job,
                root=as_path(root),
                precision=precision,
                draw=job.seed if draws and job.noise != "none" else None,
            )
            for job in jobs
        ]
        return cls(Path(to), made, table)

    @checked_arguments()
    def run(
        self,
        *,
        jobs: Count = 2,
        slurm: Mapping[str, Any] | None = None,
        device: str = "auto",
        features: Features = "auto",
    ) -> "pd.DataFrame":
        """Train, score and evaluate what is left.

        Args:
            jobs: runs to train at once, one thread each.
            slurm: option of every SLURM job, such as ``partition=gpu``, ``time=600`` (minutes) or
                ``gpus_per_node=1``. From Python a mapping of them (default: the runs are processes of this one).
            device: device of the networks; ``auto`` takes a GPU if there is one.
            features: place of the training features: read from disk as needed (``mapped``), or kept on the device
                (``gpu``); ``auto`` takes ``gpu`` if they fit into half of the GPU's free memory.

        Returns:
            Mean and standard deviation of rSum on test over the seeds, one row per recipe and noise, beside the number
            that a paper prints; of an ablation table, its rows. ``to/submissions`` holds the submissions.
        """
        from baselines.recipes import ablations
        from baselines.training.sweep import ablation_of, means_of, sweep

        results = sweep(self.to, self.jobs, at_once=jobs, device=device, features=features, slurm=slurm)
        ablation = ablations().get(self.table)
        return ablation_of(ablation, results) if ablation else means_of(results)


def _formerly_sweep(
    recipes: Any = (),
    *,
    table: str = "",
    plan: bool = False,
    time: bool = False,
    device: str = "auto",
    features: Features = "auto",
    jobs: int = 2,
    slurm: Any = None,
    **given: Any,
) -> "pd.DataFrame":
    """Use baselines.Sweep.of(recipes, table=...), and its plan(...) and run(...)."""
    made = Sweep.of(recipes, table=table, **given)
    if plan:
        return made.plan(time=time, device=device, features=features)
    return made.run(jobs=jobs, slurm=slurm, device=device, features=features)


@checked_arguments(formerly=_formerly_sweep, former=("paper", "dataset", "noise_files", "draws", "precision"))
def sweep(
    recipes: str | Sequence[str],
    *,
    to: AnyPath = "sweep",
    noises: Sequence[str] | None = None,
    seeds: Sequence[Seed] | None = None,
    jobs: Count = 2,
    root: AnyPath | None = None,
    device: str = "auto",
    settings: Settings = (),
) -> "pd.DataFrame":
    """Train, score and evaluate recipes under several noises and seeds; the same call resumes.

    Call it from a file whose main code is under ``if __name__ == "__main__":``: the runs are processes of their own.

    Example::

        means = baselines.sweep("ncr/digits_vse_infinity", noises=["caption-60"], seeds=[0, 1], to="sweep")

    Args:
        recipes: names of shipped recipes, or recipe files; of a table, see :meth:`Sweep.of`.
        to: folder to write.
        noises: see :meth:`Sweep.of`, which has further options.
        seeds: training seeds (default: 0, 1 and 2).
        jobs: runs to train at once, one thread each.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        settings: recipe options to override, such as ``method.epochs=10``. Also a mapping, ``{"method.epochs": 10}``.

    Returns:
        See :meth:`Sweep.run`.
    """
    made = Sweep.of(recipes, to=to, noises=noises, seeds=seeds, root=root, settings=settings)
    return made.run(jobs=jobs, device=device)


@dataclass(frozen=True)
class Search(Planned):
    """The trials of recipes by random search."""

    @classmethod
    @checked_arguments()
    def of(
        cls,
        recipes: str | Sequence[str] = (),
        *,
        table: str = "",
        to: AnyPath = "tuning",
        trials: Count | None = None,
        noise: str | None = None,
        seed: Seed | None = None,
        root: AnyPath | None = None,
        settings: Settings = (),
    ) -> "Search":
        """Draw trials of recipes, or of those of a table, as its tuning section says.

        Args:
            recipes: recipes with a ``search`` section; with ``table``, those of its recipes to tune.
            table: measured table whose recipes are tuned: a shipped one (docs/make-a-table.md), or a file.
            to: folder to write.
            trials: trials of each recipe; the first is the unchanged recipe (default: 12).
            noise: training noise of the trials (default: caption-60).
            seed: seed of training and of the drawn options (default: 1000).
            root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
            settings: recipe options to override, such as ``method.epochs=10``. Also a mapping,
                ``{"method.epochs": 10}``.
        """
        names, stated = _names(recipes, table, "tune"), {"trials": trials, "noise": noise, "seed": seed}
        given = {name: each for name, each in stated.items() if each is not None}
        from baselines.training.grids import Grid, Tuning, chosen_rows
        from baselines.training.tune import trials_of

        tuning, own = Tuning.model_validate(given), _as_set(settings)
        if table:
            from baselines.recipes import ablations

            if given:
                raise NclBenchError(
                    f"{named('table', table)} already sets {named(next(iter(given)))}; fix: leave one of the two out"
                )
            grid = None if table in ablations() else Grid.load(table)
            if grid is None or grid.tuning is None:
                raise NclBenchError(
                    f"{named('table', table)} trains its recipes as they are and has no tuning section; fix: leave "
                    f"{named('table')} out and name recipes with a `search` section"
                )
            names = list(chosen_rows(table, names or None, grid.recipes))
            tuning, own = grid.tuning, (*grid.settings, *own)
        return cls(Path(to), trials_of(Path(to), names, tuning, root=as_path(root), settings=own), table)

    @checked_arguments()
    def run(
        self, *, jobs: Count = 2, slurm: Mapping[str, Any] | None = None, device: str = "auto"
    ) -> list[Path]:
        """Run the trials that are left, and write the best options of each recipe as a recipe.

        Args:
            jobs: runs to train at once, one thread each.
            slurm: option of every SLURM job, such as ``partition=gpu``, ``time=600`` (minutes) or
                ``gpus_per_node=1``. From Python a mapping of them (default: the runs are processes of this one).
            device: device of the networks; ``auto`` takes a GPU if there is one.

        Returns:
            The written recipes.
        """
        from baselines.training.tune import tune

        return tune(self.to, cast("Sequence[Trial]", self.jobs), at_once=jobs, device=device, slurm=slurm)


def _names(recipes: str | Sequence[str], table: str, what: str) -> list[str]:
    """The recipes that are named, checked before torch is imported."""
    from baselines.recipes import refuse_unknown, table_file

    names = as_list(recipes)
    if not names and not table:
        raise NclBenchError(
            f"expected recipes or a table to {what}; fix: name some, or add {named('table', 'NAME')}"
        )
    if table:  # whose recipes may also be methods and means
        table_file(table)
    else:
        refuse_unknown(*names)
    return names


def _as_set(settings: Settings) -> tuple[str, ...]:
    """Settings as the command line has them, with YAML values."""
    if not isinstance(settings, Mapping):
        return tuple(settings)
    import yaml

    texts = {name: yaml.safe_dump(x, default_flow_style=True, width=math.inf) for name, x in settings.items()}
    return tuple(f"{name}={text.removesuffix('...' + chr(10)).strip()}" for name, text in texts.items())


def _changed(recipe: AnyPath, settings: Settings) -> "tuple[Recipe, dict[str, Any]]":
    from baselines.training.recipe import Recipe, with_settings

    return with_settings(Recipe.load(str(recipe)), _as_set(settings))


def _run_folder(given: AnyPath) -> Path:
    if not str(given).startswith("hub:"):
        return Path(given)
    from baselines.hub import fetch

    return fetch(str(given))


def _first_says(line: str) -> None:
    from baselines.kit.distributed import rank
    from ncl_bench.progress import say

    if rank() == 0:
        say(line)
