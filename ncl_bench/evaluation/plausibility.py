"""Notes on results that are possible but rarely intended."""

from collections.abc import Iterator, Mapping
from math import prod, sqrt

import numpy as np

from ncl_bench.evaluation.ranks import Counted, Unscored
from ncl_bench.evaluation.results import Evaluation, ProtocolResult
from ncl_bench.evaluation.scores import BLOCK, Rows

NEARLY_CONSTANT = 1e-6
MANY_TIES = 0.01
SWAPPED_GAP = 10.0
STANDARD_DEVIATIONS = 4
NEAR_THE_END = 0.75


def plausibility_notes(
    evaluation: Evaluation, counted: Counted, best_published: Mapping[str, float]
) -> tuple[str, ...]:
    """Describe what looks odd about a result, one sentence each; nothing is changed or refused.

    Args:
        evaluation: the result.
        counted: the ranks it was computed from.
        best_published: protocol to the highest published rSum on the same number of images, if known.
    """
    notes = [*_scores_notes(counted)]
    first = next(iter(evaluation.protocols.values()))
    if counted.directions:
        # a square matrix fits both ways
        square = first.images == first.captions
        rows = (
            ", taking the rows of the first as images and those of the second as captions" if square else ""
        )
        notes.append(
            f"i2t and t2i come from two matrices{rows}; a submission holds one matrix, so this result cannot be "
            "submitted"
        )
    for direction, part in counted.directions.items():
        notes += [f"{direction}: {note}" for note in _scores_notes(part, direction)]
    for name, result in evaluation.protocols.items():
        best = best_published.get(name)
        notes += [f"{name}: {note}" for note in _result_notes(result, counted, best)]
    return tuple(notes)


def _scores_notes(counted: Counted, direction: str | None = None) -> Iterator[str]:
    if counted.unscored is not None:
        yield _unscored_note(counted, counted.unscored, direction)
    if counted.range is None:
        return
    low, high = counted.range
    if low == high:
        yield f"every similarity is {low:g}: these are no scores of a trained model"
    elif high - low <= NEARLY_CONSTANT * max(abs(low), abs(high)):
        yield (
            f"the similarities are nearly constant, from {low!r} to {high!r}: "
            "was something rounded or saturated?"
        )


def _unscored_note(counted: Counted, unscored: Unscored, direction: str | None) -> str:
    """Say how many pairs hold a value in place of a score, and for how many queries that concerns the true match."""
    pairs = len(unscored.i2t) * len(unscored.t2i)
    note = f"{unscored.pairs:,} of {pairs:,} pairs hold {unscored.value:g} and were not scored"
    sides = {"i2t": ("images", unscored.i2t), "t2i": ("captions", unscored.t2i)}
    # a matrix per direction serves one kind of query
    chosen = [sides[direction]] if direction else [*sides.values()]
    queries = " and ".join(f"{missed.sum():,} of {len(missed):,} {items}" for items, missed in chosen)
    note += f"; no true match was scored for {queries}"
    if counted.range is not None and counted.range[0] < unscored.value:
        note += f"; some scores are lower: give pairs without a score a number below {counted.range[0]:g}"
    elif direction is None:
        note += "; they never outrank a true match, so give captions as queries their own matrix (t2i, --t2i)"
    return note


def _tied(result: ProtocolResult, counted: Counted) -> int:
    """Number of ranks that depend on ties between scores, not on pairs without one."""
    ranks, tied = counted.whole if result.folds == 1 else counted.folds, 0
    for direction in ("i2t", "t2i"):
        pessimistic, optimistic = (getattr(ranks, name) for name in (direction, f"{direction}_optimistic"))
        if optimistic is None:
            continue
        unscored = counted.directions.get(direction, counted).unscored
        missed = np.False_ if unscored is None else getattr(unscored, direction)
        # pairs without a score tie among themselves, as they should
        tied += int(np.count_nonzero((pessimistic != optimistic) & ~missed))
    return tied


