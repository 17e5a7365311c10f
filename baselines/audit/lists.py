"""The lists of an audit of own pairs, in the form of the input: rows to keep, rows to check, and changed captions."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ncl_bench.data.pairs.rows import UserPairs
from ncl_bench.data.pairs.write import save
from ncl_bench.npy import Int64Array

if TYPE_CHECKING:
    from baselines.audit.order import OrderFault


def write_lists(
    folder: Path,
    user_pairs: UserPairs,
    kept: Int64Array,
    suspects: Int64Array,
    corrections: Mapping[int, str],
) -> None:
    """Write ``clean``, ``suspects``, and ``corrected`` if there are corrections.

    Args:
        folder: where to write.
        user_pairs: the rows as they came.
        kept, suspects: int64, rows of each list, ascending.
        corrections: row to the caption that fits; such rows stand in ``corrected`` beside those of ``clean``.
    """
    save(user_pairs, folder / "clean", kept)
    save(user_pairs, folder / "suspects", suspects)
    if corrections:
        rows = np.union1d(kept, list(corrections)).astype(np.int64)
        save(user_pairs, folder / "corrected", rows, user_pairs.caption_column, corrections)
    else:
        forget(folder, "corrected")


def forget(folder: Path, name: str) -> None:
    """Delete a list of the same audit with other labels."""
    for path in (folder / name, *folder.glob(f"{name}.*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def repaired(captions: Sequence[str], rows: Int64Array, faults: "Sequence[OrderFault]") -> dict[int, str]:
    """Move shifted captions back: row to its new caption.

    A caption that is pushed out of the shifted rows at one end takes the place that becomes free at the other end.

    Args:
        captions: of all rows.
        rows: int64, the judged rows, in which faults are numbered.
        faults: where captions are shifted.
    """
    new: dict[int, str] = {}
    for fault in faults:
        sources = range(fault.first, fault.last + 1)
        # the caption of a row belongs to the row `offset` away
        moved = {place + fault.offset: place for place in sources if 0 <= place + fault.offset < len(rows)}
        # a block that was turned pushes captions out at one end; the other end has no caption
        free = sorted(set(sources) - set(moved))
        pushed = sorted(set(moved) - set(sources)) + sorted(set(sources) - set(moved.values()))
        moved |= dict(zip(free, pushed, strict=True))
        new |= {int(rows[to]): captions[rows[place]] for to, place in moved.items()}
    return new
