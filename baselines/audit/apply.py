"""Go on without the wrong pairs of an audit: lists in the form of the input, or pairs for ``train --keep``."""

from pathlib import Path

import numpy as np
import pandas as pd

from baselines.audit.lists import write_lists
from baselines.audit.result import PAIRS, AuditResult, column_of_audit
from ncl_bench.data.keep import Kept, read_pair_ids, write_keep
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pairs.kept import KEPT, read_kept, write_kept
from ncl_bench.errors import TrainingError
from ncl_bench.files import atomic_folder, refuse_existing
from ncl_bench.foreign import readable, reading
from ncl_bench.noise.draw import noise_sha256
from ncl_bench.npy import BoolArray, Int64Array
from ncl_bench.tables import read_table

MOST_REMOVED = 0.25
"""Share of the pairs that a threshold removes without ``--yes``."""


def read_table_of(audit: Path, result: AuditResult) -> pd.DataFrame:
    """The judged pairs of an audit, with the columns that say what to remove."""
    from pyarrow.parquet import read_schema

    needed = ["pair_id", "probability", "reason", "suspect", "left_out"]
    needed += ["correction"] if result.labels else []  # else a column of this name is the user's own
    path = readable(audit / PAIRS, TrainingError, "the table of an audit")
    with reading(path, TrainingError, fix="run `ncl-bench audit` again"):
        there = read_schema(path).names
        # the user's own column of this name stays, and the audit's gets a prefix
        of = {column: name for name in needed if (column := column_of_audit(there, name))}
        table = pd.read_parquet(path, columns=[result.chosen_by, *of]).rename(columns=of)
    # what was not judged is neither right nor wrong, and stands in no list
    return table[table["left_out"] == ""] if result.dataset is None else table


def write_own(audit: Path, to: Path, table: pd.DataFrame, removed: BoolArray) -> None:
    """Write the lists of own pairs, read again from where the audit read them."""
    if not (audit / KEPT).is_file():
        raise TrainingError(
            f"{audit} is of pairs that were given in Python, or of embeddings alone; choose rows of the table that "
            f"find_wrong_pairs returned, or of {audit / PAIRS}"
        )
    kept = read_kept(audit)
    # pairs.parquet holds neither the pictures nor the form of the input
    user_pairs = read_pairs(Path(kept.path), kept.image_column, kept.caption_column)
    kept.taken(user_pairs)  # refused if the pairs have changed
    refuse_existing(to)
    # the index of the file: rows that were left out are gone from the table, and keep their number
    rows = table.index.to_numpy(np.int64)
    given = table["correction"].tolist() if "correction" in table else []
    corrections = {row: text for row, text in zip(rows.tolist(), given, strict=False) if text}
    # all lists or none
    with atomic_folder(to) as folder:
        write_lists(folder, user_pairs, rows[~removed], rows[removed], corrections)
        write_kept(folder, kept.model_copy(update={"rows": tuple(rows[~removed].tolist())}))


def write_kept_pairs(
    result: AuditResult, to: Path, pair_ids: Int64Array, n_pairs: int, chosen_by: str, limit: float | None
) -> Kept:
    """Write the kept pairs of a training split."""
    assert result.dataset is not None and result.fingerprint is not None and result.noise is not None  # noqa: PT018
    record = Kept(
        dataset=result.dataset,
        fingerprint=result.fingerprint,
        noise=result.noise,
        n_pairs=n_pairs,
        n_kept=len(pair_ids),
        sha256=noise_sha256(pair_ids),
        chosen_by=chosen_by,
        threshold=limit,
        runs=tuple(run.folder for run in result.runs),
    )
    write_keep(to, pair_ids, record)
    return record


def removes(removed: BoolArray, table: pd.DataFrame, result: AuditResult) -> str:
    """How many pairs are removed, and how many of these are wrong by the estimate."""
    said = f"removes {removed.sum():,} of {len(removed):,} pairs ({removed.mean():.1%})"
    if result.wrong is None or not removed.any():
        return said
    precision = float(table["probability"].to_numpy(np.float64)[removed].mean())
    return (
        f"{said}, of which about {precision:.0%} are wrong by the estimate ({result.wrong:,} of all pairs, probably "
        f"{result.low:,} to {result.high:,})"
    )


def pairs_of(pair_ids: Int64Array, file: Path) -> Int64Array:
    """The pairs that a file lists, all of them audited; of labels, those that are wrong."""
    expected = "labels as the page of an audit downloads them, or a list of ids: a column pair_id"
    listed = read_pair_ids(file, TrainingError, expected)
    columns, rows = read_table(file, TrainingError, ("pair_id",), expected=expected)
    if "label" in columns:
        listed = listed[np.array([row["label"].strip() == "wrong" for _, row in rows], bool)]
    unknown = np.setdiff1d(listed, pair_ids)
    if len(unknown):
        raise TrainingError(
            f"{file} lists pair {unknown[0]}, which was not audited; give the list of this audit"
        )
    return listed
