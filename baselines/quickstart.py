"""The whole path on the embedded digits: noise, training, scores, evaluation, leaderboard."""

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

from baselines.config import Recipe
from baselines.progress import TrainingProgress, progress_bar
from baselines.run import Job, RunFolder
from baselines.submit import submit
from leaderboard.add import add
from leaderboard.build import build
from leaderboard.row_files import row_slug
from ncl_bench.errors import NclBenchError
from ncl_bench.evaluation.output import evaluate_folder
from ncl_bench.submission import SUBMISSION_FILE, read_submission

RECIPES = ("triplet/digits_vse_infinity", "ncr/digits_vse_infinity")
NOISE_RATIOS = (0.4, 0.6)
_FOLDERS = ("runs", "submissions", "leaderboard")


@dataclass(frozen=True)
class _Part:
    """One method under one noise ratio."""

    recipe: str
    noise_ratio: float
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.recipe.split('/')[0]}-{100 * self.noise_ratio:.0f}"

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder / "runs" / self.name)

    @property
    def submission(self) -> Path:
        return self.folder / "submissions" / self.name

    @property
    def job(self) -> Job:
        return Job(Recipe.load(self.recipe), noise_ratio=self.noise_ratio)

    @property
    def n_epochs(self) -> int:
        config = self.job.recipe.method_config
        return int(config.warmup_epochs + config.epochs)


def quickstart(to: Path, device: str = "auto") -> None:
    """Train a plain method and NCR under 40 % and 60 % caption noise, evaluate both and build a leaderboard.

    Interrupted, it goes on where it stopped.

    Args:
        to: folder to write.
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        NclBenchError: the folder holds something else.
    """
    if to.exists() and (not to.is_dir() or any(path.name not in _FOLDERS for path in to.iterdir())):
        raise NclBenchError(f"{to} exists and is no quickstart; choose a new folder with --to")
    console = Console(stderr=True)
    parts = [_Part(recipe, ratio, to) for ratio in reversed(NOISE_RATIOS) for recipe in reversed(RECIPES)]
    _train_all(parts, device, console)
    board = to / "leaderboard"
    for part in reversed(parts):
        if not (part.submission / SUBMISSION_FILE).exists():
            submit([part.run.path], part.submission, device=device)
        report, _ = evaluate_folder(part.submission, part.submission)
        if not _has_row(board, part.submission):
            add(part.submission, board)
        console.print(f"{part.name}: rSum {report.splits['test'].r_sum:.1f} on test", highlight=False)
    build(board, published=False)
    console.print(f"Look at {board / 'site' / 'index.html'}, or at {board / 'README.md'}.", highlight=False)


def _train_all(parts: Sequence[_Part], device: str, console: Console) -> None:
    """Train two at a time, one thread each: networks as small as these gain nothing from more threads."""
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
        progress_bar(console) as bar,
    ):
        runs = [pool.submit(_train, part, device) for part in parts]
        task = bar.add_task("train", total=sum(part.n_epochs for part in parts), state="")
        while not all(run.done() for run in runs):
            bar.update(task, completed=sum(map(_epochs_done, parts)))
            time.sleep(0.5)
        for run in runs:
            run.result()


def _train(part: _Part, device: str) -> None:
    import torch

    from baselines.train import Trainer

    torch.set_num_threads(1)
    trainer = Trainer(part.job, part.run, device)
    with TrainingProgress(len(trainer.plans), Console(quiet=True)) as progress:
        trainer.run(progress)


def _epochs_done(part: _Part) -> int:
    states = [path.name for path in part.run.checkpoints.glob("epoch-*.pt")]
    return max((int(name[6:12]) for name in states), default=0)


def _has_row(board: Path, submission: Path) -> bool:
    stated = read_submission(submission)
    return (board / "submissions" / stated.dataset / f"{row_slug(stated)}.yaml").exists()
