"""Two-component mixtures over one value per pair, Gaussian or beta, and the division they imply.

Beta components are set by the mean and variance of their pairs, which is not what maximises the likelihood. So a fit
may lose likelihood, and the published rules for when to stop are part of the result. A beta mixture collapses when a
component loses its pairs, or all of them have one value. The last whole mixture then stands; if there never was one,
:attr:`BetaMixture.whole` is false and the caller has to do without.
"""

import math
import warnings
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Beta

from baselines.kit.distributed import from_first_rank

FloatArray = NDArray[np.floating]


def min_max_normalised(values: FloatArray) -> FloatArray:
    """Values moved and scaled to [0, 1]; constant values become 0."""
    low, high = values.min(), values.max()
    return np.zeros_like(values) if high == low else (values - low) / (high - low)


def mixture_posterior(
    values: FloatArray, *, larger_mean: bool, random_state: RandomState | int
) -> FloatArray:
    """Posterior of one component of a two-component fit (NCR Eq. 3; GSC Eq. 4).

    The ten iterations of the published code often end before convergence, so that is no reason to warn.
    Among several processes rank 0 fits, so that all divide the pairs alike.

    Args:
        values: float ``(n,)``, normalised to [0, 1]; the dtype is kept.
        larger_mean: take the component with the larger mean; otherwise the smaller.
        random_state: starts the k-means initialisation.

    Returns:
        ``(n,)`` in [0, 1], dtype of ``values``.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    def fit() -> FloatArray:
        mixture = GaussianMixture(
            n_components=2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=random_state
        )
        column = values.reshape(-1, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture.fit(column)
        means = mixture.means_.ravel()
        component = means.argmax() if larger_mean else means.argmin()
        posterior: FloatArray = mixture.predict_proba(column)[:, component]
        return posterior

    return from_first_rank(fit)


def clean_posterior(losses: Tensor, *, random_state: RandomState | int) -> Tensor:
    """Probability that each pair is clean: posterior of the low-loss component (NCR, section 3.1).

    Args:
        losses: float ``(n,)``, one loss per pair.
        random_state: starts the fit.

    Returns:
        ``(n,)`` in [0, 1] on the device of ``losses``.
    """
    normalised = min_max_normalised(losses.detach().cpu().numpy())
    posterior = mixture_posterior(normalised, larger_mean=False, random_state=random_state)
    return torch.from_numpy(posterior).to(losses)


def exceeds(probability: Tensor, threshold: float) -> Tensor:
    """The pairs with a probability above the threshold, bool ``(n,)``.

    If every pair exceeds the threshold, the lowest hundredth is counted as noisy all the same, so that both sides
    exist (published code).
    """
    if probability.min() > threshold:
        threshold = float(probability.sort().values[len(probability) // 100])
    return probability > threshold


def is_clean(probability: Tensor, threshold: float) -> Tensor:
    """The division of the pairs, bool ``(n,)``: those that :func:`exceeds` names.

    If these are fewer than two, the mixture has told nothing apart, and all are clean.
    """
    clean = exceeds(probability, threshold)
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
        """Both components are distributions with pairs of their own."""
        numbers = torch.cat([self.alpha, self.beta, self.weights])
        return bool((numbers.isfinite() & (numbers > 0)).all())

    def log_densities(self, values: Tensor) -> Tensor:
        """Logarithm of each weighted density, float64 ``(n, 2)``; may be infinite at exactly 0 and 1."""
        components = Beta(self.alpha, self.beta, validate_args=False)
        log_densities: Tensor = components.log_prob(values.double()[:, None])  # type: ignore[no-untyped-call]
        return log_densities + self.weights.log()

    def posterior(self, values: Tensor, floor: float = 0.0) -> Tensor:
        """Probability of each component for float ``(n,)`` in (0, 1), float64 ``(n, 2)``.

        Args:
            values: one per pair.
            floor: smallest weighted density.
        """
        log_floor = math.log(floor) if floor > 0 else -math.inf
        return self.log_densities(values).clamp(min=log_floor).softmax(dim=1)


def by_moments(values: Tensor, shares: Tensor) -> BetaMixture:
    """The mixture whose components have the mean and (biased) variance of their shares of the values.

    Args:
        values: float ``(n,)`` in (0, 1).
        shares: ``(n, 2)``, how far each value belongs to either component.
    """
    column, shares = values.double()[:, None], shares.double()
    totals = shares.sum(dim=0)
    mean = (shares * column).sum(dim=0) / totals
    variance = (shares * (column - mean).square()).sum(dim=0) / totals
    alpha = mean * (mean * (1 - mean) / variance - 1)
    beta = alpha * (1 - mean) / mean
    return BetaMixture(alpha.clamp(min=0), beta.clamp(min=0), totals / totals.sum())


def fitted(
    values: Tensor, start: BetaMixture, *, most_updates: int | None = None, least_gain: float
) -> tuple[BetaMixture, int]:
    """Moment updates until the log-likelihood, summed over the values, gains no more than ``least_gain``.

    The update that gains too little is kept, also when it loses.

    Args:
        values: float ``(n,)`` in (0, 1).
        start: where to begin.
        most_updates: end after so many; None goes on.
        least_gain: see above.

    Returns:
        The mixture, and the updates it took.
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
    """A fixed number of moment updates, with weighted densities of at least ``floor``."""
    mixture = start
    for _ in range(updates):
        update = by_moments(values, mixture.posterior(values, floor))
        if not update.whole:
            break
        mixture = update
    return mixture


def two_means(values: Tensor) -> Tensor:
    """The split of float ``(n,)`` into two groups with the least squared distance to their means, int64 ``(n,)``.

    Group 0 holds the smaller values. Every split of the sorted values is tried at once, so nothing is drawn. Equal
    values all come into group 0.
    """
    ordered = values.double().sort().values
    n, total = len(ordered), ordered.sum()
    sizes = torch.arange(1, n, device=ordered.device, dtype=torch.float64)
    below = ordered.cumsum(dim=0)[:-1]
    between = below.square() / sizes + (total - below).square() / (n - sizes)
    between = between.masked_fill(ordered[:-1] == ordered[1:], -math.inf)  # equal values stay together
    if not bool(between.isfinite().any()):
        return torch.zeros_like(values, dtype=torch.int64)
    return (values.double() > ordered[:-1][between.argmax()]).long()
