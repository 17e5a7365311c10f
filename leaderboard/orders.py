"""Does the order of the methods hold: Kendall's tau between two conditions of measured tables, with an interval.

A few methods are a small sample, so the usual normal approximation is far too narrow near 1. The interval inverts the
test instead: it holds every tau of a bivariate normal population under which samples of as many methods have a tau as
large, and one as small, in more than 2.5 % of the draws. Ties are counted as in tau-b.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leaderboard.entries import Row, title_of
from leaderboard.measured_tables import MeasuredTable
from leaderboard.paper_boards import noise_name
from leaderboard.read_entries import MEAN_OF_TWO
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.metrics import Float64Array

ORDER_DRAWS = 4_000
SEED = 0
TAIL = 0.025
"""Share of the draws on either side."""
LEAST_METHODS = 4
"""With three, one tau in six is 1 by chance: every population is in the interval."""


@dataclass(frozen=True)
class OrderComparison:
    """Two orders of the methods that both conditions have.

    Attributes:
        methods: name, and mean rSum in the first and in the second condition; best in the first condition first.
        tau: Kendall's tau-b of the two columns, in [-1, 1].
        interval: 95 % interval of tau over methods.
    """

    methods: list[tuple[str, float, float]]
    tau: float
    interval: tuple[float, float]


def compare_orders(tables: Sequence[MeasuredTable], first: str, second: str) -> OrderComparison:
    """Compare the orders of the methods in two conditions.

    Args:
        tables: from :func:`leaderboard.measured_tables.measured_tables`.
        first, second: table and noise, such as ``pictograms-1k-vse-infinity-600:caption-40``.

    Raises:
        SubmissionError: a table or noise is unknown, or they share fewer than four methods.
    """
    sums, others = (_sums(tables, condition) for condition in (first, second))
    shared = sorted(sums.keys() & others.keys(), key=lambda name: (-sums[name], name))
    if len(shared) < LEAST_METHODS:
        raise SubmissionError(
            f"{first} and {second} share {len(shared)} methods, expected at least {LEAST_METHODS}; "
            "choose conditions with more methods in common"
        )
    columns = [np.array([one[name] for name in shared]) for one in (sums, others)]
    tau = kendall_tau(*columns)
    methods = [(name, sums[name], others[name]) for name in shared]
    return OrderComparison(methods, tau, tau_interval(tau, len(shared)))


def _sums(tables: Sequence[MeasuredTable], wanted: str) -> dict[str, float]:
    """Mean rSum of every method of a condition."""
    slug = wanted.rpartition(":")[0]
    known = {
        f"{table.slug}:{noise_name(condition)}": table.places[condition.slug]
        for table in tables
        for condition in table.conditions
    }
    if wanted not in known:
        near = [name for name in known if name.startswith(f"{slug}:")] or list(known)
        raise SubmissionError(
            f"no measured table {wanted!r}, expected TABLE:NOISE; choose from {', '.join(near)}"
        )
    best: dict[str, Row] = {}
    for row in known[wanted]:
        # a table's recipe on a dataset of one's own is the same method
        settings = tuple(one for one in row.settings if not one.startswith("dataset="))
        title = title_of(row.model_copy(update={"settings": settings}), tuned=False)
        name = title.split(" (draws ")[0]
        # controls are no methods, and the mean of two seeds of a method stands near the method: it would count twice
        a_method = row.kind in ("method", "draws") and not (row.closed_form or name.endswith(MEAN_OF_TWO))
        if a_method and (name not in best or _trust(row) > _trust(best[name])):
            best[name] = row
    return {name: row.r_sum_or_0 for name, row in best.items()}


def _trust(row: Row) -> tuple[bool, int, bool]:
    """Of several rows of one method the tuned one counts, then that of most results, then that of several draws."""
    return row.tuned, row.n_seeds, row.kind == "draws"


def kendall_tau(first: Float64Array, second: Float64Array) -> float:
    """Kendall's tau-b of two columns; 0 where one of them is constant.

    Args:
        first, second: float64 ``(n,)``.
    """
    from scipy.stats import kendalltau  # slow to import, and other commands need none

    return float(np.nan_to_num(kendalltau(first, second).statistic))


def tau_interval(tau: float, n: int) -> tuple[float, float]:
    """95 % interval of the tau of a bivariate normal population from the tau of a sample of ``n``."""
    x, y = np.random.default_rng(SEED).standard_normal((2, ORDER_DRAWS, n))
    i, j = np.triu_indices(n, 1)
    of_x = np.sign(x[:, i] - x[:, j])
    room = 1 / (n * (n - 1))  # half a pair: equal taus differ in the last bits

    def drawn(step: int) -> Float64Array:
        """Taus of samples from a population whose tau is -1 + step / 100."""
        # the tau of a bivariate normal is 2 / pi times the arc sine of its correlation
        correlation = np.sin(np.pi / 2 * (step / 100 - 1))
        other = correlation * x + np.sqrt(max(0.0, 1 - correlation**2)) * y
        taus: Float64Array = (of_x * np.sign(other[:, i] - other[:, j])).mean(axis=1)
        return taus

    steps = range(201)
    # a larger tau of the population makes larger taus of samples likelier
    low = bisect_left(steps, True, key=lambda step: bool(np.mean(drawn(step) >= tau - room) > TAIL))
    high = bisect_left(steps, True, key=lambda step: bool(np.mean(drawn(step) <= tau + room) <= TAIL)) - 1
    return low / 100 - 1, high / 100 - 1
