"""Separation of true from false pairs against counts from the definitions, and what TensorBoard reads back of a run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.full_disk import largest_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from baselines.training.measures import (
    SEPARATION_BINS,
    Curves,
    Epoch,
    Histogram,
    Separation,
    checked_estimate,
    detection,
    division,
    separation,
)
from ncl_bench.errors import NclBenchError, TrainingError

ESTIMATES = st.lists(st.tuples(st.integers(-3, 6), st.booleans()), min_size=2, max_size=40).filter(
    lambda pairs: len({true for _, true in pairs}) == 2
)


def values_and_truth(pairs: list[tuple[int, bool]]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    return np.array([value / 4 for value, _ in pairs], np.float32), np.array([true for _, true in pairs])


@given(ESTIMATES)
def test_auroc_is_the_share_of_true_and_false_pairs_in_the_right_order(
    pairs: list[tuple[int, bool]],
) -> None:
    values, truth = values_and_truth(pairs)
    found = separation(values, truth)
    wins = [(a > b) + 0.5 * (a == b) for a in values[truth] for b in values[~truth]]
    assert found.auroc == pytest.approx(float(sum(wins)) / len(wins))
    bins = found.histogram
    assert len(bins.true) == len(bins.false) == SEPARATION_BINS
    assert (sum(bins.true), sum(bins.false)) == (truth.sum(), (~truth).sum())
    assert bins.low <= min(0.0, float(values.min()))
    assert bins.high >= max(1.0, float(values.max()))


@pytest.mark.parametrize("values", [[0.9, 0.1], [[0.9], [0.1], [0.8]], [0.9, float("nan"), 0.8]])
def test_an_estimate_that_is_not_one_finite_number_per_pair_is_refused(values: list[float]) -> None:
    with pytest.raises(TrainingError, match=r"expected \(3,\): one finite number per training pair"):
        checked_estimate(torch.tensor(values), 3)


@given(ESTIMATES, st.integers(-3, 6))
def test_a_division_counts_wrong_pairs_as_the_definitions_say(
    pairs: list[tuple[int, bool]], threshold: int
) -> None:
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
def test_the_best_division_is_the_best_of_all_thresholds(pairs: list[tuple[int, bool]]) -> None:
    values, truth = values_and_truth(pairs)
    found = detection(values, truth, 0.5)
    assert found.best.f1 == max(division(values, truth, float(limit)).f1 for limit in values)
    assert found.own == division(values, truth, 0.5)
    assert found.auroc == separation(values, truth).auroc
    assert found.average_precision == separation(values, truth).average_precision
    assert found.average_precision_wrong == pytest.approx(separation(-values, ~truth).average_precision)


def test_precision_among_equal_estimates_is_the_expected_one() -> None:
    values = np.array([0.1] * 4 + [0.5] * 12 + [0.9] * 4, np.float32)
    truth = np.array([False] * 4 + [True, False, True] * 4 + [True] * 4)
    # the four surest finds, and six of the twelve next ones, of which a third is wrong
    assert detection(values, truth, 0.5).precision_at == {10: pytest.approx((4 + 6 / 3) / 10)}


def entry(index: int, loss: float | None, r_sum: float) -> Epoch:
    nothing = Histogram(low=0.0, high=1.0, true=(), false=())
    found = {"clean_probability": Separation(auroc=0.75, average_precision=0.75, histogram=nothing)}
    place = {
        "index": index,
        "round": 0,
        "phase": "train",
        "epoch": index,
        "steps": 0,
        "taken": (),
        "best": False,
    }
    return Epoch(**place, learning_rate=0.5, dev={"r_sum": r_sum}, loss=loss, diagnosis=found)


def read(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def write(folder: Path, *entries: Epoch) -> None:
    """What one process writes."""
    curves = Curves(folder)
    for each in entries:
        curves.write(each)
    curves.close()


def test_a_run_that_goes_back_replaces_the_epochs_from_there_on(tmp_path: Path) -> None:
    write(tmp_path, entry(0, 2.0, 100.0), entry(1, 1.5, 110.0), entry(2, 1.5, 110.0))
    write(tmp_path, entry(1, 1.0, 120.0))
    assert read(tmp_path, "loss") == [(0, 2.0), (1, 1.0)]
    assert read(tmp_path, "dev/r_sum") == [(0, 100.0), (1, 120.0)]
    assert read(tmp_path, "learning_rate") == [(0, 0.5), (1, 0.5)]
    assert read(tmp_path, "diagnosis/clean_probability_auroc") == [(0, 0.75), (1, 0.75)]


def test_an_epoch_without_a_step_has_no_loss(tmp_path: Path) -> None:
    write(tmp_path, entry(0, None, 100.0))
    with pytest.raises(KeyError):
        read(tmp_path, "loss")
    assert read(tmp_path, "dev/r_sum") == [(0, 100.0)]


def test_every_epoch_can_be_read_before_the_run_ends(tmp_path: Path) -> None:
    curves = Curves(tmp_path)
    curves.write(entry(0, 2.0, 100.0))
    assert read(tmp_path, "loss") == [(0, 2.0)]
    curves.close()


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = Curves(tmp_path)
    curves.write(entry(0, 2.0, 100.0))
    with largest_file(200):
        with pytest.raises(NclBenchError, match=r"cannot write .*: File too large; .* it resumes"):
            curves.write(entry(1, 1.5, 110.0))
        curves.close()
    assert read(tmp_path, "loss") == [(0, 2.0)]
    write(tmp_path, entry(1, 1.0, 120.0))  # what was cut short is passed over
    assert read(tmp_path, "loss") == [(0, 2.0), (1, 1.0)]


def test_a_run_with_nothing_left_to_do_writes_no_file(tmp_path: Path) -> None:
    write(tmp_path)
    assert not list(tmp_path.iterdir())
