"""Gaussian and beta mixtures: against the published code and a slow version, their stops and collapses."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles import beta_mixture as oracle
from support.parity import tensor
from support.rounding import assert_near
from torch.nn.functional import one_hot

from baselines.kit.mixture import (
    BetaMixture,
    by_moments,
    clean_posterior,
    fitted,
    fitted_for,
    is_clean,
    min_max_normalised,
    two_means,
)

GAUSSIAN = ("C_ncr_gmm", "Q_bicro_mixture", "S_cream_division", "T_sps_division", "X_in2r_division")


@pytest.mark.parametrize("file", GAUSSIAN)
def test_posteriors_and_divisions_match_the_published_code(file, single):
    stored = single(file)
    for case in stored.names("", ".np_seed"):
        state = np.random.RandomState(int(stored[f"{case}.np_seed"]))  # one stream, network A first
        start = case.removesuffix(".gmm")
        for network in "AB":
            losses = stored[f"{start}.loss_{network}"]
            if (key := f"{start}.norm_loss_{network}") in stored:
                stored.near(min_max_normalised(losses), key, 1e-6)
            posterior = clean_posterior(tensor(losses), random_state=state)
            # EM repeats the rounding of exp and log, which differs between versions of NumPy
            stored.near(posterior, f"{case}.prob_{network}", 1e-5)
            if (key := f"{case}.pred_{network}") in stored:
                stored.equal(is_clean(posterior, 0.5), key)
    for name in [name for name in stored if name.startswith("split_prob.") and name.endswith(".prob")]:
        if file == "C_ncr_gmm":  # BiCro's code sorts a column along its rows
            stored.equal(is_clean(tensor(stored[name]), 0.5), name.replace(".prob", ".pred"))


@pytest.mark.filterwarnings("error")
def test_equal_losses_give_finite_probabilities():
    probability = clean_posterior(torch.full((50,), 0.4), random_state=0)
    assert probability.isfinite().all()
    assert probability.min() >= 0
    assert probability.max() <= 1


def test_posteriors_depend_on_their_seed_alone():
    losses = torch.rand(300)
    np.random.seed(1)
    first = clean_posterior(losses, random_state=7)
    np.random.seed(2)
    assert torch.equal(first, clean_posterior(losses, random_state=7))


def test_precision_of_the_losses_is_kept():
    for dtype in (torch.float32, torch.float64):
        assert clean_posterior(torch.rand(30, dtype=dtype), random_state=0).dtype == dtype


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=50)
def test_normalised_values_keep_their_order_and_fill_the_unit_interval(values):
    normalised = min_max_normalised(values)
    assert normalised.min() == 0
    assert normalised.max() == (0 if values.min() == values.max() else 1)
    assert (np.diff(normalised[values.argsort()]) >= 0).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.floats(0, 0.99))
@settings(max_examples=50)
def test_some_pairs_are_noisy_where_two_are_clean_and_none_where_nothing_is_told_apart(
    probabilities, threshold
):
    probability = torch.tensor(probabilities, dtype=torch.float64)
    division = is_clean(probability, threshold)
    if division.all():
        raised = max(threshold, sorted(probabilities)[len(probabilities) // 100])
        assert min((probability > bound).sum() for bound in (threshold, raised)) < 2
    else:
        assert division.sum() > 1
        assert (probability[division] > threshold).all()


def two_groups(n=60, seed=0):
    random = np.random.default_rng(seed)
    return torch.from_numpy(np.concatenate([random.beta(2, 9, n), random.beta(7, 3, n // 2)]))


def components_of(mixture):
    return list(zip(mixture.alpha.tolist(), mixture.beta.tolist(), mixture.weights.tolist(), strict=True))


def test_start_updates_and_posterior_are_those_of_the_definition():
    values = two_groups()
    groups = two_means(values)
    start = by_moments(values, one_hot(groups, 2))
    components = [
        (
            *oracle.by_moments(values.tolist(), [float(g == k) for g in groups.tolist()]),
            (groups == k).double().mean().item(),
        )
        for k in (0, 1)
    ]
    assert_near(components_of(start), components, 1e-9)
    for _ in range(3):
        components = oracle.update(values.tolist(), components)
    mixture = fitted_for(values, start, 3, floor=0.0)
    assert_near(components_of(mixture), components, 1e-9)
    assert_near(mixture.posterior(values), oracle.posterior(values.tolist(), components), 1e-9, scale=1)


def test_the_update_that_gains_too_little_is_kept():
    values = two_groups()
    start = by_moments(values, one_hot(two_means(values), 2))
    likelihoods, components = [], components_of(start)
    for _ in range(30):
        likelihoods.append(oracle.log_likelihood(values.tolist(), components))
        components = oracle.update(values.tolist(), components)
    gains = np.diff(likelihoods)
    expected = 1 + int(np.flatnonzero(gains <= 0.01)[0])
    _, updates = fitted(values, start, least_gain=0.01)
    assert updates == expected
    assert fitted(values, start, most_updates=1, least_gain=-math.inf)[1] == 1


def test_a_floor_keeps_components_from_vanishing():
    mixture = BetaMixture(
        *(torch.tensor(x, dtype=torch.float64) for x in ([2.0, 400.0], [400.0, 2.0], [0.5, 0.5]))
    )
    values = torch.tensor([0.5])
    weighted = 0.5 * math.exp(mixture.log_densities(values)[0, 0].item() - math.log(0.5))
    assert weighted < 1e-12
    assert_near(mixture.posterior(values, floor=1e-12), [[0.5, 0.5]])


@pytest.mark.parametrize(
    "values", [[0.5] * 5, [0.2, 0.2, 0.7, 0.7], [0.2, 0.2, 0.7, 0.71], [0.4], [0.1, 0.9]]
)
def test_groups_of_one_value_make_no_mixture(values):
    x = torch.tensor(values, dtype=torch.float64)
    assert not by_moments(x, one_hot(two_means(x), 2)).whole


def test_a_component_that_loses_its_pairs_ends_the_fit_with_the_last_whole_mixture():
    values = torch.full((50,), 0.3, dtype=torch.float64)
    start = BetaMixture(*(torch.tensor(x, dtype=torch.float64) for x in ([1.0, 2.0], [2.0, 1.0], [0.5, 0.5])))
    for mixture in (fitted_for(values, start, 10, 1e-12), fitted(values, start, least_gain=0.01)[0]):
        assert mixture.whole
        assert mixture.posterior(values).isfinite().all()


@pytest.mark.parametrize("seed", range(5))
def test_two_means_is_the_best_split(seed):
    random = np.random.default_rng(seed)
    values = np.round(random.random(9), 2).repeat(random.integers(1, 4, 9))
    assert two_means(torch.from_numpy(values)).tolist() == oracle.two_means(values.tolist())


def test_equal_values_stay_together():
    assert two_means(torch.tensor([0.5, 0.5, 0.5])).tolist() == [0, 0, 0]
    assert two_means(torch.tensor([0.9, 0.1, 0.9, 0.1])).tolist() == [1, 0, 1, 0]
