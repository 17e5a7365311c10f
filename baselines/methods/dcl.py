"""DCL, a loss for one network that divides every batch by itself.

Information Fusion 2026. https://github.com/hxy2969/dcl

No memory, no second network and no division of the training set: a beta mixture over the losses of a batch says which
of its pairs are clean. Clean pairs are pulled together. Everything else in the batch, the given pairs that are not
clean included, is only pushed apart (complementary learning).

We follow the published code; the paper's text was not available, so equations have no numbers here. Deviations, each at
its line:
  * the code's schedule (see :meth:`baselines.kit.fine_tuning.FineTuning.rate`); ``faults: published`` keeps it;
  * an incomplete batch is kept, unless it has one pair;
  * dev chooses the epoch by rSum, not by the mean R@1;
  * backbones without pre-trained weights (none published) may warm up with InfoNCE first.

The posterior does not fall as the loss grows, and we keep it so. The log counts both effects of every batch:
``surest_refused``, the pair with the least loss is not clean, and ``worst_trusted``, the pair with the greatest is.
"""

from typing import ClassVar

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.fine_tuning import FineTuning, FineTuningConfig
from baselines.kit.method import Method, PairMemory, Setting, Step
from baselines.kit.options import ShareBelowOne

AWAY_FROM_ZERO = 1e-6
DENSITY_FLOOR = 1e-12
UNIT_EDGE = 1e-12
MIXTURE_UPDATES = 10


class DCLConfig(FineTuningConfig):
    """Every constant of the published code.

    Attributes:
        temperature: tau of the softmax over the batch, above 0 (code: 0.05).
        clean_threshold: pairs with a posterior above it are clean, in [0, 1) (code: 0.5).
        clean_weight: b1, of the clean pairs, at least 0 (code: 1; script for Flickr30K at 40 %: 0.2).
        complementary_weight: b2, of everything else, at least 0 (code: 1; script: 128).
        mixture: False pushes the negatives apart and uses no given pair (the code's option ``--bmm``).
        learning_rate: largest rate of AdamW (code: 1e-6).
        faults: ``published`` keeps the code's schedule, whose steps are pairs in place of batches.
    """

    temperature: PositiveFloat = 0.05
    clean_threshold: ShareBelowOne = 0.5
    clean_weight: NonNegativeFloat = 1.0
    complementary_weight: NonNegativeFloat = 1.0
    mixture: bool = True
    learning_rate: PositiveFloat = 1e-6


