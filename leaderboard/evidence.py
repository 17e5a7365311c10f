"""What an entry rests on: its scores in a compact form, or the rank of every query; kept beside its file.

An entry names its evidence as ``.npy`` with the hash of that file; what lies on disk is ``.npy.gz``.
"""

import gzip
import hashlib
import io
import itertools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data import dataset_spec
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import ScoresError, SubmissionError
from ncl_bench.evaluation.claims import check_noise
from ncl_bench.evaluation.difference import Hits
from ncl_bench.evaluation.metrics import hits_per_image
from ncl_bench.evaluation.protocol import evaluate_counted, fold_size, ranks_under
from ncl_bench.evaluation.ranks import Counted
from ncl_bench.evaluation.results import Evaluation
from ncl_bench.evaluation.submission import ArrayFile, MatrixScores, RankPair, RankScores, Submission
from ncl_bench.evaluation.submission_scores import open_file, open_source
from ncl_bench.files import readable, scratch_folder, write_bytes
from ncl_bench.npy import map_npy

LARGEST = 512 * 1024
"""Bytes of an evidence file."""
_LEVELS = 0x7C00
"""Non-negative finite float16 numbers."""


def evaluate_evidence(submission: Submission, folder: Path) -> tuple[Evaluation, dict[str, Hits]]:
    """Evaluate the test split of an entry from its evidence, and check the noise that it states.

    Args:
        submission: whose ``scores`` are the evidence: a matrix or ranks.
        folder: holds the evidence files.

    Returns:
        The evaluation, and per protocol what was answered.

    Raises:
        SubmissionError: an evidence file is too large, of another hash, or in a form that is not kept; or the
            noise has another hash than stated.
        ScoresError: a file is missing, damaged, or does not fit the dataset.
    """
    spec, scores = dataset_spec(submission.dataset), submission.scores["test"]
    if not isinstance(scores, MatrixScores | RankScores):
        raise SubmissionError(
            f"{folder}: scores in the form {scores.form!r} are no evidence; keep a matrix or ranks"
        )
    check_noise(folder, submission, spec)
    with scratch_folder() as unpacked:
        for array in submission.files():
            content = _unpacked(packed_path(folder, array))
            write_bytes(unpacked / array.file, content)
        counted = open_source(unpacked, scores, spec, "test").count()
    return evaluate_counted(counted, spec, "test"), hits_of(counted, spec)


def packed_path(folder: Path, array: ArrayFile) -> Path:
    """Where the evidence that an entry names lies."""
    return folder / f"{array.file}.gz"


def _unpacked(path: Path) -> bytes:
    """Content of an evidence file; never more than ``LARGEST`` bytes are unpacked."""
    try:
        with gzip.open(readable(path, SubmissionError, "packed evidence")) as stream:
            content = stream.read(LARGEST + 1)
    except FileNotFoundError:
        raise SubmissionError(f"{path} is missing; add the submission again") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SubmissionError(f"{path} cannot be unpacked ({error}); add the submission again") from None
    if len(content) > LARGEST:
        raise SubmissionError(f"{path} holds more than {LARGEST:,} bytes; keep ranks instead")
    return content


def hits_of(counted: Counted, spec: DatasetSpec) -> dict[str, Hits]:
    """Per protocol, what was answered of each test image."""
    hits = {}
    for protocol in spec.protocols:
        ranks = ranks_under(counted, protocol)
        size = fold_size(protocol, len(ranks.i2t))
        hits[protocol] = Hits(hits_per_image(ranks), spec.captions_per_image, size)
    return hits


def write_evidence(
    submission: Submission, source: Path, counted: Counted, target: Path
) -> MatrixScores | RankScores:
    """Keep the evidence of a submission beside its entry file.

    Scores are kept where their compact form fits into ``LARGEST`` bytes, else the rank of every query.

    Args:
        submission: as submitted.
        source: the submission folder.
        counted: ranks of its test split.
        target: the entry file; evidence takes its name.
    """
    scores, spec = submission.scores["test"], dataset_spec(submission.dataset)
    if isinstance(scores, MatrixScores) and 2 * spec.images["test"] * spec.n_captions("test") < LARGEST:
        matrix = map_npy(*open_file(source, scores.matrix))
        try:
            compact = compact_scores(np.asarray(matrix), captions_per_image=spec.captions_per_image)
            return MatrixScores(matrix=_write(target.with_suffix(".scores.npy"), compact))
        except ScoresError:
            pass
    return _write_ranks(submission, counted, target)


