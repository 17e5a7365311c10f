"""How well a method's belief separates true from false pairs: joined after an epoch, never fed back."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from baselines.engine.records import Histogram, Separation
from ncl_bench.data import dataset_spec, true_correspondence
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError

BINS = 20


def hidden_correspondence(train: PairedDataset) -> NDArray[np.bool_] | None:
    """Which training pairs are true, bool ``(n_pairs,)``; None where nobody knows, or where all are."""
    if dataset_spec(train.name).noise == "natural" or train.noise.realised_ratio == 0:
        return None
    return true_correspondence(train)


def separation(estimate: Tensor, correspondence: NDArray[np.bool_]) -> Separation:
    """AUROC and average precision of an estimate against the true correspondence, and both histograms.

    Args:
        estimate: float ``(n_pairs,)``, larger means more likely a true pair.
        correspondence: bool ``(n_pairs,)``, with both values present.

    Raises:
        TrainingError: the estimate is not one finite number per pair.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    values = estimate.detach().float().cpu().numpy()
    if values.shape != correspondence.shape or not np.isfinite(values).all():
        raise TrainingError(
            f"estimates() of the method returns shape {values.shape}, expected {correspondence.shape}: "
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
