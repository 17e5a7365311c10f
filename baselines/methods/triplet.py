"""Plain triplet loss: the control without any robustness (VSE++, BMVC 2018, https://arxiv.org/abs/1707.05612).

``negatives: hardest`` is the loss that the robust methods use on clean pairs, and it collapses under noise.
``negatives: mean`` is NCR's warm-up loss throughout. With ``warmup_epochs`` it is SGR* of NCR's tables, and with the
recipe's ``clean_only`` SGR-C.
"""

from typing import Literal

from pydantic import NonNegativeFloat

from baselines.kit.batches import TrainingBatches
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Method, Step, WarmUpThenStepDecay


class TripletConfig(WarmUpThenStepDecay):
    """Constants of the plain triplet control, besides its schedule.

    Attributes:
        margin: alpha, at least 0.
        negatives: ``hardest`` in the batch, or ``mean`` over the batch. The warm-up always uses the mean.
    """

    margin: NonNegativeFloat = 0.2
    negatives: Literal["hardest", "mean"] = "hardest"


class Triplet(Method):
    """One network, one loss."""

    name = "triplet"
    title = "Triplet"
    paper = "https://arxiv.org/abs/1707.05612"
    Config = TripletConfig
    config: TripletConfig

    @classmethod
    def title_of(cls, config: TripletConfig) -> str:
        """Title; names the variant."""
        if config.negatives == "mean":
            return "Triplet (mean)"
        return "Triplet (warm-up, hardest)" if config.warmup_epochs else "Triplet (hardest)"

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train once over all pairs."""
        # hardest negatives collapse under noise, so the warm-up never has them
        mean = plan.phase == "warmup" or self.config.negatives == "mean"
        loss_of = mean_triplet if mean else hardest_triplet
        network = self.networks[0].train()
        for batch in batches.shuffled("triplet"):
            output = network(batch)
            losses = loss_of(output.similarities, self.config.margin)
            step(network, losses.sum() + output.auxiliary.mean(), batch)
