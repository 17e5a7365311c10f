"""The protocol: what is evaluated on which split, in how many folds, and with which metrics (docs/protocol.md)."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data import ROOT_VARIABLE
from ncl_bench.data.judgements import Judgements
from ncl_bench.data.load import load_dataset
from ncl_bench.data.order import order_fingerprint
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.spec import DatasetSpec, SplitName
from ncl_bench.errors import ScoresError, named
from ncl_bench.evaluation.metrics import (
    CUTOFFS,
    METRICS,
    RECALLS,
    hits_per_image,
    intervals_of_models,
    over_folds,
    recall_at,
    recalls_and_sum,
)
from ncl_bench.evaluation.ranks import Counted, OnRows, Ranks, count_ranks, per_direction
from ncl_bench.evaluation.results import DirectionResult, Evaluation, ProtocolResult
from ncl_bench.evaluation.scores import ArrayRows, EmbeddingRows, Rows, Similarity, as_array
from ncl_bench.npy import Int64Array

PROTOCOL_VERSION = 2
SELECTION_IMAGES = 1_000
IMAGES_PER_FOLD = {"5fold-1k": 1_000}
BEST_PUBLISHED = Path(__file__).parents[1] / "papers" / "published" / "best.json"
"""Dataset and protocol to the highest rSum that a paper prints; ``tools/best_published.py`` writes it."""


def selection_images(spec: DatasetSpec) -> int:
    """Number of images used to choose a checkpoint: the first 1,000 of dev, or all if there are fewer."""
    return min(SELECTION_IMAGES, spec.images["dev"])


def evaluated_images(spec: DatasetSpec, split: str) -> int:
    """Number of evaluated images: the whole test split, or the dev images used for selection."""
    return spec.images[split] if split == "test" else selection_images(spec)


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


def local_split(
    spec: DatasetSpec, split: str, root: Path | None, language: str | None = None
) -> PairedDataset | None:
    """Open a split if it is prepared on this machine; return None otherwise.

    Args:
        spec: the dataset.
        split: name of the split.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``); it must hold the dataset.
        language: language of the captions.
    """
    surroundings = os.environ.get(ROOT_VARIABLE)
    place = root or (Path(surroundings) if surroundings else None)
    if not spec.embedded and root is None:
        prepared = [place / "manifest.json", place / spec.name / "manifest.json"] if place else []
        if not any(path.exists() for path in prepared):
            return None
    return load_dataset(spec.name, split=cast(SplitName, split), root=place, language=language)


def known_order(spec: DatasetSpec, split: str, root: Path | None) -> str | None:
    """Order fingerprint of a split: from the dataset's facts, or else from the prepared split.

    Args:
        spec: the dataset.
        split: ``test`` or ``dev``.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).

    Returns:
        sha256 (hex), or None if it is neither a known fact nor prepared here.
    """
    if split in spec.order_fingerprints:
        return spec.order_fingerprints[split]
    local = local_split(spec, split, root)
    return None if local is None else order_fingerprint(local.image_ids, local.captions)


Sides = tuple[Rows, Rows]
"""Similarities for images as queries and for captions as queries, images as rows; usually the same twice."""


def square_note(spec: DatasetSpec) -> list[str]:
    """Note that a square matrix (one caption per image) does not show whether it is transposed."""
    if spec.captions_per_image > 1:
        return []
    return [
        f"{spec.name} has a square matrix, whose shape cannot tell rows from columns: rows were taken as images"
    ]


def open_scores(
    given: Sequence[Any],
    spec: DatasetSpec,
    split: str,
    *,
    similarity: Similarity | None = None,
    t2i: Any = None,
) -> Sides:
    """Open one matrix, or the embeddings of images and captions, and check type and shape.

    Args:
        given: one or two arrays or paths; see :func:`ncl_bench.evaluation.call.evaluate`.
        spec: the dataset.
        split: ``test`` or ``dev``.
        similarity: of embeddings (default: cosine).
        t2i: matrix of the captions as queries, or None.
    """
    if not 1 <= len(given) <= 2:
        raise ScoresError(
            f"{len(given)} files of scores are given; give one matrix, or two files of embeddings, images first"
        )
    arrays = [as_array(each) for each in given]
    if len(given) == 2:
        if t2i is not None:
            raise ScoresError(
                "t2i is a second matrix of similarities, but the first input is embeddings; leave t2i out"
            )
        names = _name(given[0], "images"), _name(given[1], "captions")
        rows = _embeddings(arrays, similarity or "cosine", spec, split, names)
        return rows, rows
    if similarity is not None:
        raise ScoresError(
            f"{named('similarity')} only applies to embeddings, but one matrix of similarities is given; leave it out"
        )
    name = _name(given[0], "scores")
    check_matrix(arrays[0].shape, arrays[0].dtype, spec, split, name)
    matrix = ArrayRows(arrays[0], name)
    return matrix, matrix if t2i is None else _captions_as_queries(t2i, spec, split)


def _name(given: Any, otherwise: str) -> str:
    return str(given) if isinstance(given, str | os.PathLike) else otherwise


def _captions_as_queries(given: Any, spec: DatasetSpec, split: str) -> ArrayRows:
    name = _name(given, "t2i")
    matrix, expected = as_array(given), expected_shape(spec, split)
    remark = f"{name} has images as rows by its shape, and was taken so; captions as rows are expected"
    if matrix.shape == expected[::-1]:
        matrix, remark = matrix.T, ""
    check_matrix(matrix.shape, matrix.dtype, spec, split, f"{name} (images as rows)")
    return ArrayRows(matrix, f"{name}, with images as rows", remark)


def _embeddings(
    arrays: Sequence[NDArray[Any]],
    similarity: Similarity,
    spec: DatasetSpec,
    split: str,
    names: tuple[str, str],
) -> EmbeddingRows:
    images, captions = arrays
    expected = expected_shape(spec, split)
    if expected[0] != expected[1] and {images.shape, captions.shape} <= {expected, expected[::-1]}:
        raise ScoresError(
            f"{names[0]} and {names[1]} are two matrices of similarities; give the one of the captions as "
            f"{named('t2i')}"
        )
    if {images.ndim, captions.ndim, *images.shape[1:], *captions.shape[1:]} != {2, images.shape[-1]} or any(
        array.dtype.kind != "f" or array.dtype.itemsize > 8 for array in arrays
    ):
        raise ScoresError(
            f"{names[0]} holds {images.dtype} of shape {images.shape}, {names[1]} {captions.dtype} of shape "
            f"{captions.shape}, expected a float vector per image and caption, all of one length"
        )
    if expected[0] != expected[1] and (len(images), len(captions)) == expected[::-1]:
        raise ScoresError(
            f"{names[0]} has {len(images)} vectors and {names[1]} {len(captions)}, {spec.name}/{split} has "
            f"{expected[0]} images and {expected[1]} captions; give the images first"
        )
    check_matrix((len(images), len(captions)), images.dtype, spec, split, f"{names[0]} x {names[1]}")
    return EmbeddingRows(images, captions, similarity, names)


def check_matrix(
    shape: tuple[int, ...], dtype: np.dtype[Any], spec: DatasetSpec, split: str, name: str = "scores"
) -> None:
    """Refuse a matrix with the wrong dtype or shape."""
    expected = expected_shape(spec, split)
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ScoresError(
            f"{name} has dtype {dtype}, expected float16, float32 or float64 similarities; "
            "scores.astype(np.float32) converts whole numbers"
        )
    if shape == expected:
        return
    hint = "give one row per image and one column per caption of the split, in its order"
    if shape == expected[::-1]:
        hint = "it is transposed: images are rows, captions are columns"
    elif len(shape) == 2 and np.isin(np.subtract(shape, expected), (0, 1)).all():
        hint = "it has a row or a column of names; with pandas, write to_csv(path, header=False, index=False)"
    elif shape == (expected[1], expected[1]):
        hint = f"give each image once, not once per caption (take every {spec.captions_per_image}th row)"
    elif shape == (expected[0], expected[0]):
        hint = f"every image has {spec.captions_per_image} captions, all of which are ranked: score every one"
    elif len(shape) == 2 and spec.all_captions.get(split) in shape:
        hint = (
            f"of the {max(shape):,} captions of this split, {max(shape) - expected[1]} are beyond the first "
            f"{spec.captions_per_image} of their image: leave them out"
        )
    elif (fold := split_fold_size(spec, split)) and shape == (fold, fold * spec.captions_per_image):
        hint = (
            f"{' and '.join(protocols_of(spec, split))} are computed from the whole matrix: score all "
            f"{expected[0]:,} images with all {expected[1]:,} captions"
        )
    elif split == "dev" and shape == (spec.images["dev"], spec.images["dev"] * spec.captions_per_image):
        hint = f"selection uses the first {expected[0]:,} images and their captions: give those alone"
    raise ScoresError(f"{name} has shape {shape}, {spec.name}/{split} needs {expected}; {hint}")


def measure(
    sides: Sides,
    spec: DatasetSpec,
    split: str,
    *,
    intervals: bool = True,
    root: Path | None = None,
    on_rows: OnRows | None = None,
) -> tuple[Evaluation, Counted]:
    """Rank every query of a split, and compute the metrics of every protocol.

    Args:
        sides: from :func:`open_scores`.
        spec: the dataset.
        split: ``test`` or ``dev``.
        intervals: compute the 95 % intervals.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``), for the image ids that
            ECCV Caption and CxC need.
        on_rows: called with the number of images of each counted block, from several threads.
    """
    from ncl_bench.evaluation.plausibility import order_notes

    counted = count(sides, spec, split, on_rows)
    evaluation = evaluation_of(counted, spec, split, intervals=intervals)
    notes = (*evaluation.notes, *order_notes(evaluation, sides[0]))
    evaluation = evaluation.model_copy(update={"notes": notes})
    evaluation = with_more_matches(evaluation, sides, spec, root)
    return with_people(evaluation, counted, sides, spec, root, intervals=intervals)


def count(sides: Sides, spec: DatasetSpec, split: str, on_rows: OnRows | None = None) -> Counted:
    """Rank every query of a split, among all items and within folds, in one pass per matrix."""
    i2t, *others = [
        count_ranks(
            rows,
            captions_per_image=spec.captions_per_image,
            images_per_fold=split_fold_size(spec, split),
            on_rows=on_rows,
        )
        for rows in dict.fromkeys(sides)
    ]
    return per_direction(i2t, others[0]) if others else i2t


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
    # a file, and not the rows of the papers: every evaluation asks, and reading those takes as long as to rank
    best: dict[str, float] = json.loads(BEST_PUBLISHED.read_bytes()).get(spec.name, {})
    if split == "test":
        return best
    n_images = evaluated_images(spec, split)
    same = [best[name] for name in best if fold_size(name, spec.images["test"]) == n_images]
    return {split: max(same)} if same else {}


def evaluation_of(counted: Counted, spec: DatasetSpec, split: str, *, intervals: bool = True) -> Evaluation:
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


def recalls_of(similarities: Any, spec: DatasetSpec, split: str) -> dict[str, float]:
    """The six recalls and ``r_sum`` under the default protocol: what training asks for."""
    protocol = protocols_of(spec, split)[0]
    ranks = ranks_under(count(open_scores((similarities,), spec, split), spec, split), protocol)
    return recalls_and_sum(ranks, fold_size(protocol, len(ranks.i2t)))


def protocol_result(ranks: Ranks, images_per_fold: int, *, intervals: bool) -> ProtocolResult:
    """Compute the metrics of ranks, averaged over consecutive folds of equal size.

    Args:
        ranks: ranks of ``n_images`` images, each within its fold.
        images_per_fold: images per fold; ``n_images`` for a single fold.
        intervals: compute the 95 % intervals.
    """
    n_images, n_captions = len(ranks.i2t), len(ranks.t2i)
    per_image = n_captions // n_images
    interval_of: dict[str, tuple[float, float]] = {}
    if intervals:
        queries = np.array([1] * len(CUTOFFS) + [per_image] * len(CUTOFFS))
        (ends,) = intervals_of_models([hits_per_image(ranks)], queries, images_per_fold)
        interval_of = dict(zip((*RECALLS, "r_sum"), ends, strict=True))
    i2t = _direction(ranks.i2t, ranks.i2t_optimistic, images_per_fold, interval_of, "i2t")
    t2i = _direction(ranks.t2i, ranks.t2i_optimistic, images_per_fold * per_image, interval_of, "t2i")
    best = [side.optimistic for side in (i2t, t2i) if side.optimistic is not None]
    return ProtocolResult(
        i2t=i2t,
        t2i=t2i,
        r_sum=i2t.r1 + i2t.r5 + i2t.r10 + t2i.r1 + t2i.r5 + t2i.r10,
        r_sum_interval=interval_of.get("r_sum"),
        r_sum_optimistic=sum(sum(side.values()) for side in best) if len(best) == 2 else None,
        images=n_images,
        captions=n_captions,
        folds=n_images // images_per_fold,
    )


def _direction(
    ranks: Int64Array,
    optimistic: Int64Array | None,
    queries_per_fold: int,
    intervals: dict[str, tuple[float, float]],
    name: str,
) -> DirectionResult:
    values = {metric: over_folds(metric, ranks, queries_per_fold) for metric in METRICS}
    bounds = None if optimistic is None else {f"r{k}": recall_at(optimistic, k) for k in CUTOFFS}
    mine = {key[4:]: value for key, value in intervals.items() if key.startswith(name)}
    return DirectionResult(
        **values,
        queries=len(ranks),
        tied_queries=None if optimistic is None else int(np.count_nonzero(ranks != optimistic)),
        optimistic=bounds,
        intervals=mine or None,
    )


def with_more_matches(
    evaluation: Evaluation, sides: Sides, spec: DatasetSpec, root: Path | None
) -> Evaluation:
    """Add ECCV Caption and CxC to an evaluation, or a note on what they need.

    Args:
        evaluation: of one split; returned unchanged if the dataset has no labels of more true matches.
        sides: the scores.
        spec: the dataset.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
    """
    labels = spec.labels.get(evaluation.split)
    if labels is None:
        return evaluation
    needed = ""
    if find_spec(labels.package) is None:
        from ncl_bench.extras import install_command

        needed = f"their labels; install them with: {install_command(labels.extra)}"
    elif (local := local_split(spec, evaluation.split, root)) is None:
        needed = "the image ids; prepare the dataset and name its folder with --root"
    else:
        from ncl_bench.evaluation.eccv import metrics_of

        eccv, cxc = metrics_of(labels.read(local.image_ids), *sides)
        return evaluation.model_copy(update={"eccv": eccv, "cxc": cxc})
    note = f"ECCV Caption and CxC were left out: they need {needed}"
    return evaluation.model_copy(update={"notes": (*evaluation.notes, note)})


def with_people(
    evaluation: Evaluation,
    counted: Counted,
    sides: Sides,
    spec: DatasetSpec,
    root: Path | None,
    *,
    intervals: bool,
) -> tuple[Evaluation, Counted]:
    """Add agreement with people's judgements to an evaluation of test, or a note on what it needs.

    Args:
        evaluation: of one split; returned unchanged if people judged no pairs of it.
        counted: ranks of the same scores; they get the judgements in the order of the scores.
        sides: the scores; those of images as queries count.
        spec: the dataset.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        intervals: compute the 95 % intervals.
    """
    if evaluation.split != "test" or not spec.origin.judgements:
        return evaluation, counted
    from ncl_bench.evaluation.people import crossing, in_order, judged_scores, people_of

    judgements = local_judgements(spec, root)
    if judgements:
        of_pairs = judged_scores(sides[0], judgements), judgements
        people = people_of(*of_pairs, sides[0].shape, intervals=intervals)
        crossed = crossing(*of_pairs, sides[0].shape)
        counted = replace(counted, judged=in_order(*of_pairs), crossed=crossed)
        return evaluation.model_copy(update={"people": people}), counted
    files = " and ".join(spec.origin.judgements.values())
    note = f"agreement with people needs {spec.name} prepared with {files}; name the folder of the dataset with --root"
    return evaluation.model_copy(update={"notes": (*evaluation.notes, note)}), counted


def local_judgements(spec: DatasetSpec, root: Path | None) -> dict[str, Judgements]:
    """People's judgements of test pairs by their kind; empty if the dataset is not prepared here, or without them."""
    local = local_split(spec, "test", root)
    return {} if local is None else {kind: local.judged(kind) for kind in local.judgement_files}
