"""Measures of an epoch: an entry of ``history.json``, the TensorBoard curves, and the diagnosis.

The diagnosis compares a method's estimates with the true correspondence, which methods never see.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from ncl_bench.data import dataset_spec, true_correspondence
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError
from ncl_bench.schema import Record

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

BINS = 20


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


class Epoch(Record):
    """One entry of ``history.json``.

    Attributes:
        index: index of the epoch in the run, from 0.
        round, phase, epoch, learning_rate: the epoch's plan entry.
        steps: number of steps of all modules since the run began.
        taken: number of steps of each network since the run began; empty in runs of earlier versions.
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
    taken: tuple[int, ...] = ()
    dev: dict[str, float]
    best: bool
    loss: float | None
    terms: dict[str, float] = Field(default_factory=dict)
    diagnosis: dict[str, Separation] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _terms_of_earlier_versions(cls, content: Any) -> Any:
        """Read files of earlier versions, which stored the terms next to the loss."""
        if not isinstance(content, dict) or "terms" in content:
            return content
        terms = {name: value for name, value in content.items() if name not in cls.model_fields}
        return {name: value for name, value in content.items() if name not in terms} | {"terms": terms}


def hidden_correspondence(train: PairedDataset) -> NDArray[np.bool_] | None:
    """Return which training pairs are true, bool ``(n_pairs,)``; None if that is unknown or all are true."""
    if dataset_spec(train.name).noise == "natural" or train.noise.realised_ratio == 0:
        return None
    return true_correspondence(train)


def separation(estimate: Tensor, correspondence: NDArray[np.bool_]) -> Separation:
    """Compute AUROC and average precision of an estimate of the true correspondence, and both histograms.

    Args:
        estimate: float ``(n_pairs,)``; larger means more likely a true pair.
        correspondence: bool ``(n_pairs,)``, with both values present.

    Raises:
        TrainingError: the estimate is not one finite number per pair.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    values = estimate.detach().float().cpu().numpy()
    if values.shape != correspondence.shape or not np.isfinite(values).all():
        raise TrainingError(
            f"estimates() of the method returned shape {values.shape}, expected {correspondence.shape}: "
            "one finite number per training pair"
        )
    edges = np.histogram_bin_edges(values, bins=BINS, range=(min(0.0, values.min()), max(1.0, values.max())))
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


class Curves:
    """Writer of one TensorBoard event file.

    Args:
        folder: folder of the event files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def write(self, entry: Epoch) -> None:
        """Add one entry of ``history.json``.

        On resuming, TensorBoard hides events of an interrupted process from the first new epoch on.

        Args:
            entry: loss (None for an epoch without a step), learning rate, dev recalls, diagnosis.
        """
        values = {"learning_rate": entry.learning_rate} | ({} if entry.loss is None else {"loss": entry.loss})
        values |= {f"dev/{name}": value for name, value in entry.dev.items()}
        values |= {f"diagnosis/{name}_auroc": found.auroc for name, found in entry.diagnosis.items()}
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=entry.index)
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, entry.index)
        self._writer.flush()

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self._writer is not None:
            self._writer.close()
