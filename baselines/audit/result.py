"""What an audit found: the content of ``result.json``, and how well each value finds the wrong pairs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from baselines.audit.lemon import LEMON, LemonSetting
from baselines.training.measures import Detection, detection, hidden_correspondence
from ncl_bench.data import dataset_spec
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pair_labels import FEWEST
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError, first_problem
from ncl_bench.files import readable
from ncl_bench.noise.draw import Noise
from ncl_bench.schema import Record

RESULT = "result.json"
SUSPICIOUS, SUREST = 200, 50
"""Number of pairs on the page."""


class Estimate(Record):
    """A measure in [0, 1] with its 95 % interval (percentile bootstrap within the strata)."""

    value: float
    low: float
    high: float


class LabelledDetection(Record):
    """How well an estimate separates pairs of one label from those that match, weighted.

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
    detection: dict[str, dict[str, LabelledDetection]] = Field(default_factory=dict)


class AuditedRun(Record):
    """One of the runs: its folder as given, and what was trained.

    ``best_epoch`` counts from 0; it is None for imported weights.
    """

    folder: str
    method: str
    backbone: str
    seed: int
    best_epoch: int | None
    has_clean_probability: bool


class EpochDetection(Record):
    """How well a run's clean probability finds the wrong pairs after an epoch, counted from 0."""

    run: str
    epoch: int
    detection: Detection


class LemonRecord(Record):
    """How LEMoN scored the pairs: its numbers, pairs in the reference, and files of embeddings if no run gave them."""

    setting: LemonSetting
    n_reference: int
    embeddings: tuple[str, ...]


class WrongPairs(Record):
    """Estimated number of wrong pairs, with a range: bootstrap over images, widened (share.py).

    ``obtained`` says in sentences how this was estimated.
    """

    n: int
    low: int
    high: int
    obtained: str


class AuditResult(Record):
    """``result.json``.

    Attributes:
        dataset: whose training split was audited.
        fingerprint: of the split, before noise.
        noise: of the split, without its source.
        n_pairs: audited pairs.
        runs: that were averaged.
        wrong: how many pairs are probably wrong; None for LEMoN.
        chosen_by: the column that orders the page: ``fit`` or ``lemon``.
        threshold: of this column; pairs at or below it are called wrong, as many as are estimated. None for LEMoN.
        detection: column to how well it finds the wrong pairs; empty where nobody knows which these are.
        first_wrong: how many of the most suspicious pairs on the page are wrong; None where nobody knows.
        epochs: the same for the clean probability of each epoch, as far as it was kept.
        lemon: how LEMoN scored the pairs; None in the audit of a method.
        labelled: what labels say of natural noise; None without labels.
        remarks: what a reader has to know, in sentences.
    """

    dataset: str
    fingerprint: str
    noise: Noise
    n_pairs: int
    runs: tuple[AuditedRun, ...]
    chosen_by: str
    threshold: float | None
    wrong: WrongPairs | None = None
    detection: dict[str, Detection] = Field(default_factory=dict)
    first_wrong: int | None = None
    epochs: tuple[EpochDetection, ...] = ()
    lemon: LemonRecord | None = None
    labelled: LabelledPairs | None = None
    remarks: tuple[str, ...] = ()


def read_result(audit: Path) -> AuditResult:
    """Read ``result.json`` of an audit's folder."""
    path = readable(audit / RESULT, TrainingError, "the result of `ncl-bench audit`")
    try:
        return AuditResult.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        raise TrainingError(f"{path}: {first_problem(error)}; run `ncl-bench audit` again") from None
    except (ValueError, RecursionError):
        raise TrainingError(f"{path} is damaged; run `ncl-bench audit` again") from None


def result_of(
    train: PairedDataset,
    noise: Noise,
    table: pd.DataFrame,
    truth: NDArray[np.bool_] | None,
    labelled: LabelledPairs | None,
    thresholds: Mapping[str, float | None],
    remarks: Sequence[str] = (),
    **facts: Any,
) -> AuditResult:
    """Hold a table of pairs against what is known of them.

    Args:
        train: the split, whole.
        noise: its noise.
        table: of the audited pairs.
        truth: bool ``(n,)``, whether each pair is true; None if unknown.
        labelled: what labels say of the pairs; None without labels.
        thresholds: columns to measure, with the method's own threshold; the first one orders the page.
        remarks: what a reader has to know of the runs.
        facts: further entries of the result.
    """
    chosen_by = next(iter(thresholds))
    detection = {}
    if truth is not None:
        for column, threshold in thresholds.items():
            found = detection_of(table[column].to_numpy(np.float32), truth, threshold)
            if found is not None:
                detection[column] = found
    order = suspicion(table, chosen_by)
    return AuditResult(
        dataset=train.name,
        fingerprint=train.fingerprint,
        noise=noise,
        n_pairs=len(table),
        chosen_by=chosen_by,
        threshold=thresholds[chosen_by],
        detection=detection,
        first_wrong=None if truth is None else int((~truth[order[:SUSPICIOUS]]).sum()),
        labelled=labelled,
        remarks=(*remarks, *_of_truth(train, truth, labelled)),
        **facts,
    )


def suspicion(table: pd.DataFrame, chosen_by: str) -> NDArray[np.int64]:
    """Rows of the table, the most suspicious first: by the chosen column, then the larger loss, then the pair's id."""
    then = table["similarity"] if chosen_by == LEMON else -table["loss"]
    return np.lexsort((table["pair_id"], then, table[chosen_by]))


def truth_of(train: PairedDataset, rows: Int64Array) -> NDArray[np.bool_] | None:
    """Which audited pairs are true; None where nobody knows, or all or none of them are."""
    known = hidden_correspondence(train)
    truth = None if known is None else known[rows]
    return None if truth is None or truth.all() or not truth.any() else truth


def detection_of(
    values: NDArray[np.float32], truth: NDArray[np.bool_], threshold: float | None
) -> Detection | None:
    """Of the pairs that have a value; None where these are all true or all wrong."""
    known = ~np.isnan(values)
    if not truth[known].any() or truth[known].all():
        return None
    return detection(values[known], truth[known], threshold)


def _says(found: LabelledPairs) -> str:
    """What a reader has to know of the labels, in a sentence or two."""
    n, wrong, matching = sum(found.labels.values()), found.labels["wrong"], found.labels["matches"]
    counts = f"{n:,}, {wrong:,} of them wrong and {matching:,} matching"
    sentence = f"The noise is natural. Labelled pairs ({found.file}): {counts}."
    if min(wrong, matching) >= FEWEST:
        return sentence
    return (
        f"{sentence} A score needs {FEWEST} of each, so AUROC, average precision and precision are not given."
    )


def _of_truth(
    train: PairedDataset, truth: NDArray[np.bool_] | None, labelled: LabelledPairs | None
) -> list[str]:
    """Remarks on what is known of the pairs."""
    if labelled is not None:
        return [_says(labelled)]
    if dataset_spec(train.name).noise == "natural":
        return [
            "The noise is natural: nobody knows which pairs are wrong, so nothing is scored. "
            "Labels of some pairs change that (--labels)."
        ]
    return ["All of these pairs are true, or all are wrong, so nothing is scored."] if truth is None else []
