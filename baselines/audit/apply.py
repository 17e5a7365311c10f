"""The pairs of an audit to keep, for ``train --keep`` and ``load_dataset(keep=...)``."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.lemon import LEMON
from baselines.audit.report import PAIRS, THRESHOLD
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
    audit: Path, to: Path, *, threshold: float | None = None, ids: Path | None = None, sure: bool = False
) -> Kept:
    """Write the pairs of an audit to keep: those above a threshold, or all but those of a list.

    A pair without a value, which the method was not trained on, is kept.

    Args:
        audit: folder of :func:`write_audit`.
        to: folder to write; it must not exist, or be empty.
        threshold: of the posterior, in [0, 1), by default 0.5; or of LEMoN.
        sure: remove more than a quarter of the pairs by a threshold.
        ids: CSV file with the column ``pair_id``, as the page exports it: pairs to remove, whatever their value.
    """
    result = read_result(audit)
    if threshold is not None and not math.isfinite(threshold):
        raise TrainingError(f"threshold is {threshold}, expected a finite number, such as 0.5")
    if ids is None and threshold is None:
        if result.threshold is None:
            raise TrainingError(
                f"{audit} is by LEMoN, which has no threshold of its own; give --threshold (the slider of the page "
                "shows what each removes) or --ids"
            )
        threshold = THRESHOLD
    path = readable(audit / PAIRS, TrainingError, "the table of an audit")
    try:
        _refuse_large(path, result)
        table = pd.read_parquet(path, columns=["pair_id", result.chosen_by])
        every = table["pair_id"].to_numpy(np.int64)
        values = table[result.chosen_by].to_numpy(np.float32, na_value=np.nan)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path} is damaged ({first_line(error)}); run `ncl-bench audit` again") from None
    if ids is not None:
        kept, others = _without(every, ids), f"are not in {ids}; list fewer"
    elif np.isnan(values).all():
        raise TrainingError(f"{audit} tells no pair apart: all losses are equal; audit another run")
    else:
        kept = every[~(values <= np.float32(threshold))]
        others = f"have a {result.chosen_by} above {threshold:g}; choose a lower --threshold"
        if len(kept) < (1 - MOST_REMOVED) * len(every) and not sure:
            raise TrainingError(_asks(values, np.float32(threshold), result.chosen_by))
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
    return record


def _asks(values: NDArray[np.float32], threshold: np.float32, chosen_by: str) -> str:
    """What a threshold would remove, and how many of these its own estimate takes for wrong."""
    removed = values[values <= threshold]
    implied = (
        f", of which {chosen_by} takes {1 - float(removed.mean()):.0%} for wrong"
        if chosen_by != LEMON
        else ""
    )
    return (
        f"--threshold {threshold:g} would remove {len(removed):,} of {len(values):,} pairs "
        f"({len(removed) / len(values):.0%}){implied}; choose a lower one, or add --yes to remove them"
    )


def _refuse_large(table: Path, result: AuditResult) -> None:
    """Refuse a table with more pairs than its dataset, or than its summary says, before a column is decompressed."""
    from pyarrow.parquet import read_metadata

    facts = read_metadata(table)
    columns = [
        facts.row_group(group).column(number)
        for group in range(facts.num_row_groups)
        for number in range(facts.num_columns)
    ]
    read = sum(
        each.total_uncompressed_size
        for each in columns
        if each.path_in_schema in ("pair_id", result.chosen_by)
    )
    n_pairs = dataset_spec(result.dataset).n_captions("train")
    if not facts.num_rows == result.n_pairs <= n_pairs or read > 64 * (n_pairs + 1_000):
        raise ValueError(f"{facts.num_rows:,} rows, {RESULT} states {result.n_pairs:,} of {n_pairs:,} pairs")


def _without(pair_ids: Int64Array, file: Path) -> Int64Array:
    """The pairs that a file does not list."""
    expected = "the list that the page of an audit exports: a column pair_id"
    listed = read_pair_ids(file, TrainingError, expected)
    if not len(listed):
        raise TrainingError(f"{file} lists no pairs; expected {expected}")
    unknown = np.setdiff1d(listed, pair_ids)
    if len(unknown):
        raise TrainingError(
            f"{file} lists pair {unknown[0]}, which was not audited; give the list of this audit"
        )
    return pair_ids[~np.isin(pair_ids, listed)]
