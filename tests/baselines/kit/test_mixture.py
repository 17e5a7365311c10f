"""Two-component fits against the published code's numbers, and their corner cases."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.rounding import assert_near

from baselines.kit.mixture import clean_posterior, is_clean, min_max_normalised, mixture_posterior

CASES = ("separated", "overlapping", "heavy_tail", "few_outliers")


@pytest.mark.parametrize("case", CASES)
def test_posteriors_match_the_published_code(case: str, golden) -> None:
    stored = golden("C_ncr_gmm")
    state = np.random.RandomState(int(stored[f"{case}.np_seed"]))  # one stream, network A first
    for network in "AB":
        losses = stored[f"{case}.loss_{network}"]
        normalised = min_max_normalised(losses)
        assert_near(normalised, stored[f"{case}.norm_loss_{network}"], 1e-6, scale=1)
        posterior = clean_posterior(torch.from_numpy(losses), random_state=state)
        assert_near(posterior, stored[f"{case}.prob_{network}"], 5e-6, scale=1)
        division = is_clean(posterior, 0.5)
        assert np.array_equal(division, stored[f"{case}.pred_{network}"])


def test_divisions_match_the_published_code(golden) -> None:
    stored = golden("C_ncr_gmm")
    cases = [name for name in stored if name.startswith("split_prob.") and name.endswith(".prob")]
    assert cases
    for name in cases:
        division = is_clean(torch.from_numpy(stored[name]), 0.5)
        assert np.array_equal(division, stored[name.replace(".prob", ".pred")]), name


def test_both_components_share_every_value() -> None:
    values = np.random.default_rng(0).random(200)
    low, high = (mixture_posterior(values, larger_mean=larger, random_state=0) for larger in (False, True))
    assert_near(low + high, np.ones(200))
    assert low[values.argmin()] > 0.5 > low[values.argmax()]


def test_clean_pairs_are_those_with_small_losses() -> None:
    losses = torch.cat([torch.full((60,), 0.1), torch.full((40,), 3.0)]) + torch.rand(100) / 10
    probability = clean_posterior(losses, random_state=0)
    assert (probability[:60] > 0.9).all()
    assert (probability[60:] < 0.1).all()


@pytest.mark.filterwarnings("error")
def test_equal_losses_give_finite_probabilities() -> None:
    probability = clean_posterior(torch.full((50,), 0.4), random_state=0)
    assert probability.isfinite().all()
    assert probability.min() >= 0
    assert probability.max() <= 1


def test_posteriors_depend_on_their_seed_alone() -> None:
    losses = torch.rand(300)
    np.random.seed(1)
    first = clean_posterior(losses, random_state=7)
    np.random.seed(2)
    assert torch.equal(first, clean_posterior(losses, random_state=7))


def test_precision_of_the_losses_is_kept() -> None:
    for dtype in (torch.float32, torch.float64):
        assert clean_posterior(torch.rand(30, dtype=dtype), random_state=0).dtype == dtype


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=50)
def test_normalised_values_keep_their_order_and_fill_the_unit_interval(values: np.ndarray) -> None:
    normalised = min_max_normalised(values)
    assert normalised.min() == 0
    assert normalised.max() == (0 if values.min() == values.max() else 1)
    assert (np.diff(normalised[values.argsort()]) >= 0).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.floats(0, 0.99))
@settings(max_examples=50)
def test_some_pairs_are_noisy_where_two_are_clean_and_none_where_nothing_is_told_apart(
    probabilities: list[float], threshold: float
) -> None:
    probability = torch.tensor(probabilities, dtype=torch.float64)
    division = is_clean(probability, threshold)
    if division.all():
        raised = max(threshold, sorted(probabilities)[len(probabilities) // 100])
        assert min((probability > bound).sum() for bound in (threshold, raised)) < 2
    else:
        assert division.sum() > 1
        assert (probability[division] > threshold).all()


def test_a_mixture_that_calls_fewer_than_two_pairs_clean_leaves_all_in_training() -> None:
    assert is_clean(torch.tensor([0.2, 0.95, 0.3]), 0.9).all()
    assert is_clean(torch.tensor([0.2, 0.95, 0.92]), 0.9).tolist() == [False, True, True]
