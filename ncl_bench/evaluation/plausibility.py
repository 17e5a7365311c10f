"""Notes on results that are possible but rarely intended."""

from collections.abc import Iterator, Mapping
from math import prod, sqrt

from ncl_bench.evaluation.ranks import Counted
from ncl_bench.evaluation.results import Evaluation, ProtocolResult

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
    for name, result in evaluation.protocols.items():
        best = best_published.get(name)
        notes += [f"{name}: {note}" for note in _result_notes(result, counted.dtype, best)]
    return tuple(notes)


def _scores_notes(counted: Counted) -> Iterator[str]:
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


def _result_notes(result: ProtocolResult, dtype: str, best: float | None) -> Iterator[str]:
    if _reversed(result):
        yield "the true items rank near the end: are these distances? a larger score must mean more alike"
    elif _at_chance(result):
        yield (
            "both directions are at chance: is the order of images and captions that of the dataset "
            "(caption c belongs to image c // captions per image)?"
        )
    if result.captions > result.images and result.t2i.r1 > result.i2t.r1 + SWAPPED_GAP:
        yield (
            f"t2i R@1 {result.t2i.r1:.1f} is far above i2t R@1 {result.i2t.r1:.1f}, which no published "
            "result shows: were the two directions swapped?"
        )
    if best is not None and result.r_sum > best:
        yield (
            f"rSum {result.r_sum:.1f} is above every published one ({best:.1f}): "
            "were train and test kept apart?"
        )
    tied = sum(side.tied_queries or 0 for side in (result.i2t, result.t2i))
    queries = result.i2t.queries + result.t2i.queries
    if tied > MANY_TIES * queries and result.r_sum_optimistic is not None:
        reason = (
            "half precision is too coarse" if dtype == "float16" else "scores were rounded or items repeat"
        )
        yield (
            f"{tied:,} of {queries:,} ranks depend on ties (rSum up to {result.r_sum_optimistic:.1f} if they "
            f"fell well): {reason}"
        )


def _reversed(result: ProtocolResult) -> bool:
    """Whether captions find their images far behind the middle, worse than random scores, and not because of ties."""
    tied = result.t2i.tied_queries or 0
    place = result.t2i.mean_rank / (result.images // result.folds)
    return place > NEAR_THE_END and tied < result.t2i.queries / 2


def _at_chance(result: ProtocolResult) -> bool:
    """Whether R@10 of both directions is within four standard deviations of random scores."""
    images, captions = result.images // result.folds, result.captions // result.folds
    each = captions // images
    missed = prod(1 - each / (captions - place) for place in range(min(10, captions - each)))
    for side, chance in ((result.i2t, 1 - missed), (result.t2i, min(1.0, 10 / images))):
        deviation = sqrt(chance * (1 - chance) / result.images)
        if side.r10 / 100 > chance + STANDARD_DEVIATIONS * deviation:
            return False
    return True
