"""Similarities in blocks of rows, from memory or from a mapped file."""

import mmap
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating]

BLOCK = 50
"""Rows read at a time."""


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

    def rows(self, start: int, stop: int) -> FloatArray:
        """Rows in native float32 or float64, without a copy where they already are."""
        return np.asarray(self.array[start:stop], dtype=self.native, order="C")

    def own(self, captions_per_image: int) -> FloatArray:
        """Each caption's score with its own image, ``(n_images, captions_per_image)``."""
        images = np.arange(self.shape[0])
        result = np.empty((self.shape[0], captions_per_image), self.native)
        for start in range(0, self.shape[0], BLOCK):
            some = images[start : start + BLOCK, None]
            result[start : start + BLOCK] = self.array[
                some, some * captions_per_image + np.arange(captions_per_image)
            ]
            self.release(start, min(start + BLOCK, self.shape[0]))
        return result

    def column(self, caption: int) -> FloatArray:
        """Scores of every image with one caption."""
        parts = []
        for start in range(0, self.shape[0], BLOCK):
            parts.append(self.array[start : start + BLOCK, caption].astype(self.native))
            self.release(start, min(start + BLOCK, self.shape[0]))
        return np.concatenate(parts)

    def release(self, start: int, stop: int) -> None:
        """Give the pages of a mapped file back, so that a pass keeps a few blocks in memory and no more."""
        mapping: object = self.array.base
        if isinstance(mapping, mmap.mmap) and self.array.flags.c_contiguous and hasattr(mapping, "madvise"):
            offset = len(mapping) - self.array.nbytes
            first, last = (offset + row * self.array.strides[0] for row in (start, stop))
            first -= first % mmap.PAGESIZE
            mapping.madvise(mmap.MADV_DONTNEED, first, last - first)
