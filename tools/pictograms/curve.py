"""A low score on test: not learnt, or learnt and not carried over? rSum by epoch tells which."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from baselines.engine.progress import TrainingProgress
from baselines.engine.recipe import Recipe, with_settings
from baselines.engine.run_folder import RunFolder, TrainingJob
from baselines.engine.similarities import score
from baselines.engine.train import Trainer
from ncl_bench.evaluation.protocol import evaluate


class Curve(Trainer):
    """Prints after every epoch the rSum on as many images of train and test as dev has, and chooses nothing by it."""

    def __init__(self, job: TrainingJob, folder: RunFolder) -> None:
        super().__init__(job, folder)
        splits = (self.train_split, self.dev_split, job.load("test"))
        self._samples = [split.first_images(self.dev_split.n_images) for split in splits]

    def _score_dev(self) -> NDArray[np.float32]:
        similarities = super()._score_dev()
        sums = [self._r_sum(score(self.method.networks, sample)) for sample in self._samples]
        print(f"| {min(self.step.taken):,} |", *(f"{r_sum:.1f} |" for r_sum in sums), flush=True)
        return similarities

    def _r_sum(self, similarities: NDArray[np.float32]) -> float:
        return evaluate(similarities, dataset=self.dev_split.name, split="dev", intervals=False).r_sum


def print_curve(recipe: str, settings: list[str], work: Path) -> None:
    """Train a recipe on clean pairs and print the table of its curve; a run that was stopped goes on.

    Args:
        recipe: its name.
        settings: options to set otherwise, such as ``steps=1000``.
        work: folder to write; the run is a folder in it.
    """
    changed, differences = with_settings(Recipe.load(recipe), settings)
    curve = Curve(TrainingJob(changed, settings=differences), RunFolder(work / recipe.replace("/", "-")))
    print("| steps | train | dev | test |\n| ---: | ---: | ---: | ---: |", flush=True)
    with TrainingProgress(len(curve.plans), Console(stderr=True)) as progress:
        curve.run(progress)
