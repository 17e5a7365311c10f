"""Two-component mixtures over one value per pair, Gaussian or beta, and the resulting division.

Beta components are fitted by mean and variance, which does not maximise the likelihood. A fit may therefore lose
likelihood, and the published stopping rules are part of the result. A beta mixture collapses when a component loses its
pairs, or all its pairs have the same value. The last valid mixture is then returned; if there was none,
:attr:`BetaMixture.whole` is false and the caller needs another division.
"""

import math
import warnings
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor
from torch.distributions import Beta

from baselines.kit.distributed import fitted_once
from ncl_bench.npy import FloatArray


def min_max_normalised(values: FloatArray) -> FloatArray:
    """Shift and scale values to [0, 1]; constant values become 0."""
    low, high = values.min(), values.max()
    # equal losses: 0 / 0
    return np.zeros_like(values) if high == low else (values - low) / (high - low)


NEAR_ZERO, NEAR_ONE = 0.001, 0.999


def clamped(values: Tensor) -> Tensor:
    """Move values of exactly 0 and 1 to 0.001 and 0.999, where a beta density is finite."""
    return values.where(values < 1, NEAR_ONE).where(values > 0, NEAR_ZERO)


@fitted_once
def mixture_posterior(
    values: FloatArray, *, larger_mean: bool, random_state: RandomState | int, max_iter: int = 10
) -> FloatArray:
    """Compute the posterior of one component of a two-component fit (NCR Eq. 3; GSC Eq. 4).

    Args:
        values: float ``(n,)``, normalised to [0, 1] in most papers; the dtype is kept.
        larger_mean: take the component with the larger mean; otherwise the smaller.
        random_state: seed of the k-means initialisation.
        max_iter: largest number of iterations.

    Returns:
        ``(n,)`` in [0, 1], dtype of ``values``.
    """
    mixture = fitted_mixture(values, random_state, max_iter)
    # components have no order of their own
    means = mixture.means_.ravel()
    component = means.argmax() if larger_mean else means.argmin()
    posterior: FloatArray = mixture.predict_proba(values.reshape(-1, 1))[:, component]
    return posterior


