"""RCL: Cross-Modal Retrieval with Partially Mismatched Pairs. Hu et al., IEEE TPAMI 2023.

https://doi.org/10.1109/TPAMI.2023.3247939

Complementary contrastive learning: instead of "image i goes with caption i", which a false pair gets
wrong, the network learns "image i does not go with caption j", which is nearly always right. One network,
one loss, no division of the pairs.

What is certain: the probabilities p_ij, a softmax over the batch, and the complementary loss with the
tangent, ``sum_{j != i} tan(p_ij)`` in both directions; CRCL (NeurIPS 2023, section 2.2, q = 0) restates it
as the standard complementary contrastive loss. That the paper compares further functions of p, among them
``log`` and ``exp``, is known; their form here is the usual one of complementary labels (Feng et al., ICML
2020).
What is ours: the temperature is CRCL's, every other pair of the batch is a negative, and the schedule (Adam,
rate, epochs) is NCR's. Nothing was compared with the authors' code.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from baselines.batches import TrainingBatches
from baselines.method import EpochPlan, Method, Step, stepwise

Penalty = Literal["tan", "log", "exp"]
NEARLY_SURE = 1 - 1e-6


class RCLConfig(BaseModel):
    """Constants of the method.

    Attributes:
        temperature: tau, above 0 (CRCL: 0.05).
        penalty: how a negative's probability becomes a cost.
        epochs: passes over the pairs.
        learning_rate: of Adam.
        lr_update: epochs between decays.
        lr_decay: factor of a decay.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: Annotated[float, Field(gt=0)] = 0.05
    penalty: Penalty = "tan"
    epochs: Annotated[int, Field(ge=1)] = 40
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    lr_update: Annotated[int, Field(ge=1)] = 30
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 0.1


def penalised(probability: Tensor, penalty: Penalty) -> Tensor:
    """Cost of giving a negative this probability, in [0, 1]; rises with it."""
    if penalty == "tan":
        return probability.tan()
    if penalty == "log":
        return -torch.log1p(-probability.clamp(max=NEARLY_SURE))
    return (probability - 1).exp()


def complementary_contrastive(similarities: Tensor, temperature: float, penalty: Penalty = "tan") -> Tensor:
    """Cost of all negatives of each pair in both directions, ``(B,)``; the pair itself is no term."""
    logits = similarities / temperature
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    captions, images = (
        penalised(logits.softmax(dim=dim), penalty).masked_fill(own, 0).sum(dim=dim) for dim in (1, 0)
    )
    return captions + images


class RCL(Method):
    """One network, trained on negatives alone."""

    title = "RCL"
    paper = "https://doi.org/10.1109/TPAMI.2023.3247939"
    Config = RCLConfig
    config: RCLConfig

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
        c, network = self.config, self.networks[0].train()
        for batch in batches.shuffled("rcl"):
            step(network, complementary_contrastive(network(batch), c.temperature, c.penalty).mean(), batch)
