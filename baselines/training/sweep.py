"""Many training runs, several at a time.

``FOLDER/runs`` and ``FOLDER/submissions``   one folder per job
``FOLDER/table.csv``                         mean rSum on test beside the printed one, one line per recipe and noise

The same command resumes: it skips finished jobs and continues the others from their last complete epoch.
"""

import glob
import hashlib
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from rich.console import Console
from rich.table import Column, Table

from baselines.kit.batches import Features
from baselines.kit.distributed import check_device
from baselines.recipes import Ablation
from baselines.training.grids import Job
from baselines.training.printed import row_of_paper
from baselines.training.slurm import job_pool
from baselines.training.statement import stated_settings
from baselines.training.submit import submit
from baselines.training.train import Trainer, TrainingProgress
from ncl_bench.errors import NclBenchError, named, refuse_difference
from ncl_bench.evaluation.evaluate import evaluate_submission, open_submission
from ncl_bench.evaluation.results import write_result
from ncl_bench.evaluation.submission import read_submission
from ncl_bench.files import is_leftover, sole_owner, write_text
from ncl_bench.foreign import whole_number
from ncl_bench.papers import printed_sum, rows_by_recipe
from ncl_bench.processes import worker_pool
from ncl_bench.progress import is_quiet, live_bar
from ncl_bench.tables import csv_of

Progress = Callable[[int], TrainingProgress]
"""Number of epochs to the progress of a training."""
AnyJob = TypeVar("AnyJob", bound=Job)
Shares = Any
"""Shared array of floats in [0, 1]: progress of each training."""
MEANS_COLUMNS = ("recipe", "noise", "seeds", "rsum_mean", "rsum_std", "printed", "stds_apart", "paper")
_FILES = ("runs", "submissions", "leaderboard", "jobs", "tuned", "table.csv")


def sweep(
    folder: Path,
    jobs: Sequence[Job],
    *,
    at_once: int = 2,
    device: str = "auto",
    features: Features = "auto",
    slurm: Mapping[str, Any] | None = None,
) -> dict[Job, float]:
    """Train, score and evaluate every unfinished job, and write ``table.csv``.

    Args:
        folder: folder to write.
        jobs: jobs of :mod:`baselines.training.grids`.
        at_once: number of runs at once; each uses one thread, since small networks gain nothing from more.
        device: ``auto``, ``cpu`` or ``cuda``.
        features: ``auto``, ``mapped`` or ``gpu``, see :class:`baselines.training.train.Trainer`.
        slurm: options of SLURM jobs; None trains in processes of this command.

    Returns:
        rSum on test of each job, and of the members of means.
    """
    members = list(dict.fromkeys(member for job in jobs for member in job.members))
    # means average finished runs, so their members come first
    means = [job for job in jobs if job not in members]
    with owned(folder):
        results: dict[Job, float] = {}
        for each in (members, means):
            results |= finish_all(
                folder, each, train_and_score, r_sum_on_test, at_once, device, features, slurm
            )
        _write_table(folder / "table.csv", _other_seeds(results) | results)
    return results


def _other_seeds(results: Mapping[Job, float]) -> dict[Job, float]:
    """Results of seeds that an earlier sweep finished in the same folder, so that a row averages all of them."""
    others: dict[Job, float] = {}
    for job in results:
        for submission in sorted(
            job.submission.parent.glob(f"{glob.escape(job.name.rpartition('seed')[0])}seed*")
        ):
            seed = whole_number(submission.name.rpartition("seed")[2])
            other = job if seed is None else replace(job, seed=seed)
            if other in results or other in others or not other.finished:
                continue
            with suppress(NclBenchError):  # trained with other settings, and so of another row
                others[other] = r_sum_on_test(other)
    return others


def train_and_score(job: Job, device: str, features: Features, progress: Progress) -> None:
    """Train or resume a job, then score test; the members of a mean are finished before."""
    runs = [member.run.path for member in job.members]
    if len(runs) == 1:
        train_run(job, device, features, progress)
    submit(runs, job.submission, root=job.root, device=device, console=Console(quiet=True))


def train_run(job: Job, device: str, features: Features, progress: Progress) -> None:
    """Train or resume a job, without scoring."""
    trainer = Trainer(job.training, job.run, device, features=features)
    with progress(len(trainer.plans)) as shown:
        trainer.run(shown)


def r_sum_on_test(job: Job) -> float:
    """Evaluate the submission of a job and return its rSum on test; refuse one that was trained otherwise."""
    _refuse_other_training(job)
    result, _ = evaluate_submission(open_submission(job.submission, root=job.root))
    write_result(job.submission, result)
    return result.splits["test"].r_sum


