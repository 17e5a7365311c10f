"""Similarities in blocks of rows, from memory or from a mapped file."""

import mmap
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating]

BLOCK = 50
"""Rows read at a time."""
COLUMNS = 1_000
"""Columns read at a time from a file stored by columns."""


class Rows(Protocol):
    """Similarities that can be had in blocks of rows; the same numbers whatever the block."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> np.dtype[np.floating]: ...

    def rows(self, start: int, stop: int) -> FloatArray:
        """Rows ``start`` to ``stop`` as native float32 or float64, every column."""
        ...

    def own(self, captions_per_image: int) -> FloatArray:
        """Each caption's score with its own image, ``(n_images, captions_per_image)``."""
        ...

    def release(self, start: int, stop: int) -> None:
        """The rows are not needed again."""
        ...


class ArrayRows:
    """Rows of an array in memory or mapped from disk; float16 and foreign byte order become native floats.

    Args:
        array: float ``(n_images, n_captions)``.
    """

    def __init__(self, array: FloatArray) -> None:
        self.array = array
        self.shape: tuple[int, int] = (array.shape[0], array.shape[1])
        self.dtype: np.dtype[np.floating] = array.dtype
        self.native = np.dtype(np.float64 if array.dtype.itemsize > 4 else np.float32)
        self._by_columns = bool(array.flags.f_contiguous and not array.flags.c_contiguous)

    def rows(self, start: int, stop: int) -> FloatArray:
        """Rows in native float32 or float64, without a copy where they already are."""
        if not self._by_columns:
            return np.asarray(self.array[start:stop], dtype=self.native, order="C")
        result = np.empty((stop - start, self.shape[1]), self.native)
        for first in range(0, self.shape[1], COLUMNS):
            result[:, first : first + COLUMNS] = self.array[start:stop, first : first + COLUMNS]
            release_pages(self.array, first, min(first + COLUMNS, self.shape[1]))
        return result

    def own(self, captions_per_image: int) -> FloatArray:
        """Each caption's score with its own image, ``(n_images, captions_per_image)``."""
        captions = np.arange(self.shape[1]).reshape(-1, captions_per_image)
        result = np.empty(captions.shape, self.native)
        for start in range(0, self.shape[0], BLOCK):
            images = np.arange(start, min(start + BLOCK, self.shape[0]))
            result[images] = self.array[images[:, None], captions[images]]
            self.release(start, int(images[-1]) + 1)
        return result

    def column(self, caption: int) -> FloatArray:
        """Scores of every image with one caption."""
        parts = []
        for start in range(0, self.shape[0], BLOCK):
            parts.append(self.array[start : start + BLOCK, caption].astype(self.native))
            self.release(start, min(start + BLOCK, self.shape[0]))
        return np.concatenate(parts)

    def release(self, start: int, stop: int) -> None:
        """The rows are not needed again."""
        if self._by_columns:
            release_pages(self.array, 0, self.shape[1])
        else:
            release_pages(self.array, start, stop)


def release_pages(array: NDArray[Any], start: int, stop: int) -> None:
    """Give the pages of a mapped file back, so that a pass keeps a few blocks in memory and no more.

    Args:
        array: a whole mapped file; any other array is left alone.
        start: first row, or first column of an array stored by columns.
        stop: after the last one.
    """
    mapping: object = array.base
    if isinstance(mapping, mmap.mmap) and array.flags.forc and hasattr(mapping, "madvise"):
        offset, stride = len(mapping) - array.nbytes, max(array.strides)
        first = offset + start * stride
        first -= first % mmap.PAGESIZE
        mapping.madvise(mmap.MADV_DONTNEED, first, offset + stop * stride - first)
