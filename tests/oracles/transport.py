"""Sinkhorn's iterations entry by entry, written from the description of the published code."""

import math

Matrix = list[list[float]]


def sinkhorn(
    costs: Matrix,
    row_mass: list[float],
    column_mass: list[float],
    regularisation: float,
    forbidden: set[tuple[int, int]],
) -> tuple[Matrix, int]:
    """The plan and the rounds done: at most 1000, fewer if the rows' dual variable moves by less than 1e-3."""
    u, v = [0.0] * len(row_mass), [0.0] * len(column_mass)

    def scaled(i: int, j: int) -> float:
        return -1e6 if (i, j) in forbidden else (u[i] + v[j] - costs[i][j]) / regularisation

    def log_sum(values: list[float]) -> float:
        largest = max(values)
        return largest + math.log(sum(math.exp(x - largest) for x in values) + 1e-10)

    moved, rounds = math.inf, 0
    while moved >= 1e-3 and rounds < 1000:
        rounds += 1
        before = list(u)
        sums = [log_sum([scaled(i, j) for j in range(len(v))]) for i in range(len(u))]
        u[:] = [u[i] + regularisation * (math.log(row_mass[i]) - sums[i]) for i in range(len(u))]
        sums = [log_sum([scaled(i, j) for i in range(len(u))]) for j in range(len(v))]
        v[:] = [v[j] + regularisation * (math.log(column_mass[j]) - sums[j]) for j in range(len(v))]
        moved = math.dist(u, before)
    return [[math.exp(scaled(i, j)) for j in range(len(v))] for i in range(len(u))], rounds


def partial_transport(
    costs: Matrix, mass: float, regularisation: float, forbidden: set[tuple[int, int]]
) -> tuple[Matrix, int]:
    """The same with a dustbin for what is not moved."""
    largest = max(map(max, costs))
    dustbin = 100 * largest
    extended = [[*row, dustbin] for row in costs]
    extended.append([dustbin] * len(costs[0]) + [2 * dustbin + largest])
    rows, columns = ([1 / n] * n + [1 - mass] for n in (len(costs), len(costs[0])))
    return sinkhorn(extended, rows, columns, regularisation, forbidden)