def _refuse_other_training(job: Job) -> None:
    submission = read_submission(job.submission)
    stated, asked = submission.training, [member.training for member in job.members]
    if stated is None:
        return
    noise = ["a file" if of_file else "drawn" for of_file in (submission.noise.seed is None, job.noise_file)]
    facts: dict[str, tuple[object, object]] = {
        "noise": (noise[0] if job.noise != "none" else noise[1], noise[1]),
        "precision": (stated.precision, job.precision),
        "steps": (stated.budget, asked[0].recipe.steps),
        "settings": (stated.settings, stated_settings(asked)),
    }
    fix = f"choose a new folder with {named('to')}"
    refuse_difference(f"{job.submission} was trained otherwise", facts, fix, NclBenchError)
    for member, wanted in zip(job.members, asked, strict=True):
        member.run.refuse_another(recipe=wanted.recipe.model_dump(mode="json"))


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock the folder of a sweep or a search; refuse a folder that holds something else."""
    held = [path for path in folder.iterdir() if not is_leftover(path)] if folder.is_dir() else []
    if (folder.exists() and not folder.is_dir()) or any(path.name not in _FILES for path in held):
        raise NclBenchError(
            f"{folder} exists and holds something else; choose a new folder with {named('to')}"
        )
    with sole_owner(folder):
        yield


def finish_all(
    folder: Path,
    jobs: Sequence[AnyJob],
    train: Callable[[AnyJob, str, Features, Progress], None],
    measure: Callable[[AnyJob], float],
    at_once: int,
    device: str,
    features: Features,
    slurm: Mapping[str, Any] | None,
    record: Callable[[AnyJob, Mapping[AnyJob, float]], object] = lambda *_: None,
) -> dict[AnyJob, float]:
    """Train and measure every job and return its rSum; after each job, ``record`` gets all results so far.

    ``train`` and ``measure`` are functions of a module: worker processes and SLURM find them by name.
    """
    check_device(device)
    console = Console(stderr=True, quiet=is_quiet())
    results: dict[AnyJob, float] = {}

    def say(job: AnyJob, r_sum: float) -> None:
        results[job] = r_sum
        console.print(f"{job.name}: rSum {r_sum:.1f} on {job.split}", highlight=False)
        record(job, results)

    for job in jobs:
        if job.finished:
            say(job, measure(job))
    missing = [job for job in jobs if job not in results]
    if missing:
        # without a lock: every worker writes its own number, and the bar may lag
        shares = multiprocessing.get_context("spawn").Array("d", len(missing), lock=False)
        with _workers(slurm, folder, min(at_once, len(missing)), shares) as begin, live_bar(console) as bar:
            waiting = {
                begin(_slurm_name(job), _finish, index, job, train, measure, device, features): job
                for index, job in enumerate(missing)
            }
            before = len(results)
            task = bar.add_task(f"{len(jobs)} runs", total=len(jobs), completed=before, state="")
            while waiting:
                # short, so that the bar moves between two results
                done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda each: each.exception() is not None):  # errors last
                    say(waiting.pop(future), future.result())
                bar.update(task, completed=before + sum(shares))
    return {job: results[job] for job in jobs}


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


def _slurm_name(job: Job) -> str:
    """Return the name of a job in the queue, the same in every command."""
    # the folder's hash keeps sweeps of the same recipe into two folders apart: SLURM runs one job of a name at a time
    folder = hashlib.sha256(str(job.folder.absolute()).encode()).hexdigest()[:8]
    return f"ncl-bench-{folder}-{job.name.replace('/', '-')}"


def _finish(
    index: int,
    job: AnyJob,
    train: Callable[[AnyJob, str, Features, Progress], None],
    measure: Callable[[AnyJob], float],
    device: str,
    features: Features,
) -> float:
    if not job.finished:  # a SLURM job of a killed command may have done it meanwhile
        train(job, device, features, partial(SharedProgress, index=index))
    r_sum = measure(job)
    if _shares is not None:
        _shares[index] = 1.0
    return r_sum


_shares: Shares | None = None


def begin_worker(shares: Shares | None = None) -> None:
    """Start a worker with one thread; a SLURM job has no shared progress array."""
    import torch

    global _shares
    _shares = shares
    # one each, because the workers share the cores; the number of threads also moves the last bits
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


def means_of(results: Mapping[Job, float]) -> pd.DataFrame:
    """Return mean and sample standard deviation over seeds, one row per recipe and noise, sorted.

    Returns:
        The columns of ``table.csv``. ``printed`` is the rSum of a paper, ``stds_apart`` our mean minus it, in standard
        deviations of the seeds. A number that is missing is NaN.
    """
    papers, lines = rows_by_recipe(), []
    for job, r_sum in results.items():
        row = row_of_paper(job, papers)
        printed = (printed_sum(row.row) if row else None) or nan
        paper = f"{row.paper.short}; {row.row.table}" if row else ""
        lines.append((job.title, job.noise, r_sum, printed, paper))
    frame = pd.DataFrame(lines, columns=["recipe", "noise", "rsum", "printed", "paper"])
    means = _over_seeds(frame, ["recipe", "noise"], printed=("printed", "first"), paper=("paper", "first"))
    spread = means["rsum_std"].where(means["rsum_std"] > 0)
    means["stds_apart"] = (means["rsum_mean"] - means["printed"]) / spread
    return means[list(MEANS_COLUMNS)]


def _over_seeds(frame: pd.DataFrame, by: list[str], **others: tuple[str, str]) -> pd.DataFrame:
    """Number, mean and sample standard deviation of the column ``rsum`` of each group, sorted."""
    numbers = {"seeds": ("rsum", "size"), "rsum_mean": ("rsum", "mean"), "rsum_std": ("rsum", "std")}
    return frame.groupby(by, as_index=False).agg(**numbers, **others)


def _write_table(path: Path, results: Mapping[Job, float]) -> None:
    """Write the means; rows of earlier sweeps in the same folder stay."""
    table = means_of(results).map(lambda x: _one_digit(x) if isinstance(x, float) else str(x))
    if path.is_file():
        before = pd.read_csv(path, dtype=str, keep_default_na=False)
        # rows of earlier sweeps stay, unless the columns are others
        if [*before] == [*table]:
            table = pd.concat([before, table]).drop_duplicates(["recipe", "noise"], keep="last")
    write_text(path, csv_of(table.sort_values(["recipe", "noise"])))


def table_to_print(means: pd.DataFrame) -> Table:
    """Format :func:`means_of` with one row per recipe and one column per noise."""
    noises = sorted(set(means["noise"]), key=lambda noise: (noise != "none", noise))
    table = Table(Column("rSum on test, mean ± std over seeds", overflow="fold"), *noises)
    for recipe, rows in means.groupby("recipe", sort=False):
        beside = {row.noise: _beside(row) for row in rows.itertuples()}
        table.add_row(str(recipe), *(beside.get(noise, "") for noise in noises))
    return table


def _beside(row: Any) -> str:
    """Our mean and, below it, the printed rSum with the distance in standard deviations of the seeds."""
    if pd.isna(row.printed):
        return _ours(row)
    apart = "" if pd.isna(row.stds_apart) else f" ({row.stds_apart:+.1f} std)"
    return f"{_ours(row)}\n{row.printed:.1f} printed{apart}"


def _ours(row: Any) -> str:
    return f"{row.rsum_mean:.1f} ± {_one_digit(row.rsum_std) or '-'}"


def ablation_of(table: Ablation, results: Mapping[Job, float]) -> pd.DataFrame:
    """Return the rows of an ablation table: our rSum and what each row loses of the first, beside the paper's.

    Returns:
        Columns ``row``, ``seeds``, ``rsum_mean``, ``rsum_std``, ``drop``, ``printed`` and ``printed_drop``.
    """
    frame = pd.DataFrame([(job.variant, r_sum) for job, r_sum in results.items()], columns=["row", "rsum"])
    means = _over_seeds(frame, ["row"]).set_index("row").loc[[row.title for row in table.rows]]
    full = means["rsum_mean"].iloc[0]
    return means.reset_index().assign(
        drop=lambda rows: 100 * (full - rows["rsum_mean"]) / full,
        printed=[sum(row.printed) for row in table.rows],
        printed_drop=list(map(table.printed_drop, table.rows)),
    )


def ablation_to_print(table: Ablation, rows: pd.DataFrame) -> Table:
    """Format :func:`ablation_of`."""
    columns = ("seeds", "rSum, mean ± std", "drop", "printed rSum", "printed drop")
    shown = Table(Column(table.title, overflow="fold"), *columns, caption=table.source)
    row: Any
    for row in rows.itertuples():
        drops = f"{row.drop:.1f} %", f"{row.printed_drop:.1f} %"
        shown.add_row(row.row, str(row.seeds), _ours(row), drops[0], f"{row.printed:.1f}", drops[1])
    return shown


def _one_digit(number: float) -> str:
    return "" if pd.isna(number) else f"{number:.1f}"
