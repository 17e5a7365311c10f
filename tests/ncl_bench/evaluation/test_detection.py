"""Detection of wrong pairs against counts from the definitions and scikit-learn, and the fields that files store."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from ncl_bench.evaluation.detection import detection, division, separation
from ncl_bench.evaluation.results import CorrespondenceResult
from ncl_bench.evaluation.training_record import DetectedPairs

ESTIMATES = st.lists(st.tuples(st.integers(-3, 6), st.booleans()), min_size=2, max_size=40).filter(
    lambda pairs: len({true for _, true in pairs}) == 2
)


def values_and_truth(pairs):
    return np.array([value / 4 for value, _ in pairs], np.float32), np.array([true for _, true in pairs])


@given(ESTIMATES)
def test_auroc_is_the_share_of_true_and_wrong_pairs_in_the_right_order(
    pairs,
):
    values, truth = values_and_truth(pairs)
    found = separation(values, truth)
    wins = [(a > b) + 0.5 * (a == b) for a in values[truth] for b in values[~truth]]
    assert found.auroc == pytest.approx(float(sum(wins)) / len(wins))
    assert found.average_precision == pytest.approx(average_precision_score(truth, values))


@given(ESTIMATES, st.integers(-3, 6))
def test_a_division_counts_wrong_pairs_as_the_definitions_say(pairs, threshold):
    values, truth = values_and_truth(pairs)
    found = division(values, truth, threshold / 4)
    called = [value <= threshold for value, _ in pairs]
    both = sum(call and not true for call, (_, true) in zip(called, pairs, strict=True))
    wrong = sum(not true for _, true in pairs)
    assert found.recall == pytest.approx(both / wrong)
    assert found.precision == pytest.approx(both / sum(called) if any(called) else 0.0)
    right = sum(call != true for call, (_, true) in zip(called, pairs, strict=True))
    assert found.accuracy == pytest.approx(right / len(pairs))
    harmonic = 2 * found.precision * found.recall / (found.precision + found.recall) if both else 0.0
    assert found.f1 == pytest.approx(harmonic)


@given(ESTIMATES)
def test_the_best_division_is_the_best_of_all_thresholds(pairs):
    values, truth = values_and_truth(pairs)
    found = detection(values, truth, 0.5)
    assert found.best.f1 == max(division(values, truth, float(limit)).f1 for limit in values)
    assert found.own == division(values, truth, 0.5)
    assert found.auroc == pytest.approx(roc_auc_score(truth, values))
    assert found.average_precision == pytest.approx(average_precision_score(truth, values))
    assert found.average_precision_wrong == pytest.approx(average_precision_score(~truth, -values))
    assert (found.n_pairs, found.n_wrong) == (len(truth), (~truth).sum())


def test_precision_among_equal_estimates_is_the_expected_one():
    values = np.array([0.1] * 4 + [0.5] * 12 + [0.9] * 4, np.float32)
    truth = np.array([False] * 4 + [True, False, True] * 4 + [True] * 4)
    # the four surest finds, and six of the twelve next ones, of which a third is wrong
    assert detection(values, truth, 0.5).precision_at == {10: pytest.approx((4 + 6 / 3) / 10)}


def test_files_store_detection_in_fields_that_stay():
    found = detection(np.array([0.1, 0.8, 0.9]), np.array([False, True, True]), 0.5)
    divided = ("threshold", "accuracy", "precision", "recall", "f1")
    assert tuple(found.model_dump()["best"]) == divided
    assert tuple(found.model_dump()) == (
        *("n_pairs", "n_wrong", "own", "best", "auroc", "average_precision"),
        *("average_precision_wrong", "precision_at"),
    )
    track = ("auroc", "average_precision", "accuracy", "pairs", "true_pairs")
    assert tuple(CorrespondenceResult.model_fields) == track
    by_epoch = ("noise_left", "precision_by_epoch", "recall_by_epoch")
    assert tuple(DetectedPairs.model_fields) == (
        *divided,
        *("average_precision_wrong", "precision_at"),
        *by_epoch,
    )