def fitted_mixture(values: FloatArray, random_state: RandomState | int, max_iter: int = 10) -> Any:
    """The Gaussian mixture of :func:`mixture_posterior`, as scikit-learn has it."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    # NCR's code: ten iterations, often before convergence. No paper names these constants, and other values
    # give other divisions
    mixture = GaussianMixture(
        n_components=2, max_iter=max_iter, tol=1e-2, reg_covar=5e-4, random_state=random_state
    )
    with warnings.catch_warnings():
        # stopping early is meant
        warnings.simplefilter("ignore", ConvergenceWarning)
        return mixture.fit(values.reshape(-1, 1))


def clean_posterior(losses: Tensor, *, random_state: RandomState | int) -> Tensor:
    """Probability that each pair is clean: posterior of the low-loss component (NCR, section 3.1).

    Args:
        losses: float ``(n,)``, one loss per pair.
        random_state: seed of the fit.

    Returns:
        ``(n,)`` in [0, 1] on the device of ``losses``.
    """
    normalised = min_max_normalised(losses.detach().cpu().numpy())
    posterior = mixture_posterior(normalised, larger_mean=False, random_state=random_state)
    return torch.from_numpy(posterior).to(losses)


def exceeds(probability: Tensor, threshold: float) -> Tensor:
    """Return which pairs have a probability above the threshold, bool ``(n,)``; the highest 99 % if all have."""
    # the lowest hundredth counts as noisy, so that both sides exist (NCR's code)
    if probability.min() > threshold:
        threshold = float(probability.sort().values[len(probability) // 100])
    # Algorithm 1 of NCR says >=, its code >
    return probability > threshold


def is_clean(probability: Tensor, threshold: float) -> Tensor:
    """Return which pairs are clean, bool ``(n,)``: those that :func:`exceeds` returns.

    If there are fewer than two, the mixture has separated nothing, and all pairs are clean.
    """
    clean = exceeds(probability, threshold)
    # too few to form a batch: the mixture has separated nothing
    return clean if clean.sum() > 1 else torch.ones_like(clean)


@dataclass(frozen=True)
class BetaMixture:
    """Two weighted beta distributions.

    Attributes:
        alpha: float64 ``(2,)``.
        beta: float64 ``(2,)``.
        weights: float64 ``(2,)``, of sum 1.
    """

    alpha: Tensor
    beta: Tensor
    weights: Tensor

    @property
    def whole(self) -> bool:
        """Whether both components are valid: all parameters and weights are finite and positive."""
        numbers = torch.cat([self.alpha, self.beta, self.weights])
        return bool((numbers.isfinite() & (numbers > 0)).all())

    def log_densities(self, values: Tensor) -> Tensor:
        """Compute the log of each weighted density, float64 ``(n, 2)``; may be infinite at exactly 0 and 1."""
        # values of exactly 0 and 1 are allowed here, and refused by torch's validation
        components = Beta(self.alpha, self.beta, validate_args=False)
        log_densities: Tensor = components.log_prob(values.double()[:, None])  # type: ignore[no-untyped-call]
        return log_densities + self.weights.log()

    def posterior(self, values: Tensor, floor: float = 0.0) -> Tensor:
        """Compute the probability of each component, float64 ``(n, 2)``.

        Args:
            values: float ``(n,)`` in (0, 1), one value per pair.
            floor: smallest weighted density.
        """
        log_floor = math.log(floor) if floor > 0 else -math.inf
        return self.log_densities(values).clamp(min=log_floor).softmax(dim=1)


def by_moments(values: Tensor, shares: Tensor) -> BetaMixture:
    """Fit each component to the weighted mean and (biased) variance of the values.

    Args:
        values: float ``(n,)`` in (0, 1).
        shares: ``(n, 2)``, weight of each value in each component.
    """
    column, shares = values.double()[:, None], shares.double()
    totals = shares.sum(dim=0)
    mean = (shares * column).sum(dim=0) / totals
    variance = (shares * (column - mean).square()).sum(dim=0) / totals
    # moments instead of likelihood, as in the published codes: an update has a closed form, but may lose
    # likelihood
    alpha = mean * (mean * (1 - mean) / variance - 1)
    beta = alpha * (1 - mean) / mean
    # a negative parameter becomes 0, which `whole` reports
    return BetaMixture(alpha.clamp(min=0), beta.clamp(min=0), totals / totals.sum())


def fitted(
    values: Tensor, start: BetaMixture, *, most_updates: int | None = None, least_gain: float
) -> tuple[BetaMixture, int]:
    """Update by moments until the total log-likelihood gains at most ``least_gain``.

    The last update is kept, even if it lowers the likelihood.

    Args:
        values: float ``(n,)`` in (0, 1).
        start: initial mixture.
        most_updates: largest number of updates; None for no limit.
        least_gain: smallest gain of the log-likelihood, summed over the values, for another update.

    Returns:
        The mixture, and the number of updates.
    """
    mixture, log_likelihood = start, -math.inf
    for updates in count():
        log_densities = mixture.log_densities(values)
        before, log_likelihood = log_likelihood, log_densities.logsumexp(dim=1).sum().item()
        if updates == most_updates or not log_likelihood - before > least_gain:
            break
        update = by_moments(values, log_densities.softmax(dim=1))
        if not update.whole:
            break
        mixture = update
    return mixture, updates


def fitted_for(values: Tensor, start: BetaMixture, updates: int, floor: float) -> BetaMixture:
    """Update by moments a fixed number of times, with weighted densities of at least ``floor``."""
    mixture = start
    for _ in range(updates):
        update = by_moments(values, mixture.posterior(values, floor))
        if not update.whole:
            break
        mixture = update
    return mixture


def two_means(values: Tensor) -> Tensor:
    """Split float ``(n,)`` into the two groups with the least squared distance to their means, int64 ``(n,)``.

    Group 0 has the smaller values. All splits of the sorted values are compared, so the result is exact and needs no
    random start. If all values are equal, all are in group 0.
    """
    ordered = values.double().sort().values
    n, total = len(ordered), ordered.sum()
    sizes = torch.arange(1, n, device=ordered.device, dtype=torch.float64)
    below = ordered.cumsum(dim=0)[:-1]
    # the sum of squares is constant, so the best split has the largest squares of means
    between = below.square() / sizes + (total - below).square() / (n - sizes)
    between = between.masked_fill(ordered[:-1] == ordered[1:], -math.inf)  # equal values stay together
    if not bool(between.isfinite().any()):
        return torch.zeros_like(values, dtype=torch.int64)
    return (values.double() > ordered[:-1][between.argmax()]).long()
