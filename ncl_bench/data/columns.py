"""Columns of a dataset: token ids and texts, in memory or on disk, and the selection of their rows."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import RowError, shorten
from ncl_bench.extras import require
from ncl_bench.foreign import reading
from ncl_bench.npy import BoolArray, FloatArray, Int64Array

Rows = NDArray[np.integer] | BoolArray | Sequence[int] | slice
"""Rows of a dataset: numbers, a mask or a slice."""

Value = TypeVar("Value")


class ImageFeatures(Protocol):
    """Region features, ``(n_images, n_regions, feature_dim)``: an array, or images that a backbone reads itself."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[np.floating]: ...

    @overload
    def __getitem__(self, rows: Int64Array, /) -> FloatArray: ...
    @overload
    def __getitem__(self, rows: slice, /) -> "ImageFeatures": ...
    def __getitem__(self, rows: Any, /) -> Any:
        """Return a fresh, writable copy of the chosen rows; a slice is not read yet."""
        ...


class CaptionTokens(Protocol):
    """Token ids of captions: a :class:`TokenTable`, or made from texts on demand."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> Int64Array:
        """Length of each caption, int64 ``(n_captions,)``."""
        ...

    def padded(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return captions as int64 ``(n, longest)``, padded with 0, and their lengths, int64 ``(n,)``."""
        ...

    def take(self, rows: Int64Array) -> "CaptionTokens":
        """Return the captions ``rows``, int64 ``(n,)``, in the given order."""
        ...


def row_numbers(rows: Any, n: int) -> Int64Array:
    """Convert chosen rows to numbers from 0 to ``n - 1``; every reader of dataset rows uses this.

    Args:
        rows: whole numbers, where -1 is the last row; a mask, bool ``(n,)``, true for the chosen rows; or a slice.
        n: total number of rows.

    Returns:
        int64 ``(chosen,)``, in the given order.

    Raises:
        RowError: a row does not exist, the mask has another length, or the rows are not whole numbers.
    """
    if isinstance(rows, slice):
        return np.arange(n)[rows]
    # lists of unequal length; a tensor without data
    with reading(f"rows {shorten(rows)}", RowError, fix="give one list of row numbers, such as [3, 0]"):
        chosen = np.asarray(rows)
    if chosen.dtype == np.bool_ and chosen.shape == (n,):
        return np.flatnonzero(chosen)
    if chosen.shape == (0,):  # an empty list becomes an array of float64
        return np.empty(0, np.int64)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise RowError(
            f"rows are {chosen.dtype} of shape {chosen.shape}, expected one list of whole numbers, such as [3, 0], "
            f"or a mask of {n} bools"
        )
    low, high = int(chosen.min()), int(chosen.max())
    if low < -n or high >= n:
        raise RowError(f"row {high if high >= n else low} does not exist, expected {-n} to {n - 1}")
    chosen = chosen.astype(np.int64, copy=False)
    return chosen if low >= 0 else np.where(chosen < 0, chosen + n, chosen)


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Token ids of many captions without padding: caption ``c`` is ``ids[offsets[c]:offsets[c + 1]]``.

    Attributes:
        ids: int32, all captions concatenated, with start and end token.
        offsets: int64 ``(n_captions + 1,)``, ascending from 0 to ``len(ids)``.
    """

    ids: NDArray[np.int32]
    offsets: Int64Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64Array:
        """Length of each caption, int64 ``(n_captions,)``."""
        return np.diff(self.offsets)

    def padded(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return captions as a padded array.

        Args:
            rows: int64 ``(n,)``, captions in any order.

        Returns:
            tokens int64 ``(n, longest)`` padded with 0, lengths int64 ``(n,)``.
        """
        chosen = self.take(rows)
        lengths = chosen.lengths
        valid = np.arange(lengths.max(initial=0)) < lengths[:, None]
        tokens = np.zeros(valid.shape, dtype=np.int64)
        # one assignment per batch: a mask is read row by row, which is the order of the tokens
        tokens[valid] = chosen.ids
        return tokens, lengths

    def take(self, rows: Int64Array) -> "TokenTable":
        """Return the captions ``rows``, int64 ``(n,)``, in the given order."""
        rows = row_numbers(rows, len(self))
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        # from the place of a token in the result to its place here
        shift = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return TokenTable(self.ids[np.arange(offsets[-1]) + shift], offsets)


def _parts_of(folder: Path, name: str) -> Iterator[Any]:
    """Map one column of each file of a table that ``Dataset.save_to_disk`` wrote; the library itself is not needed."""
    import pyarrow as pa

    # their numbers have five digits; what `map` of datasets caches here begins with another word
    for file in sorted(folder.glob("data-*.arrow")):
        with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as stream:
            yield stream.read_all().column(name)


class TableColumn(Sequence[Any]):
    """A column of a table on disk; values are read on demand from the mapped file.

    ``column[3]`` reads a value; ``column[2:9]`` and ``column.take(rows)`` return columns and read nothing.

    Args:
        folders: parts of the table, each written by ``Dataset.save_to_disk``.
        name: name of the column.
        rows: table rows in the order of this column.
    """

    def __init__(self, folders: Sequence[Path], name: str, rows: Sequence[int] | Int64Array) -> None:
        self._folders, self._name, self._rows = tuple(folders), name, rows

    @cached_property
    def _column(self) -> Any:
        require("data", "pyarrow", needed_by=f"column {self._name} of a prepared dataset")
        import pyarrow as pa

        with reading(self._folders[0], fix="`ncl-bench doctor --deep` says what to do"):
            parts = [part for folder in self._folders for part in _parts_of(folder, self._name)]
            column = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
            column.validate(full=True)  # a flipped bit may point outside the file and crash the process
            return column

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self).items() if name != "_column"
        }  # reopened in the other process

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            # a range stays a range, so no list of all rows is made
            return self._at(self._rows[index])
        return self._column[int(self._rows[index])].as_py()

    def take(self, rows: Rows) -> "TableColumn":
        """Return the chosen values in the given order, still on disk."""
        return self._at(np.asarray(self._rows)[row_numbers(rows, len(self))])

    def tolist(self) -> list[Any]:
        """Every value."""
        values: list[Any] = self._column.take(np.asarray(self._rows)).to_pylist() if len(self) else []
        return values

    def _at(self, rows: Sequence[int] | Int64Array) -> "TableColumn":
        column = copy.copy(self)
        column._rows = rows
        return column


def taken(values: Sequence[Value] | NDArray[Any], rows: Int64Array) -> Sequence[Value]:
    """Select the values at ``rows``, int64 ``(n,)``; a column on disk stays on disk."""
    return values.take(rows) if isinstance(values, TableColumn) else [values[row] for row in rows.tolist()]