def _result_notes(result: ProtocolResult, counted: Counted, best: float | None) -> Iterator[str]:
    if _reversed(result):
        yield "the true items rank near the end: are these distances? a larger score must mean more alike"
    elif _at_chance(result):
        yield (
            "both directions are at chance: is the order of images and captions that of the dataset "
            "(caption c belongs to image c // captions per image)?"
        )
    # an image has several captions to find, so its queries are the easier ones
    if result.captions > result.images and result.t2i.r1 > result.i2t.r1 + SWAPPED_GAP:
        yield (
            f"t2i R@1 {result.t2i.r1:.1f} is far above i2t R@1 {result.i2t.r1:.1f}, which no published "
            "result shows: were the two directions swapped?"
        )
    # possible, and the first thing that a reader will ask
    if best is not None and result.r_sum > best:
        yield (
            f"rSum {result.r_sum:.1f} is above every published one ({best:.1f}): "
            "were train and test kept apart?"
        )
    tied = _tied(result, counted)
    queries = result.i2t.queries + result.t2i.queries
    if tied > MANY_TIES * queries and result.r_sum_optimistic is not None:
        dtypes = {part.dtype for part in counted.directions.values()} or {counted.dtype}
        reason = (
            "half precision is too coarse" if "float16" in dtypes else "scores were rounded or items repeat"
        )
        yield (
            f"{tied:,} of {queries:,} ranks depend on ties (rSum up to {result.r_sum_optimistic:.1f} if they "
            f"fell well): {reason}"
        )


def _reversed(result: ProtocolResult) -> bool:
    """Whether captions find their images far behind the middle, worse than random scores, and not because of ties."""
    tied = result.t2i.tied_queries or 0
    # of captions, whose queries have one true item: random scores put it in the middle
    place = result.t2i.mean_rank / (result.images // result.folds)
    return place > NEAR_THE_END and tied < result.t2i.queries / 2


def _at_chance(result: ProtocolResult) -> bool:
    """Whether R@10 of both directions is within four standard deviations of random scores."""
    images, captions = result.images // result.folds, result.captions // result.folds
    # by images, not by queries: captions of one image are missed together
    share, asked = result.i2t.r10 / 100, result.images
    return not _above_chance(share, asked, _chance_of_an_image(images, captions)) and not _above_chance(
        result.t2i.r10 / 100, asked, min(1.0, 10 / images)
    )


def _chance_of_an_image(images: int, captions: int) -> float:
    """R@10 of images as queries under random scores."""
    each = captions // images
    # no true caption among ten drawn without replacement
    return 1 - prod(1 - each / (captions - place) for place in range(min(10, captions - each)))


def _above_chance(share: float, images: int, chance: float) -> bool:
    return share > chance + STANDARD_DEVIATIONS * sqrt(chance * (1 - chance) / images)


def order_notes(evaluation: Evaluation, scores: Rows) -> tuple[str, ...]:
    """Name the other usual order of captions if scores at chance fit it.

    Datasets are image-major: caption ``c`` belongs to image ``c // captions per image``. Other code writes the first
    caption of every image, then the second ones: caption ``c`` belongs to image ``c % images``.

    Args:
        evaluation: the result in the order of the dataset.
        scores: similarities of ``n_images`` images (rows) and all their captions (columns), each caption ranked.

    Returns:
        One sentence, or nothing: the result is above chance, or the other order does not fit either.
    """
    images, captions = scores.shape
    if images == captions or not any(_at_chance(result) for result in evaluation.protocols.values()):
        return ()
    share = _recall_of_images_by_turn(scores)
    if not _above_chance(share, images, _chance_of_an_image(images, captions)):
        return ()
    each = captions // images
    return (
        f"the captions are in another order: i2t R@10 is {100 * share:.1f} if caption c belongs to image c % {images} "
        f"(caption-major), expected c // {each} (image-major); reorder the columns of the matrix or the rows of the "
        f"captions with the index np.arange({captions}).reshape({each}, {images}).T.ravel()",
    )


def _recall_of_images_by_turn(scores: Rows) -> float:
    """R@10 of images as queries, in [0, 1], if caption ``c`` belongs to image ``c % images``; ties count against it."""
    images, hits = scores.shape[0], 0
    for start in range(0, images, BLOCK):
        stop = min(start + BLOCK, images)
        block = scores.rows(start, stop)
        rows = np.arange(stop - start)
        best = block.reshape(len(rows), -1, images)[rows, :, start + rows].max(axis=1, keepdims=True)
        hits += int(np.count_nonzero((block >= best).sum(axis=1) <= 10))
        scores.release(start, stop)
    return hits / images
