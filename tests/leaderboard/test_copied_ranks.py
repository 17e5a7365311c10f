"""Ranks that a reviewer has to ask about."""

import os
from pathlib import Path

import numpy as np
import pytest

from leaderboard import cli
from leaderboard.copied_ranks import contradicts, correlated, near_copies
from leaderboard.rank_files import read_ranks
from leaderboard.row_files import read_row_file
from ncl_bench.data import dataset_spec
from ncl_bench.evaluation.ranks import Ranks


def uniform(n):
    return np.random.RandomState(1).uniform(0.97, 1.03, n)


def improved(ranks, share):
    return np.where(np.random.RandomState(1).rand(len(ranks)) < share, 1, ranks)


@pytest.mark.parametrize(
    ("measure", "least", "copy"),
    [
        (near_copies, 0.6, lambda ranks: improved(ranks, 0.1)),
        (near_copies, 0.6, lambda ranks: improved(ranks, 0.3)),
        (near_copies, 0.6, lambda ranks: np.rint(ranks * uniform(len(ranks))).astype(int)),
        (near_copies, 0.6, lambda ranks: np.maximum(1, ranks - (np.arange(len(ranks)) % 3 == 0))),
        (correlated, 0.9, lambda ranks: (ranks + 1) // 2),
        (correlated, 0.9, lambda ranks: ranks // 3 + 1),
        (correlated, 0.9, lambda ranks: ranks + 5),
        (correlated, 0.9, lambda ranks: np.maximum(1, ranks - 4)),
        (correlated, 0.9, lambda ranks: ranks * 2),
        (correlated, 0.9, lambda ranks: np.sqrt(ranks).astype(int)),
    ],
)
def test_ranks_that_are_near_or_follow_those_of_another_row_are_named(measure, least, copy):
    """A copy with one changed rank was another result."""
    random = np.random.RandomState(0)
    row, other = (np.rint(random.lognormal(3, 1.5, 2000)).astype(int).clip(1, 1000) for _ in range(2))
    found = measure({"row": row, "other": other, "mine": copy(row)}, "mine")
    assert list(found) == ["row"]
    assert least < found["row"] <= 1
    assert measure({"row": row, "other": other}, "other") == {}
    easy = np.arange(2000) < 1800  # any two good models answer the same queries at rank 1
    row, other = (np.where(easy, 1, ranks) for ranks in (row, other))
    assert measure({"row": row, "other": other}, "other") == {}


def test_ranks_of_a_matrix_never_contradict_each_other():
    random = np.random.RandomState(0)
    for trial in range(200):
        n, each = random.randint(2, 9), random.randint(1, 4)
        scores = random.rand(n, n * each)
        if trial % 3:  # ties, and images or captions that score high or low with everything
            scores = np.round(scores * 3) + trial % 2 * random.randint(0, 3, (n, 1))
        image_of = np.arange(n * each) // each
        true = scores[image_of, np.arange(n * each)]
        best = true.reshape(n, each).max(axis=1)
        wrong = image_of != np.arange(n)[:, None]
        i2t = 1 + (wrong & (scores >= best[:, None])).sum(axis=1)
        t2i = 1 + (wrong & (scores >= true)).sum(axis=0)
        assert not contradicts(Ranks(i2t, t2i))


@pytest.mark.parametrize("each", [1, 5])
def test_ranks_that_no_matrix_gives_are_named(each):
    n = 40
    best, worst = np.ones(n, int), np.full(n, n * each - each + 1)
    assert contradicts(Ranks(worst, np.ones(n * each, int)))
    assert contradicts(Ranks(best, np.full(n * each, n)))
    assert contradicts(Ranks(np.where(np.arange(n) < n // 2, 1, worst), np.ones(n * each, int)))
    assert not contradicts(Ranks(worst, np.full(n * each, n)))  # every similarity is equal
    assert not contradicts(Ranks(best, np.ones(n * each, int)))
    # captions of image 0 score highest with every image: their own is first, and no other image finds its own
    first = np.where(np.arange(n) == 0, 1, 1 + each)
    assert not contradicts(Ranks(first, np.ones(n * each, int)))


@pytest.mark.parametrize(
    "names",
    [
        ("pictograms/gsc-plus/vse-infinity-2net-caption-40-600steps", "-30c6f5a5"),
        (
            "digits/gsc-plus/vse-infinity-2net-caption-40-tuned-1500steps",
            "/../vse-infinity-2net-none-tuned-1500steps",
        ),
        (
            "pictograms-web/cream/vse-infinity-2net-natural-600steps",
            "/../../sps/vse-infinity-2net-natural-600steps",
        ),
    ],
)
def test_the_nearest_results_of_the_repository_are_no_copies(names):
    """The nearest pairs on each dataset, of all 454,692."""
    root, (first, rest) = Path(cli.__file__).parent, names
    cells = [first, os.path.normpath(first + rest)]
    ranks = {}
    for name in cells:
        file = read_row_file(root / "results" / f"{name}.yaml")
        keys, spec = [record.key for record in file.seeds], dataset_spec(file.header.dataset)
        for key, counted in read_ranks(root / "results" / f"{name}.npz", keys, spec).items():
            ranks[f"{name} {key}"] = np.concatenate([counted.whole.i2t, counted.whole.t2i])
    assert [near_copies(ranks, run) for run in ranks] == [{}] * len(ranks)
