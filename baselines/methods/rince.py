"""RINCE: Robust Contrastive Learning against Noisy Views. Chuang et al., CVPR 2022.

https://arxiv.org/abs/2201.04309

InfoNCE with an exponent: q near 0 is InfoNCE, whose gradient is largest for the worst-fitting pairs; q = 1 is a
symmetric loss, in which noisy pairs count no more than others.

The paper is about views of images. Tables of noisy correspondence contain "RINCE-SGR" (GSC, Tables 1 and 2), but its
code is not published. This is our version, so its numbers may differ.
  * lambda 0.01 and q 0.1 are the defaults of GSC's options. Temperature 0.07 is from its scripts, which set q 0.01: a
    value at which RINCE is almost InfoNCE;
  * optimiser and schedule are GSC's; one network, no warm-up;
  * lambda depends on the batch. If all similarities of a batch of B are equal, raising them together changes the loss
    by the sign of (lambda B)^q - 1. Below 1 they rise, above 1 they fall, and SGR's sigmoid saturates at 1 or 0,
    without gradient, before a slow network has learned. With lambda = 1 / B, as on pictograms, they do neither.
"""

import math

from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from baselines.kit.batches import TrainingBatches
from baselines.kit.method import EpochPlan, Method, Step, StepDecay
from baselines.kit.options import ShareAboveZero


class RINCEConfig(StepDecay):
    """Every constant of the paper, in its order.

    Attributes:
        exponent: q, in (0, 1] (GSC's options: 0.1).
        density_weight: lambda, weight of the sum over all candidates, in (0, 1] (GSC's options: 0.01).
        temperature: temperature of the similarities, above 0 (GSC's scripts: 0.07).
        epochs: passes over the pairs (GSC's code: 60).
        learning_rate: learning rate of Adam (GSC: 2e-4).
        lr_update: epochs between decays (GSC: 15).
        lr_decay: factor of a decay (GSC: 0.2).
    """

    exponent: ShareAboveZero = 0.1
    density_weight: ShareAboveZero = 0.01
    temperature: PositiveFloat = 0.07
    epochs: PositiveInt = 60
    lr_update: PositiveInt = 15
    lr_decay: ShareAboveZero = 0.2


def robust_info_nce(own: Tensor, candidates: Tensor, exponent: float, density_weight: float) -> Tensor:
    """``(-exp(q own) + (lambda sum exp(candidates))^q) / q`` per query, ``(n,)``; it may be negative.

    Args:
        own: float ``(n,)``, similarity with the match, divided by the temperature.
        candidates: float ``(n, m)``, likewise with every candidate, including the match.
        exponent: q.
        density_weight: lambda.
    """
    # log(lambda sum exp), so that the sum itself never overflows
    density = candidates.logsumexp(dim=1) + math.log(density_weight)
    # the published loss: the match stands in the sum too
    return ((exponent * density).exp() - (exponent * own).exp()) / exponent


class RINCE(Method):
    """One network, one loss."""

    name = "rince"
    title = "RINCE"
    paper = "https://arxiv.org/abs/2201.04309"
    Config = RINCEConfig
    config: RINCEConfig

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train once over all pairs."""
        c, network = self.config, self.networks[0].train()
        for batch in batches.shuffled("train"):
            output = network(batch)
            # unchanged: those of SGR after its sigmoid
            logits = output.similarities / c.temperature
            image_losses, caption_losses = (
                robust_info_nce(logits.diagonal(), candidates, c.exponent, c.density_weight)
                for candidates in (logits, logits.T)
            )
            step(network, (image_losses + caption_losses).mean() / 2 + output.auxiliary.mean(), batch)
