"""What a row rests on: its scores in a compact form, or the rank of every query; kept beside the row file.

A row names its evidence as ``.npy`` with the hash of that file; what lies on disk is ``.npy.gz``.
"""

import gzip
import hashlib
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard.compact import compact_scores
from leaderboard.significance import Hits
from ncl_bench.counting import Counted
from ncl_bench.datasets import dataset_spec
from ncl_bench.datasets.spec import DatasetSpec
from ncl_bench.errors import ScoresError, SubmissionError
from ncl_bench.evaluation.result import Evaluation
from ncl_bench.evaluation.sources import open_file, open_source
from ncl_bench.evaluation.statements import check_noise
from ncl_bench.files import scratch_folder, write_bytes
from ncl_bench.metrics import hits_per_image
from ncl_bench.npy import map_npy
from ncl_bench.protocol import evaluate_counted, fold_size, ranks_under
from ncl_bench.score_forms import ArrayFile, MatrixScores, RankPair, RankScores
from ncl_bench.submission import Submission

LARGEST = 512 * 1024


def evaluate_evidence(submission: Submission, folder: Path) -> tuple[Evaluation, dict[str, Hits]]:
    """Evaluate the test split of a row from its evidence, and check the noise that it states.

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
    """Where the evidence that a row names lies."""
    return folder / f"{array.file}.gz"


def _unpacked(path: Path) -> bytes:
    """Content of an evidence file; never more than ``LARGEST`` bytes are unpacked."""
    try:
        with gzip.open(path) as stream:
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
    """Keep the evidence of a submission beside its row file.

    Scores are kept where their compact form fits into ``LARGEST`` bytes, else the rank of every query.

    Args:
        submission: as submitted.
        source: the submission folder.
        counted: ranks of its test split.
        target: the row file; evidence takes its name.
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
    hashes = "\n".join(array.sha256 for array in score_files(submission))
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


def score_files(submission: Submission) -> list[ArrayFile]:
    """The score files of the test split, as submitted."""
    alone = submission.model_copy(
        update={"scores": {"test": submission.scores["test"]}, "correspondence": None}
    )
    index = submission.noise.index
    return [array for array in alone.files() if array != index]


def _write(path: Path, array: NDArray[Any]) -> ArrayFile:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    content = stream.getvalue()
    file = ArrayFile(file=path.name, sha256=hashlib.sha256(content).hexdigest())
    write_bytes(packed_path(path.parent, file), gzip.compress(content, mtime=0))
    return file
