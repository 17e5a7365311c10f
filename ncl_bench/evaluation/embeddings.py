"""Embeddings as rows of similarities: computed in float64, rounded to float32, in tiles that never move.

A product's last bits can depend on the shape of the multiplication. Tiles of fixed rows and columns, float64
and rounding keep one number per pair whatever block is asked for.
"""

from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.matrix import FloatArray, release_pages

TILE_IMAGES = 250
TILE_CAPTIONS = 2_500
KEPT_TILES = 2

Similarity = Literal["cosine", "dot"]


class EmbeddingRows:
    """Rows of the similarities of two embedding arrays.

    Args:
        images: float ``(n_images, dim)``.
        captions: float ``(n_captions, dim)``.
        similarity: ``cosine`` or ``dot``.
    """

    def __init__(self, images: NDArray[Any], captions: NDArray[Any], similarity: Similarity) -> None:
        self.images, self.captions, self.similarity = images, captions, similarity
        self.shape = (len(images), len(captions))
        self.dtype: np.dtype[np.floating] = np.dtype(np.float32)
        self._tiles: dict[int, FloatArray] = {}
        self._lock = Lock()

    def rows(self, start: int, stop: int) -> FloatArray:
        """Similarities of images ``start`` to ``stop``, float32."""
        parts = []
        for tile in range(start // TILE_IMAGES, (stop - 1) // TILE_IMAGES + 1):
            first = tile * TILE_IMAGES
            parts.append(self._tile(tile)[max(start - first, 0) : stop - first])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def column(self, caption: int) -> FloatArray:
        """Similarities of every image with one caption, float32."""
        vector = self._unit(self.captions, caption, caption + 1)
        images = range(0, self.shape[0], TILE_IMAGES)
        parts = [self._unit(self.images, first, first + TILE_IMAGES) @ vector[0] for first in images]
        return np.concatenate(parts).astype(np.float32)

    def own(self, captions_per_image: int) -> FloatArray:
        """Each caption's similarity with its own image, float32 ``(n_images, captions_per_image)``."""
        result = np.empty((self.shape[0], captions_per_image), np.float32)
        for first in range(0, self.shape[0], TILE_IMAGES):
            last = min(first + TILE_IMAGES, self.shape[0])
            images = self._unit(self.images, first, last)
            captions = self._unit(self.captions, first * captions_per_image, last * captions_per_image)
            captions = captions.reshape(len(images), captions_per_image, -1)
            with np.errstate(over="ignore"):
                result[first:last] = np.einsum("id,icd->ic", images, captions)
        return result

    def release(self, start: int, stop: int) -> None:
        """Nothing to give back: old tiles make way for new ones."""

    def _tile(self, tile: int) -> FloatArray:
        with self._lock:
            if tile not in self._tiles:
                while len(self._tiles) >= KEPT_TILES:
                    del self._tiles[min(self._tiles)]
                self._tiles[tile] = self._compute(tile * TILE_IMAGES)
            return self._tiles[tile]

    def _compute(self, first: int) -> FloatArray:
        images = self._unit(self.images, first, min(first + TILE_IMAGES, self.shape[0]))
        result = np.empty((len(images), self.shape[1]), np.float32)
        for start in range(0, self.shape[1], TILE_CAPTIONS):
            captions = self._unit(self.captions, start, start + TILE_CAPTIONS)
            with np.errstate(over="ignore"):
                result[:, start : start + TILE_CAPTIONS] = images @ captions.T
        return result

    def _unit(self, vectors: NDArray[Any], start: int, stop: int) -> NDArray[np.float64]:
        """Some vectors in float64, of length 1 for the cosine."""
        some = vectors[start:stop].astype(np.float64)
        release_pages(vectors, start, min(stop, len(vectors)))
        return some / np.linalg.norm(some, axis=1, keepdims=True) if self.similarity == "cosine" else some


def check_embeddings(vectors: NDArray[Any], name: str, similarity: Similarity) -> None:
    """Refuse embeddings that are not finite, or that have no direction where the cosine is wanted.

    Raises:
        ScoresError: with the first row.
    """
    for start in range(0, len(vectors), TILE_CAPTIONS):
        some = vectors[start : start + TILE_CAPTIONS].astype(np.float64)
        finite = np.isfinite(some).all(axis=1)
        if not finite.all():
            bad = sum(
                int(np.count_nonzero(~np.isfinite(vectors[row : row + TILE_CAPTIONS])))
                for row in range(start, len(vectors), TILE_CAPTIONS)
            )
            row = start + int(np.argmin(finite))
            raise ScoresError(
                f"{name} holds {bad:,} numbers that are not finite, the first in row {row}; embed it again"
            )
        empty = np.flatnonzero(~some.any(axis=1))
        if similarity == "cosine" and len(empty):
            raise ScoresError(
                f"{name} is all zero in row {start + empty[0]}, which has no cosine; "
                "embed it again or state dot"
            )
