"""A low score on test: not learnt, or learnt and not carried over? rSum by epoch tells which."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from baselines.engine.progress import TrainingProgress
from baselines.engine.recipe import Recipe, with_settings
from baselines.engine.run_folder import RunFolder, TrainingJob
from baselines.engine.scoring import score
from baselines.engine.train import Trainer
from ncl_bench.evaluation.protocol import evaluate


class Curve(Trainer):
    """Prints after every epoch the rSum on as many images of train and test as dev has, and chooses nothing by it."""

    def __init__(self, job: TrainingJob, folder: RunFolder) -> None:
        super().__init__(job, folder)
        n_images = self.dev_split.n_images
        self._seen, self._test = (x.first_images(n_images) for x in (self.train_split, job.load("test")))

    def _score_dev(self) -> NDArray[np.float32]:
        dev = super()._score_dev()
        seen, test = (score(self.method.networks, sample) for sample in (self._seen, self._test))
        sums = (f"{self._r_sum(similarities):.1f} |" for similarities in (seen, dev, test))
        print(f"| {self.step.mean_taken:,.0f} |", *sums, flush=True)
        return dev

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
