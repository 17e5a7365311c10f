"""Natural noise held against labels: how well the wrong ones among labelled pairs are found.

The labelled pairs are a sample. Each stands for as many pairs of its stratum as were not labelled: its weight is the
size of the stratum over the number of its labelled pairs (Horvitz-Thompson).
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from baselines.audit.pairs import suspicious_first
from baselines.kit.batches import derive_seed
from ncl_bench.data import dataset_spec
from ncl_bench.data.columns import taken
from ncl_bench.data.pair_labels import FEWEST, LABELS, read_pair_labels, strata
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError, named
from ncl_bench.evaluation.metrics import RESAMPLES
from ncl_bench.npy import BoolArray, Float64Array, Int64Array
from ncl_bench.schema import Record

FIRST = (50, 100, 200, 500, 1_000)
PRECISION_AT = 50


class Estimate(Record):
    """A measure in [0, 1] with its 95 % interval (percentile bootstrap within the strata)."""

    value: float
    low: float
    high: float


class Estimates(Record):
    """The measures of a :class:`~ncl_bench.evaluation.detection.Detection` of all pairs, estimated from a sample.

    Attributes:
        n: pairs of the label.
        n_matches: pairs that match.
        auroc: of matching pairs against the others.
        average_precision: the matching pair is the positive one.
        average_precision_wrong: the pair of the label is the positive one.
        precision_at_50: share of the label among the 50 most suspicious of these pairs; of equal estimates, the
            expected share.
    """

    n: int
    n_matches: int
    auroc: Estimate
    average_precision: Estimate
    average_precision_wrong: Estimate
    precision_at_50: Estimate


class Stratum(Record):
    """Audited pairs of a stratum, and how many of them are labelled."""

    size: int
    labelled: int


class LabelledPairs(Record):
    """What an audit says of labelled pairs.

    Attributes:
        file: name of the labels file.
        labels: label to audited pairs that have it.
        strata: those that the labels were drawn from.
        first: number of most suspicious pairs to how many of them have each label.
        seed: of the bootstrap.
        detection: column of the table to ``wrong`` and ``partly``, each against the pairs that match; empty where there
            are fewer than 30 wrong or 30 matching pairs.
    """

    file: str
    labels: dict[str, int]
    strata: dict[str, Stratum]
    first: dict[int, dict[str, int]]
    seed: int
    detection: dict[str, dict[str, Estimates]] = Field(default_factory=dict)


def says(labelled: LabelledPairs) -> str:
    """What a reader has to know of the labels, in a sentence or two."""
    n, wrong, matching = sum(labelled.labels.values()), labelled.labels["wrong"], labelled.labels["matches"]
    counts = f"{n:,}, {wrong:,} of them wrong and {matching:,} matching"
    sentence = f"The noise is natural. Labelled pairs ({labelled.file}): {counts}."
    if min(wrong, matching) >= FEWEST:
        return sentence
    return (
        f"{sentence} A score needs {FEWEST} of each, so AUROC, average precision and precision are not given."
    )


def labels_of_split(file: Path, train: PairedDataset) -> dict[int, str]:
    """Read the labels of pairs of a training split with natural noise: pair id to label."""
    if train.noise.unit is not None:
        raise TrainingError(
            f"{file}: these pairs have synthetic noise, whose truth is known; leave {named('labels')} out"
        )
    images = map(str, taken(train.image_ids, train.caption_to_image))
    image_ids = dict(zip(train.pair_ids.tolist(), images, strict=True))
    return read_pair_labels(file, dataset_spec(train.name), image_ids)


def labelled_pairs(
    file: Path,
    labels: Mapping[int, str],
    train: PairedDataset,
    table: pd.DataFrame,
    columns: list[str],
    seed: int,
) -> LabelledPairs:
    """Hold the table of an audit against labels.

    Args:
        file: that the labels were read from.
        labels: pair id to label; pairs that are not audited are left out.
        train: the split, whole.
        table: of the audited pairs.
        columns: of the table to measure; larger means more likely a true pair. The first one orders the pairs.
        seed: of the training.
    """
    order = suspicious_first(table, columns[0])
    ids = table["pair_id"].to_numpy(np.int64)
    label = np.array([labels.get(pair, "") for pair in ids.tolist()], object)
    if not label.any():
        raise TrainingError(f"{file} labels none of the {len(ids):,} audited pairs; label some of them")
    group = _groups(train, ids)
    size, drawn = Counter(group.tolist()), Counter(group[label != ""].tolist())
    weight = np.array([size[name] / max(1, drawn[name]) for name in group.tolist()])
    seed = derive_seed(seed, "audit", "labels")
    count = Counter(label.tolist())
    detection: dict[str, dict[str, Estimates]] = {}
    for column in columns if min(count["wrong"], count["matches"]) >= FEWEST else ():
        values = table[column].to_numpy(np.float64, na_value=np.nan)
        for other in ("wrong", "partly"):
            rows = np.flatnonzero(~np.isnan(values) & np.isin(label, (other, "matches")))
            wrong = label[rows] == other
            if min(wrong.sum(), (~wrong).sum()) >= FEWEST:
                estimates = _detection(values[rows], wrong, weight[rows], group[rows], seed)
                detection.setdefault(column, {})[other] = estimates
    return LabelledPairs(
        file=file.name,
        labels={name: count[name] for name in LABELS},
        strata={name: Stratum(size=size[name], labelled=drawn[name]) for name in sorted(size)},
        first={
            k: {name: int((label[order[:k]] == name).sum()) for name in LABELS}
            for k in FIRST
            if k <= len(ids)
        },
        seed=seed,
        detection=detection,
    )


def _groups(train: PairedDataset, ids: Int64Array) -> NDArray[np.object_]:
    """Stratum of each audited pair; all are of one where captions have no text."""
    if train.captions is None:
        return np.full(len(ids), "all", object)
    every = np.array(strata(list(train.captions)), object)
    return every[np.flatnonzero(np.isin(train.pair_ids, ids))]


def _detection(
    values: Float64Array,
    wrong: BoolArray,
    weight: Float64Array,
    group: NDArray[np.object_],
    seed: int,
) -> Estimates:
    random = np.random.default_rng(seed)
    drawn = np.zeros((RESAMPLES, len(values)))
    for name in np.unique(group):
        rows = np.flatnonzero(group == name)
        drawn[:, rows] = random.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), RESAMPLES)
    point = weighted_measures(values, wrong, weight, np.ones((1, len(values))))
    again = weighted_measures(values, wrong, weight, drawn)
    return Estimates(
        n=int(wrong.sum()),
        n_matches=int((~wrong).sum()),
        **{
            name: Estimate(
                value=float(point[name][0]),
                **dict(zip(("low", "high"), np.quantile(each, (0.025, 0.975)).tolist(), strict=True)),
            )
            for name, each in again.items()
        },
    )


def weighted_measures(
    values: Float64Array, wrong: BoolArray, weight: Float64Array, drawn: Float64Array
) -> dict[str, Float64Array]:
    """The measures of :class:`Estimates` for several resamples at once.

    Args:
        values: float64 ``(n,)``, larger means more likely to match.
        wrong: bool ``(n,)``, the pairs to find.
        weight: float64 ``(n,)``, pairs that each stands for.
        drawn: float64 ``(resamples, n)``, how often each pair was drawn.

    Returns:
        Name of the measure to float64 ``(resamples,)``.
    """
    order = np.argsort(values, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(values[order]) > 0))  # of the pairs with one value
    weights = drawn * weight
    n, found, right = (
        np.add.reduceat(each[:, order], first, axis=1) for each in (drawn, weights * wrong, weights * ~wrong)
    )
    n_called, wrong_called = n.cumsum(axis=1), found.cumsum(axis=1)
    right_called = right.cumsum(axis=1)
    later = right_called[:, -1:] - right_called  # matching pairs with a larger value
    k = min(PRECISION_AT, len(values))
    at = [
        np.interp(k, np.append(0, n), np.append(0, f)) / np.interp(k, np.append(0, n), np.append(0, c))
        for n, f, c in zip(n_called, wrong_called, wrong_called + right_called, strict=True)
    ]
    return {
        "auroc": (found * (later + right / 2)).sum(axis=1) / (found.sum(axis=1) * right.sum(axis=1)),
        "average_precision": _average_precision(right[:, ::-1], found[:, ::-1]),
        "average_precision_wrong": _average_precision(found, right),
        "precision_at_50": np.array(at),
    }


def _average_precision(positive: Float64Array, others: Float64Array) -> Float64Array:
    """Of each resample, from the weights of the pairs of each value, in the order in which they are called."""
    with np.errstate(invalid="ignore"):  # nothing is called where the first values were not drawn
        precision = np.nan_to_num(positive.cumsum(axis=1) / (positive + others).cumsum(axis=1))
    average: Float64Array = (positive * precision).sum(axis=1) / positive.sum(axis=1)
    return average
