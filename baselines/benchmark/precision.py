"""What each arithmetic does to the scores of a finished run: ``python -m baselines.benchmark.precision RUN``.

The same weights score dev in every precision of the device. ``32-true`` is the reference and the default; another
precision is as good for evaluation where it stays within the limits below. A CPU has no ``tf32``.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import typer

from baselines.engine.devices import fabric_for, set_products
from baselines.engine.records import Precision
from baselines.engine.run_folder import RunFolder
from baselines.engine.score_run import chosen_method
from baselines.engine.similarities import score
from ncl_bench.data import dataset_spec
from ncl_bench.evaluation.protocol import evaluate, selection_images

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
SIMILARITY_LIMIT = 0.01
"""Largest difference of a similarity; they lie in [-1, 1] or (0, 1)."""
R_SUM_LIMIT = 1.0
"""Largest difference of rSum in points, far below the spread over seeds."""


@dataclass(frozen=True)
class Effect:
    """A precision against ``32-true``.

    Attributes:
        precision: its name.
        difference: largest absolute difference of a similarity.
        r_sum: on dev, in [0, 600].
        within_limits: both differences are within their limits.
    """

    precision: str
    difference: float
    r_sum: float
    within_limits: bool


def precision_effects(run: RunFolder, *, device: str = "auto", root: Path | None = None) -> list[Effect]:
    """Score dev with a run's chosen networks in each precision.

    Args:
        run: a finished run, whatever precision it was trained in.
        device: ``auto``, ``cpu`` or ``cuda``.
        root: folder of prepared datasets.

    Returns:
        One effect per precision, ``32-true`` first.
    """
    job = run.job(root)
    dev = job.load("dev")
    n_images = selection_images(dataset_spec(dev.name), "dev")
    place = fabric_for(device, "32-true").device
    precisions = [name for name in PRECISIONS if name != "tf32" or place.type == "cuda"]
    similarities = []
    try:
        for precision in precisions:
            set_products(precision)
            networks = chosen_method(replace(job, precision=precision), run, place).networks
            similarities.append(score(networks, dev, n_images=n_images, device=place))
    finally:
        set_products("32-true")
    r_sums = [evaluate(s, dataset=dev.name, split="dev", intervals=False).r_sum for s in similarities]
    effects = []
    for precision, values, r_sum in zip(precisions, similarities, r_sums, strict=True):
        difference = float(np.abs(values - similarities[0]).max())
        within = difference <= SIMILARITY_LIMIT and abs(r_sum - r_sums[0]) <= R_SUM_LIMIT
        effects.append(Effect(precision, difference, r_sum, within))
    return effects


def main(run: Path, device: str = "auto") -> None:
    """Print the effects as a table."""
    for effect in precision_effects(RunFolder(run), device=device):
        verdict = "within" if effect.within_limits else "beyond"
        typer.echo(
            f"{effect.precision:<10}  difference {effect.difference:.1e}  dev rSum {effect.r_sum:.1f}  "
            f"{verdict} the limits {SIMILARITY_LIMIT} and {R_SUM_LIMIT}"
        )


if __name__ == "__main__":
    typer.run(main)
