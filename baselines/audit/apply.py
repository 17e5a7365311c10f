"""Go on without the wrong pairs of an audit: lists in the form of the input, or pairs for ``train --keep``."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.lists import write_lists
from baselines.audit.result import PAIRS, AuditResult, column_of_audit, read_result
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.keep import Kept, read_pair_ids, write_keep
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pairs.kept import KEPT, read_kept, write_kept
from ncl_bench.errors import TrainingError, named, shorten
from ncl_bench.files import atomic_folder
from ncl_bench.foreign import readable, reading
from ncl_bench.noise.draw import noise_sha256
from ncl_bench.tables import read_table

MOST_REMOVED = 0.25
"""Share of the pairs that a threshold removes without ``--yes``."""


def apply_audit(
    audit: Path,
    to: Path,
    *,
    threshold: float | None = None,
    ids: Path | None = None,
    reasons: Sequence[str] = (),
    sure: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> Kept | None:
    """Do what :func:`baselines.audit.call.apply_audit` says."""
    if None not in (threshold, ids):
        raise TrainingError(
            f"{named('threshold')} and {named('ids')} each say which pairs to keep; give one of them"
        )
    result = read_result(audit)
    own = result.dataset is None
    if own and ids is not None:
        raise TrainingError(
            f"{audit} holds an audit of your own pairs; repeat it with {named('labels')} {ids}, then leave "
            f"{named('ids')} out"
        )
    if ids is None and threshold is None and result.threshold is None and not reasons:
        raise TrainingError(
            f"{audit} does not say how many are wrong; give {named('threshold')} (the slider of the page shows what "
            f"each removes) or {named('ids')}"
        )
    table = _read(audit / PAIRS, result, own)
    if own:
        # what was not judged is neither right nor wrong, and stands in no list
        table = table[table["left_out"] == ""]
    # float32, as the page computes its slider: the pair at a threshold falls on one side in both
    values = table[result.chosen_by].to_numpy(np.float32, na_value=np.nan)
    # LEMoN has no threshold of its own; ids need none
    limit = result.threshold if threshold is None else threshold
    others = f"have a {result.chosen_by} above {limit or 0:g}; choose a lower {named('threshold')}"
    if ids is not None:
        listed = _listed(table["pair_id"].to_numpy(np.int64), ids)
        removed, others = table["pair_id"].isin(listed).to_numpy(), f"are not in {ids}; list fewer"
        limit = None
    elif reasons:
        # a misspelt cause would remove nothing
        if unknown := set(reasons) - {*result.reasons}:
            raise TrainingError(
                f"{audit} names no pair {' or '.join(map(shorten, sorted(unknown)))}; its {named('reasons')} are "
                f"{', '.join(result.reasons) or 'none'}"
            )
        removed, limit = table["reason"].isin(reasons).to_numpy(), None
    elif own and threshold is None:
        # the same rows as the audit's own lists: also those with a reason, and as labels say
        removed = table["suspect"].to_numpy(bool)
    else:
        # NaN is in no comparison, so pairs without a value stay
        removed = values <= np.float32(limit or 0)
    said = _removes(removed, table, result)
    # a list of ids was ticked by somebody; a threshold may be a slip of the finger
    if limit is not None and ids is None and removed.mean() > MOST_REMOVED and not sure:
        raise TrainingError(
            f"nothing is written: the threshold {limit:g} {said}; choose a lower {named('threshold')}, or add "
            f"{named('sure')}"
        )
    if (~removed).sum() < 2:
        raise TrainingError(f"training needs two pairs, but {(~removed).sum()} of {len(table):,} {others}")
    kept = None
    if own:
        _write_own(audit, to, table, removed)
    else:
        pair_ids = table["pair_id"].to_numpy(np.int64)[~removed]
        chosen_by = "ids" if ids is not None else "reasons" if reasons else result.chosen_by
        kept = _write_kept(result, to, pair_ids, len(table), chosen_by, limit)
    say(f"{to} {said}")
    return kept


def _read(path: Path, result: AuditResult, own: bool) -> pd.DataFrame:
    """The columns of an audit's table that say what to remove."""
    from pyarrow.parquet import read_schema

    readable(path, TrainingError, "the table of an audit")
    needed = [
        "probability",
        *(("suspect", "left_out") if own else ("pair_id",)),
        *(["reason"] if result.reasons else []),
    ]
    needed += ["correction"] if own and result.labels else []  # else a column of this name is the user's own
    with reading(path, TrainingError, fix="run `ncl-bench audit` again"):
        there = read_schema(path).names
        # the user's own column of this name stays, and the audit's gets a prefix
        of = {column: name for name in needed if (column := column_of_audit(there, name))}
        table = pd.read_parquet(path, columns=[result.chosen_by, *of]).rename(columns=of)
        return table.astype({result.chosen_by: "float64"})


def _write_own(audit: Path, to: Path, table: pd.DataFrame, removed: NDArray[np.bool_]) -> None:
    """Write the lists of own pairs, read again from where the audit read them."""
    if not (audit / KEPT).is_file():
        raise TrainingError(
            f"{audit} is of pairs that were given in Python, or of embeddings alone; choose rows of the table that "
            f"find_wrong_pairs returned, or of {audit / PAIRS}"
        )
    kept = read_kept(audit)
    # pairs.parquet holds neither the pictures nor the form of the input
    own = read_pairs(Path(kept.path), kept.image_column, kept.caption_column)
    kept.taken(own)  # refused if the pairs have changed
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise TrainingError(f"{to} exists already; choose a new folder with {named('to')}")
    # the index of the file: rows that were left out are gone from the table, and keep their number
    rows = table.index.to_numpy(np.int64)
    given = table["correction"].tolist() if "correction" in table else []
    corrections = {row: text for row, text in zip(rows.tolist(), given, strict=False) if text}
    # all lists or none
    with atomic_folder(to) as folder:
        write_lists(folder, own, rows[~removed], rows[removed], corrections)
        write_kept(folder, kept.model_copy(update={"rows": tuple(rows[~removed].tolist())}))


def _write_kept(
    result: AuditResult, to: Path, pair_ids: Int64Array, n_pairs: int, chosen_by: str, limit: float | None
) -> Kept:
    """Write the kept pairs of a training split."""
    assert result.dataset is not None
    assert result.fingerprint is not None
    assert result.noise is not None
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


def _removes(removed: NDArray[np.bool_], table: pd.DataFrame, result: AuditResult) -> str:
    """How many pairs are removed, and how many of these are wrong by the estimate."""
    said = f"removes {removed.sum():,} of {len(removed):,} pairs ({removed.mean():.1%})"
    if result.wrong is None or not removed.any():
        return said
    precision = float(table["probability"].to_numpy(np.float64)[removed].mean())
    return (
        f"{said}, of which about {precision:.0%} are wrong by the estimate ({result.wrong:,} of all pairs, probably "
        f"{result.low:,} to {result.high:,})"
    )


def _listed(pair_ids: Int64Array, file: Path) -> Int64Array:
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
