"""How well an order of the training pairs finds the wrong ones, where it is known which these are.

The order is that of an estimate, such as a clean probability, which is larger the more likely a pair is true.
"""

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from ncl_bench.npy import BoolArray, FloatArray
from ncl_bench.schema import Record

FIRST_PAIRS = (10, 50, 100, 200, 500, 1_000, 5_000, 10_000)
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Separation(Record):
    """How well an estimate separates true from wrong pairs; both measures lie in [0, 1].

    Attributes:
        auroc: of true against wrong pairs.
        average_precision: the true pair is the positive one.
    """

    auroc: float
    average_precision: float


class Division(Record):
    """Pairs called wrong where an estimate is at most ``threshold``, compared with the truth.

    The wrong pair is the positive one; precision is 0 where no pair is called wrong.
    """

    threshold: float
    accuracy: Share
    precision: Share
    recall: Share
    f1: Share


class Detection(Record):
    """How well an estimate finds the wrong pairs.

    Attributes:
        n_pairs: pairs with an estimate.
        n_wrong: those whose image is not their own.
        own: the division at the method's own threshold; None if it has none.
        best: the division with the largest F1.
        auroc, average_precision: as in :class:`Separation`.
        average_precision_wrong: the wrong pair is the positive one.
        precision_at: number of most suspicious pairs to the share of them that is wrong; of equal estimates, the
            expected share.
    """

    n_pairs: int
    n_wrong: int
    own: Division | None
    best: Division
    auroc: float
    average_precision: float
    average_precision_wrong: float
    precision_at: dict[int, float]


def separation(values: FloatArray, correspondence: BoolArray) -> Separation:
    """Measure how well an estimate separates true from wrong pairs.

    Args:
        values: float ``(n_pairs,)``, larger means more likely a true pair.
        correspondence: bool ``(n_pairs,)``, with both values present.
    """
    order = np.argsort(-values, kind="stable")
    # equal estimates are one step of both curves, whichever of them was listed first
    (last,) = np.nonzero(np.diff(values[order], append=np.nan))
    true = np.cumsum(correspondence[order])[last]
    steps, false = np.diff(true, prepend=0), last + 1 - true
    # a wrong pair counts the true ones above it, and half of those beside it: the trapezoids under the ROC curve
    below = np.diff(false, prepend=0) @ (2 * true - steps)
    return Separation(
        auroc=float(below / (2 * true[-1] * false[-1])),
        # a product of vectors rounds as the processor adds, and the same evidence must give the same leaderboard
        average_precision=math.fsum(steps / true[-1] * (true / (last + 1))),
    )


def division(values: FloatArray, correspondence: BoolArray, threshold: float) -> Division:
    """Call the pairs wrong whose estimate is at most the threshold, and count how many are."""
    called, wrong = values <= threshold, ~correspondence
    n_wrong_called = int((called & wrong).sum())
    return Division(
        threshold=threshold,
        accuracy=float((called == wrong).mean()),
        precision=n_wrong_called / max(1, int(called.sum())),
        recall=n_wrong_called / int(wrong.sum()),
        f1=2 * n_wrong_called / (int(called.sum()) + int(wrong.sum())),
    )


def detection(values: FloatArray, correspondence: BoolArray, threshold: float | None) -> Detection:
    """Measure how well an estimate finds the wrong pairs.

    Args:
        values: float ``(n_pairs,)``, larger means more likely a true pair.
        correspondence: bool ``(n_pairs,)``, with both values present.
        threshold: the method's own; a pair is called clean above it; None if it has none.
    """
    order = np.argsort(values, kind="stable")
    # a threshold cannot separate equal estimates, so only the last pair of each group is a candidate
    ascending = values[order]
    last = np.flatnonzero(np.append(ascending[1:] != ascending[:-1], True))  # of the pairs with one estimate
    called = last + 1
    wrong_called = np.cumsum(~correspondence[order])[last]
    n, n_wrong = len(values), int(wrong_called[-1])
    # F1 of calling the `called` lowest pairs wrong, for every threshold at once
    best = int((2 * wrong_called / (called + n_wrong)).argmax())
    ranks = np.array([k for k in FIRST_PAIRS if k <= n])
    # between two groups of equal estimates, as many are expected to be wrong as a straight line says
    expected = np.interp(ranks, np.append(0, called), np.append(0, wrong_called))
    return Detection(
        n_pairs=n,
        n_wrong=n_wrong,
        own=None if threshold is None else division(values, correspondence, threshold),
        best=division(values, correspondence, float(ascending[last[best]])),
        **separation(values, correspondence).model_dump(),
        average_precision_wrong=separation(-values, ~correspondence).average_precision,
        precision_at=dict(zip(ranks.tolist(), (expected / ranks).tolist(), strict=True)),
    )
