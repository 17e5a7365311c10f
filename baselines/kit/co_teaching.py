"""Co-teaching, introduced by NCR: two networks divide the pairs into clean and noisy ones for each other.

A method provides its losses and the training of one network; it may override everything else.
"""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, ClassVar, Literal

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches, derive_seed
from baselines.kit.losses import info_nce, matching_probability
from baselines.kit.method import EpochPlan, Method, Modules, PairMemory, Setting, Step, WarmUpThenStepDecay
from baselines.kit.mixture import clean_posterior, is_clean
from baselines.kit.options import ShareBelowOne

Faults = Literal["repaired", "published"]


class CoTeaching(Method):
    """Two networks, each trained on the division that the other one makes.

    The phase ``warmup`` trains both networks on all pairs. Every later epoch first divides the pairs with both
    networks, then trains one network after the other.

    Attributes:
        clean_probability: probability that each pair is clean, one memory per network; 1 before the first division.
        divided_by: float ``(n_pairs,)``, the loss of the last division, mean over the networks; None before the first.
    """

    n_networks: ClassVar[int] = 2

    def __init__(self, config: Any, setting: Setting) -> None:
        super().__init__(config, setting)
        self.clean_probability = self.memories(initial=1.0)
        self.divided_by: Tensor | None = None

    def memories(self, *, initial: float, width: int | None = None) -> Modules[PairMemory]:
        """Create one :class:`PairMemory` per network."""
        n_pairs = self.setting.n_pairs
        return Modules(PairMemory(n_pairs, initial=initial, width=width) for _ in range(self.n_networks))

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Warm up both networks, or divide the pairs and train both."""
        if plan.phase == "warmup":
            for k in range(self.n_networks):
                for batch in batches.shuffled("warmup", k):
                    self.warmup_step(k, batch, step)
            return
        self.co_divide(plan, batches)
        for k in range(self.n_networks):
            self.train_network(k, plan, batches, step)

    @abstractmethod
    def warmup_step(self, k: int, batch: Batch, step: Step) -> None:
        """Train network k on a batch of the warm-up."""

    @abstractmethod
    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train network k for an epoch on the division of its peer, network ``1 - k``."""

    @abstractmethod
    def pair_losses(self, similarities: Tensor) -> Tensor:
        """Compute the loss that divides the pairs, float ``(B,)`` for similarities ``(B, B)``."""

    def augmented(self, batch: Batch) -> Batch:
        """What a network sees of a batch that the division measures; the batch by default."""
        return batch

    def posterior(self, losses: Tensor, seed: int) -> Tensor:
        """Compute the probability that pairs with losses ``(n,)`` are clean, ``(n,)`` in [0, 1]; by NCR's mixture."""
        return clean_posterior(losses, random_state=seed)

    @torch.no_grad()
    def co_divide(self, plan: EpochPlan, batches: TrainingBatches) -> None:
        """Store the clean probability of every pair for each network, from losses in evaluation mode."""
        # dropout and batch statistics would add noise to losses that are compared over all pairs
        self.eval()
        losses = [torch.zeros_like(memory.values) for memory in self.clean_probability]
        # negatives are those of a random batch, so the loss of a pair depends on its company; both networks
        # see the same one
        for batch in batches.covering("divide"):
            for of_network, network in zip(losses, self.networks, strict=True):
                of_network[batch.pair_ids] = self.pair_losses(network(self.augmented(batch)).similarities).to(
                    of_network
                )
        self.divided_by = torch.stack(losses).mean(dim=0)
        ids = batches.pair_ids.to(losses[0].device)
        for k, memory in enumerate(self.clean_probability):
            seed = derive_seed(batches.seed, "mixture", plan.epoch, k)
            # fitted after the pass over both, from the networks of the last epoch: Algorithm 1 divides before
            # it trains
            memory.write(ids, self.posterior(losses[k][ids], seed))

    def is_clean(self, probability: Tensor) -> Tensor:
        """Divide pairs by clean probability ``(n,)``, bool ``(n,)``; by default at ``config.clean_threshold``."""
        return is_clean(probability, self.config.clean_threshold)

    def divided_batches(
        self, k: int, batches: TrainingBatches, *, noisy: bool
    ) -> Iterator[tuple[Batch, Batch | None]]:
        """Visit the pairs that the peer of network k calls clean once.

        Args:
            k: network that is trained.
            batches: batches of the epoch.
            noisy: yield a batch of noisy pairs with each clean batch, cycling through them; None in its place if there
                are fewer than two noisy pairs.
        """
        # the peer divides: a network would take its own mistakes for clean pairs
        probability = self.clean_probability[1 - k]
        ids = batches.pair_ids.to(probability.values.device)
        clean = self.is_clean(probability.read(ids))
        others = ids[~clean] if noisy else ids[:0]
        in_turn = batches_in_turn(k, batches, ids[clean], ids[:0], others)
        return ((batch, noisy_batch) for batch, _, noisy_batch in in_turn)

    def estimates(self) -> dict[str, Tensor]:
        """Return the mean clean probability of both networks."""
        return {"clean_probability": mean_over(self.clean_probability)}

    def measurements(self) -> dict[str, Tensor]:
        """Return the loss of the last division."""
        return {} if self.divided_by is None else {"loss": self.divided_by}


