"""Two-component Gaussian mixtures over one value per pair, and the split they imply."""

import warnings

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor

from baselines.kit.distributed import from_first_rank

FloatArray = NDArray[np.floating]


def min_max_normalised(values: FloatArray) -> FloatArray:
    """Values moved and scaled to [0, 1]; constant values become 0."""
    low, high = values.min(), values.max()
    return np.zeros_like(values) if high == low else (values - low) / (high - low)


def mixture_posterior(
    values: FloatArray, *, larger_mean: bool, random_state: RandomState | int
) -> FloatArray:
    """Posterior of one component of a two-component fit (NCR Eq. 3; GSC Eq. 4).

    The ten iterations of the published code often end before convergence, so that is no reason to warn.
    Among several processes rank 0 fits, so that all divide the pairs alike.

    Args:
        values: float ``(n,)``, normalised to [0, 1]; the dtype is kept.
        larger_mean: take the component with the larger mean; otherwise the smaller.
        random_state: starts the k-means initialisation.

    Returns:
        ``(n,)`` in [0, 1], dtype of ``values``.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    def fit() -> FloatArray:
        mixture = GaussianMixture(
            n_components=2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=random_state
        )
        column = values.reshape(-1, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture.fit(column)
        means = mixture.means_.ravel()
        component = means.argmax() if larger_mean else means.argmin()
        posterior: FloatArray = mixture.predict_proba(column)[:, component]
        return posterior

    return from_first_rank(fit)


def clean_posterior(losses: Tensor, *, random_state: RandomState | int) -> Tensor:
    """Probability that each pair is clean: posterior of the low-loss component (NCR, section 3.1).

    Args:
        losses: float ``(n,)``, one loss per pair.
        random_state: starts the fit.

    Returns:
        ``(n,)`` in [0, 1] on the device of ``losses``.
    """
    normalised = min_max_normalised(losses.detach().cpu().numpy())
    posterior = mixture_posterior(normalised, larger_mean=False, random_state=random_state)
    return torch.from_numpy(posterior).to(losses)


def is_clean(probability: Tensor, threshold: float) -> Tensor:
    """The division of the pairs, bool ``(n,)``: probability above the threshold.

    If every pair exceeds the threshold, the lowest hundredth is counted as noisy all the same, so that both sides
    exist (published code). If fewer than two do, the mixture has told nothing apart, and all are clean.
    """
    if probability.min() > threshold:
        threshold = float(probability.sort().values[len(probability) // 100])
    clean = probability > threshold
    return clean if clean.sum() > 1 else torch.ones_like(clean)
