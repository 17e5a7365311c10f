"""Open and check the score files of a submission, in every form, ready to be counted."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.spec import DatasetSpec, Matches
from ncl_bench.errors import ScoresError, SubmissionError
from ncl_bench.evaluation.eccv import Placer, Places, places_in_rows
from ncl_bench.evaluation.protocol import check_matrix, count, expected_shape
from ncl_bench.evaluation.ranks import Counted, OnRows, per_direction
from ncl_bench.evaluation.scores import ArrayRows, EmbeddingRows, Rows, Similarity, check_embeddings
from ncl_bench.evaluation.statement import ArrayFile
from ncl_bench.evaluation.submission import EmbeddingScores, MatrixScores, Scores
from ncl_bench.files import readable
from ncl_bench.npy import NpyHeader, map_npy, read_header

LONGEST_VECTOR = 16_384


class Count(Protocol):
    """Compute the ranks of every query of a split."""

    def __call__(self, on_rows: OnRows | None = None) -> Counted:
        """Count; ``on_rows`` is called after every block of rows."""
        ...


@dataclass(frozen=True)
class SplitScores:
    """Scores of one split, checked but not yet counted.

    Attributes:
        count: computes the ranks of every query.
        retrieved: maps direction, query and a number to that many top items.
        places: computes places of true matches beyond the dataset's own.
    """

    count: Count
    retrieved: Callable[[str, int, int], list[int]]
    places: Placer


def open_file(folder: Path, entry: ArrayFile) -> tuple[Path, NpyHeader]:
    """Check the sha256 of a submission's file; return its path and header.

    Raises:
        ScoresError: it is missing, damaged, or a link out of the folder.
    """
    path = readable(folder / entry.file, ScoresError, "an .npy file", inside=folder)
    return path, read_header(path)


def check_sha256(path: Path, entry: ArrayFile) -> None:
    """Compare a file with the sha256 that the submission states.

    Raises:
        SubmissionError: the sha256 differs.
    """
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != entry.sha256:
        raise SubmissionError(
            f"{path} has sha256 {found}, submission.yaml states {entry.sha256}; "
            "correct the statement if this is the right file"
        )


def open_source(folder: Path, scores: Scores, spec: DatasetSpec, split: str) -> SplitScores:
    """Open the scores of a split and check type, shape and hash of every file.

    Args:
        folder: the submission folder.
        scores: what the submission states.
        spec: the dataset.
        split: ``test`` or ``dev``.

    Raises:
        SubmissionError: a file lies outside the folder or has another hash.
        ScoresError: a file is missing, damaged, or has the wrong type or shape.
    """
    if isinstance(scores, MatrixScores):
        return _matrix(folder, scores, spec, split)
    return _embeddings(folder, scores, spec, split)


def _matrix(folder: Path, scores: MatrixScores, spec: DatasetSpec, split: str) -> SplitScores:
    path, header = open_file(folder, scores.matrix)
    check_matrix(header.shape, header.dtype, spec, split, str(path))
    check_sha256(path, scores.matrix)
    return matrix_source(map_npy(path, header), spec, split, str(path))


def matrix_source(matrix: NDArray[Any], spec: DatasetSpec, split: str, name: str) -> SplitScores:
    """Scores from a checked matrix, float ``(n_images, n_captions)``; errors call it ``name``."""
    rows = ArrayRows(matrix)
    return SplitScores(_counter(rows, spec, split, name), _retriever(rows), partial(places_in_rows, rows))


def two_matrices(i2t: SplitScores, t2i: SplitScores) -> SplitScores:
    """Scores whose directions come from two matrices."""

    def counted(on_rows: OnRows | None = None) -> Counted:
        return per_direction(i2t.count(on_rows), t2i.count(on_rows))

    def retrieved(direction: str, query: int, n: int) -> list[int]:
        return (i2t if direction == "i2t" else t2i).retrieved(direction, query, n)

    def places(captions: Matches, images: Matches) -> Places:
        return i2t.places(captions, images)[0], t2i.places(captions, images)[1]

    return SplitScores(counted, retrieved, places)


def _embeddings(folder: Path, scores: EmbeddingScores, spec: DatasetSpec, split: str) -> SplitScores:
    arrays, names = [], []
    for entry in (scores.images, scores.captions):
        path, header = open_file(folder, entry)
        check_sha256(path, entry)
        arrays.append(map_npy(path, header))
        names.append(str(path))
    return embeddings_source(arrays, scores.similarity, spec, split, names)


def embeddings_source(
    arrays: Sequence[NDArray[Any]],
    similarity: Similarity,
    spec: DatasetSpec,
    split: str,
    names: Sequence[str],
) -> SplitScores:
    """Scores from two arrays of embeddings; similarities are computed block by block.

    Args:
        arrays: images, float ``(n_images, dim)``, and captions, float ``(n_captions, dim)``.
        similarity: ``cosine`` or ``dot``.
        spec: the dataset.
        split: ``test`` or ``dev``.
        names: names of the two arrays in errors.

    Raises:
        ScoresError: type or shape is wrong, a number is not finite, or the cosine meets a zero vector.
    """
    expected = expected_shape(spec, split)
    for array, name in zip(arrays, names, strict=True):
        if array.ndim != 2 or array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise ScoresError(
                f"{name} holds {array.dtype} of shape {array.shape}, expected a float vector per image or caption"
            )
        if array.shape[1] > LONGEST_VECTOR:
            raise ScoresError(
                f"{name} has vectors of {array.shape[1]:,} numbers, expected at most {LONGEST_VECTOR:,}; "
                "submit the similarities as a matrix"
            )
    images, captions = arrays
    if images.shape[1] != captions.shape[1] or images.shape[1] == 0:
        raise ScoresError(
            f"{names[0]} has vectors of {images.shape[1]} numbers, {names[1]} of {captions.shape[1]}, expected one "
            "common, positive length; embed both in the joint space"
        )
    if (len(captions), len(images)) == expected != (len(images), len(captions)):
        raise ScoresError(f"{names[0]} holds the captions and {names[1]} the images; give the images first")
    check_matrix((len(images), len(captions)), np.dtype(np.float32), spec, split, f"{names[0]} x {names[1]}")
    for array, name in zip(arrays, names, strict=True):
        check_embeddings(array, name, similarity)
    rows = EmbeddingRows(images, captions, similarity)
    return SplitScores(
        _counter(rows, spec, split, f"{similarity} of {names[0]} and {names[1]}"),
        _retriever(rows),
        partial(places_in_rows, rows),
    )


def _retriever(rows: ArrayRows | EmbeddingRows) -> Callable[[str, int, int], list[int]]:
    """Map direction, query and a number to that many top items, best first; ties in the order of the items."""

    def retrieved(direction: str, query: int, n: int) -> list[int]:
        line = rows.rows(query, query + 1)[0] if direction == "i2t" else rows.column(query)
        return [int(item) for item in np.argsort(-line.astype(np.float64), kind="stable")[:n]]

    return retrieved


def _counter(rows: Rows, spec: DatasetSpec, split: str, name: str) -> Count:
    def counted(on_rows: OnRows | None = None) -> Counted:
        try:
            return count(rows, spec, split, on_rows)
        except ScoresError as error:
            raise ScoresError(f"{name}: {error}") from None

    return counted
