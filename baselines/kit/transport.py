"""Entropic optimal transport in the log domain, whole or partial, with the stopping rule of the published code.

The rule stops long before convergence, and methods rely on the resulting plan: columns carry exactly their mass, rows
do not, and partial transport moves a little more than the requested mass.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

LOG_FLOOR = 1e-10
FORBIDDEN = -1e6
ROUNDS_UNASKED = 128
"""Rounds between two convergence checks on a GPU; most problems of a training step need fewer."""


class Transport(NamedTuple):
    """Result of Sinkhorn's iterations.

    Attributes:
        plan: float64 ``(rows, columns)``, mass moved from row to column.
        rows: float64 ``(rows,)``, dual variable of the rows.
        columns: float64 ``(columns,)``, dual variable of the columns.
        rounds: number of iterations.
        change: Euclidean norm of the last change of ``rows``.
    """

    plan: Tensor
    rows: Tensor
    columns: Tensor
    rounds: int
    change: float


@torch.no_grad()
def sinkhorn(
    costs: Tensor,
    row_mass: Tensor,
    column_mass: Tensor,
    regularisation: float,
    forbidden: Tensor | None = None,
    *,
    tolerance: float = 1e-3,
    most_rounds: int = 1000,
) -> Transport:
    """Move the mass of the rows to the columns at little cost, in float64 and without gradient.

    Args:
        costs: float ``(rows, columns)``.
        row_mass: float ``(rows,)``.
        column_mass: float ``(columns,)``, with the same total.
        regularisation: weight of the plan's entropy, above 0.
        forbidden: bool ``(rows, columns)``, entries that carry no mass; none by default.
        tolerance: stop when the rows' dual variable changes by less (Euclidean norm).
        most_rounds: largest number of iterations.
    """
    # the dual variables are large against the last bits of float32
    costs = costs.double()
    log_rows, log_columns = row_mass.double().log(), column_mass.double().log()
    rows, columns = torch.zeros_like(log_rows), torch.zeros_like(log_columns)
    closed = torch.zeros_like(costs, dtype=torch.bool) if forbidden is None else forbidden

    def scaled() -> Tensor:
        return ((rows[:, None] + columns - costs) / regularisation).masked_fill(closed, FORBIDDEN)

    # asking a GPU whether to stop makes the host wait, so it runs many rounds per question; rounds after the stop
    # change nothing, because `going` is then false on the device
    unasked = 1 if costs.device.type == "cpu" else ROUNDS_UNASKED
    going, done = costs.new_ones((), dtype=torch.bool), costs.new_zeros(())
    change = costs.new_full((), math.inf)
    rounds, goes_on, last_change = 0, True, math.inf
    while goes_on and rounds < most_rounds:
        for _ in range(min(unasked, most_rounds - rounds)):
            before = rows, columns, change
            rows = regularisation * (log_rows - _log_sum(scaled(), dim=1)) + rows
            change = torch.linalg.vector_norm(rows - before[0])
            # columns last: whenever the loop stops, they carry exactly their mass and rows do not
            columns = regularisation * (log_columns - _log_sum(scaled(), dim=0)) + columns
            rows, columns, change = (
                torch.where(going, new, old) for new, old in zip((rows, columns, change), before, strict=True)
            )
            done, going = done + going, going & (change >= tolerance)
        counted, last_change, still = torch.stack([done, change, going.double()]).tolist()
        rounds, goes_on = int(counted), bool(still)
    return Transport(scaled().exp(), rows, columns, rounds, last_change)


def _log_sum(x: Tensor, dim: int) -> Tensor:
    largest = x.amax(dim=dim, keepdim=True)
    # the largest term is 1, so the floor moves only last digits; it is the code's
    return ((x - largest).exp().sum(dim=dim) + LOG_FLOOR).log() + largest.squeeze(dim)


def partial_transport(
    costs: Tensor, mass: float, regularisation: float, forbidden: Tensor | None = None
) -> Transport:
    """Move about ``mass`` of the rows' total of 1 to the columns, and the rest to a dustbin.

    The dustbin is an additional row and column, with 100 times the largest cost.

    Args:
        costs: float ``(rows, columns)``, above 0.
        mass: mass to move, in (0, 1).
        regularisation: weight of the plan's entropy, above 0.
        forbidden: bool ``(rows, columns)``, entries that carry no mass; none by default.

    Returns:
        The plan, with the dustbin as last row and last column.
    """
    largest = costs.max()
    extended = nn.functional.pad(costs, (0, 1, 0, 1), value=math.nan)
    extended[-1, :] = extended[:, -1] = 100 * largest
    # dearer than two moves to the dustbin, so none of its own mass stays there
    extended[-1, -1] = 201 * largest
    row_mass, column_mass = (
        nn.functional.pad(costs.new_full((n,), 1 / n, dtype=torch.float64), (0, 1), value=1 - mass)
        for n in costs.shape
    )
    if forbidden is not None:
        forbidden = nn.functional.pad(forbidden, (0, 1, 0, 1))
    return sinkhorn(extended, row_mass, column_mass, regularisation, forbidden)
