"""Evidential loss one query and one candidate at a time, in 50 digits where numbers cancel."""

import math

from mpmath import digamma, loggamma, mp, mpf


def evidential_loss(
    alpha: list[list[float]], labels: list[list[float]], divergence_weight: float
) -> list[float]:
    """Squared error, variance and weighted divergence of every query."""
    return [
        _squared_error(a, y) + _variance(a) + divergence_weight * misleading_evidence(a, y)
        for a, y in zip(alpha, labels, strict=True)
    ]


def _squared_error(alpha: list[float], labels: list[float]) -> float:
    total = math.fsum(alpha)
    return math.fsum((y - a / total) ** 2 for a, y in zip(alpha, labels, strict=True))


def _variance(alpha: list[float]) -> float:
    total = math.fsum(alpha)
    return math.fsum((a / total) * (1 - a / total) / (total + 1) for a in alpha)


def misleading_evidence(alpha: list[float], labels: list[float]) -> float:
    """Divergence of Dirichlet(alpha without the right candidate's evidence) from Dirichlet(1, ..., 1)."""
    mp.dps = 50
    kept = [mpf(1) + (mpf(a) - 1) * (1 - mpf(y)) for a, y in zip(alpha, labels, strict=True)]
    total = sum(kept)
    divergence = loggamma(total) - loggamma(len(kept))
    for a in kept:
        divergence += -loggamma(a) + (a - 1) * (digamma(a) - digamma(total))
    return float(divergence)
