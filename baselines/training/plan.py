"""What a sweep or a search still has to train: runs and gradient steps, and hours where steps are timed."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from math import isnan, nan
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Column, Table

from baselines.kit.batches import Features
from baselines.training.grids import Job, planned_steps
from baselines.training.job import TrainingJob
from baselines.training.printed import row_of_paper
from baselines.training.run_folder import RunFolder
from baselines.training.step import seconds_of
from baselines.training.train import Trainer, TrainingProgress
from ncl_bench.data import dataset_spec
from ncl_bench.papers import printed_sum, rows_by_recipe

H100_MILLISECONDS = {
    "imram": {"32-true": 125.4, "tf32": 73.2, "bf16-mixed": 66.7},
    "saf": {"32-true": 38.1, "tf32": 22.1, "bf16-mixed": 18.6},
    "scan": {"32-true": 10.9, "tf32": 10.6, "bf16-mixed": 12.9},
    "sgr": {"32-true": 58.9, "tf32": 34.3, "bf16-mixed": 29.6},
    "vse_infinity": {"32-true": 18.2, "tf32": 16.6, "bf16-mixed": 20.2},
    "vsrn": {"32-true": 76.3, "tf32": 22.0, "bf16-mixed": 27.7},
}
"""Device time of a step at the published sizes, uncompiled, by backbone and precision; measured in docs/scale.md."""
TIMED_STEPS = 10
"""Gradient steps that are timed; the one before them is not, because it also allocates memory."""


def plan_of(
    jobs: Sequence[Job], *, time: bool = False, device: str = "auto", features: Features = "auto"
) -> dict[str, dict[str, Any]]:
    """Count what is left of a sweep or a search, from the sizes of the datasets alone.

    Args:
        jobs: all of its jobs.
        time: train a few steps of every line here, which needs the data, and state hours.
        device: of the timed steps: ``auto``, ``cpu`` or ``cuda``.
        features: of the timed steps, see :class:`baselines.training.train.Trainer`.

    Returns:
        One row per recipe and settings, by its title: ``jobs``, those that are ``finished``, ``runs`` to train, their
        gradient ``steps``, their ``h100_hours`` on the card of docs/scale.md (if it was measured there), and if
        timed their ``hours`` here, one run after the other. ``printed`` is the rSum that a paper
        prints for the row, by noise, if one does.
    """
    rows: dict[str, dict[str, Any]] = {}
    printed: dict[str, dict[str, float | None]] = {}
    seconds: dict[str, float] = {}
    papers = rows_by_recipe()
    # members of a mean are trained once, also if the table has them as rows
    for job in dict.fromkeys(chain(*(job.members for job in jobs), jobs)):
        row = rows.setdefault(job.title, {"jobs": 0, "finished": 0, "runs": 0, "steps": 0, "h100_hours": 0.0})
        if printed_row := row_of_paper(job, papers):
            printed.setdefault(job.title, {})[job.noise] = printed_sum(printed_row.row)
        row["jobs"] += 1
        row["finished"] += job.finished
        if job.finished or job.run.finished or len(job.members) > 1:
            continue
        row["runs"] += 1
        steps = planned_steps(job)
        row["steps"] += steps
        recipe = job.training.recipe
        # the networks of an embedded dataset are smaller than the measured ones
        known = (
            {}
            if dataset_spec(recipe.dataset).embedded
            else H100_MILLISECONDS.get(recipe.backbone["name"], {})
        )
        row["h100_hours"] += steps * known.get(job.precision, nan) / 3.6e6
        if time and job.title not in seconds and steps:
            seconds[job.title] = seconds_per_step(job.training, device, features)
    unknown = all(isnan(row["h100_hours"]) for row in rows.values())
    for title, row in rows.items():
        if unknown:
            del row["h100_hours"]
        if time:
            row["hours"] = row["steps"] * seconds.get(title, 0.0) / 3600
        if printed:
            row["printed"] = ", ".join(
                f"{noise} {each:.1f}" for noise, each in printed.get(title, {}).items()
            )
    return rows


def seconds_per_step(job: TrainingJob, device: str = "auto", features: Features = "auto") -> float:
    """Train the first steps of a run, in one thread as in a sweep, and keep nothing.

    Returns:
        Mean seconds of one gradient step with its batch; dividing pairs and scoring dev is not in it.
    """
    with tempfile.TemporaryDirectory() as scratch, _one_thread():
        trainer = Trainer(
            job, RunFolder(Path(scratch, "run")), device, features=features, keep_estimates=False
        )
        watch = _Stopwatch(trainer)
        with suppress(_Timed):
            trainer.run(watch)
        # a run of a single step ends before one is timed
        return watch.seconds / max(watch.steps, 1)


class _Timed(Exception):
    """Enough steps are timed."""


class _Stopwatch(TrainingProgress):
    """Times the steps of a training, from batch to batch, and stops it."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(len(trainer.plans), Console(quiet=True))
        self._trainer = trainer
        self._begun: tuple[float, int] | None = None
        self.steps, self.seconds = 0, 0.0

    def begin(self, name: str, title: str, phase: str, n_pairs: int) -> None:
        super().begin(name, title, phase, n_pairs)
        self._begun = None  # between two epochs dev is scored

    def advance(self, n_pairs: int, loss: float | None = None) -> None:
        # the device is waited for, or a GPU's steps would seem to take no time
        count, time = self._trainer.step.count, seconds_of(self._trainer.device)
        if self._begun is not None and count > self._begun[1]:
            self.seconds += time - self._begun[0]
            self.steps += count - self._begun[1]
        self._begun = (time, count) if count else None
        if self.steps >= TIMED_STEPS:
            raise _Timed


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def plan_to_print(plan: Mapping[str, Mapping[str, Any]]) -> Table:
    """A plan as a table, with the sums of its columns."""
    names = [*next(iter(plan.values()))]
    columns = (Column(name.replace("_", " "), justify="right") for name in names)
    sources = {"h100_hours": "docs/scale.md", "hours": f"{TIMED_STEPS} steps timed here"}
    told = " and ".join(source for name, source in sources.items() if name in names)
    caption = f"hours: one run after the other, without scoring and divisions, from {told}" if told else None
    table = Table(Column("left to do", overflow="fold"), *columns, caption=caption, caption_justify="left")
    for title, row in plan.items():
        table.add_row(title, *map(_cell, names, row.values()))
    table.add_section()
    sums = [sum(row[name] for row in plan.values()) for name in names if name != "printed"]
    table.add_row("sum", *map(_cell, names, sums))
    return table


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if isnan(value) else f"{value:,.2f}" if "hours" in name else f"{value:,.0f}"
