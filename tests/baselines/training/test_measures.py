"""The diagnosis of an estimate, and what TensorBoard reads back of a run."""

import numpy as np
import pytest
import torch
from support.full_disk import largest_file
from support.refusals import refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from baselines.training.measures import (
    SEPARATION_BINS,
    Curves,
    Diagnosis,
    Epoch,
    Histogram,
    checked_estimate,
    diagnose,
)
from ncl_bench.errors import TrainingError


def test_a_histogram_counts_every_pair_and_widens_to_values_outside_0_to_1():
    values, truth = np.array([-0.5, 0.1, 0.9, 1.75], np.float32), np.array([False, False, True, True])
    bins = diagnose(values, truth).histogram
    assert len(bins.true) == len(bins.false) == SEPARATION_BINS
    assert (sum(bins.true), sum(bins.false)) == (2, 2)
    assert (bins.low, bins.high) == (-0.5, 1.75)
    inside = diagnose(values[1:3], truth[1:3]).histogram
    assert (inside.low, inside.high) == (0.0, 1.0)
    assert tuple(diagnose(values, truth).model_dump()) == ("auroc", "average_precision", "histogram")


@pytest.mark.parametrize("values", [[0.9, 0.1], [[0.9], [0.1], [0.8]], [0.9, float("nan"), 0.8]])
def test_an_estimate_that_is_not_one_finite_number_per_pair_is_refused(values):
    with refused(TrainingError):
        checked_estimate(torch.tensor(values), 3)


def entry(index, loss, r_sum):
    nothing = Histogram(low=0.0, high=1.0, true=(), false=())
    found = {"clean_probability": Diagnosis(auroc=0.75, average_precision=0.75, histogram=nothing)}
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


def read(folder, name):
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def write(folder, *entries):
    """What one process writes."""
    curves = Curves(folder)
    for each in entries:
        curves.write(each)
    curves.close()


def test_a_run_that_goes_back_replaces_the_epochs_from_there_on(tmp_path):
    write(tmp_path, entry(0, 2.0, 100.0), entry(1, 1.5, 110.0), entry(2, 1.5, 110.0))
    write(tmp_path, entry(1, 1.0, 120.0))
    assert read(tmp_path, "loss") == [(0, 2.0), (1, 1.0)]
    assert read(tmp_path, "dev/r_sum") == [(0, 100.0), (1, 120.0)]
    assert read(tmp_path, "learning_rate") == [(0, 0.5), (1, 0.5)]
    assert read(tmp_path, "diagnosis/clean_probability_auroc") == [(0, 0.75), (1, 0.75)]


def test_an_epoch_without_a_step_has_no_loss(tmp_path):
    write(tmp_path, entry(0, None, 100.0))
    with pytest.raises(KeyError):
        read(tmp_path, "loss")
    assert read(tmp_path, "dev/r_sum") == [(0, 100.0)]


def test_every_epoch_can_be_read_before_the_run_ends(tmp_path):
    curves = Curves(tmp_path)
    curves.write(entry(0, 2.0, 100.0))
    assert read(tmp_path, "loss") == [(0, 2.0)]
    curves.close()


def test_what_a_full_disk_cut_short_is_passed_over(tmp_path):
    curves = Curves(tmp_path)
    curves.write(entry(0, 2.0, 100.0))
    with largest_file(200):
        with pytest.raises(OSError, match="File too large"):
            curves.write(entry(1, 1.5, 110.0))
        curves.close()
    assert read(tmp_path, "loss") == [(0, 2.0)]
    write(tmp_path, entry(1, 1.0, 120.0))
    assert read(tmp_path, "loss") == [(0, 2.0), (1, 1.0)]


def test_a_run_with_nothing_left_to_do_writes_no_file(tmp_path):
    write(tmp_path)
    assert not list(tmp_path.iterdir())
