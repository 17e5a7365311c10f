"""Correct the scores of trained networks for hubs, with a bank of training items and options chosen on dev.

See :func:`ncl_bench.without_hubs`. Only the 50 highest similarities of each item to the bank are kept, so memory does
not grow with the training split.
"""

from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import torch
from rich.console import Console

from baselines.kit.batches import in_blocks
from baselines.kit.distributed import from_first_rank, rank
from baselines.training.job import TrainingJob
from baselines.training.scoring import Networks, score
from ncl_bench.data import dataset_spec
from ncl_bench.data.paired import PairedDataset
from ncl_bench.evaluation.hubs import without_hubs
from ncl_bench.evaluation.protocol import recalls_of, selection_images
from ncl_bench.evaluation.submission import Correction
from ncl_bench.npy import Float32Array
from ncl_bench.progress import bar

WEIGHTS = (0.0, 0.5, 1.0, 1.5)
NEIGHBOURS = (10, 50)
BANK_CAPTIONS = 10_000
BANK_SEED = 0
IMAGES_AT_ONCE = 2_000


def corrected(
    networks: Networks,
    job: TrainingJob,
    test: PairedDataset,
    weight: float | Literal["auto"],
    device: torch.device,
    console: Console | None,
) -> tuple[Float32Array, Correction]:
    """Score test and correct the scores for hubs.

    Args:
        networks: in evaluation mode, with the map of each from similarities to scores.
        job: names the splits; the pairing of the training split is not read.
        test: split to score.
        weight: see :func:`ncl_bench.without_hubs`; ``auto`` chooses it on dev out of ``WEIGHTS``. Dev always chooses
            the number of neighbours.
        device: device of the networks.
        console: console for progress.

    Returns:
        float32 ``(n_images, n_captions)``, empty on every rank but the first, and the options that were chosen.
    """
    train, dev, spec = job.load("train"), job.load("dev"), dataset_spec(test.name)
    drawn = np.random.default_rng(BANK_SEED).permutation(len(train))[:BANK_CAPTIONS]
    bank_captions, bank_images = np.sort(drawn), np.arange(train.n_images)

    def scored(split: PairedDataset, n_images: int) -> tuple[Float32Array, Float32Array, Float32Array]:
        """Similarities, and the highest ones of each image and of each caption to the bank, as without_hubs reads."""
        images, captions = np.arange(n_images), np.arange(n_images * split.captions_per_image)
        sizes = (len(captions), len(bank_captions), len(captions) * len(bank_images) // n_images)
        with bar(f"score {split.split}", n_images * sum(sizes), console) as advance:
            scores = partial(score, networks, device=device, advance=advance)
            whole = scores(split, images, captions)
            of_images = _highest(scores(split, images, bank_captions, captions_of=train))
            of_captions = np.empty((whole.shape[1], 0), np.float32)
            for rows in in_blocks(bank_images, IMAGES_AT_ONCE):
                nearest = scores(train, rows, captions, captions_of=split).T
                of_captions = _highest(np.concatenate([of_captions, nearest], axis=1))
        return whole, of_images, of_captions.T

    on_dev = scored(dev, selection_images(spec))

    def choose() -> tuple[float, int]:
        grid = product(WEIGHTS if weight == "auto" else (weight,), NEIGHBOURS)
        return max(grid, key=lambda option: recalls_of(without_hubs(*on_dev, *option), spec, "dev")["r_sum"])

    chosen, neighbours = from_first_rank(choose)
    on_test = scored(test, test.n_images)
    matrix = without_hubs(*on_test, chosen, neighbours) if rank() == 0 else on_test[0]
    return matrix.astype(np.float32, copy=False), Correction(
        name="csls",
        captions=len(bank_captions),
        images=len(bank_images),
        given_weight=None if weight == "auto" else weight,
        weight=chosen,
        neighbours=neighbours,
    )


def _highest(similarities: Float32Array) -> Float32Array:
    """The highest similarities of each row, in any order."""
    most = max(NEIGHBOURS)
    return similarities if similarities.shape[1] <= most else -np.partition(-similarities, most - 1)[:, :most]