def _write_ranks(submission: Submission, counted: Counted, target: Path) -> RankScores:
    scores = submission.scores["test"]
    hashes = "\n".join(array.sha256 for array in submission.files_of("test"))
    several = "\n" in hashes
    original = hashlib.sha256(hashes.encode()).hexdigest() if several else hashes
    pairs = {}
    for kind, ranks in (("whole", counted.whole), ("folds", counted.folds)):
        if ranks is not None:
            files = {side: target.with_suffix(f".{kind}.{side}.npy") for side in ("i2t", "t2i")}
            arrays = {side: _write(path, getattr(ranks, side).astype("<u2")) for side, path in files.items()}
            pairs[kind] = RankPair(**arrays)
    stated = scores.scores_sha256 if isinstance(scores, RankScores) else original
    return RankScores.model_validate({"scores_sha256": stated, "ranks": pairs})


def _write(path: Path, array: NDArray[Any]) -> ArrayFile:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    content = stream.getvalue()
    file = ArrayFile(file=path.name, sha256=hashlib.sha256(content).hexdigest())
    write_bytes(packed_path(path.parent, file), gzip.compress(content, mtime=0))
    return file


def compact_scores(similarities: NDArray[np.floating], *, captions_per_image: int) -> NDArray[np.float16]:
    """Scores in a quarter of the space, with every rank unchanged.

    Ranks depend only on how a query's true items compare with the wrong ones. Scores between which no query
    distinguishes may therefore take one value, while the order of all others stays. The result is an ordinary
    scores file: evaluated like any other, it gives the same ranks, ties and recalls as the original.

    Args:
        similarities: float ``(n_images, n_captions)``, finite; caption ``c`` belongs to image
            ``c // captions_per_image``.
        captions_per_image: a fact of the dataset.

    Returns:
        float16 of the same shape, non-negative; every comparison of a true item with a wrong item of the same
        query (greater, equal, less) is that of the input.

    Raises:
        ScoresError: more distinctions are needed than float16 has numbers.
    """
    n_images, n_captions = similarities.shape
    order = np.argsort(similarities, axis=None, kind="stable")
    images, captions = np.divmod(order, n_captions)
    values = similarities.reshape(-1)[order]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])).tolist()
    own = (captions // captions_per_image == images).tolist()
    levels = _levels(images.tolist(), captions.tolist(), own, [*starts, len(order)], n_images, n_captions)
    if levels[-1] >= _LEVELS:
        raise ScoresError(
            f"scores need {levels[-1] + 1:,} distinct values, float16 has {_LEVELS:,}; keep ranks instead"
        )
    result = np.empty(n_images * n_captions, np.uint16)
    result[order] = levels
    return result.view(np.float16).reshape(n_images, n_captions)


def _levels(
    images: list[int], captions: list[int], own: list[bool], bounds: list[int], n_images: int, n_captions: int
) -> list[int]:
    """Level of each entry in ascending order: a new one begins where merging would hide a comparison.

    A true entry is compared with the wrong ones of its row (image query) and of its column (caption query).
    ``*_true`` and ``*_wrong`` hold the last level at which a row or column saw such an entry.
    """
    row_true, row_wrong = [-1] * n_images, [-1] * n_images
    column_true, column_wrong = [-1] * n_captions, [-1] * n_captions
    levels, level = [0] * len(images), 0
    for start, stop in itertools.pairwise(bounds):
        for place in range(start, stop):
            i, c = images[place], captions[place]
            rows, columns = (row_wrong, column_wrong) if own[place] else (row_true, column_true)
            if rows[i] == level or columns[c] == level:
                level += 1
                break
        for place in range(start, stop):
            rows, columns = (row_true, column_true) if own[place] else (row_wrong, column_wrong)
            rows[images[place]] = columns[captions[place]] = levels[place] = level
    return levels
