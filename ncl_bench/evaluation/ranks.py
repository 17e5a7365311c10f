"""Ranks by counting, not sorting: one pass over the similarities in blocks of rows.

The rank of a query is one plus the number of wrong items that score greater than or equal to the best true item
(docs/protocol.md, Ranks). The optimistic rank counts only strictly greater items; if the two differ, the rank depends
on ties. All counts are integers, so block size and threads cannot change a result.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.scores import BLOCK, Rows
from ncl_bench.npy import BoolArray, FloatArray, Int64Array

OnRows = Callable[[int], None]

LARGEST_BLOCK = 255
"""Largest number of rows of a block, because column counts of a block are summed in one byte."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """Rank of the best true item of every query, from 1.

    Attributes:
        i2t: int64 ``(n_images,)``, ties counted against the model.
        t2i: int64 ``(n_captions,)``, ties counted against the model.
        i2t_optimistic: ties counted for the model; None if the scores are unknown.
        t2i_optimistic: ties counted for the model; None if the scores are unknown.
    """

    i2t: Int64Array
    t2i: Int64Array
    i2t_optimistic: Int64Array | None = None
    t2i_optimistic: Int64Array | None = None


@dataclass(frozen=True, eq=False)
class Unscored:
    """Pairs of a matrix that hold one value in place of a score, as a reranker leaves them.

    Attributes:
        value: that value.
        pairs: number of these pairs.
        i2t: bool ``(n_images,)``, whether the best true caption of an image is one of them.
        t2i: bool ``(n_captions,)``, whether the true image of a caption is one of them.
    """

    value: float
    pairs: int
    i2t: BoolArray
    t2i: BoolArray


@dataclass(frozen=True, eq=False)
class Counted:
    """Result of one pass, or of one pass per direction.

    Attributes:
        whole: ranks among all items.
        folds: ranks among the items of the query's fold, or None.
        range: lowest and highest score, or None if the scores are unknown.
        dtype: name of the scores' dtype.
        unscored: pairs that were not scored, or None.
        directions: direction to the counts of its own matrix, if each direction has one.
        judged: kind of people's judgements to what they say in the order of the scores, see
            :func:`ncl_bench.evaluation.people.in_order`; empty where people judged no pairs.
        crossed: what tests of that agreement over images and captions need, see
            :func:`ncl_bench.evaluation.people.crossing`; empty where it is not known.
        pairs: what the scored networks say of each training pair, float16 ``(n_pairs,)`` by name; empty if not known.
    """

    whole: Ranks
    folds: Ranks | None
    range: tuple[float, float] | None
    dtype: str
    unscored: Unscored | None = None
    directions: Mapping[str, "Counted"] = field(default_factory=dict)
    judged: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    crossed: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    pairs: Mapping[str, NDArray[np.float16]] = field(default_factory=dict)


@dataclass(frozen=True)
class Geometry:
    """Layout of the matrix: true pairs and folds.

    Attributes:
        n_images: number of rows.
        n_captions: number of columns.
        captions_per_image: captions per image of the dataset.
        images_per_fold: size of consecutive folds; ``n_images`` without folds.
    """

    n_images: int
    n_captions: int
    captions_per_image: int
    images_per_fold: int

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield blocks of rows, none of which spans two folds."""
        # a block within one fold compares with one range of columns
        for fold in range(0, self.n_images, self.images_per_fold):
            end = min(fold + self.images_per_fold, self.n_images)
            for start in range(fold, end, size):
                yield start, min(start + size, end)

    def fold_columns(self, row: int) -> slice:
        """Return the columns of a row's fold."""
        first = row - row % self.images_per_fold
        return slice(
            first * self.captions_per_image, (first + self.images_per_fold) * self.captions_per_image
        )


