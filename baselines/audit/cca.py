"""Judge pairs by regularised canonical correlation (CCA) between image features and the words of captions.

Cross-fitting: the images fall into folds, and a pair is judged by projections that were fitted without its image, so no
pair vouches for itself. A model is a linear system, so nothing is trained.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve_triangular
from scipy.sparse import csr_array

from ncl_bench.data.columns import Int64Array
from ncl_bench.files import atomic_path
from ncl_bench.progress import Advance

FOLDS = 10
COMPONENTS = 60
RIDGES = 10.0, 3.0
"""Added to the variances of images and of captions, in units of their mean."""
MOST_TERMS = 2_000
FEWEST_CAPTIONS = 2
"""Captions that a term must occur in."""
ROWS_AT_ONCE = 4_096
# Chinese, Japanese, Thai, Lao, Burmese and Khmer do not put spaces between words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_RUNS = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_])+")
Float64Array = NDArray[np.float64]
Vectors: TypeAlias = csr_array | Float64Array
"""Captions, ``(n, t)``: sparse counts of words, or the vectors of a sentence encoder."""


def terms(caption: str) -> list[str]:
    """Split a caption into lower-case words; scripts without spaces into characters and pairs of neighbours."""
    found: list[str] = []
    for run in _RUNS.findall(caption.lower()):
        if re.match(rf"[{_UNSPACED}]", run):
            found += [*run, *(run[n : n + 2] for n in range(len(run) - 1))]
        else:
            found.append(run)
    return found


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

    def of_images(self, images: NDArray[np.floating]) -> NDArray[np.float32]:
        """Unit vectors ``(n, k)`` of images ``(n, d)``."""
        return unit(self.place_images(images))

    def of_captions(self, captions: Vectors) -> NDArray[np.float32]:
        """Unit vectors ``(n, k)`` of captions ``(n, t)``."""
        return unit(self.place_captions(captions))

    def place_images(self, images: NDArray[np.floating]) -> Float64Array:
        """Vectors ``(n, k)`` of images ``(n, d)``; short ones have little of what the captions name."""
        placed: Float64Array = (images - self.image_mean) @ self.images
        return placed

    def place_captions(self, captions: Vectors) -> Float64Array:
        """Vectors ``(n, k)`` of captions ``(n, t)``; vague captions are short."""
        placed: Float64Array = captions @ self.captions - self.caption_mean @ self.captions
        return placed


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Scale vectors ``(n, k)`` to length one; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
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
    def of(cls, images: NDArray[np.floating], image_of: Int64Array, captions: Vectors) -> "Moments":
        """Sum over pairs in blocks: ``images[image_of[i]]`` goes with row i of ``captions``."""
        d, t = images.shape[1], captions.shape[1]
        sums = cls(0, np.zeros(d), np.zeros(t), np.zeros((d, d)), np.zeros((t, t)), np.zeros((d, t)))
        for start in range(0, len(image_of), ROWS_AT_ONCE):
            x = np.asarray(images[image_of[start : start + ROWS_AT_ONCE]], np.float64)
            y = captions[start : start + ROWS_AT_ONCE]
            sums.n += len(x)
            sums.x += x.sum(axis=0)
            sums.y += y.sum(axis=0)
            sums.xx += x.T @ x
            yy = y.T @ y
            sums.yy += yy if isinstance(yy, np.ndarray) else yy.toarray()
            sums.xy += (y.T @ x).T
        return sums

    def without(self, fold: "Moments") -> "Moments":
        return Moments(**{name: value - vars(fold)[name] for name, value in vars(self).items()})

    def projections(self, components: int = COMPONENTS, ridges: tuple[float, float] = RIDGES) -> Projections:
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


@dataclass(frozen=True)
class Fold:
    """Pairs to judge, and both sides in one space that was fitted without their images.

    Attributes:
        rows: int64 ``(r,)``, the pairs to judge.
        others: int64 ``(n - r,)``, the pairs of other folds.
        images, captions: pairs to vectors of their images and of their captions, float64 ``(len, k)``.
    """

    rows: Int64Array
    others: Int64Array
    images: Callable[[Int64Array], Float64Array]
    captions: Callable[[Int64Array], Float64Array]


def folds_of(
    image_of: Int64Array, seed: int, n_folds: int = FOLDS
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield the pairs of each fold, and the others; all pairs of an image fall into one fold."""
    different, number = np.unique(image_of, return_inverse=True)
    fold = (np.random.default_rng(seed).permutation(len(different)) % min(n_folds, len(different)))[number]
    for each in range(fold.max() + 1):
        yield np.flatnonzero(fold == each), np.flatnonzero(fold != each)


