import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from leaderboard.build import build
from leaderboard.evidence import LARGEST, compact_scores
from ncl_bench.errors import ScoresError, SubmissionError
from ncl_bench.evaluation.ranks import count_ranks
from ncl_bench.evaluation.scores import ArrayRows


def same_ranks(first: np.ndarray, second: np.ndarray, captions_per_image: int) -> bool:
    a, b = (count_ranks(ArrayRows(x), captions_per_image=captions_per_image).whole for x in (first, second))
    names = ("i2t", "t2i", "i2t_optimistic", "t2i_optimistic")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


@given(st.data())
@settings(max_examples=60)
def test_every_rank_and_tie_is_kept(data: st.DataObject) -> None:
    n, each = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    values = st.one_of(st.integers(-3, 3).map(float), st.floats(-1, 1, width=32))
    scores = data.draw(arrays(np.float32, (n, n * each), elements=values))
    compact = compact_scores(scores, captions_per_image=each)
    assert compact.dtype == np.float16
    assert np.isfinite(compact).all()
    assert same_ranks(scores, compact, each)


def test_order_is_never_turned_round() -> None:
    scores = np.random.RandomState(0).randn(20, 100).astype(np.float32)
    compact = compact_scores(scores, captions_per_image=5).astype(np.float64)
    order = np.argsort(scores, axis=None)
    assert (np.diff(compact.reshape(-1)[order]) >= 0).all()


def test_more_distinctions_than_float16_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaderboard.evidence._LEVELS", 3)
    with pytest.raises(ScoresError, match="keep ranks instead"):
        compact_scores(np.random.RandomState(0).randn(9, 9).astype(np.float32), captions_per_image=1)


def test_a_huge_evidence_file_is_refused(first_entry: Path, board: Path) -> None:
    path = first_entry.with_suffix(".scores.npy.gz")
    path.write_bytes(gzip.compress(bytes(100 * LARGEST)))
    with pytest.raises(SubmissionError, match=r"scores\.npy\.gz holds more than 524,288 bytes"):
        build(board, board / "site", published=False)


def test_changed_evidence_is_refused(first_entry: Path, board: Path) -> None:
    path = first_entry.with_suffix(".scores.npy.gz")
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[-1] ^= 1
    path.write_bytes(gzip.compress(content))
    with pytest.raises(SubmissionError, match="sha256"):
        build(board, board / "site", published=False)


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"x" + b, lambda b: b[:60] + b[70:]])
def test_damaged_evidence_is_refused(
    first_entry: Path, board: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = first_entry.with_suffix(".scores.npy.gz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SubmissionError, match="cannot be unpacked"):
        build(board, board / "site", published=False)


def test_missing_evidence_is_refused(first_entry: Path, board: Path) -> None:
    first_entry.with_suffix(".scores.npy.gz").unlink()
    with pytest.raises(SubmissionError, match=r"scores\.npy\.gz is missing"):
        build(board, board / "site", published=False)


def test_a_file_that_no_row_names_is_refused(board: Path) -> None:
    (board / "submissions" / "digits" / "stray.npy").write_bytes(b"x")
    with pytest.raises(SubmissionError, match=r"stray\.npy belongs to no row"):
        build(board, board / "site", published=False)
