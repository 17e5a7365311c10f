"""Labels: what somebody ticked on the page of an audit, and what the ticks say of all pairs.

``labels.csv`` of version 2 has the columns ``version``, ``pair_id`` (the row from 1, or a dataset's id), ``image_id``,
``picture`` (a hash of its content), ``caption``, ``label`` and ``correction`` (the caption that fits, or empty).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ncl_bench.arguments import AnyPath
from ncl_bench.data.pair_labels import LABELS
from ncl_bench.errors import DataError, shorten, shown
from ncl_bench.npy import BoolArray, Float64Array, Int64Array
from ncl_bench.tables import read_table

VERSION = 2
FEWEST_TICKS = 10
"""Pairs that are labelled wrong or matching, from which on the others' probabilities are fitted again."""
PRIOR_DEVIATION = np.array([1.0, 0.3, 0.3])
"""Of shift, slope and weight between the views, in log-odds: so much may the judgement be off before a tick is seen.
The narrowest of four settings that were tried on drawn vectors; wider ones were further off after 30 ticks."""
LEAST_SLOPE = 0.1
"""A pair that fits worse never becomes less suspicious."""
MOST_ODDS = 8.0
"""Log-odds beyond which a judgement is not taken at its word."""
NAMED = 0.99
"""Probability that a pair is wrong which a rule names."""
_ROUNDED = re.compile(r"[0-9][0-9.,]*E\+?[0-9]+")


class Label(NamedTuple):
    """One of :data:`~ncl_bench.data.pair_labels.LABELS`, and the caption that fits, or empty."""

    label: str
    correction: str = ""


def read_labels(
    file: AnyPath | None, images: Sequence[str], captions: Sequence[str], picture: Callable[[int], str]
) -> dict[int, Label]:
    """Read labels; each belongs to every row with its image and caption, whatever the number of the row was.

    Args:
        file: as the page downloads it; None for no labels.
        images: name of each row's image.
        captions: of each row.
        picture: gives the hash of a row's picture, or empty if there is none.

    Raises:
        DataError: a label is unknown, or no row has its image, picture and caption.
    """
    # by image and caption and not by number: rows move when a table is edited
    rows_of: dict[tuple[str, str], list[int]] = defaultdict(list)
    if file is None:
        return {}
    for row, pair in enumerate(zip(images, captions, strict=True)):
        rows_of[pair].append(row)
    label_of: dict[int, Label] = {}
    needed = ("version", "image_id", "caption", "label")
    expected = f"labels of version {VERSION}, as the page downloads them"
    for where, line in read_table(Path(file), DataError, needed, expected=expected)[1]:
        cells = {name: cell.strip() for name, cell in line.items()}
        if cells["version"] != str(VERSION) or cells["label"] not in LABELS:
            raise DataError(
                f"{where}: version is {shorten(cells['version'])} and label {shorten(cells['label'])}, expected "
                f"{expected}, each one of {', '.join(LABELS)}"
            )
        if rounded := [name for name in ("image_id", "picture") if _ROUNDED.fullmatch(cells.get(name, ""))]:
            raise DataError(
                f"{where}: {rounded[0]} is {cells[rounded[0]]}, a hash that a spreadsheet took for a number and "
                "rounded; download the labels again, and open this column as text"
            )
        rows = rows_of.get((cells["image_id"], cells["caption"]), [])
        if not rows:
            raise DataError(
                f"{where}: no pair has the image {shown(cells['image_id'])} and the caption "
                f"{shorten(cells['caption'])}; give the labels of these pairs, or remove the line"
            )
        # the same name may hold another picture by now
        was = cells.get("picture", "")
        if was and was != picture(rows[0]):
            raise DataError(
                f"{where}: the picture {shown(cells['image_id'])} is another one than when it was labelled; look at it "
                "again, or remove the line"
            )
        label = Label(cells["label"], " ".join(cells.get("correction", "").split()))
        for row in rows:
            if label_of.setdefault(row, label) != label:
                raise DataError(f"{where}: this pair has another label above; keep one")
    return label_of


@dataclass(frozen=True)
class Suspicion:
    """What a judgement and labels say of ``n`` pairs.

    Attributes:
        odds: float64 ``(n,)``, log-odds that a pair is wrong, as judged; without labels.
        aside: float64 ``(n,)``, by how many deviations the first view likes the pair more than the second one.
        probability: float64 ``(n,)``, that it is wrong, with labels.
        order: int64 ``(n,)``, pairs, the most suspicious first.
        wrong, low, high: estimated number of wrong pairs with a range; None if it cannot be said.
    """

    odds: Float64Array
    aside: Float64Array
    probability: Float64Array
    order: Int64Array
    wrong: int | None
    low: int | None
    high: int | None


