import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from leaderboard.evidence import compact_scores
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.matrix import ArrayRows
from ncl_bench.evaluation.ranks import count_ranks


def same_ranks(first: np.ndarray, second: np.ndarray, captions_per_image: int) -> bool:
    a, b = (count_ranks(ArrayRows(x), captions_per_image=captions_per_image).whole for x in (first, second))
    names = ("i2t", "t2i", "i2t_optimistic", "t2i_optimistic")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


@given(st.data())
@settings(max_examples=60, deadline=None)
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
