"""Embeddings and comparisons, below the command line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.bootstrap import resampled_recalls
from support.submission_folders import similarities

from ncl_bench.data import DATASETS
from ncl_bench.data.spec import Labels, Matches
from ncl_bench.evaluation import metrics, scores
from ncl_bench.evaluation.compare import compare_counted, difference_samples
from ncl_bench.evaluation.eccv import metrics_of
from ncl_bench.evaluation.protocol import protocol_result, ranks_under
from ncl_bench.evaluation.ranks import Counted, Ranks, count_ranks
from ncl_bench.evaluation.scores import ArrayRows, EmbeddingRows


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 4), st.sampled_from(["cosine", "dot"]))
@settings(max_examples=30)
def test_embeddings_have_one_number_per_pair(seed, n, each, similarity):
    random = np.random.default_rng(seed)
    images, captions = random.normal(size=(n, 7)).astype("f4"), random.normal(size=(n * each, 7)).astype("f2")
    rows = EmbeddingRows(images, captions, similarity)
    whole = rows.rows(0, n)
    a, b = (x.astype(np.float64) for x in (images, captions))
    if similarity == "cosine":
        a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    np.testing.assert_allclose(whole, a @ b.T, rtol=1e-6, atol=1e-7)
    own = np.arange(n * each)
    np.testing.assert_array_equal(rows.own(each).ravel(), whole[own // each, own])
    for start in range(n):
        np.testing.assert_array_equal(rows.rows(start, start + 1)[0], whole[start])
    np.testing.assert_array_equal(rows.column(0), whole[:, 0])


@pytest.mark.parametrize("block", [1, 7, 100])
def test_tiles_change_no_rank(block, monkeypatch):
    random = np.random.default_rng(0)
    images = random.normal(size=(40, 8)).astype(np.float32)
    images[20:] = images[:20]
    captions = np.repeat(images, 3, axis=0)
    found = []
    for tile in (4, 9, 1000):
        monkeypatch.setattr(scores, "TILE_IMAGES", tile)
        monkeypatch.setattr(scores, "TILE_CAPTIONS", 2 * tile)
        rows = EmbeddingRows(images, captions, "cosine")
        found.append(count_ranks(rows, captions_per_image=3, images_per_fold=10, block=block))
    for counted in found:
        assert counted.whole.t2i.tolist() == [2] * 120
        assert counted.whole.t2i_optimistic.tolist() == [1] * 120
        assert counted.folds.i2t.tolist() == [1] * 40


def test_each_direction_is_read_from_its_own_matrix():
    i2t, t2i = (ArrayRows(similarities(seed)) for seed in (1, 2))
    own = np.arange(1000)
    matches = (Matches(own // 5, own, np.full(200, 5)), Matches(own, own // 5, np.ones(1000, int)))
    labels = Labels(matches, matches)
    both, first, second = (metrics_of(labels, *sides) for sides in ((i2t, t2i), (i2t, i2t), (t2i, t2i)))
    for mixed, of_i2t, of_t2i in zip(both, first, second, strict=True):
        for name, value in mixed.items():
            assert value == (of_i2t if name.startswith("i2t") else of_t2i)[name]
    assert first != second


def random_ranks(seed):
    random = np.random.default_rng(seed)
    return Ranks(random.integers(1, 20, 200), random.integers(1, 20, 1000))


def test_differences_are_of_the_same_resamples(monkeypatch):
    monkeypatch.setattr(metrics, "RESAMPLES", 10)
    monkeypatch.setattr(metrics, "DRAWN_AT_ONCE", 5)
    first, second = random_ranks(0), random_ranks(1)
    expected = np.zeros(10)
    for sign, ranks in ((1, first), (-1, second)):
        for k in metrics.CUTOFFS:
            for side in resampled_recalls(ranks.i2t.tolist(), ranks.t2i.tolist(), 200, 10, k):
                expected += sign * np.array(side)
    np.testing.assert_allclose(difference_samples(first, second, 200), expected, atol=1e-9)


def counted(ranks, deeper=0):
    return Counted(Ranks(ranks.i2t + deeper, ranks.t2i + deeper), None, None, "int64")


def test_verdicts():
    good, worse = [counted(random_ranks(0))], [counted(random_ranks(0), 3)]
    other, spec = [counted(random_ranks(2))], DATASETS["digits"]
    found = compare_counted((good, worse), spec, "test", ("mine", "yours"))["200"]
    assert found.verdict == "mine is better"
    assert found.interval[0] > 0
    assert found.difference == pytest.approx(found.values[0] - found.values[1])
    assert found.spreads == (None, None)
    assert compare_counted((worse, good), spec, "test", ("mine", "yours"))["200"].verdict == "yours is better"
    assert compare_counted((good, other), spec, "test")["200"].verdict == "no significant difference"
    assert compare_counted((good, good), spec, "test")["200"].interval == (0.0, 0.0)


def test_several_runs_are_compared_over_runs_and_images():
    spec = DATASETS["digits"]
    first, second = (0, 4), (1, 3)
    runs = [[counted(random_ranks(n), deeper) for n, deeper in enumerate(each)] for each in (first, second)]
    found = compare_counted((runs[0], runs[1]), spec, "test")["200"]
    sums = [
        [protocol_result(ranks_under(run, "200"), 200, intervals=False).r_sum for run in side]
        for side in runs
    ]
    assert found.values == pytest.approx([np.mean(side) for side in sums])
    assert found.spreads == pytest.approx([np.std(side, ddof=1) for side in sums])
    assert found.verdict == "no significant difference", "each side has one good and one bad run"
    one = compare_counted((runs[0][:1], runs[1][1:]), spec, "test", ("first", "second"))["200"]
    assert one.verdict == "first is better"
    with_two = compare_counted((runs[0][:1], runs[1]), spec, "test")["200"]
    assert with_two.spreads[0] is None
    low, high = with_two.interval
    assert low < with_two.difference < high
