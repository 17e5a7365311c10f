"""Plain triplet loss: the control without any robustness (VSE++, BMVC 2018, https://arxiv.org/abs/1707.05612).

``negatives: hardest`` is the loss that the robust methods fall back to on clean pairs, and the one that
collapses under noise; ``negatives: mean`` is NCR's warm-up loss used throughout. With ``warmup_epochs`` it is
SGR* of NCR's tables, and with the recipe's ``clean_only`` SGR-C.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from baselines.kit.batches import TrainingBatches
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Method, Step, stepwise


class TripletConfig(BaseModel):
    """Constants of the plain triplet control.

    Attributes:
        margin: alpha, at least 0.
        negatives: ``hardest`` in the batch, or the ``mean`` over the batch.
        warmup_epochs: epochs with the mean over negatives before the hardest.
        epochs: epochs after the warm-up.
        learning_rate: of Adam.
        lr_update: epochs between decays.
        lr_decay: factor of a decay.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    margin: Annotated[float, Field(ge=0)] = 0.2
    negatives: Literal["hardest", "mean"] = "hardest"
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    epochs: Annotated[int, Field(ge=1)] = 40
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    lr_update: Annotated[int, Field(ge=1)] = 30
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 0.1


class Triplet(Method):
    """One network, one loss."""

    name = "triplet"
    title = "Triplet"
    paper = "https://arxiv.org/abs/1707.05612"
    Config = TripletConfig
    config: TripletConfig

    @classmethod
    def title_of(cls, config: TripletConfig) -> str:
        """Which of the controls it is."""
        if config.negatives == "mean":
            return "Triplet (mean)"
        return "Triplet (warm-up, hardest)" if config.warmup_epochs else "Triplet (hardest)"

    def plan(self) -> Sequence[EpochPlan]:
        """Warm-up at constant rate, then step decay."""
        c = self.config
        warmup = [
            EpochPlan(0, epoch, "warmup", c.learning_rate, select=False) for epoch in range(c.warmup_epochs)
        ]
        rates = stepwise(c.learning_rate, c.lr_decay, c.lr_update, c.epochs)
        return warmup + [EpochPlan(0, epoch, "train", rate) for epoch, rate in enumerate(rates)]

    def make_optimizer(self, network: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """Adam, as in every paper of the family."""
        return torch.optim.Adam(network.parameters(), lr=learning_rate)

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """One pass over all pairs."""
        mean = plan.phase == "warmup" or self.config.negatives == "mean"
        loss_of = mean_triplet if mean else hardest_triplet
        network = self.networks[0].train()
        for batch in batches.shuffled("triplet"):
            step(network, loss_of(network(batch), self.config.margin).sum(), batch)