class ContrastiveConfig(WarmUpThenStepDecay):
    """What the published codes of CREAM and SPS have in common.

    Attributes:
        temperature: tau of the softmax over the batch, above 0 (code: 0.07).
        clean_threshold: a network calls pairs with a probability above it clean, in [0, 1) (code: 0.5).
        noisy_from_epoch: first epoch after the warm-up with noisy batches (code: 15).
        faults: ``published`` keeps the code's faults, which the methods name at their lines.
        warmup_epochs: (code: 5).
        epochs: after the warm-up (README: 40 Flickr30K and CC152K, 20 COCO).
        learning_rate: of Adam (code: 2e-4).
        warmup_learning_rate: of Adam while warming up; ``learning_rate`` by default, as published.
        lr_update: epochs between decays, counted after the warm-up (code: 10).
        lr_decay: factor of a decay (code: 0.1).
    """

    temperature: PositiveFloat = 0.07
    clean_threshold: ShareBelowOne = 0.5
    noisy_from_epoch: NonNegativeInt = 15
    faults: Faults = "repaired"
    warmup_epochs: NonNegativeInt = 5
    lr_update: PositiveInt = 10


class ContrastiveCoTeaching(CoTeaching):
    """Co-teaching with InfoNCE in place of NCR's triplet."""

    config: ContrastiveConfig

    def warmup_step(self, k: int, batch: Batch, step: Step) -> None:
        """InfoNCE on all pairs."""
        network = self.networks[k].train()
        output = network(batch)
        step(network, (self.pair_losses(output.similarities) + output.auxiliary).mean(), batch)

    def pair_losses(self, similarities: Tensor) -> Tensor:
        """``l_i = -log r_ii - log q_ii``, ``(B,)``: the cross entropies of image and caption i, added."""
        # info_nce is the mean of both; the codes of CREAM and SPS add them
        return 2 * info_nce(similarities, self.config.temperature)

    @torch.no_grad()
    def predict(self, network: Backbone, batch: Batch) -> Tensor:
        """p of a batch in evaluation mode, ``(B,)``: how surely each pair finds itself among the batch."""
        # predictions become labels, so they are made without dropout
        return matching_probability(network.eval()(batch).similarities, self.config.temperature)


def refined_label(clean_probability: Tensor, prediction: Tensor) -> Tensor:
    """``w + (1 - w) p``, ``(B,)``: a label that trusts the given pair as far as it is clean."""
    return clean_probability + (1 - clean_probability) * prediction


def batches_in_turn(
    k: int, batches: TrainingBatches, clean_ids: Tensor, middle_ids: Tensor, noisy_ids: Tensor
) -> Iterator[tuple[Batch, Batch | None, Batch | None]]:
    """Visit the clean pairs once; every clean batch comes with a batch of each other set.

    Args:
        k: network that is trained.
        batches: batches of the epoch.
        clean_ids: int64, pairs that are visited once.
        middle_ids: int64, pairs that are visited at most once; None replaces their batch when they run out.
        noisy_ids: int64, pairs that are visited again and again.

    Yields:
        A batch of each set; None for a set with fewer than two pairs.
    """
    middle: Iterator[Batch | None] = repeat(None)
    noisy: Iterator[Batch | None] = repeat(None)
    if len(middle_ids) > 1:
        middle = chain(batches.shuffled("middle", k, pair_ids=middle_ids), middle)
    if len(noisy_ids) > 1:
        # as in NCR's code: the noisy loader starts again when it is exhausted
        noisy = batches.endless("noisy", k, pair_ids=noisy_ids)
    # the clean batches end the epoch; an endless partner does not
    return zip(batches.shuffled("clean", k, pair_ids=clean_ids), middle, noisy, strict=False)


def mean_over(memories: Modules[PairMemory]) -> Tensor:
    """Mean of the networks' memories, ``(n_pairs,)``."""
    return torch.stack([memory.values for memory in memories]).mean(dim=0)
