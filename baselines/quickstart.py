"""The whole workflow on an embedded dataset: noise, training, scores, evaluation, leaderboard."""

from contextlib import suppress
from pathlib import Path

QUICKSTART_RECIPES = ("ncr/{dataset}_vse_infinity", "triplet/{dataset}_vse_infinity")
QUICKSTART_NOISES = ("caption-60", "caption-40")


def quickstart(to: Path, dataset: str | None = None, device: str = "auto") -> None:
    """Train a plain method and NCR under 40 % and 60 % caption noise, evaluate both and build a leaderboard.

    The same call resumes after an interruption.

    Args:
        to: folder to write.
        dataset: embedded dataset (default: the first of ``ncl-bench datasets``, which takes minutes).
        device: device of the networks; ``auto`` takes a GPU if there is one.
    """
    from rich.console import Console

    from baselines.training.grids import jobs_of
    from baselines.training.sweep import sweep
    from leaderboard.add import RowStands, add
    from leaderboard.build import build
    from ncl_bench.data import DATASETS
    from ncl_bench.errors import known_name

    embedded = [name for name, spec in DATASETS.items() if spec.embedded]
    dataset = known_name("embedded dataset", dataset or embedded[0], embedded)
    jobs = jobs_of(
        to, [recipe.format(dataset=dataset) for recipe in QUICKSTART_RECIPES], QUICKSTART_NOISES, seeds=(0,)
    )
    sweep(to, jobs, device=device)
    board = to / "leaderboard"
    for job in reversed(jobs):
        with suppress(RowStands):
            add(job.submission, board)
    site = board / "site"
    build(board, site, published=False, tables=True)
    console = Console(stderr=True)
    console.print(f"Look at {site / 'index.html'}, or at {board / 'README.md'}.", highlight=False)
