"""Two-component beta mixtures value by value."""

import math

Component = tuple[float, float, float]
"""alpha, beta and weight."""


def density(x: float, alpha: float, beta: float) -> float:
    """Of a beta distribution."""
    normaliser = math.lgamma(alpha + beta) - math.lgamma(alpha) - math.lgamma(beta)
    return math.exp(normaliser + (alpha - 1) * math.log(x) + (beta - 1) * math.log(1 - x))


def by_moments(values: list[float], shares: list[float]) -> tuple[float, float]:
    """Alpha and beta of a component with these shares of the values."""
    total = math.fsum(shares)
    mean = math.fsum(s * x for s, x in zip(shares, values, strict=True)) / total
    variance = math.fsum(s * (x - mean) ** 2 for s, x in zip(shares, values, strict=True)) / total
    alpha = mean * (mean * (1 - mean) / variance - 1)
    return alpha, alpha * (1 - mean) / mean


def posterior(values: list[float], components: list[Component]) -> list[list[float]]:
    """Probability of each component for each value."""
    found = []
    for x in values:
        joint = [weight * density(x, a, b) for a, b, weight in components]
        found.append([part / sum(joint) for part in joint])
    return found


def update(values: list[float], components: list[Component]) -> list[Component]:
    """One update by moments."""
    found = posterior(values, components)
    columns = [[row[k] for row in found] for k in range(len(components))]
    return [(*by_moments(values, shares), math.fsum(shares) / len(values)) for shares in columns]


def log_likelihood(values: list[float], components: list[Component]) -> float:
    """Sum over the values."""
    return math.fsum(math.log(sum(w * density(x, a, b) for a, b, w in components)) for x in values)


def two_means(values: list[float]) -> list[int]:
    """Every split of the values into small and large ones is tried."""

    def spread(group: list[float]) -> float:
        mean = math.fsum(group) / len(group)
        return math.fsum((x - mean) ** 2 for x in group)

    cuts = sorted(set(values))[:-1]
    if not cuts:
        return [0] * len(values)
    best = min(
        cuts, key=lambda c: spread([x for x in values if x <= c]) + spread([x for x in values if x > c])
    )
    return [int(x > best) for x in values]