def matching(similarities: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """p and q ``(B, B)``: probability of caption j for image i, and of image i for caption j."""
    weights = (similarities / temperature).exp()
    return (
        weights / (weights.sum(dim=1, keepdim=True) + AWAY_FROM_ZERO),
        weights / (weights.sum(dim=0, keepdim=True) + AWAY_FROM_ZERO),
    )


def pair_losses(p: Tensor, q: Tensor) -> Tensor:
    """``l_i = -log p_ii - log q_ii``, ``(B,)``."""
    return -(p.diagonal() + AWAY_FROM_ZERO).log() - (q.diagonal() + AWAY_FROM_ZERO).log()


def complements(p: Tensor, q: Tensor) -> Tensor:
    """``-log(1 - p_ij) - log(1 - q_ij)``, ``(B, B)``: what i and j are not to each other."""
    return -(1 - p + AWAY_FROM_ZERO).log() - (1 - q + AWAY_FROM_ZERO).log()


def densities(values: Tensor, components: Tensor, weights: Tensor) -> Tensor:
    """Weighted beta densities ``(B, 2)`` of values in [0, 1]; infinite at an end, NaN if a parameter is not positive.

    Args:
        values: float64 ``(B,)``.
        components: ``(2, 2)``, alpha and beta of each component.
        weights: ``(2,)``.
    """
    alpha, beta = components.where(components > 0, torch.nan).T
    x = values[:, None]
    logarithm = torch.xlogy(alpha - 1, x) + torch.special.xlog1py(beta - 1, -x)
    constant = torch.lgamma(alpha + beta) - torch.lgamma(alpha) - torch.lgamma(beta)
    weighted: Tensor = weights * (logarithm + constant).exp()
    return weighted


def fitted(values: Tensor, updates: int = MIXTURE_UPDATES) -> tuple[Tensor, Tensor]:
    """Two beta distributions after ten updates by moments: parameters ``(2, 2)`` and weights ``(2,)``.

    Unlike :func:`baselines.kit.mixture.fitted_for`, a mixture that collapses goes on as NaN, as in the code: the batch
    then has no clean pair.
    """
    x = values.clamp(UNIT_EDGE, 1 - UNIT_EDGE)
    # (1, 2) for small losses and (2, 1) for large ones, made on the device: a list would be uploaded at every step
    components = 2 - torch.eye(2, dtype=values.dtype, device=values.device)
    weights = values.new_full((2,), 0.5)
    for _ in range(updates):
        shares = densities(x, components, weights).clamp(min=DENSITY_FLOOR)
        shares = shares / shares.sum(dim=1, keepdim=True)
        total = shares.sum(dim=0)
        mean = (shares * x[:, None]).sum(dim=0) / total
        variance = (shares * (x[:, None] - mean).square()).sum(dim=0) / total
        alpha = mean * (mean * (1 - mean) / variance - 1)
        components = torch.stack([alpha, alpha * (1 - mean) / mean], dim=1)
        weights = total / total.sum()
    return components, weights


def clean_posterior(losses: Tensor) -> Tensor:
    """Probability that each pair of the batch is clean, float64 ``(B,)``."""
    x = losses - losses.min()
    x = x / x.max()  # NaN if all losses are equal
    both = densities(x, *fitted(x))
    # the ends, which the fit avoids, are evaluated as they are. Where a density is infinite the posterior is NaN, and
    # counts as 1: this is how the pair with the greatest loss becomes clean. Where component 1 alone is infinite, at
    # a loss of 0, the pair with the least loss is refused
    return (both[:, 0] / (both.sum(dim=1) + DENSITY_FLOOR)).nan_to_num(nan=1.0)


def threshold_of(posterior: Tensor, threshold: float) -> Tensor:
    """Threshold of a batch, scalar: the lowest hundredth is not clean if the whole batch would be."""
    ordered = posterior.sort().values
    # whatever is tied with this value is not clean either, so a batch of equal losses has no clean pair
    return torch.where(ordered[0] > threshold, ordered[len(ordered) // 100], threshold)


def loss_terms(p: Tensor, q: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
    """Mean loss of the clean pairs, and mean complement of everything else, scalars; 0 without clean pairs."""
    n, n_clean = len(clean), clean.sum()
    of_clean = (clean * pair_losses(p, q)).sum() / n_clean.clamp(min=1)
    rest = complements(p, q).masked_fill(clean.diag(), 0)
    return of_clean, rest.sum() / (n * (n - 1) + n - n_clean)


def negatives_alone(p: Tensor, q: Tensor) -> Tensor:
    """Complements of each pair with the others of the batch, summed, ``(B,)``."""
    own = torch.eye(len(p), dtype=torch.bool, device=p.device)
    return complements(p, q).masked_fill(own, 0).sum(dim=1)


class DCL(FineTuning):
    """One network, under a loss that divides each batch by itself.

    Attributes:
        clean_probability: posterior of each pair at its last visit; 1 before.
    """

    name = "dcl"
    title = "DCL"
    paper = "https://github.com/hxy2969/dcl"
    needs_cosines: ClassVar[bool] = False
    Config = DCLConfig
    config: DCLConfig

    def __init__(self, config: DCLConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.clean_probability = PairMemory(setting.n_pairs, initial=1.0)

    def make_network(self) -> Backbone:
        """A network whose scale stays: the temperature of the loss is fixed."""
        return Method.make_network(self)

    def logits(self, network: Backbone, cosines: Tensor) -> Tensor:
        """S / tau, of the warm-up, ``(B, B)``."""
        return cosines / self.config.temperature

    def prepare(self, batches: TrainingBatches) -> None:
        """Nothing: every batch is divided anew."""

    def train_step(self, batch: Batch, rate: float, batches: TrainingBatches, step: Step) -> None:
        """Divide the batch and take a step on both parts."""
        c, network = self.config, self.networks[0].train()
        output = network(batch)
        s = output.similarities
        # in float32 the fit could not keep off 1, and every batch would collapse
        p, q = matching(s.double(), c.temperature)
        if not c.mixture:
            loss = negatives_alone(p, q).mean().to(s) + output.auxiliary.mean()
            step(network, loss, batch, learning_rate=rate)
            return
        losses = pair_losses(p, q).detach()
        posterior = clean_posterior(losses)
        clean = posterior > threshold_of(posterior, c.clean_threshold)
        self.clean_probability.write(batch.pair_ids, posterior)
        of_clean, of_rest = loss_terms(p, q, clean)
        loss = (c.clean_weight * of_clean + c.complementary_weight * of_rest).to(s)
        step(
            network,
            loss + (clean * output.auxiliary).mean(),
            batch,
            learning_rate=rate,
            clean_pairs=of_clean.to(s),
            complement=of_rest.to(s),
            clean_share=clean.to(s).mean(),
            surest_refused=1 - clean.take(losses.argmin()).to(s),
            worst_trusted=clean.take(losses.argmax()).to(s),
        )

    def estimates(self) -> dict[str, Tensor]:
        """Posterior of each pair at its last visit."""
        return {"clean_probability": self.clean_probability.values}
