"""The folder that holds an audit, and what is said of all its pairs.

``pairs.parquet``, ``pairs.csv``    every pair, with what is known of it
``result.json``                     how many are wrong, and what a reader has to know
``index.html``                      the pairs to look at, with their pictures
"""

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from baselines.audit.labelled import LabelledPairs
from baselines.audit.labels import VERSION
from baselines.audit.lemon import LemonSetting
from ncl_bench.errors import TrainingError
from ncl_bench.evaluation.detection import Detection
from ncl_bench.files import atomic_path, write_text
from ncl_bench.foreign import readable, reading
from ncl_bench.noise.draw import Noise
from ncl_bench.schema import Record
from ncl_bench.tables import csv_of

RESULT, PAIRS = "result.json", "pairs.parquet"


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


class AuditedEpoch(Record):
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
        version: of this file and of the labels.
        source: file or folder of the pairs, or the dataset whose training split was audited.
        digest: hash of the pairs and of all settings; the page keeps its ticks under it.
        n_rows: rows of the source.
        n_judged: those that were judged.
        n_pictures: different images among them.
        left_out: why rows were not judged, to their number.
        doubled: copies of pictures, judged as one picture.
        reasons: causes that were found, such as ``repeated caption``, to number of rows.
        order_faults: sentences on rows whose captions are shifted.
        wrong, low, high: how many pairs are probably wrong, with a range; None if it cannot be said.
        obtained: how this was estimated, in sentences.
        chosen_by: the column that orders the page; small is suspicious.
        threshold: of this column; pairs at or below it are called wrong, as many as are estimated; None if it cannot be
            said.
        n_suspects: pairs to look at: those that are called wrong, and those with a cause, corrected by labels.
        labels: label to number of labelled pairs.
        remarks: what else a reader has to know, in sentences.
        dataset, fingerprint, noise: runs: the split before noise, and its noise without the source.
        runs: that were averaged.
        detection: column to how well it finds the wrong pairs; empty where nobody knows which these are.
        first_wrong: how many of the 200 most suspicious pairs are wrong; None where nobody knows.
        epochs: the same for the clean probability of each epoch, as far as it was kept.
        lemon: how LEMoN scored the pairs; None in other audits.
        labelled: how well labelled pairs with natural noise are found; None without labels.
    """

    version: Literal[2] = VERSION  # type: ignore[assignment]
    source: str
    digest: str
    n_rows: int
    n_judged: int
    n_pictures: int
    left_out: dict[str, int] = Field(default_factory=dict)
    doubled: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)
    order_faults: tuple[str, ...] = ()
    wrong: int | None = None
    low: int | None = None
    high: int | None = None
    obtained: str = ""
    chosen_by: str
    threshold: float | None
    n_suspects: int = 0
    labels: dict[str, int] = Field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    dataset: str | None = None
    fingerprint: str | None = None
    noise: Noise | None = None
    runs: tuple[AuditedRun, ...] = ()
    detection: dict[str, Detection] = Field(default_factory=dict)
    first_wrong: int | None = None
    epochs: tuple[AuditedEpoch, ...] = ()
    lemon: LemonRecord | None = None
    labelled: LabelledPairs | None = None


def read_result(audit: Path) -> AuditResult:
    """Read ``result.json`` of an audit's folder."""
    path = readable(audit / RESULT, TrainingError, "the result of `ncl-bench audit`")
    with reading(path, TrainingError, fix="run `ncl-bench audit` again"):
        return AuditResult.model_validate_json(path.read_bytes())


def counts(texts: NDArray[np.object_]) -> dict[str, int]:
    """Text to number, the most frequent first; empty texts do not count."""
    return {str(text): int(count) for text, count in pd.Series(texts[texts != ""]).value_counts().items()}


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of an audit's column in a table that has columns of its own."""
    while name in taken:
        name = f"audit_{name}"
    return name


def column_of_audit(columns: Sequence[str], name: str) -> str | None:
    """The column that :func:`free_name` named, as the audit's columns stand behind those of the table."""
    of_name = re.compile(f"(audit_)*{name}")
    return next((column for column in reversed(columns) if of_name.fullmatch(column)), None)


def write_table(folder: Path, table: pd.DataFrame) -> None:
    """Write the pairs twice; CSV cells that a spreadsheet would compute get an apostrophe."""
    # Parquet stores one type per column; a table of a user may mix them
    typed = table.infer_objects()
    mixed = [str(name) for name in typed if typed[name].dtype == object]
    plain = typed.assign(**{name: typed[name].map(_plain, na_action="ignore") for name in mixed})
    with atomic_path(folder / PAIRS) as temporary:
        plain.to_parquet(temporary, index=False)
    write_text(folder / "pairs.csv", csv_of(table))


def _plain(value: object) -> object:
    """A cell as Parquet stores a column of mixed types: as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
