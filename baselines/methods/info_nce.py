"""Plain InfoNCE: the control for methods that start from a contrastive loss (CPC, https://arxiv.org/abs/1807.03748).

Every pair counts alike, so the loss trusts false pairs as much as true ones.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from baselines.kit.batches import TrainingBatches
from baselines.kit.losses import info_nce
from baselines.kit.method import EpochPlan, Method, Step, stepwise


class InfoNCEConfig(BaseModel):
    """Constants of the control.

    Attributes:
        temperature: of the softmax over the batch, above 0.
        epochs: passes over the pairs.
        learning_rate: of Adam.
        lr_update: epochs between decays.
        lr_decay: factor of a decay.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: Annotated[float, Field(gt=0)] = 0.07
    epochs: Annotated[int, Field(ge=1)] = 40
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    lr_update: Annotated[int, Field(ge=1)] = 30
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 0.1


class InfoNCE(Method):
    """One network, one loss."""

    name = "info_nce"
    title = "InfoNCE"
    paper = "https://arxiv.org/abs/1807.03748"
    Config = InfoNCEConfig
    config: InfoNCEConfig

    def plan(self) -> Sequence[EpochPlan]:
        """One phase with step decay."""
        c = self.config
        rates = stepwise(c.learning_rate, c.lr_decay, c.lr_update, c.epochs)
        return [EpochPlan(0, epoch, "train", rate) for epoch, rate in enumerate(rates)]

    def make_optimizer(self, network: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """Adam, as in every paper of the family."""
        return torch.optim.Adam(network.parameters(), lr=learning_rate)

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """One pass over all pairs."""
        network = self.networks[0].train()
        for batch in batches.shuffled("info_nce"):
            step(network, info_nce(network(batch), self.config.temperature).mean(), batch)