def weigh(
    score: Float64Array,
    probability: Float64Array,
    views: tuple[Float64Array, Float64Array],
    numbers: tuple[float, float, float],
    labels: Mapping[int, Label],
    lean: float = 0.0,
    named: BoolArray | None = None,
) -> Suspicion:
    """Correct a judgement by labels.

    The labelled pairs are known; from ten on the others follow. Logistic regression of the labels on the judged
    log-odds and on the difference of the views, with a normal prior around "the judgement is right" (MAP by Newton's
    method). Ticks from the top of the list are enough: nothing but the judgement decides what stands there.
    The range is the normal approximation of the posterior; its upper end keeps what the judgement adds for wrong pairs
    that are hardly seen, and never rises by labels that say "fits". Its lower end is at least the judgement's, less the
    wrong pairs among the labelled ones that it expected and that fit. The page computes the same in ``page.html.j2``.

    Args:
        score: float64 ``(n,)``, larger is more suspicious; orders the pairs while labels do not.
        probability: float64 ``(n,)``, that a pair is wrong; NaN if it cannot be said.
        views: float64 ``(n,)`` each, what the score was made from; larger fits better.
        numbers: estimated number of wrong pairs, and its range; NaN if it cannot be said.
        labels: pair to label; only ``wrong`` and ``matches`` count.
        lean: prior weight of the difference of the views, in log-odds; 0 where the probability rests on both.
        named: bool ``(n,)``, pairs that a rule calls wrong, which stand first and teach nothing of the others.
    """
    prior, n = np.array([0.0, 1.0, lean]), len(score)
    by_rule = np.zeros(n, bool) if named is None else named
    known = {
        pair: each.label == "wrong" for pair, each in labels.items() if each.label in ("wrong", "matches")
    }
    pairs, is_wrong = np.array(list(known), np.int64), np.array(list(known.values()), np.float64)
    told = ~by_rule[pairs]
    before = np.where(by_rule & ~np.isnan(probability), NAMED, probability)
    with np.errstate(divide="ignore"):
        # infinite odds would make a pair deaf to every label
        odds = np.clip(np.log(before) - np.log1p(-before), -MOST_ODDS, MOST_ODDS)
    # in deviations, so that views of other ranges can be compared
    first, second = ((view - np.median(view)) / (view.std() + 1e-12) for view in views)
    aside = first - second
    fitted, (total, low, high), key = before.copy(), numbers, score
    if not np.isnan(odds).any():
        spread = None
        if told.sum() >= FEWEST_TICKS:
            x = np.stack([np.ones(n), odds, aside], axis=1)
            weights, covariance = _fit(x[pairs[told]], is_wrong[told], prior)
            key = x @ weights
            fitted = np.where(by_rule, NAMED, 1 / (1 + np.exp(-key)))
            doubt = np.where(by_rule, 0.0, fitted * (1 - fitted))
            # labelled pairs are known, so they add nothing to the range
            doubt[pairs] = 0
            gradient = doubt @ x
            spread = 1.96 * float(np.sqrt(gradient @ covariance @ gradient + doubt.sum()))
        fitted[pairs] = is_wrong
        surplus = float((is_wrong - before[pairs]).sum())
        # too few ticks to fit anything: the known pairs alone move the number
        total, low, high = (value + surplus for value in numbers)
        if spread is not None:
            fit, unseen = float(fitted.sum()), numbers[2] - numbers[0]
            # what the upper end held beyond the estimate was not ticked; pairs that fit never raise it
            most = fit + max(spread, unseen)
            # nor do ticks as expected forget the judgement's lower end: they say little of the others
            low = max(fit - spread, min(numbers[1], low, fit))
            total, high = fit, min(most, high) if surplus <= 0 else most
        least, most = is_wrong.sum(), n - (1 - is_wrong).sum()
        total, low, high = (float(np.clip(value, least, most)) for value in (total, low, high))
        total, low = min(total, high), min(low, high)
    group = np.where(by_rule, -1, 0)
    # known wrong pairs stand first and known right ones last, whatever their score
    group[pairs] = np.where(is_wrong == 1, -2, 1)
    wrong, least_wrong, most_wrong = (
        None if np.isnan(value) else round(value) for value in (total, low, high)
    )
    # the score decides between equal probabilities, as most clear cases have the same
    order = np.lexsort((-score, -key, group))
    return Suspicion(odds, aside, fitted, order, wrong, least_wrong, most_wrong)


def _fit(x: Float64Array, y: Float64Array, prior: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Weights ``(3,)`` with the largest posterior, and their covariance ``(3, 3)``."""
    weights, precision = prior, np.diag(1 / PRIOR_DEVIATION**2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-(x @ weights)))
        slope = x.T @ (y - p) - precision @ (weights - prior)
        curvature = (x.T * (p * (1 - p))) @ x + precision
        step = np.linalg.solve(curvature, slope)
        # at most one unit at a time: a whole step of Newton may overshoot while labels and prior disagree
        weights = weights + step / max(1.0, float(np.abs(step).max()))
        weights[1] = max(weights[1], LEAST_SLOPE)
    return weights, np.asarray(np.linalg.inv(curvature), np.float64)
