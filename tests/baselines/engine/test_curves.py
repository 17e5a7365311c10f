"""What TensorBoard reads back of a run, also after an interruption."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from baselines.engine.curves import Curves
from baselines.engine.records import Epoch, Histogram, Separation
from baselines.engine.run_folder import RunFolder


def entry(index: int, loss: float | None, r_sum: float) -> Epoch:
    nothing = Histogram(low=0.0, high=1.0, true=(), false=())
    return Epoch(
        index=index,
        round=0,
        phase="train",
        epoch=index,
        learning_rate=0.5,
        steps=0,
        dev={"r_sum": r_sum},
        best=False,
        loss=loss,
        diagnosis={"clean_probability": Separation(auroc=0.75, average_precision=0.75, histogram=nothing)},
    )


def read(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def write(folder: Path, *entries: Epoch) -> None:
    """What one process writes."""
    curves = Curves(RunFolder(folder))
    for each in entries:
        curves.write(each)
    curves.close()


def test_an_epoch_written_again_replaces_the_first_time(tmp_path: Path) -> None:
    write(tmp_path, entry(0, 2.0, 100.0), entry(1, 1.5, 110.0))
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


def test_a_run_that_goes_back_drops_the_epochs_from_there_on(tmp_path: Path) -> None:
    write(tmp_path, *(entry(index, 2.0, 100.0) for index in (0, 1, 2)))
    write(tmp_path, entry(1, 1.0, 100.0))
    assert read(tmp_path, "loss") == [(0, 2.0), (1, 1.0)]


def test_every_epoch_can_be_read_before_the_run_ends(tmp_path: Path) -> None:
    curves = Curves(RunFolder(tmp_path))
    curves.write(entry(0, 2.0, 100.0))
    assert read(tmp_path, "loss") == [(0, 2.0)]
    curves.close()


def test_a_run_with_nothing_left_to_do_writes_no_file(tmp_path: Path) -> None:
    write(tmp_path)
    assert not (tmp_path / "tensorboard").exists()
