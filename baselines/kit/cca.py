"""Regularised canonical correlation (CCA; Hotelling, Biometrika 1936) of images and captions, from sums over pairs.

For image-text retrieval see Gong et al., IJCV 2014. The memory depends on the numbers of features and words, never on
the number of pairs, and a solution is a linear system, so nothing is trained.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.linalg import eigh, solve_triangular
from scipy.sparse import csr_array

from ncl_bench.npy import Float32Array, Float64Array, FloatArray, Int64Array

ROWS_AT_ONCE = 4_096
Vectors: TypeAlias = csr_array | Float64Array
"""Captions, ``(n, t)``: sparse weights of words, or the vectors of a sentence encoder."""


def signed_root(vectors: FloatArray) -> FloatArray:
    """Take the square root of the absolute values and keep the signs, which tames large activations."""
    rooted: FloatArray = np.sign(vectors) * np.sqrt(np.abs(vectors))
    return rooted


@dataclass(frozen=True)
class Projections:
    """Both sides in one space, centred; components are weighted by their correlation.

    Attributes:
        image_mean, caption_mean: float64 ``(d,)`` and ``(t,)``, of the fitted pairs.
        images, captions: float64 ``(d, k)`` and ``(t, k)``.
        correlations: float64 ``(k,)``, descending, in [0, 1].
    """

    image_mean: Float64Array
    caption_mean: Float64Array
    images: Float64Array
    captions: Float64Array
    correlations: Float64Array

    def of_images(self, images: FloatArray) -> Float32Array:
        """Unit vectors ``(n, k)`` of images ``(n, d)``."""
        return unit(self.place_images(images))

    def of_captions(self, captions: Vectors) -> Float32Array:
        """Unit vectors ``(n, k)`` of captions ``(n, t)``."""
        return unit(self.place_captions(captions))

    def place_images(self, images: FloatArray) -> Float64Array:
        """Vectors ``(n, k)`` of images ``(n, d)``; short ones have little of what the captions name."""
        placed: Float64Array = (images - self.image_mean) @ self.images
        return placed

    def place_captions(self, captions: Vectors) -> Float64Array:
        """Vectors ``(n, k)`` of captions ``(n, t)``; vague captions are short."""
        placed: Float64Array = captions @ self.captions - self.caption_mean @ self.captions
        return placed


def unit(vectors: FloatArray) -> Float32Array:
    """Scale vectors ``(n, k)`` to length one; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Float32Array = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return scaled


@dataclass
class Moments:
    """Sums over pairs, from which projections follow; the sums of a fold can be subtracted."""

    n: int
    x: Float64Array
    y: Float64Array
    xx: Float64Array
    yy: Float64Array
    xy: Float64Array

    @classmethod
    def of(cls, images: FloatArray, image_of: Int64Array, captions: Vectors) -> "Moments":
        """Sum over pairs in blocks: ``images[image_of[i]]`` goes with row i of ``captions``."""
        d, t = images.shape[1], captions.shape[1]
        sums = cls(0, np.zeros(d), np.zeros(t), np.zeros((d, d)), np.zeros((t, t)), np.zeros((d, t)))
        for start in range(0, len(image_of), ROWS_AT_ONCE):
            x = np.asarray(images[image_of[start : start + ROWS_AT_ONCE]], np.float64)
            y = captions[start : start + ROWS_AT_ONCE]
            if isinstance(y, np.ndarray):  # sums in float32 make a variance of almost equal captions negative
                y = y.astype(np.float64, copy=False)
            sums.n += len(x)
            sums.x += x.sum(axis=0)
            sums.y += y.sum(axis=0)
            sums.xx += x.T @ x
            yy = y.T @ y
            sums.yy += yy if isinstance(yy, np.ndarray) else yy.toarray()
            sums.xy += (y.T @ x).T
        return sums

    def plus(self, *others: "Moments") -> "Moments":
        return Moments(
            **{name: sum((vars(x)[name] for x in others), value) for name, value in vars(self).items()}
        )

    def without(self, fold: "Moments") -> "Moments":
        return Moments(**{name: value - vars(fold)[name] for name, value in vars(self).items()})

    def projections(self, components: int, ridges: tuple[float, float]) -> Projections:
        """Maximise the correlation of the projected sides, with a ridge on the variances of each (Vinod, 1976)."""
        mean_x, mean_y = self.x / self.n, self.y / self.n
        roots = []
        for squares, mean, ridge in zip((self.xx, self.yy), (mean_x, mean_y), ridges, strict=True):
            variance = squares / self.n - np.outer(mean, mean)
            variance[np.diag_indices_from(variance)] += ridge * max(np.trace(variance) / len(mean), 1e-12)
            roots.append(np.linalg.cholesky(variance))
        root_x, root_y = roots
        across = solve_triangular(root_x, self.xy / self.n - np.outer(mean_x, mean_y), lower=True)
        across = solve_triangular(root_y, across.T, lower=True).T
        # the smaller of the two Gram matrices has the same singular values, and is much faster to decompose
        flip = across.shape[0] > across.shape[1]
        small = across.T if flip else across
        k = min(components, *across.shape)
        squared, left = eigh(small @ small.T, subset_by_index=(len(small) - k, len(small) - 1))
        s, left = np.sqrt(np.maximum(squared[::-1], 0)), left[:, ::-1]
        right = small.T @ left / np.maximum(s, 1e-12)
        u, v = (right, left) if flip else (left, right)
        return Projections(
            mean_x,
            mean_y,
            solve_triangular(root_x, u, lower=True, trans="T") * s,
            solve_triangular(root_y, v, lower=True, trans="T") * s,
            s,
        )
