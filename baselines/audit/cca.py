"""Judge pairs by regularised canonical correlation (CCA) between image features and the words of captions.

Cross-fitting: the images fall into folds, and a pair is judged by projections that were fitted without its image, so no
pair vouches for itself. A model is a linear system, so nothing is trained.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.sparse import csr_array

from baselines.kit.cca import ROWS_AT_ONCE, Moments, Projections, Vectors, signed_root
from ncl_bench.data.scripts import terms
from ncl_bench.errors import TrainingError
from ncl_bench.files import atomic_path
from ncl_bench.foreign import reading
from ncl_bench.npy import Float32Array, Float64Array, FloatArray, Int64Array

FOLDS = 10
COMPONENTS = 60
RIDGES = 10.0, 3.0
"""Added to the variances of images and of captions, in units of their mean."""
MOST_TERMS = 2_000
PROJECTIONS = "projections.safetensors"
"""What an audit keeps for the small sets of the same encoders."""
FEWEST_CAPTIONS = 2
"""Captions that a term must occur in."""


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
    """TF-IDF of the most frequent terms, float64 ``(n, at most 2,000)``.

    All terms of a caption count for its length, which is one with them. So a caption of rare terms is short, and not
    what its one frequent term alone would be.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        vectors = csr_array(TfidfVectorizer(analyzer=terms).fit_transform(captions))
    except ValueError:
        return csr_array(np.ones((len(captions), 1)))  # no caption has a letter or digit
    n_captions = np.bincount(vectors.indices, minlength=vectors.shape[1])
    kept = np.argsort(-n_captions, kind="stable")[:MOST_TERMS]
    # where no term is shared, every one is kept
    shared = kept[n_captions[kept] >= FEWEST_CAPTIONS]
    return csr_array(vectors[:, np.sort(shared if len(shared) else kept)])


def cross_fitted(
    images: FloatArray,
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

    def fitted(rows: Int64Array, others: Int64Array) -> Fold:
        own = Moments.of(images, image_of[rows], captions[partner[rows]])
        projections = whole.without(own).projections(COMPONENTS, RIDGES)
        return Fold(
            rows,
            others,
            lambda pairs: projections.place_images(np.asarray(images[image_of[pairs]], np.float64)),
            lambda pairs: projections.place_captions(captions[pairs]),
        )

    return [fitted(*each) for each in folds_of(image_of, seed, n_folds)]


def write_projections(to: Path, fitted: Projections, encoders: Mapping[str, str]) -> None:
    """Keep projections for other sets of the same encoders."""
    with atomic_path(to) as temporary:
        save_file(
            {name: np.ascontiguousarray(each) for name, each in vars(fitted).items()}, temporary, {**encoders}
        )


def read_projections(file: Path, encoders: Mapping[str, str]) -> Projections:
    """Read what :func:`write_projections` wrote; refused if it was made with other encoders."""
    with (
        reading(file, TrainingError, fix="run its audit again"),
        safe_open(file, framework="numpy") as stored,
    ):
        made_with = stored.metadata() or {}
        fitted = Projections(**{name: stored.get_tensor(name) for name in stored.keys()})  # noqa: SIM118, no mapping
    for what, name in encoders.items():
        if made_with.get(what) != name:
            raise TrainingError(
                f"{file} was made with {made_with.get(what)} for {what}, and these pairs are read with {name}; audit "
                "both with the same encoders"
            )
    return fitted


def pooled(features: FloatArray, to: Path) -> Float32Array:
    """Average the regions of each image, and take the root and keep the sign, which tames large activations.

    Args:
        features: ``(n_images, regions, dim)``.
        to: ``.npy`` file to write; the result is mapped from it.

    Returns:
        float32 ``(n_images, dim)``.
    """
    with atomic_path(to) as temporary:
        out = np.lib.format.open_memmap(temporary, "w+", np.float32, (len(features), features.shape[-1]))
        for start in range(0, len(features), ROWS_AT_ONCE):
            block = np.asarray(features[start : start + ROWS_AT_ONCE], np.float32)
            out[start : start + len(block)] = signed_root(block.mean(axis=1))
        out.flush()
    mapped: Float32Array = np.load(to, mmap_mode="r", allow_pickle=False)
    return mapped
