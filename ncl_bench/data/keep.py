"""Pairs of a noisy training split to keep, as written by ``ncl-bench audit apply``.

``keep.csv``     ids of the pairs, one per line below the header ``pair_id``
``keep.json``    the data that they belong to, and the audit that chose them
"""

import json
from pathlib import Path

import numpy as np

from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import DataError, NclBenchError, refuse_difference, shorten
from ncl_bench.files import atomic_folder, refuse_existing, write_text
from ncl_bench.foreign import readable, reading, whole_number
from ncl_bench.noise.draw import Noise, noise_sha256
from ncl_bench.npy import Int64Array
from ncl_bench.schema import Record
from ncl_bench.tables import as_csv, read_table

KEEP_CSV, KEEP_JSON = "keep.csv", "keep.json"
_REMAKE = "write it again with `ncl-bench audit apply`"


class Kept(Record):
    """``keep.json``.

    Attributes:
        dataset: dataset of the train split.
        fingerprint: fingerprint of the split, before noise.
        noise: noise of the split, without its source.
        n_pairs: number of audited pairs.
        n_kept: number of kept pairs.
        sha256: hash (hex) of the kept ids in ascending order, little-endian int64.
        chosen_by: column of the audit that was compared with the threshold, or ``ids`` for a list of removed pairs.
        threshold: pairs above it are kept; None for a list.
        runs: the audited run folders.
    """

    dataset: str
    fingerprint: str
    noise: Noise
    n_pairs: int
    n_kept: int
    sha256: str
    chosen_by: str
    threshold: float | None
    runs: tuple[str, ...]


def write_keep(folder: Path, pair_ids: Int64Array, kept: Kept) -> None:
    """Write a new folder, whole or not at all.

    Args:
        folder: must be empty or not exist.
        pair_ids: int64 ``(n_kept,)``, ascending.
        kept: content of ``keep.json``.

    Raises:
        NclBenchError: the folder exists and is not empty.
    """
    refuse_existing(folder)
    with atomic_folder(folder) as temporary:
        rows = ([pair] for pair in pair_ids.tolist())
        write_text(temporary / KEEP_CSV, as_csv([["pair_id"], *rows]))
        write_text(temporary / KEEP_JSON, json.dumps(kept.model_dump(mode="json"), indent=2) + "\n")


def read_keep(folder: Path, train: PairedDataset) -> tuple[Int64Array, Kept]:
    """Read the rows of a training split that a folder keeps.

    Args:
        folder: written by :func:`write_keep`.
        train: the whole split with its noise.

    Returns:
        int64 ``(n_kept,)``, ascending rows of ``train``, and the content of ``keep.json``.

    Raises:
        DataError: a file is missing or damaged, or the folder belongs to other data.
    """
    expected = "of a folder that `ncl-bench audit apply` wrote"
    said = readable(folder / KEEP_JSON, DataError, f"the record {expected}")
    listed = folder / KEEP_CSV
    with reading(said, fix=_REMAKE):
        kept = Kept.model_validate(json.loads(said.read_bytes()))
    facts = {
        "dataset": (kept.dataset, train.name),
        "fingerprint": (kept.fingerprint, train.fingerprint),
        "noise": (kept.noise.sha256, train.noise.sha256),
    }
    refuse_difference(
        f"{folder} belongs to other data", facts, "give the noise and the dataset of the audited run"
    )
    ids = read_pair_ids(listed, DataError, f"the list {expected}")
    rows = np.flatnonzero(np.isin(train.pair_ids, ids))
    # an id that is listed twice, or is no pair of train, makes fewer rows than ids
    counted = len(rows) == len(ids) == kept.n_kept <= kept.n_pairs <= len(train)
    # the hash of noise files serves any list of int64
    if not counted or noise_sha256(ids) != kept.sha256:
        raise DataError(
            f"{listed} does not hold the pairs that {KEEP_JSON} states, {kept.n_kept:,} of {kept.n_pairs:,}: it has "
            f"{len(ids):,}, {len(rows):,} of them of {train.name}/train, of {len(train):,}; {_REMAKE}"
        )
    return rows, kept


def read_pair_ids(path: Path, error: type[NclBenchError], expected: str) -> Int64Array:
    """Read the column ``pair_id`` of a table.

    Args:
        path: of the file.
        error: class of what is raised.
        expected: what the file should be.

    Returns:
        int64 ``(n,)``, in the order of the file.

    Raises:
        NclBenchError: of the given class, if the file cannot be read, or a cell is no pair id.
    """
    ids = []
    for where, row in read_table(path, error, ("pair_id",), expected=expected)[1]:
        pair = whole_number(row["pair_id"].strip())
        if pair is None:
            raise error(
                f"{where}: {shorten(row['pair_id'].strip())} is no pair id, expected {expected}; "
                "correct it or write the file again"
            )
        ids.append(pair)
    return np.array(ids, np.int64)