def caption_vectors(captions: Sequence[str]) -> csr_array:
    """TF-IDF of the most frequent terms, float64 ``(n, at most 2,000)``, rows of unit length."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # where no term is shared, every one is kept
    for fewest in (FEWEST_CAPTIONS, 1):
        try:
            vectorizer = TfidfVectorizer(analyzer=terms, min_df=fewest, max_features=MOST_TERMS)
            return csr_array(vectorizer.fit_transform(captions))
        except ValueError:
            continue
    return csr_array(np.ones((len(captions), 1)))  # no caption has a letter or digit


def cross_fitted(
    images: NDArray[np.floating],
    image_of: Int64Array,
    captions: Vectors,
    *,
    seed: int = 0,
    offset: int = 0,
    n_folds: int = FOLDS,
) -> list[Fold]:
    """Fit projections for each fold on the pairs of the others.

    Args:
        images: ``(n_images, d)``, one vector per image, such as :func:`pooled`; it may be mapped from a file.
        image_of: int64 ``(n,)``, row of each pair's image.
        captions: ``(n, t)``, such as :func:`caption_vectors`.
        seed: of the folds.
        offset: fit on the image of row i with the caption of row ``i + offset``; at the ends with the last one.
        n_folds: number of folds; few are faster and fit fewer pairs.
    """
    partner = np.clip(np.arange(len(image_of)) + offset, 0, len(image_of) - 1)
    whole = Moments.of(images, image_of, captions[partner])
    found = []
    for rows, others in folds_of(image_of, seed, n_folds):
        fitted = whole.without(Moments.of(images, image_of[rows], captions[partner[rows]])).projections()
        found.append(
            Fold(
                rows, others, partial(_images, fitted, images, image_of), partial(_captions, fitted, captions)
            )
        )
    return found


def _images(
    fitted: Projections, images: NDArray[np.floating], image_of: Int64Array, pairs: Int64Array
) -> Float64Array:
    return fitted.place_images(np.asarray(images[image_of[pairs]], np.float64))


def _captions(fitted: Projections, captions: Vectors, pairs: Int64Array) -> Float64Array:
    return fitted.place_captions(captions[pairs])


def pooled(
    features: NDArray[np.floating], to: Path, advance: Advance = lambda amount: None
) -> NDArray[np.float32]:
    """Average the regions of each image, and take the root and keep the sign, which tames large activations.

    Args:
        features: ``(n_images, regions, dim)``.
        to: ``.npy`` file to write; the result is mapped from it.
        advance: called with the number of images done.

    Returns:
        float32 ``(n_images, dim)``.
    """
    with atomic_path(to) as temporary:
        out = np.lib.format.open_memmap(temporary, "w+", np.float32, (len(features), features.shape[-1]))
        for start in range(0, len(features), ROWS_AT_ONCE):
            block = np.asarray(features[start : start + ROWS_AT_ONCE], np.float32)
            mean = block.mean(axis=1)
            out[start : start + len(block)] = np.sign(mean) * np.sqrt(np.abs(mean))
            advance(len(block))
        out.flush()
        del out
    mapped: NDArray[np.float32] = np.load(to, mmap_mode="r", allow_pickle=False)
    return mapped