class _Worker:
    """Counts of the blocks of one thread, with its own buffers, so that threads need no locks."""

    def __init__(
        self,
        scores: Rows,
        own: FloatArray,
        filler: float | None,
        geometry: Geometry,
        size: int,
        on_rows: OnRows | None,
    ) -> None:
        self.scores, self.geometry, self.on_rows = scores, geometry, on_rows
        # a caption as a query has one true item, its image: one threshold per column, known before the first block
        self.true = own.reshape(-1)
        # one buffer for all blocks of a thread
        self.mask = np.empty((size, geometry.n_captions), np.bool_)
        # by comparison (``>=``, ``>``), and among all items or among the items of the fold
        self.i2t = np.zeros((2, 2, geometry.n_images), np.int64)
        self.t2i = np.zeros((2, 2, geometry.n_captions), np.int64)
        self.lowest, self.highest = np.inf, -np.inf
        self.filler, self.filled = filler, 0
        self.bad = 0
        self.first_bad = (geometry.n_images, geometry.n_captions)

    def count(self, start: int, stop: int) -> None:
        block = self.scores.rows(start, stop)
        low, high = float(block.min()), float(block.max())
        if not np.isfinite(low) or not np.isfinite(high):
            # min and max are non-finite if any score is, so only a bad block pays for the search
            places = np.argwhere(~np.isfinite(block))
            self.bad += len(places)
            self.first_bad = min(self.first_bad, (start + int(places[0, 0]), int(places[0, 1])))
        elif not self.bad:
            self.lowest, self.highest = min(self.lowest, low), max(self.highest, high)
            if self.filler is not None:
                self.filled += int(np.count_nonzero(block == self.filler))
            self._count(block, start, stop)
        self.scores.release(start, stop)
        if self.on_rows is not None:
            self.on_rows(stop - start)

    # Counting instead of sorting: a rank needs to know how many items score higher, not in which order. Two comparisons
    # of a block with a threshold per row or column take a tenth of the time of an argsort, and no index is stored.
    def _count(self, block: FloatArray, start: int, stop: int) -> None:
        per_image, fold = self.geometry.captions_per_image, self.geometry.fold_columns(start)
        mask = self.mask[: stop - start]
        rows = np.arange(stop - start)[:, None]
        columns = np.arange(start * per_image, stop * per_image).reshape(-1, per_image)
        # the best true caption: any of an image's captions is a hit
        best = block[rows, columns].max(axis=1, keepdims=True)
        # ties against the model first, then for it
        for compare, i2t, t2i in zip((np.greater_equal, np.greater), self.i2t, self.t2i, strict=True):
            compare(block, best, out=mask)
            mask[rows, columns] = False  # true items never count, not even an image's other captions
            # row by row: numpy counts a contiguous line of bools many at a time
            for row, line in enumerate(mask, start):
                i2t[:, row] = np.count_nonzero(line), np.count_nonzero(line[fold])
            # the same block serves captions as queries: each column is compared with its true score
            compare(block, self.true, out=mask)
            mask[rows, columns] = False
            # a byte per column suffices, since a block has at most LARGEST_BLOCK rows
            counts = np.add.reduce(mask.view(np.uint8), axis=0, dtype=np.uint8)
            t2i[0] += counts
            t2i[1, fold] += counts[fold]


def count_ranks(
    scores: Rows,
    *,
    captions_per_image: int,
    images_per_fold: int | None = None,
    block: int = BLOCK,
    threads: int | None = None,
    on_rows: OnRows | None = None,
) -> Counted:
    """Rank every query among all items and, with folds, among the items of its fold.

    Args:
        scores: ``(n_images, n_images * captions_per_image)``.
        captions_per_image: captions per image; caption ``c`` belongs to image ``c // captions_per_image``.
        images_per_fold: size of consecutive folds, or None.
        block: rows per block; the result does not depend on it.
        threads: number of threads, by default the processors of this process; the result does not depend on it.
        on_rows: called after each block with its number of rows, from several threads.
    """
    n_images, n_captions = scores.shape
    assert n_captions == n_images * captions_per_image > 0
    geometry = Geometry(n_images, n_captions, captions_per_image, images_per_fold or n_images)
    # Blocks of 50 rows of COCO have 5 MB: small enough that the second comparison finds them in the processor's cache,
    # large enough that numpy's cost per call does not count. Not more rows than a byte counts.
    size = max(1, min(block, LARGEST_BLOCK, n_images))
    blocks = list(geometry.blocks(size))
    # the processors that this process may use; in a container these are fewer than the machine has
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    n_workers = max(1, min(threads or ours or 1, len(blocks)))
    # true scores first: every row of a column is compared with the one of the caption's own image
    own, filler = scores.own(captions_per_image), scores.filler()
    workers = [_Worker(scores, own, filler, geometry, size, on_rows) for _ in range(n_workers)]

    def work(number: int) -> None:
        # interleaved, so that threads read neighbouring blocks at about the same time
        for start, stop in blocks[number::n_workers]:
            workers[number].count(start, stop)

    with ThreadPoolExecutor(n_workers) as pool:
        # numpy releases the interpreter while it compares; the list raises what a thread raised
        list(pool.map(work, range(n_workers)))
    bad = sum(worker.bad for worker in workers)
    if bad:
        row, column = min(worker.first_bad for worker in workers)
        raise ScoresError(
            f"{scores.name}: {bad:,} numbers are not finite, the first in row {row}, column {column}; {scores.remedy}"
        )
    counted = _joined(workers, folds=images_per_fold is not None, dtype=scores.dtype.name)
    filled = sum(worker.filled for worker in workers)
    # a constant matrix has no scores at all, which a note says
    if filler is None or filled == n_images * n_captions:
        return counted
    unscored = Unscored(filler, filled, own.max(axis=1) == filler, own.reshape(-1) == filler)
    return replace(counted, unscored=unscored)


def per_direction(i2t: Counted, t2i: Counted) -> Counted:
    """Join the counts of two matrices of one split: the image queries of one, the caption queries of the other."""

    def both(first: Ranks, second: Ranks) -> Ranks:
        return Ranks(first.i2t, second.t2i, first.i2t_optimistic, second.t2i_optimistic)

    folds = both(i2t.folds, t2i.folds) if i2t.folds and t2i.folds else None
    return Counted(both(i2t.whole, t2i.whole), folds, None, "", None, {"i2t": i2t, "t2i": t2i})


def _joined(workers: list[_Worker], *, folds: bool, dtype: str) -> Counted:
    # sums of integers: the order of the threads cannot matter
    i2t, t2i = (1 + sum(getattr(worker, side) for worker in workers) for side in ("i2t", "t2i"))
    whole, within = (Ranks(i2t[0, s], t2i[0, s], i2t[1, s], t2i[1, s]) for s in (0, 1))
    low, high = min(worker.lowest for worker in workers), max(worker.highest for worker in workers)
    return Counted(whole, within if folds else None, (low, high), dtype)
