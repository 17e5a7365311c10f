"""Measures of an epoch: an entry of ``history.json``, the TensorBoard curves, and the diagnosis.

The diagnosis compares a method's estimates with the true correspondence, which methods never see.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from ncl_bench.data import dataset_spec, true_correspondence
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import NclBenchError, TrainingError
from ncl_bench.schema import Record

SEPARATION_BINS = 20
FIRST_PAIRS = (10, 50, 100, 200, 500, 1_000, 5_000, 10_000)


class Histogram(Record):
    """Counts of true and false pairs in equal bins from ``low`` to ``high``."""

    low: float
    high: float
    true: tuple[int, ...]
    false: tuple[int, ...]


class Separation(Record):
    """How well an estimate separates true from false pairs; both measures lie in [0, 1]."""

    auroc: float
    average_precision: float
    histogram: Histogram


class Division(Record):
    """Pairs called wrong where an estimate is at most ``threshold``, held against the truth.

    The wrong pair is the positive one. All measures lie in [0, 1]; precision is 0 where no pair is called wrong.
    """

    threshold: float
    accuracy: float
    precision: float
    recall: float
    f1: float


class Detection(Record):
    """How well an estimate finds the wrong pairs.

    Attributes:
        n_pairs: pairs with an estimate.
        n_wrong: those whose image is not their own.
        own: the division at the method's own threshold; None if it has none.
        best: the division with the largest F1.
        auroc: of true against wrong pairs.
        average_precision: the true pair is the positive one, as in :class:`Separation`.
        average_precision_wrong: the wrong pair is the positive one.
        precision_at: number of most suspicious pairs to the share of them that is wrong; of equal estimates, the
            expected share.
    """

    n_pairs: int
    n_wrong: int
    own: Division | None
    best: Division
    auroc: float
    average_precision: float
    average_precision_wrong: float
    precision_at: dict[int, float]


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
        diagnosis: separation of each estimate; empty if the truth is unknown or there is no noise.
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
    diagnosis: dict[str, Separation] = Field(default_factory=dict)


def hidden_correspondence(train: PairedDataset) -> NDArray[np.bool_] | None:
    """Return which training pairs are true, bool ``(n_pairs,)``; None if that is unknown or all are true."""
    if dataset_spec(train.name).noise == "natural" or train.noise.realised_ratio == 0:
        return None
    return true_correspondence(train)


def checked_estimate(estimate: Tensor, n_pairs: int) -> NDArray[np.float32]:
    """One of a method's estimates as float32 ``(n_pairs,)``."""
    values: NDArray[np.float32] = estimate.detach().float().cpu().numpy()
    if values.shape != (n_pairs,) or not np.isfinite(values).all():
        raise TrainingError(
            f"estimates() of the method returned shape {values.shape}, expected ({n_pairs},): "
            "one finite number per training pair"
        )
    return values


def separation(values: NDArray[np.float32], correspondence: NDArray[np.bool_]) -> Separation:
    """AUROC and average precision of an estimate against the true correspondence, and both histograms.

    Args:
        values: float32 ``(n_pairs,)``, larger means more likely a true pair.
        correspondence: bool ``(n_pairs,)``, with both values present.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    # probabilities fill 0 to 1; other estimates, such as losses, widen the range
    edges = np.histogram_bin_edges(
        values, bins=SEPARATION_BINS, range=(min(0.0, values.min()), max(1.0, values.max()))
    )
    return Separation(
        auroc=float(roc_auc_score(correspondence, values)),
        average_precision=float(average_precision_score(correspondence, values)),
        histogram=Histogram(
            low=float(edges[0]),
            high=float(edges[-1]),
            true=np.histogram(values[correspondence], bins=edges)[0].tolist(),
            false=np.histogram(values[~correspondence], bins=edges)[0].tolist(),
        ),
    )


def detection(
    values: NDArray[np.float32], correspondence: NDArray[np.bool_], threshold: float | None
) -> Detection:
    """Measure how well an estimate finds the wrong pairs.

    Args:
        values: float32 ``(n_pairs,)``, larger means more likely a true pair.
        correspondence: bool ``(n_pairs,)``, with both values present.
        threshold: the method's own; a pair is called clean above it; None if it has none.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    order = np.argsort(values, kind="stable")
    # a threshold cannot separate equal estimates, so only the last pair of each group is a candidate
    ascending = values[order]
    last = np.flatnonzero(np.append(ascending[1:] != ascending[:-1], True))  # of the pairs with one estimate
    called = last + 1
    found = np.cumsum(~correspondence[order])[last]
    n, n_wrong = len(values), int(found[-1])
    # F1 of calling the `called` lowest pairs wrong, for every threshold at once
    best = int((2 * found / (called + n_wrong)).argmax())
    ranks = np.array([k for k in FIRST_PAIRS if k <= n])
    # between two groups of equal estimates, as many are expected to be wrong as a straight line says
    expected = np.interp(ranks, np.append(0, called), np.append(0, found))
    return Detection(
        n_pairs=n,
        n_wrong=n_wrong,
        own=None if threshold is None else division(values, correspondence, threshold),
        best=division(values, correspondence, float(ascending[last[best]])),
        auroc=float(roc_auc_score(correspondence, values)),
        average_precision=float(average_precision_score(correspondence, values)),
        average_precision_wrong=float(average_precision_score(~correspondence, -values)),
        precision_at=dict(zip(ranks.tolist(), (expected / ranks).tolist(), strict=True)),
    )


def division(values: NDArray[np.float32], correspondence: NDArray[np.bool_], threshold: float) -> Division:
    """Call the pairs wrong whose estimate is at most the threshold, and count how many are."""
    called, wrong = values <= threshold, ~correspondence
    found = int((called & wrong).sum())
    return Division(
        threshold=threshold,
        accuracy=float((called == wrong).mean()),
        precision=found / max(1, int(called.sum())),
        recall=found / int(wrong.sum()),
        f1=2 * found / (int(called.sum()) + int(wrong.sum())),
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
        values |= {f"diagnosis/{name}_auroc": found.auroc for name, found in entry.diagnosis.items()}
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=x) for tag, x in values.items()])
        events = [Event(wall_time=time.time(), step=entry.index, summary=summary)]
        if self._file is None:
            begun = SessionLog(status=SessionLog.START)
            events[:0] = [Event(file_version="brain.Event:2"), Event(step=entry.index, session_log=begun)]
        try:
            self._file = self._file or self._opened()
            records = RecordWriter(self._file)
            for event in events:
                records.write(event.SerializeToString())
            records.flush()
        except OSError as error:
            raise NclBenchError(
                f"cannot write {self._folder}: {error.strerror}; fix that and run the same command again, it resumes"
            ) from error

    def _opened(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        seconds, rest = divmod(time.time_ns(), 10**9)  # TensorBoard reads files in the order of their names
        return (self._folder / f"events.out.tfevents.{seconds:010d}.{rest:09d}.{os.getpid()}").open("xb")

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self._file is not None:
            with suppress(OSError):  # what write could not do was said there
                self._file.close()
