"""Judge pairs by regularised canonical correlation (CCA) between image features and the words of captions.

Cross-fitting: the images fall into folds, and a pair is judged by projections that were fitted without its image, so no
pair vouches for itself. A model is a linear system, so nothing is trained.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve_triangular
from scipy.sparse import csr_array

from ncl_bench.data.columns import Int64Array
from ncl_bench.files import atomic_path
from ncl_bench.progress import Advance

FOLDS = 10
COMPONENTS = 40
RIDGE = 3.0
"""Added to the variances of each side, in units of their mean."""
MOST_TERMS = 2_000
FEWEST_CAPTIONS = 2
"""Captions that a term must occur in."""
ROWS_AT_ONCE = 4_096
SAMPLE, DRAWS, BETTER = 1_000, 10, 3
"""Captions that every image is compared with; scores of chance and better captions that come of it."""
# Chinese, Japanese, Thai, Lao, Burmese and Khmer do not put spaces between words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_RUNS = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_])+")
Float64Array = NDArray[np.float64]


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

    def of_images(self, images: NDArray[np.floating]) -> Float64Array:
        """Unit vectors ``(n, k)`` of images ``(n, d)``."""
        return _unit((images - self.image_mean) @ self.images)

    def of_captions(self, captions: csr_array) -> Float64Array:
        """Unit vectors ``(n, k)`` of captions ``(n, t)``."""
        return _unit(captions @ self.captions - self.caption_mean @ self.captions)


def _unit(vectors: Float64Array) -> Float64Array:
    unit: Float64Array = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


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
    def of(cls, images: NDArray[np.floating], image_of: Int64Array, captions: csr_array) -> "Moments":
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
            sums.yy += (y.T @ y).toarray()
            sums.xy += (y.T @ x).T
        return sums

    def without(self, fold: "Moments") -> "Moments":
        return Moments(**{name: value - vars(fold)[name] for name, value in vars(self).items()})

    def projections(self, components: int = COMPONENTS, ridge: float = RIDGE) -> Projections:
        """Maximise the correlation of the projected sides, with a ridge on the variances of each (Vinod, 1976)."""
        mean_x, mean_y = self.x / self.n, self.y / self.n
        roots = []
        for squares, mean in ((self.xx, mean_x), (self.yy, mean_y)):
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
class CrossFitted:
    """Of every pair, by projections that were fitted without its image.

    Attributes:
        score: float32 ``(n,)``, cosine of image and caption; larger means more likely right.
        chance: float32 ``(n, 10)``, the same for the image and captions of other images, drawn at random.
        better: int64 ``(n, 3)``, pairs of other images, out of a sample, whose captions fit better, the best first; -1
            where there are fewer.
    """

    score: NDArray[np.float32]
    chance: NDArray[np.float32]
    better: Int64Array


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
    captions: Sequence[str],
    *,
    seed: int = 0,
    advance: Advance = lambda amount: None,
) -> CrossFitted:
    """Judge every pair.

    The weights of words are those of all captions; which image a caption belongs to counts in its own fold for nothing.

    Args:
        images: ``(n_images, d)``, one vector per image, such as :func:`pooled`; it may be mapped from a file.
        image_of: int64 ``(n,)``, row of each pair's image.
        captions: text of each pair.
        seed: of the folds and draws.
        advance: called with the number of pairs done.
    """
    n, vectors = len(captions), caption_vectors(captions)
    random = np.random.default_rng(seed)
    different, number = np.unique(image_of, return_inverse=True)
    fold_of = (random.permutation(len(different)) % min(FOLDS, len(different)))[number]
    sample = np.sort(random.permutation(n)[:SAMPLE])
    score, chance = np.zeros(n, np.float32), np.zeros((n, DRAWS), np.float32)
    better = np.full((n, BETTER), -1, np.int64)
    whole = Moments.of(images, image_of, vectors)
    for fold in range(fold_of.max() + 1):
        rows = np.flatnonzero(fold_of == fold)
        fitted = whole.without(Moments.of(images, image_of[rows], vectors[rows])).projections()
        others = fitted.of_captions(vectors[sample])
        for start in range(0, len(rows), ROWS_AT_ONCE):
            block = rows[start : start + ROWS_AT_ONCE]
            x = fitted.of_images(np.asarray(images[image_of[block]], np.float64))
            score[block] = (x * fitted.of_captions(vectors[block])).sum(axis=1)
            foreign = image_of[sample] != image_of[block][:, None]
            chance[block], better[block] = against_others(x @ others.T, score[block], foreign, sample, random)
            advance(len(block))
    return CrossFitted(score, chance, better)


def against_others(
    fits: NDArray[np.floating],
    own: NDArray[np.floating],
    foreign: NDArray[np.bool_],
    sample: Int64Array,
    random: np.random.Generator,
) -> tuple[NDArray[np.floating], Int64Array]:
    """Draw scores of chance, and find the captions that fit better: ``chance`` and ``better`` of :class:`CrossFitted`.

    Args:
        fits: ``(n, m)``, scores of pairs' images with the captions of a sample.
        own: ``(n,)``, scores of the pairs.
        foreign: bool ``(n, m)``, whether the sampled caption belongs to another image.
        sample: int64 ``(m,)``, the sampled pairs.
        random: what draws.
    """
    drawn = np.argsort(np.where(foreign, random.random(fits.shape), 2), axis=1)[:, :DRAWS]
    chance = np.take_along_axis(fits, drawn, axis=1)
    fits = np.where(foreign & (fits > own[:, None]), fits, -np.inf)
    best = np.argsort(-fits, axis=1, kind="stable")[:, :BETTER]
    found = np.isfinite(np.take_along_axis(fits, best, axis=1))
    return chance, np.where(found, sample[best], -1)


def pooled(
    features: NDArray[np.floating], to: Path, advance: Advance = lambda amount: None
) -> NDArray[np.float32]:
    """Average the regions of each image, and take the root, which tames large activations.

    Args:
        features: ``(n_images, regions, dim)``, at least 0 after a ReLU (smaller ones count as 0).
        to: ``.npy`` file to write; the result is mapped from it.
        advance: called with the number of images done.

    Returns:
        float32 ``(n_images, dim)``.
    """
    with atomic_path(to) as temporary:
        out = np.lib.format.open_memmap(temporary, "w+", np.float32, (len(features), features.shape[-1]))
        for start in range(0, len(features), ROWS_AT_ONCE):
            block = np.asarray(features[start : start + ROWS_AT_ONCE], np.float32)
            out[start : start + len(block)] = np.sqrt(np.maximum(block.mean(axis=1), 0))
            advance(len(block))
        out.flush()
        del out
    mapped: NDArray[np.float32] = np.load(to, mmap_mode="r", allow_pickle=False)
    return mapped
