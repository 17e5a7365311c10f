"""Beta mixtures against a slow version, their rules for stopping, and how they collapse."""

import math

import numpy as np
import pytest
import torch
from oracles import beta_mixture as oracle
from support.rounding import assert_near
from torch import Tensor
from torch.nn.functional import one_hot

from baselines.kit.beta_mixture import BetaMixture, by_moments, fitted, fitted_for, two_means


def two_groups(n: int = 60, seed: int = 0) -> Tensor:
    random = np.random.default_rng(seed)
    return torch.from_numpy(np.concatenate([random.beta(2, 9, n), random.beta(7, 3, n // 2)]))


def components_of(mixture: BetaMixture) -> list[oracle.Component]:
    return list(zip(mixture.alpha.tolist(), mixture.beta.tolist(), mixture.weights.tolist(), strict=True))


def test_start_updates_and_posterior_are_those_of_the_definition() -> None:
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


def test_the_update_that_gains_too_little_is_kept() -> None:
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


def test_a_floor_keeps_components_from_vanishing() -> None:
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
def test_groups_of_one_value_make_no_mixture(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    assert not by_moments(x, one_hot(two_means(x), 2)).whole


def test_a_component_that_loses_its_pairs_ends_the_fit_with_the_last_whole_mixture() -> None:
    values = torch.full((50,), 0.3, dtype=torch.float64)
    start = BetaMixture(*(torch.tensor(x, dtype=torch.float64) for x in ([1.0, 2.0], [2.0, 1.0], [0.5, 0.5])))
    for mixture in (fitted_for(values, start, 10, 1e-12), fitted(values, start, least_gain=0.01)[0]):
        assert mixture.whole
        assert mixture.posterior(values).isfinite().all()


@pytest.mark.parametrize("seed", range(5))
def test_two_means_is_the_best_split(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = np.round(random.random(9), 2).repeat(random.integers(1, 4, 9))
    assert two_means(torch.from_numpy(values)).tolist() == oracle.two_means(values.tolist())


def test_equal_values_stay_together() -> None:
    assert two_means(torch.tensor([0.5, 0.5, 0.5])).tolist() == [0, 0, 0]
    assert two_means(torch.tensor([0.9, 0.1, 0.9, 0.1])).tolist() == [1, 0, 1, 0]
