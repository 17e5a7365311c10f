"""Metrics against loops, scikit-learn, trec_eval and the numbers of published code."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.bootstrap import resampled_recalls
from oracles.ranks import metrics_by_definition
from scipy.stats import binom, binomtest

from ncl_bench.evaluation import metrics
from ncl_bench.evaluation.protocol import protocol_result
from ncl_bench.evaluation.ranks import Ranks, count_ranks
from ncl_bench.evaluation.scores import ArrayRows


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 5), st.data())
@settings(max_examples=50)
def test_metrics_equal_the_definition(i2t, each, data):
    t2i = data.draw(st.lists(st.integers(1, 30), min_size=each * len(i2t), max_size=each * len(i2t)))
    ranks = Ranks(np.array(i2t), np.array(t2i))
    result = protocol_result(ranks, len(i2t), intervals=False)
    expected = metrics_by_definition(i2t, t2i)
    for images_per_fold in {1, len(i2t)}:
        whole = protocol_result(ranks, images_per_fold, intervals=False)
        assert metrics.recalls_and_sum(ranks, images_per_fold) == whole.recalls()
    for name, value in expected.items():
        found = result.r_sum if name == "r_sum" else getattr(getattr(result, name[:3]), name[4:])
        assert found == pytest.approx(value, abs=1e-9), name


def test_ranks_and_metrics_of_published_code(golden):
    stored = golden("G_metrics")
    matrices = {key.removesuffix(".sims"): value for key, value in stored.items() if key.endswith(".sims")}
    matrices["ensemble"] = (stored["ensemble.sims_A"] + stored["ensemble.sims_B"]) / 2
    matrices["fold5.full"] = matrices.pop("fold5")
    assert len(matrices) >= 5
    for name, similarities in matrices.items():
        assert_as_published(name, similarities, stored)


def assert_as_published(name, similarities, stored):
    each = similarities.shape[1] // len(similarities)
    ranks = count_ranks(ArrayRows(similarities), captions_per_image=each).whole
    np.testing.assert_array_equal(ranks.i2t, stored[f"{name}.i2t_ranks"] + 1)
    np.testing.assert_array_equal(ranks.t2i, stored[f"{name}.t2i_ranks"] + 1)
    result = protocol_result(ranks, len(similarities), intervals=False)
    for direction in ("i2t", "t2i"):
        side = getattr(result, direction)
        found = [side.r1, side.r5, side.r10, side.median_rank, side.mean_rank]
        np.testing.assert_allclose(found, stored[f"{name}.{direction}"], rtol=0, atol=1e-9)
    assert result.r_sum == pytest.approx(float(stored[f"{name}.rsum"]), abs=1e-9)


def test_folds_of_published_code(golden):
    stored = golden("G_metrics")
    fold = int(stored["fold5.images_per_fold"])
    n_images, n_captions = stored["fold5.sims"].shape
    n_folds, each = n_images // fold, n_captions // n_images
    counted = count_ranks(ArrayRows(stored["fold5.sims"]), captions_per_image=each, images_per_fold=fold)
    for number in range(n_folds):
        images, captions = (slice(number * n, (number + 1) * n) for n in (fold, each * fold))
        expected = stored[f"fold5.fold{number}.i2t_ranks"] + 1
        np.testing.assert_array_equal(counted.folds.i2t[images], expected)
        expected = stored[f"fold5.fold{number}.t2i_ranks"] + 1
        np.testing.assert_array_equal(counted.folds.t2i[captions], expected)
    result = protocol_result(counted.folds, fold, intervals=False)
    found = [getattr(getattr(result, d), m) for d in ("i2t", "t2i") for m in metrics.METRICS]
    np.testing.assert_allclose(found, stored["fold5.mean_of_folds"][:10], rtol=0, atol=1e-9)
    assert result.folds == n_folds
    assert result.r_sum == pytest.approx(float(stored["fold5.rsum"]), abs=1e-9)
    printed = 2 * (result.i2t.r1 + result.i2t.r5 + result.i2t.r10)  # six times their mean, not the sum
    assert printed == pytest.approx(float(stored["fold5.rsum_as_printed_by_ncr"]), abs=1e-9)


def recalls(ranks, n_images):
    """i2t R@1, R@5, R@10, then t2i, ``(6,)``."""
    result = protocol_result(ranks, n_images, intervals=False)
    return np.array([getattr(side, k) for side in (result.i2t, result.t2i) for k in ("r1", "r5", "r10")])


@pytest.mark.parametrize("file", ["V_npc_eval", "W_osa_eval"])
def test_recalls_of_published_evaluations_and_where_they_are_wrong(file, golden):
    """NPC prints i2t R@10 in place of t2i R@10 under the 1K protocol, and OSA cuts its folds to 999 images."""
    stored, fold = golden(file), 1000
    for name in (key.removesuffix(".images") for key in stored if key.endswith(".images")):
        images, captions = (stored[f"{name}.{side}"].astype(np.float32) for side in ("images", "captions"))
        images, captions = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (images, captions))
        each = len(captions) // len(images)
        in_folds = fold if f"{name}.fold_recalls" in stored else None
        similarities = ArrayRows(images @ captions.T)
        counted = count_ranks(similarities, captions_per_image=each, images_per_fold=in_folds)
        wanted = stored[f"{name}.recalls" if f"{name}.recalls" in stored else f"{name}.recalls_5k"]
        np.testing.assert_allclose(recalls(counted.whole, len(images)), wanted[:6], rtol=0, atol=0.05)
    assert counted.folds is not None, "MS-COCO comes last"
    folds = [
        recalls(Ranks(counted.folds.i2t[n : n + fold], counted.folds.t2i[each * n : each * (n + fold)]), fold)
        for n in range(0, len(images), fold)
    ]
    published = stored[f"{name}.fold_recalls"][:, :6]
    if file == "V_npc_eval":
        np.testing.assert_allclose(folds, published, rtol=0, atol=0.05)
        printed, mean = stored[f"{name}.printed_1k"], np.mean(folds, axis=0)
        np.testing.assert_allclose(printed[:5], mean[:5], rtol=0, atol=0.05)
        assert printed[5] == printed[2] > mean[5] + 0.05
    else:
        np.testing.assert_allclose(folds, stored[f"{name}.fold_recalls_whole"], rtol=0, atol=0.05)
        lost = np.mean(folds, axis=0)[3:] - published[:, 3:].mean(axis=0)
        assert (lost > 0).all()
        assert (lost < 0.1).all()


def test_trec_eval_finds_the_same_hits():
    import ir_measures
    from ir_measures import Qrel, ScoredDoc, Success

    random = np.random.default_rng(3)
    similarities = random.permutation(40 * 200).reshape(40, 200).astype(np.float64)
    own = np.arange(200)
    similarities[own // 5, own] += 2_500 + 0.5
    ranks = count_ranks(ArrayRows(similarities), captions_per_image=5).whole
    result = protocol_result(ranks, 40, intervals=False)
    for direction, matrix in (("i2t", similarities), ("t2i", similarities.T)):
        relevant = [
            Qrel(f"q{c // 5 if direction == 'i2t' else c}", f"d{c if direction == 'i2t' else c // 5}", 1)
            for c in own
        ]
        run = [
            ScoredDoc(f"q{query}", f"d{item}", float(score))
            for query, line in enumerate(matrix)
            for item, score in enumerate(line)
        ]
        measures = {k: Success(rel=1) @ k for k in (1, 5, 10)}
        found = ir_measures.pytrec_eval.calc_aggregate(list(measures.values()), relevant, run)
        for k, measure in measures.items():
            recall = getattr(getattr(result, direction), f"r{k}")
            assert 0 < recall < 100
            assert 100 * found[measure] == pytest.approx(recall, abs=1e-9)


@pytest.mark.parametrize(("n_images", "fold", "each"), [(12, 12, 5), (20, 5, 3), (9, 3, 1)])
def test_bootstrap_equals_loops(n_images, fold, each, monkeypatch):
    monkeypatch.setattr(metrics, "RESAMPLES", 40)
    monkeypatch.setattr(metrics, "DRAWN_AT_ONCE", 8)
    random = np.random.default_rng(n_images)
    ranks = Ranks(random.integers(1, 13, n_images), random.integers(1, 13, n_images * each))
    queries = np.array([1, 1, 1, each, each, each])
    found = metrics.bootstrap_recalls(metrics.hits_per_image(ranks), queries, fold)
    for column, k in enumerate(metrics.CUTOFFS):
        i2t, t2i = resampled_recalls(ranks.i2t.tolist(), ranks.t2i.tolist(), fold, 40, k)
        np.testing.assert_allclose(found[:, column], i2t, atol=1e-9)
        np.testing.assert_allclose(found[:, 3 + column], t2i, atol=1e-9)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        ranks = Ranks(*(np.where(random.random(n) < 0.4, 1, 20) for n in (150, 150)))
        result = protocol_result(ranks, 150, intervals=True)
        low, high = result.i2t.intervals["r1"]
        covered += low <= 40 <= high
    assert 180 <= covered <= 199


def coverage(rate, n, each, together, find):
    """How often an interval covers a recall of ``rate`` on ``n`` images with ``each`` queries, summed over all counts.

    Misses come ``together`` many in one image: one, or all of its queries.
    """

    trials, covered, queries = n * each // together, 0.0, np.array([each])
    for missed in range(min(trials, n) + 1):
        share = float(binom.pmf(missed, trials, 1 - rate))
        if share > 1e-6:
            hits = np.full((n, 1), each)
            hits[:missed] -= together
            low, high = find(hits, queries, n)[0]
            covered += share * (low <= 100 * rate + 1e-9 and high >= 100 * rate - 1e-9)
    return covered


def of_one_model(hits, queries_per_image, images_per_fold):
    return metrics.intervals_of_models([hits], queries_per_image, images_per_fold)[0]


@pytest.mark.parametrize(
    ("each", "together", "rates"),
    [
        (1, 1, (0.001, 0.005, 0.01, 0.97, 0.98, 0.99, 0.995, 0.999, 0.9995)),
        (5, 5, (0.001, 0.02, 0.98, 0.99, 0.999)),
        (5, 1, (0.98, 0.99, 0.995, 0.999, 0.9995)),  # each in an image of its own
    ],
)
def test_intervals_cover_the_truth_near_0_and_100_percent_too(each, together, rates):
    for rate in rates:
        assert coverage(rate, 200, each, together, of_one_model) > 0.92


def test_the_bootstrap_alone_degenerates():
    def bootstrap(*given):
        return metrics.intervals(metrics.bootstrap_recalls(*given))

    found = [coverage(rate, 200, *sizes, bootstrap) for rate, sizes in ((0.99, (1, 1)), (0.999, (5, 1)))]
    assert found == [pytest.approx(0.86, abs=0.01), pytest.approx(0.63, abs=0.01)]


@pytest.mark.parametrize("each", [1, 5])
def test_no_interval_of_a_perfect_or_a_useless_model_is_a_single_point(each):
    best, worst = (np.full(200 * n, rank) for n, rank in ((1, 1), (1, 1000)))
    for i2t, ends in ((best, (98.17, 100.0)), (worst, (0.0, 1.83))):
        result = protocol_result(Ranks(i2t, np.repeat(i2t, each)), 200, intervals=True)
        for side in (result.i2t, result.t2i):
            assert all(found == pytest.approx(ends, abs=0.005) for found in side.intervals.values())
        assert result.r_sum_interval == pytest.approx([6 * end for end in ends], abs=0.03)


def test_only_few_misses_or_hits_change_an_interval():
    for missed in (0, 1, 4, 5, 6, 100, 194, 195, 196, 199, 200):
        hits = np.ones((200, 1), np.int64)
        hits[:missed] = 0
        given = (hits, np.array([1]), 200)
        same = of_one_model(*given)[0] == metrics.intervals(metrics.bootstrap_recalls(*given))[0]
        assert same == (5 <= missed <= 195)
        assert metrics.exact_interval(200 - missed, missed) == pytest.approx(
            tuple(100 * end for end in binomtest(200 - missed, 200).proportion_ci(method="exact"))
        )


def test_an_interval_holds_the_middle_95_percent():
    assert metrics.intervals(np.arange(1001.0)[:, None]) == [(25.0, 975.0)]


@pytest.mark.parametrize(("n_images", "per_fold"), [(1, 1), (2, 1), (6, 3), (50, 25), (64, 64), (129, 129)])
def test_resamples_are_those_of_randint(n_images, per_fold):
    random = np.random.RandomState(metrics.BOOTSTRAP_SEED)
    for counts in metrics.resamples(n_images, per_fold, 130):
        drawn = random.randint(0, per_fold, (130, per_fold), dtype=np.int64)
        assert [np.bincount(row, minlength=per_fold).tolist() for row in drawn] == counts.tolist()
