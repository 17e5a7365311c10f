"""Plain InfoNCE: the control for methods that start from a contrastive loss (CPC, https://arxiv.org/abs/1807.03748).

Every pair counts alike, so the loss trusts false pairs as much as true ones.
"""

from pydantic import PositiveFloat

from baselines.kit.batches import TrainingBatches
from baselines.kit.losses import info_nce
from baselines.kit.method import EpochPlan, Method, Step, StepDecay


class InfoNCEConfig(StepDecay):
    """Constants of the control, besides its schedule.

    Attributes:
        temperature: of the softmax over the batch, above 0.
    """

    temperature: PositiveFloat = 0.07


class InfoNCE(Method):
    """One network, one loss."""

    name = "info_nce"
    title = "InfoNCE"
    paper = "https://arxiv.org/abs/1807.03748"
    Config = InfoNCEConfig
    config: InfoNCEConfig

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train once over all pairs."""
        network = self.networks[0].train()
        for batch in batches.shuffled("info_nce"):
            output = network(batch)
            losses = info_nce(output.similarities, self.config.temperature)
            step(network, losses.mean() + output.auxiliary.mean(), batch)
