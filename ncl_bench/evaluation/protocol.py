"""The protocol: what is evaluated on which split, in how many folds, and with which metrics (docs/protocol.md)."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data import dataset_spec
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import DataError, ScoresError, unknown_name
from ncl_bench.evaluation.metrics import (
    CUTOFFS,
    METRICS,
    RECALLS,
    hits_per_image,
    recall_at,
    recall_intervals,
)
from ncl_bench.evaluation.ranks import Counted, OnRows, Ranks, count_ranks, per_direction
from ncl_bench.evaluation.results import DirectionResult, Evaluation, ProtocolResult
from ncl_bench.evaluation.scores import ArrayRows, Rows, as_array

PROTOCOL_VERSION = 2
SELECTION_IMAGES = 1_000
IMAGES_PER_FOLD = {"5fold-1k": 1_000}
EVALUATED_SPLITS = ("test", "dev")


def selection_images(spec: DatasetSpec, split: str = "dev") -> int:
    """Number of images used to choose a checkpoint: the first 1,000 of dev, or all if there are fewer.

    Args:
        spec: the dataset.
        split: ``dev``.
    """
    return min(SELECTION_IMAGES, spec.images[split])


def evaluated_images(spec: DatasetSpec, split: str) -> int:
    """Number of evaluated images: the whole test split, or the dev images used for selection.

    Raises:
        DataError: the split is not evaluated.
    """
    if split not in EVALUATED_SPLITS:
        raise DataError(unknown_name("evaluated split", split, EVALUATED_SPLITS))
    return spec.images[split] if split == "test" else selection_images(spec, split)


def protocols_of(spec: DatasetSpec, split: str) -> tuple[str, ...]:
    """Protocols of a split, the default first."""
    return spec.protocols if split == "test" else (split,)


def split_fold_size(spec: DatasetSpec, split: str) -> int | None:
    """Fold size of the split's folded protocol, or None."""
    sizes = [IMAGES_PER_FOLD[name] for name in protocols_of(spec, split) if name in IMAGES_PER_FOLD]
    return sizes[0] if sizes else None


def expected_shape(spec: DatasetSpec, split: str) -> tuple[int, int]:
    """Shape of the similarities: images as rows, captions as columns."""
    n_images = evaluated_images(spec, split)
    return n_images, n_images * spec.captions_per_image


def evaluate(
    similarities: Any, *, dataset: str, split: str = "test", t2i: Any = None, intervals: bool = True
) -> Evaluation:
    """Compute every metric of every protocol of a split from one similarity matrix, or from one per direction.

    Args:
        similarities: float ``(n_images, n_captions)``, images as rows, larger for a better match. A numpy array, in
            memory or memory-mapped; a tensor of any framework, also with a gradient or on a GPU; or the path of an
            ``.npy``, ``.safetensors`` or ``.pt`` file. Caption ``c`` belongs to image ``c // captions_per_image``. On
            dev, give the images used for selection only.
        dataset: name of the dataset.
        split: ``test`` or ``dev``.
        t2i: similarities of the captions as queries, ``(n_captions, n_images)``, if they differ, as those of a reranker
            do; see :func:`t2i_matrix`. ``similarities`` then ranks captions for images alone.
        intervals: compute the 95 % intervals.

    Raises:
        DataError: dataset or split is unknown.
        ScoresError: the file cannot be read, dtype or shape is wrong, or a score is not finite.
    """
    spec = dataset_spec(dataset)
    name = str(similarities) if isinstance(similarities, str | PathLike) else "similarities"
    matrix = as_array(similarities)
    check_matrix(matrix.shape, matrix.dtype, spec, split, name)
    counted = count(ArrayRows(matrix), spec, split)
    if t2i is not None:
        second = ArrayRows(t2i_matrix(t2i, spec, split))
        try:
            counted = per_direction(counted, count(second, spec, split))
        except ScoresError as error:
            raise ScoresError(f"t2i, with images as rows: {error}") from None
    return evaluate_counted(counted, spec, split, intervals=intervals)


def t2i_matrix(given: Any, spec: DatasetSpec, split: str) -> NDArray[Any]:
    """Read the similarities of the captions as queries.

    Args:
        given: captions as rows, ``(n_captions, n_images)``; images as rows are taken too if the shape tells. In the
            forms of :func:`evaluate`.
        spec: the dataset.
        split: ``test`` or ``dev``.

    Returns:
        The matrix with images as rows.

    Raises:
        ScoresError: the file cannot be read, or dtype or shape is wrong.
    """
    name = str(given) if isinstance(given, str | PathLike) else "t2i"
    matrix, expected = as_array(given), expected_shape(spec, split)
    if matrix.shape not in (expected, expected[::-1]):
        raise ScoresError(
            f"{name} has shape {matrix.shape}, {spec.name}/{split} needs {expected[::-1]}; give one row per caption "
            "and one column per image of the split, in its order"
        )
    if matrix.shape == expected[::-1]:
        matrix = matrix.T
    check_matrix(matrix.shape, matrix.dtype, spec, split, name)
    return matrix


