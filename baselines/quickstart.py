"""The whole path on the embedded digits: noise, training, scores, evaluation, leaderboard."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from baselines.config import Recipe
from baselines.progress import TrainingProgress
from baselines.run import Job, RunFolder
from baselines.submit import submit
from baselines.train import Trainer
from leaderboard.add import add
from leaderboard.build import build
from leaderboard.row_files import row_slug
from ncl_bench.errors import NclBenchError
from ncl_bench.evaluation.output import evaluate_folder
from ncl_bench.submission import SUBMISSION_FILE, read_submission

RECIPES = ("triplet/quickstart", "ncr/quickstart")
NOISE_RATIOS = (0.4, 0.6)


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
    def run(self) -> Path:
        return self.folder / "runs" / self.name

    @property
    def submission(self) -> Path:
        return self.folder / "submissions" / self.name

    @property
    def job(self) -> Job:
        return Job(Recipe.load(self.recipe), noise_ratio=self.noise_ratio)


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
    parts = [_Part(recipe, ratio, to) for ratio in NOISE_RATIOS for recipe in RECIPES]
    trainers = [Trainer(part.job, RunFolder(part.run), device) for part in parts]
    with TrainingProgress(sum(len(trainer.plans) for trainer in trainers), console) as progress:
        for trainer in trainers:
            trainer.run(progress)
    board = to / "leaderboard"
    for part in parts:
        if not (part.submission / SUBMISSION_FILE).exists():
            submit([part.run], part.submission, device=device)
        report, _ = evaluate_folder(part.submission, part.submission)
        if not _has_row(board, part.submission):
            add(part.submission, board)
        console.print(f"{part.name}: rSum {report.splits['test'].r_sum:.1f} on test", highlight=False)
    build(board, published=False)
    console.print(
        f"Look at {board / 'site' / 'index.html'}, or at {board / 'README.md'} and its plot.", highlight=False
    )


def _has_row(board: Path, submission: Path) -> bool:
    stated = read_submission(submission)
    return (board / "submissions" / stated.dataset / f"{row_slug(stated)}.yaml").exists()


_FOLDERS = ("runs", "submissions", "leaderboard")
