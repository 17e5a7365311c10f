"""Measures of an epoch: an entry of ``history.json``, the TensorBoard curves, and the diagnosis.

The diagnosis compares a method's estimates with the true correspondence, which methods never see.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from pydantic import Field
from torch import Tensor

from ncl_bench.errors import TrainingError
from ncl_bench.evaluation.detection import Separation, separation
from ncl_bench.npy import BoolArray, Float32Array
from ncl_bench.schema import Record

SEPARATION_BINS = 20


class Histogram(Record):
    """Counts of true and false pairs in equal bins from ``low`` to ``high``."""

    low: float
    high: float
    true: tuple[int, ...]
    false: tuple[int, ...]


class Diagnosis(Separation):
    """How well an estimate separates true from wrong pairs, and how it is distributed over both."""

    histogram: Histogram


class Epoch(Record):
    """One entry of ``history.json``.

    Attributes:
        index: index of the epoch in the run, from 0.
        round, phase, epoch, learning_rate: the epoch's plan entry.
        steps: number of steps of all modules since the run began.
        taken: number of steps of each network since the run began.
        dev: recalls and ``r_sum`` on dev.
        best: whether it was the best epoch so far on dev; reset when a plan entry forgets earlier epochs.
        loss: mean loss over the epoch's steps; None for an epoch without a step.
        terms: means of the named terms of the loss.
        diagnosis: of each estimate; empty if the truth is unknown or there is no noise.
    """

    index: int
    round: int
    phase: str
    epoch: int
    learning_rate: float
    steps: int
    taken: tuple[int, ...]
    dev: dict[str, float]
    best: bool
    loss: float | None
    terms: dict[str, float] = Field(default_factory=dict)
    diagnosis: dict[str, Diagnosis] = Field(default_factory=dict)


def checked_estimate(estimate: Tensor, n_pairs: int) -> Float32Array:
    """One of a method's estimates as float32 ``(n_pairs,)``."""
    values: Float32Array = estimate.detach().float().cpu().numpy()
    # methods of users write estimates too
    if values.shape != (n_pairs,) or not np.isfinite(values).all():
        raise TrainingError(
            f"estimates() of the method returned shape {values.shape}, expected ({n_pairs},): "
            "one finite number per training pair"
        )
    return values


def diagnose(values: Float32Array, correspondence: BoolArray) -> Diagnosis:
    """Compare an estimate with the true correspondence.

    Args:
        values: float32 ``(n_pairs,)``, larger means more likely a true pair.
        correspondence: bool ``(n_pairs,)``, with both values present.
    """
    # probabilities fill 0 to 1; other estimates, such as losses, widen the range
    edges = np.histogram_bin_edges(
        values, bins=SEPARATION_BINS, range=(min(0.0, values.min()), max(1.0, values.max()))
    )
    return Diagnosis(
        **separation(values, correspondence).model_dump(),
        histogram=Histogram(
            low=float(edges[0]),
            high=float(edges[-1]),
            true=np.histogram(values[correspondence], bins=edges)[0].tolist(),
            false=np.histogram(values[~correspondence], bins=edges)[0].tolist(),
        ),
    )


class Curves:
    """Writer of one TensorBoard event file, without the thread of TensorBoard's own writer, which no caller can catch.

    Args:
        folder: folder of the event files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None

    def write(self, entry: Epoch) -> None:
        """Add one entry of ``history.json``.

        On resuming, TensorBoard hides events of an interrupted process from the first new epoch on.

        Args:
            entry: loss (None for an epoch without a step), learning rate, dev recalls, diagnosis.
        """
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        values = {"learning_rate": entry.learning_rate} | ({} if entry.loss is None else {"loss": entry.loss})
        values |= {f"dev/{name}": value for name, value in entry.dev.items()}
        values |= {
            f"diagnosis/{name}_auroc": separation.auroc for name, separation in entry.diagnosis.items()
        }
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=x) for tag, x in values.items()])
        events = [Event(wall_time=time.time(), step=entry.index, summary=summary)]
        if self._file is None:
            begun = SessionLog(status=SessionLog.START)
            events[:0] = [Event(file_version="brain.Event:2"), Event(step=entry.index, session_log=begun)]
        self._file = self._file or self._opened()
        records = RecordWriter(self._file)
        for event in events:
            records.write(event.SerializeToString())
        records.flush()

    def _opened(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        seconds, rest = divmod(time.time_ns(), 10**9)  # TensorBoard reads files in the order of their names
        return (self._folder / f"events.out.tfevents.{seconds:010d}.{rest:09d}.{os.getpid()}").open("xb")

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self._file is not None:
            with suppress(OSError):  # what write could not do was said there
                self._file.close()
