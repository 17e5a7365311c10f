"""Evidential learning: what a query's evidence for each candidate costs, given which of them are right.

Evidence plus one is the parameter of a Dirichlet distribution over the candidates (Sensoy et al., NeurIPS 2018,
https://arxiv.org/abs/1806.01768). ``alpha`` is ``(queries, candidates)`` and above 1; ``labels`` has the same shape,
and a row of zeros says that none of the candidates is right.
"""

from torch import Tensor


def squared_error(alpha: Tensor, labels: Tensor) -> Tensor:
    """Squared distance of the expected probabilities from the labels, ``(queries,)``."""
    return (labels - alpha / alpha.sum(dim=1, keepdim=True)).square().sum(dim=1)


def variance(alpha: Tensor) -> Tensor:
    """Variance of the probabilities, summed over the candidates, ``(queries,)``."""
    total = alpha.sum(dim=1, keepdim=True)
    return (alpha * (total - alpha) / (total.square() * (total + 1))).sum(dim=1)


def misleading_evidence(alpha: Tensor, labels: Tensor) -> Tensor:
    """Divergence of the evidence for wrong candidates from no evidence at all, ``(queries,)``.

    Large logarithms of gamma functions cancel here, so it is computed in float64.
    """
    wrong = (1 + (alpha - 1) * (1 - labels)).double()
    total = wrong.sum(dim=1)
    n_candidates = wrong.new_full((), wrong.shape[1])
    normaliser = total.lgamma() - wrong.lgamma().sum(dim=1) - n_candidates.lgamma()
    slope = ((wrong - 1) * (wrong.digamma() - total.digamma()[:, None])).sum(dim=1)
    return (normaliser + slope).to(alpha)


def uncertainty(alpha: Tensor) -> Tensor:
    """Share of the distribution that no evidence backs, ``(queries,)`` in (0, 1]."""
    return alpha.shape[1] / alpha.sum(dim=1)


def evidential_loss(alpha: Tensor, labels: Tensor, divergence_weight: float) -> Tensor:
    """Fit, spread and misleading evidence, ``(queries,)``."""
    divergence = misleading_evidence(alpha, labels)
    return squared_error(alpha, labels) + variance(alpha) + divergence_weight * divergence
