"""Summary of an audit, ``result.json``."""

import json
from pathlib import Path

from pydantic import Field, ValidationError

from baselines.audit.labelled import LabelledPairs
from baselines.audit.lemon import LemonSetting
from baselines.engine.measures import Detection
from ncl_bench.errors import TrainingError, first_problem
from ncl_bench.files import readable
from ncl_bench.noise.draw import Noise
from ncl_bench.schema import Record

RESULT = "result.json"


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


class AuditResult(Record):
    """``result.json``.

    Attributes:
        dataset: whose training split was audited.
        fingerprint: of the split, before noise.
        noise: of the split, without its source.
        n_pairs: audited pairs.
        runs: that were averaged.
        chosen_by: the column that orders the page: ``clean_probability``, ``posterior`` without one, or ``lemon``.
        threshold: the method's own for this column; pairs at or below it are called wrong. None for LEMoN.
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
    detection: dict[str, Detection] = Field(default_factory=dict)
    first_wrong: int | None = None
    epochs: tuple[EpochDetection, ...] = ()
    lemon: LemonRecord | None = None
    labelled: LabelledPairs | None = None
    remarks: tuple[str, ...] = ()


def read_result(audit: Path) -> AuditResult:
    """Read ``result.json`` of an audit's folder.

    Raises:
        TrainingError: the file is missing or damaged.
    """
    path = readable(audit / RESULT, TrainingError, "the result of `ncl-bench audit`")
    try:
        return AuditResult.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        raise TrainingError(f"{path}: {first_problem(error)}; run `ncl-bench audit` again") from None
    except (ValueError, RecursionError):
        raise TrainingError(f"{path} is damaged; run `ncl-bench audit` again") from None
