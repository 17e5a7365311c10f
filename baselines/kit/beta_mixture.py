"""Two-component beta mixtures over one value in (0, 1) per pair, fitted by moments.

Components are set by the mean and variance of their pairs, which is not what maximises the likelihood; so a fit may
lose likelihood, and the published rules for when to stop are part of the result.

A mixture collapses when a component loses its pairs, or all of them have one value. The last whole mixture then
stands; where there never was one, :attr:`BetaMixture.whole` is false and the caller has to do without.
"""

import math
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor
from torch.distributions import Beta


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
