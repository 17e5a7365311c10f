"""Separation of true from false pairs, against counts made from the definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from baselines.engine.diagnosis import BINS, separation
from ncl_bench.errors import TrainingError

ESTIMATES = st.lists(st.tuples(st.integers(-3, 6), st.booleans()), min_size=2, max_size=40).filter(
    lambda pairs: len({true for _, true in pairs}) == 2
)


@given(ESTIMATES)
def test_auroc_is_the_share_of_true_and_false_pairs_in_the_right_order(
    pairs: list[tuple[int, bool]],
) -> None:
    values = torch.tensor([value / 4 for value, _ in pairs])
    truth = np.array([true for _, true in pairs])
    found = separation(values, truth)
    wins = [
        (a > b) + 0.5 * (a == b)
        for a in values[torch.from_numpy(truth)]
        for b in values[~torch.from_numpy(truth)]
    ]
    assert found.auroc == pytest.approx(float(sum(wins)) / len(wins))
    bins = found.histogram
    assert len(bins.true) == len(bins.false) == BINS
    assert (sum(bins.true), sum(bins.false)) == (truth.sum(), (~truth).sum())
    assert bins.low <= min(0.0, float(values.min()))
    assert bins.high >= max(1.0, float(values.max()))


def test_a_perfect_estimate_has_area_and_precision_one() -> None:
    found = separation(torch.tensor([0.9, 0.1, 0.8]), np.array([True, False, True]))
    assert (found.auroc, found.average_precision) == (1.0, 1.0)


@pytest.mark.parametrize("values", [[0.9, 0.1], [[0.9], [0.1], [0.8]], [0.9, float("nan"), 0.8]])
def test_an_estimate_that_is_not_one_finite_number_per_pair_is_refused(values: list[float]) -> None:
    with pytest.raises(TrainingError, match=r"expected \(3,\): one finite number per training pair"):
        separation(torch.tensor(values), np.array([True, False, True]))
