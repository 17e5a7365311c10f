"""Fine-tuning of a network that already tells pairs apart, as papers on CLIP do it.

AdamW, a learning rate that rises and then falls along a cosine, and CLIP's own loss, whose scale is trained. A backbone
without pre-trained weights trains on all pairs first; a method on such a backbone is a transfer, and its title says so.
"""

import math
from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.losses import info_nce
from baselines.kit.method import EpochPlan, Method, Setting, Step, adamw, cosine_rate
from baselines.kit.options import Options, ShareBelowOne


class FineTuningConfig(Options):
    """Schedule and optimiser.

    Attributes:
        epochs: of the phase ``train``.
        learning_rate: the largest one.
        rising_steps: steps over which the rate rises to it; papers call them warm-up steps.
        betas: of AdamW.
        eps: of AdamW.
        weight_decay: of AdamW, on every weight.
        temperature: of the softmax over the batch, for a backbone without a scale of its own.
        warmup_epochs: passes over all pairs before, for a network without pre-trained weights.
        warmup_learning_rate: of these passes; ``learning_rate`` by default.
        faults: ``published`` keeps what the published code does against its paper.
    """

    epochs: PositiveInt = 5
    learning_rate: PositiveFloat = 1e-5
    rising_steps: NonNegativeInt = 500
    betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.98)
    eps: PositiveFloat = 1e-6
    weight_decay: NonNegativeFloat = 0.2
    temperature: PositiveFloat = 0.07
    warmup_epochs: NonNegativeInt = 0
    warmup_learning_rate: PositiveFloat | None = None
    faults: Literal["repaired", "published"] = "repaired"

    def plan(self) -> list[EpochPlan]:
        """Every epoch, with the cosine's rate at its start; steps of the phase ``train`` have rates of their own."""
        rate = self.warmup_learning_rate or self.learning_rate
        warmup = [EpochPlan(0, epoch, "warmup", rate, select=False) for epoch in range(self.warmup_epochs)]
        rates = [cosine_rate(self.learning_rate, epoch, self.epochs) for epoch in range(self.epochs)]
        return warmup + [EpochPlan(0, epoch, "train", rate) for epoch, rate in enumerate(rates)]


class FineTuning(Method):
    """One network that begins pre-trained, or warmed up with InfoNCE on all pairs.

    Attributes:
        prepared: bool scalar, whether :meth:`prepare` has looked at the network that training begins with.
    """

    needs_cosines: ClassVar[bool] = True
    config: FineTuningConfig
    prepared: Tensor

    def __init__(self, config: FineTuningConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.register_buffer("prepared", torch.tensor(False))

    @classmethod
    def title_of(cls, config: FineTuningConfig) -> str:
        """Says where the network was warmed up in place of pre-training, and where the code's faults are kept."""
        notes = ["after a warm-up"] * (config.warmup_epochs > 0)
        notes += ["the code's faults"] * (config.faults == "published")
        return f"{cls.title} ({', '.join(notes)})" if notes else cls.title

    def make_network(self) -> Backbone:
        """A network whose scale is trained, where it has one."""
        network = super().make_network()
        if network.logit_scale is not None:
            # CLIP trains its temperature; backbones hold it unless a method lets it go
            network.logit_scale.requires_grad_(True)
        return network

    def make_optimizer(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """AdamW over every weight: biases, norms and the scale decay too."""
        c = self.config
        return adamw(module, learning_rate, betas=c.betas, eps=c.eps, weight_decay=c.weight_decay)

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """One pass over all pairs; the first one after the warm-up looks at the network before."""
        if plan.phase == "warmup":
            for batch in batches.shuffled("warmup"):
                self.warmup_step(batch, step)
            return
        # once, before the first step, and saved, so a resumed run does not look again at a network that has
        # moved
        if not self.prepared:
            self.prepare(batches)
            self.prepared.fill_(True)
        for number, batch in enumerate(batches.shuffled("train")):
            self.train_step(batch, self.rate(plan, number, batches), batches, step)

    def warmup_step(self, batch: Batch, step: Step) -> None:
        """InfoNCE on all pairs."""
        network = self.networks[0].train()
        output = network(batch)
        step(network, (self.pair_losses(network, output.similarities) + output.auxiliary).mean(), batch)

    @abstractmethod
    def prepare(self, batches: TrainingBatches) -> None:
        """Measure every pair with the network that training begins with."""

    @abstractmethod
    def train_step(self, batch: Batch, rate: float, batches: TrainingBatches, step: Step) -> None:
        """Train on a batch, with this learning rate."""

    def rate(self, plan: EpochPlan, number: int, batches: TrainingBatches) -> float:
        """Learning rate of a batch of an epoch.

        Args:
            plan: of the phase ``train``.
            number: of the batch, from 0.
            batches: of the epoch.
        """
        c, n_pairs = self.config, len(batches.pair_ids)
        # fault of the code: it moves by a batch within an epoch and by as many steps as there are pairs
        # between epochs, so its rate is nearly constant within one
        steps = n_pairs if c.faults == "published" else math.ceil(n_pairs / batches.batch_size)
        return cosine_rate(c.learning_rate, steps * plan.epoch + number, steps * c.epochs, c.rising_steps)

    def logits(self, network: Backbone, cosines: Tensor) -> Tensor:
        """S, the scaled cosines, ``(B, B)``; given pairs on the diagonal."""
        scale = network.logit_scale
        # a backbone without a scale of its own keeps a fixed temperature
        return cosines / self.config.temperature if scale is None else cosines * scale.exp()

    def pair_losses(self, network: Backbone, cosines: Tensor) -> Tensor:
        """CLIP's loss of each pair, ``(B,)``: the mean of both directions' cross entropies."""
        return info_nce(self.logits(network, cosines), 1.0)