def check_matrix(
    shape: tuple[int, ...], dtype: np.dtype[Any], spec: DatasetSpec, split: str, name: str = "similarities"
) -> None:
    """Refuse a matrix with the wrong dtype or shape.

    Raises:
        ScoresError: names the reason.
    """
    expected = expected_shape(spec, split)
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ScoresError(f"{name} has dtype {dtype}, expected float16, float32 or float64 similarities")
    if shape == expected:
        return
    hint = "give one row per image and one column per caption of the split, in its order"
    if len(shape) == 2 and shape == expected[::-1]:
        hint = "it is transposed: images are rows, captions are columns"
    elif len(shape) == 2 and shape == (expected[1], expected[1]):
        hint = f"give each image once, not once per caption (take every {spec.captions_per_image}th row)"
    elif len(shape) == 2 and shape == (expected[0], expected[0]):
        hint = f"every image has {spec.captions_per_image} captions, all of which are ranked: score every one"
    elif len(shape) == 2 and spec.all_captions.get(split) in shape:
        hint = (
            f"of the {max(shape):,} captions of this split, {max(shape) - expected[1]} are beyond the first "
            f"{spec.captions_per_image} of their image: leave them out"
        )
    elif split == "dev" and shape == (spec.images["dev"], spec.images["dev"] * spec.captions_per_image):
        hint = f"selection uses the first {expected[0]:,} images and their captions: give those alone"
    raise ScoresError(f"{name} has shape {shape}, {spec.name}/{split} needs {expected}; {hint}")


def count(scores: Rows, spec: DatasetSpec, split: str, on_rows: OnRows | None = None) -> Counted:
    """Rank every query of a split, among all items and within folds, in one pass."""
    return count_ranks(
        scores,
        captions_per_image=spec.captions_per_image,
        images_per_fold=split_fold_size(spec, split),
        on_rows=on_rows,
    )


def ranks_under(counted: Counted, protocol: str) -> Ranks:
    """Ranks that a protocol uses: within folds, or among all items."""
    ranks = counted.folds if protocol in IMAGES_PER_FOLD else counted.whole
    assert ranks is not None
    return ranks


def fold_size(protocol: str, n_images: int) -> int:
    """Images per fold of a protocol; all images if it has no folds."""
    return IMAGES_PER_FOLD.get(protocol, n_images)


def best_published(spec: DatasetSpec, split: str) -> Mapping[str, float]:
    """Highest published rSum per protocol of a split, on the same number of images; empty if nothing is published."""
    if spec.embedded:  # no paper prints numbers on it
        return {}
    from ncl_bench import papers

    best = papers.best_published(spec.name)
    if split == "test":
        return best
    n_images = evaluated_images(spec, split)
    same = [best[name] for name in best if fold_size(name, spec.images["test"]) == n_images]
    return {split: max(same)} if same else {}


def evaluate_counted(
    counted: Counted, spec: DatasetSpec, split: str, *, intervals: bool = True
) -> Evaluation:
    """Compute every metric of every protocol of a split from ranks.

    Args:
        counted: ranks of the split's queries.
        spec: the dataset.
        split: ``test`` or ``dev``.
        intervals: compute the 95 % intervals.
    """
    from ncl_bench.evaluation.plausibility import plausibility_notes

    results = {}
    for name in protocols_of(spec, split):
        ranks = ranks_under(counted, name)
        results[name] = protocol_result(ranks, fold_size(name, len(ranks.i2t)), intervals=intervals)
    evaluation = Evaluation(
        protocol_version=PROTOCOL_VERSION, dataset=spec.name, split=split, protocols=results
    )
    notes = plausibility_notes(evaluation, counted, best_published(spec, split))
    return evaluation.model_copy(update={"notes": notes})


def protocol_result(ranks: Ranks, images_per_fold: int, *, intervals: bool) -> ProtocolResult:
    """Compute the metrics of ranks, averaged over consecutive folds of equal size.

    Args:
        ranks: ranks of ``n_images`` images, each within its fold.
        images_per_fold: images per fold; ``n_images`` for a single fold.
        intervals: compute the 95 % intervals.
    """
    n_images, n_captions = len(ranks.i2t), len(ranks.t2i)
    per_image = n_captions // n_images
    found: dict[str, tuple[float, float]] = {}
    if intervals:
        queries = np.array([1] * len(CUTOFFS) + [per_image] * len(CUTOFFS))
        ends = recall_intervals(hits_per_image(ranks), queries, images_per_fold)
        found = dict(zip((*RECALLS, "r_sum"), ends, strict=True))
    i2t = _direction(ranks.i2t, ranks.i2t_optimistic, images_per_fold, found, "i2t")
    t2i = _direction(ranks.t2i, ranks.t2i_optimistic, images_per_fold * per_image, found, "t2i")
    best = [side.optimistic for side in (i2t, t2i) if side.optimistic is not None]
    return ProtocolResult(
        i2t=i2t,
        t2i=t2i,
        r_sum=i2t.r1 + i2t.r5 + i2t.r10 + t2i.r1 + t2i.r5 + t2i.r10,
        r_sum_interval=found.get("r_sum"),
        r_sum_optimistic=sum(sum(side.values()) for side in best) if len(best) == 2 else None,
        images=n_images,
        captions=n_captions,
        folds=n_images // images_per_fold,
    )


def _direction(
    ranks: NDArray[np.int64],
    optimistic: NDArray[np.int64] | None,
    queries_per_fold: int,
    intervals: dict[str, tuple[float, float]],
    name: str,
) -> DirectionResult:
    folds = ranks.reshape(-1, queries_per_fold)
    values = {
        metric: float(np.mean([compute(fold) for fold in folds])) for metric, compute in METRICS.items()
    }
    bounds = None if optimistic is None else {f"r{k}": recall_at(optimistic, k) for k in CUTOFFS}
    mine = {key[4:]: value for key, value in intervals.items() if key.startswith(name)}
    return DirectionResult(
        **values,
        queries=len(ranks),
        tied_queries=None if optimistic is None else int(np.count_nonzero(ranks != optimistic)),
        optimistic=bounds,
        intervals=mine or None,
    )
