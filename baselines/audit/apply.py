"""The pairs of an audit to keep, for ``train --keep`` and ``load_dataset(keep=...)``."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.report import PAIRS
from baselines.audit.result import RESULT, AuditResult, read_result
from ncl_bench.data import dataset_spec
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.keep import Kept, read_pair_ids, write_keep
from ncl_bench.errors import TrainingError, first_line
from ncl_bench.files import readable
from ncl_bench.noise.draw import noise_sha256

MOST_REMOVED = 0.25
"""Share of the pairs that a threshold removes without ``--yes``."""


def apply_audit(
    audit: Path,
    to: Path,
    *,
    threshold: float | None = None,
    ids: Path | None = None,
    sure: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> Kept:
    """Write the pairs of an audit to keep: those above a threshold, or all but those of a list.

    Args:
        audit: folder of :func:`write_audit`.
        to: folder to write; it must not exist, or be empty.
        threshold: of the column that orders the audit (default: as many pairs as are estimated to be wrong; LEMoN has
            none).
        ids: CSV file with the column ``pair_id``, as the page exports it: pairs to remove, whatever their value.
        sure: remove more than a quarter of the pairs by a threshold.
        say: called with a sentence on what is removed.
    """
    result = read_result(audit)
    if threshold is not None and not math.isfinite(threshold):
        raise TrainingError(f"threshold is {threshold}, expected a finite number, such as 0.05")
    if ids is None and threshold is None:
        if result.threshold is None:
            raise TrainingError(
                f"{audit} is by LEMoN, which has no threshold of its own; give --threshold (the slider of the page "
                "shows what each removes) or --ids"
            )
        threshold = result.threshold
    path = readable(audit / PAIRS, TrainingError, "the table of an audit")
    columns = ["pair_id", result.chosen_by, *(["probability"] if result.wrong else [])]
    try:
        _refuse_large(path, result, columns)
        table = pd.read_parquet(path, columns=columns)
        every = table["pair_id"].to_numpy(np.int64)
        values = table[result.chosen_by].to_numpy(np.float32, na_value=np.nan)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path} is damaged ({first_line(error)}); run `ncl-bench audit` again") from None
    if ids is not None:
        removed, others = np.isin(every, _listed(every, ids)), f"are not in {ids}; list fewer"
    else:
        removed = values <= np.float32(threshold or 0)
        others = f"have a {result.chosen_by} above {threshold:g}; choose a lower --threshold"
    kept, said = every[~removed], _removes(removed, table, result)
    if ids is None and removed.mean() > MOST_REMOVED and not sure:
        raise TrainingError(
            f"nothing is written: the threshold {threshold:g} {said}; choose a lower --threshold, or add --yes"
        )
    if len(kept) < 2:
        raise TrainingError(f"training needs two pairs, but {len(kept)} of {len(every):,} {others}")
    record = Kept(
        dataset=result.dataset,
        fingerprint=result.fingerprint,
        noise=result.noise,
        n_pairs=len(every),
        n_kept=len(kept),
        sha256=noise_sha256(kept),
        chosen_by=result.chosen_by if ids is None else "ids",
        threshold=threshold if ids is None else None,
        runs=tuple(run.folder for run in result.runs),
    )
    write_keep(to, kept, record)
    say(f"{to} {said}")
    return record


def _removes(removed: NDArray[np.bool_], table: pd.DataFrame, result: AuditResult) -> str:
    """How many pairs are removed, and how many of these are wrong by the estimate."""
    said = f"removes {removed.sum():,} of {len(removed):,} pairs ({removed.mean():.1%})"
    if result.wrong is None or not removed.any():
        return said
    wrong = result.wrong
    precision = float(table["probability"].to_numpy(np.float64)[removed].mean())
    return (
        f"{said}, of which about {precision:.0%} are wrong by the estimate ({wrong.n:,} of all pairs, probably "
        f"{wrong.low:,} to {wrong.high:,})"
    )


def _refuse_large(table: Path, result: AuditResult, needed: list[str]) -> None:
    """Refuse a table with more pairs than its dataset, or than its summary says, before a column is decompressed."""
    from pyarrow.parquet import read_metadata

    facts = read_metadata(table)
    stored = [
        facts.row_group(group).column(number)
        for group in range(facts.num_row_groups)
        for number in range(facts.num_columns)
    ]
    read = sum(each.total_uncompressed_size for each in stored if each.path_in_schema in needed)
    n_pairs = dataset_spec(result.dataset).n_captions("train")
    if not facts.num_rows == result.n_pairs <= n_pairs or read > 64 * (n_pairs + 1_000):
        raise ValueError(f"{facts.num_rows:,} rows, {RESULT} states {result.n_pairs:,} of {n_pairs:,} pairs")


def _listed(pair_ids: Int64Array, file: Path) -> Int64Array:
    """The pairs that a file lists, all of them audited."""
    expected = "the list that the page of an audit exports: a column pair_id"
    listed = read_pair_ids(file, TrainingError, expected)
    if not len(listed):
        raise TrainingError(f"{file} lists no pairs; expected {expected}")
    unknown = np.setdiff1d(listed, pair_ids)
    if len(unknown):
        raise TrainingError(
            f"{file} lists pair {unknown[0]}, which was not audited; give the list of this audit"
        )
    return listed
