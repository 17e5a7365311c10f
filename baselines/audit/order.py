"""Find rows whose captions have moved: the caption of row i belongs to the picture of a row nearby.

Every picture is compared with the captions of neighbouring rows. A run of rows that fits at one other offset is a fault
if its gain over the own captions is larger than in any permutation of the rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from baselines.audit.cca import Fold
from baselines.kit.cca import ROWS_AT_ONCE, unit
from ncl_bench.npy import Float32Array, Float64Array, Int64Array

FARTHEST, FARTHEST_WHOLE = 10, 5
"""Rows by which a block, and by which a whole file, may have moved."""
PERMUTATIONS, SAFETY = 100, 1.25
"""A fault gains at least 1.25 times as much as the best run of 100 permutations."""
LEAST_FIT, LEAST_ROWS = 0.5, 5
"""Rows of a fault gain at its offset at least half of the usual fit, and are 5 at least."""
HARDLY = 0.5
"""Mean fit, in standard deviations of chance, below which a file may have moved as a whole and no block can be told."""


@dataclass(frozen=True)
class OrderFault:
    """Rows ``first`` to ``last`` carry the caption of the row ``offset`` away; -1 is that of the row before."""

    first: int
    last: int
    offset: int

    def says(self, numbers: Int64Array, what: str = "Rows") -> str:
        """A sentence; ``numbers`` are what people call the pairs, and ``what`` they are."""
        away, where = abs(self.offset), "before" if self.offset < 0 else "after"
        one = what[:-1].lower()
        other = f"the {one} {where}" if away == 1 else f"the {one} {away} {where}"
        return f"{what} {numbers[self.first]:,} to {numbers[self.last]:,} carry the caption of {other}."


def find_order_faults(
    fitted: Callable[[int], Sequence[Fold]], image_of: Int64Array, seed: int
) -> tuple[OrderFault, ...]:
    """Find blocks that have moved, and whole files.

    Args:
        fitted: offset to folds whose projections were fitted on pictures of row i with captions of row i + offset.
        image_of: int64 ``(n,)``, row of each pair's image; the pairs are in the order of the file.
        seed: of the permutations.
    """
    n = len(image_of)
    # fitted on the rows as they are, which works if most of them are in order
    base, fits = 0, neighbour_fits(fitted(0), image_of)
    if fits[FARTHEST].mean() < HARDLY:
        # nothing can be learned from pairs that do not fit; learn from each offset instead
        for offset in range(-FARTHEST_WHOLE, FARTHEST_WHOLE + 1):
            moved = fits if offset == 0 else neighbour_fits(fitted(offset), image_of)
            gain = moved[FARTHEST + offset].mean() - fits[FARTHEST + base].mean()
            if gain > 4 / np.sqrt(n):
                base, fits = offset, moved
    return segments(fits, base, image_of, np.random.default_rng(seed))


def neighbour_fits(folds: Sequence[Fold], image_of: Int64Array) -> Float32Array:
    """Cosine of each row's image with the captions of rows nearby, in standard deviations of chance.

    Returns:
        float32 ``(2 * FARTHEST + 1, n)``; the row ``FARTHEST + k`` is of offset k. Beyond the ends of the file it is
        far below chance, and at another row of the same image it equals the own fit.
    """
    n = len(image_of)
    fits = np.empty((2 * FARTHEST + 1, n), np.float32)
    for fold in folds:
        for start in range(0, len(fold.rows), ROWS_AT_ONCE):
            block = fold.rows[start : start + ROWS_AT_ONCE]
            x = unit(fold.images(block))
            others = np.clip(block + np.arange(-FARTHEST, FARTHEST + 1)[:, None], 0, n - 1)
            # each caption is near several rows
            near, number = np.unique(others, return_inverse=True)
            parts = (near[k : k + ROWS_AT_ONCE] for k in range(0, len(near), ROWS_AT_ONCE))
            y = np.concatenate([unit(fold.captions(part)) for part in parts])
            for place, each in enumerate(number.reshape(others.shape)):
                fits[place, block] = np.einsum("nd,nd->n", x, y[each])
    chance = np.delete(fits, FARTHEST, axis=0)
    # neighbours that do not belong together show what chance is
    fits -= np.median(chance)
    fits /= np.quantile(np.abs(chance - np.median(chance)), 0.6827) + 1e-12
    for place in range(2 * FARTHEST + 1):
        other = np.arange(n) + place - FARTHEST
        # far below chance: no row beyond the ends can explain a caption
        outside = (other < 0) | (other >= n)
        same = image_of[np.clip(other, 0, n - 1)] == image_of
        fits[place] = np.where(outside, -3, np.where(same, fits[FARTHEST], fits[place]))
    return fits


def segments(
    fits: Float32Array, base: int, image_of: Int64Array, random: np.random.Generator
) -> tuple[OrderFault, ...]:
    """Give each row the offset with the largest sum of fits, where leaving the base offset has a price.

    Args:
        fits: of :func:`neighbour_fits`.
        base: the offset at which most rows fit.
        image_of: int64 ``(n,)``, row of each pair's image.
        random: of the permutations from which the price follows.
    """
    gains = fits.astype(np.float64) - fits[FARTHEST + base]
    # what the best run gains in rows without any order is no sign of a fault
    price = SAFETY * max(best_run(gains[:, _disorder(image_of, random)]) for _ in range(PERMUTATIONS))
    offsets = _cheapest(gains, FARTHEST + base, price) - FARTHEST
    usual = fits[FARTHEST + base][offsets == base].mean() if (offsets == base).any() else 0.0
    if usual < HARDLY:
        return ()
    faults = []
    for rows in np.split(np.arange(len(offsets)), np.flatnonzero(np.diff(offsets)) + 1):
        offset = int(offsets[rows[0]])
        own, moved = fits[FARTHEST][rows].mean(), fits[FARTHEST + offset][rows].mean()
        if len(rows) >= LEAST_ROWS and min(moved, moved - own) >= LEAST_FIT * usual:
            faults.append(OrderFault(int(rows[0]), int(rows[-1]), -offset))
    return tuple(faults)


def _disorder(image_of: Int64Array, random: np.random.Generator) -> Int64Array:
    """A random order of the rows; neighbours of one image stay together.

    Five captions of a picture that resembles the next one gain together, and are no block.
    """
    run = np.cumsum(np.append(0, np.diff(image_of) != 0))
    return np.argsort(random.permutation(run[-1] + 1)[run], kind="stable")


def best_run(gains: Float64Array) -> float:
    """The largest sum of gains of neighbouring rows, at any one offset."""
    sums = np.cumsum(gains, axis=1)
    before = np.minimum.accumulate(np.pad(sums, ((0, 0), (1, 0)))[:, :-1], axis=1)
    return float((sums - before).max())


def _cheapest(gains: Float64Array, base: int, price: float) -> Int64Array:
    """Viterbi's path through the offsets; every change to another than the base costs the price."""
    places, n = gains.shape
    cost = np.full(places, price)
    cost[base] = 0.0
    best = gains[:, 0] - cost
    # the way back needs one byte per offset and row; the sums need only the last row
    came = np.empty((places, n), np.int8)
    every = np.arange(places)
    for row in range(1, n):
        top = int(best.argmax())
        changed = best[top] - cost > best
        came[:, row] = np.where(changed, top, every)
        best = np.where(changed, best[top] - cost, best) + gains[:, row]
    path = np.empty(n, np.int64)
    path[-1] = best.argmax()
    for row in range(n - 1, 0, -1):
        path[row - 1] = came[path[row], row]
    return path
