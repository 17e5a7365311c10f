"""Two networks that divide the pairs for each other, as NCR introduced it.

A method gives the frame its losses and its way of training one network; what the frame does, it may override.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.method import EpochPlan, Method, Setting, Step
from baselines.kit.mixture import clean_posterior, is_clean
from baselines.kit.pair_memory import PairMemory
from baselines.kit.randomness import derive_seed


class CoTeaching(Method):
    """Two networks, each trained on the division that the other one makes.

    The phase ``warmup`` trains both networks on all pairs. Every other epoch divides the pairs by both networks, then
    trains one network after the other.

    Attributes:
        clean_probability: of each network, the probability of every pair to be clean; 1 before the first division.
    """

    n_networks: ClassVar[int] = 2

    def __init__(self, config: Any, setting: Setting) -> None:
        super().__init__(config, setting)
        self.clean_probability = self.memories(initial=1.0)

    def memories(self, *, initial: float, width: int | None = None) -> Sequence[PairMemory]:
        """One :class:`PairMemory` for each network."""
        n_pairs = self.setting.n_pairs
        memories = (PairMemory(n_pairs, initial=initial, width=width) for _ in range(self.n_networks))
        return cast(Sequence[PairMemory], nn.ModuleList(memories))

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
        """Loss of each pair that the division compares, float ``(B,)`` for similarities ``(B, B)``."""

    def posterior(self, losses: Tensor, seed: int) -> Tensor:
        """Probability of pairs with these losses ``(n,)`` to be clean, ``(n,)`` in [0, 1]; NCR's mixture by default."""
        return clean_posterior(losses, random_state=seed)

    @torch.no_grad()
    def co_divide(self, plan: EpochPlan, batches: TrainingBatches) -> None:
        """Store the clean probability of every pair under either network, from losses in evaluation mode."""
        self.eval()
        losses = [torch.zeros_like(memory.values) for memory in self.clean_probability]
        for batch in batches.covering("divide"):
            for of_network, network in zip(losses, self.networks, strict=True):
                of_network[batch.pair_ids] = self.pair_losses(network(batch)).to(of_network)
        ids = batches.pair_ids.to(losses[0].device)
        for k, memory in enumerate(self.clean_probability):
            seed = derive_seed(batches.seed, "mixture", plan.epoch, k)
            memory.write(ids, self.posterior(losses[k][ids], seed))

    def is_clean(self, probability: Tensor) -> Tensor:
        """The division by clean probabilities ``(n,)``, bool ``(n,)``; ``config.clean_threshold`` by default."""
        return is_clean(probability, self.config.clean_threshold)

    def divided_batches(
        self, k: int, batches: TrainingBatches, *, noisy: bool
    ) -> Iterator[tuple[Batch, Batch | None]]:
        """One pass of network k over the pairs that its peer calls clean.

        Args:
            k: the network that is trained.
            batches: of the epoch.
            noisy: give a batch of the other pairs with each clean one, again and again; None stands for it where there
                are fewer than two such pairs.
        """
        probability = self.clean_probability[1 - k]
        ids = batches.pair_ids.to(probability.values.device)
        clean = self.is_clean(probability.read(ids))
        others = ids[~clean] if noisy else ids[:0]
        in_turn = batches_in_turn(k, batches, ids[clean], ids[:0], others)
        return ((batch, noisy_batch) for batch, _, noisy_batch in in_turn)

    def estimates(self) -> dict[str, Tensor]:
        """The mean clean probability of both networks."""
        return {"clean_probability": mean_over(self.clean_probability)}


def batches_in_turn(
    k: int, batches: TrainingBatches, clean_ids: Tensor, middle_ids: Tensor, noisy_ids: Tensor
) -> Iterator[tuple[Batch, Batch | None, Batch | None]]:
    """One pass of network k over the surest pairs; every batch comes with one of each other set.

    Args:
        k: the network that is trained.
        batches: of the epoch.
        clean_ids: int64, the pairs that an epoch visits once.
        middle_ids: int64, pairs that are visited once at most; None stands for their batch once they are spent.
        noisy_ids: int64, pairs that are visited again and again.

    Yields:
        A batch of each set; None for one of fewer than two pairs.
    """
    middle: Iterator[Batch | None] = repeat(None)
    noisy: Iterator[Batch | None] = repeat(None)
    if len(middle_ids) > 1:
        middle = chain(batches.shuffled("middle", k, pair_ids=middle_ids), middle)
    if len(noisy_ids) > 1:
        noisy = batches.endless("noisy", k, pair_ids=noisy_ids)
    return zip(batches.shuffled("clean", k, pair_ids=clean_ids), middle, noisy, strict=False)


def mean_over(memories: Sequence[PairMemory]) -> Tensor:
    """Mean of the networks' memories, ``(n_pairs,)``."""
    return torch.stack([memory.values for memory in memories]).mean(dim=0)
