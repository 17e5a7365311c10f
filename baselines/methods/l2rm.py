"""L2RM: Learning to Rematch Mismatched Pairs for Robust Cross-Modal Retrieval. Han et al., CVPR 2024.

https://arxiv.org/abs/2403.05105

Pairs that a mixture over their losses calls noisy are rematched instead of dropped: partial optimal transport finds
better matches between their captions and a queue of images, at a cost learned from pairs known to match.

We follow the published code; the paper's text was not available. Deviations, each at its line:
  * the mixture starts from the best split into two means, not at random, and may collapse;
  * too few clean pairs, or noisy ones, for a batch; batches of fewer than ten pairs;
  * the queue is stored as the pairs of its images;
  * whether a noisy pair may be matched with itself is an option, not a matter of the stated noise ratio.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches, derive_seed, to_device
from baselines.kit.distributed import fitted_once
from baselines.kit.losses import hardest_triplet, info_nce, matching_log_probabilities, mean_triplet
from baselines.kit.method import EpochPlan, Method, PairMemory, Setting, Step, WarmUpThenStepDecay
from baselines.kit.mixture import (
    NEAR_ZERO,
    BetaMixture,
    by_moments,
    clamped,
    fitted,
    min_max_normalised,
    two_means,
)
from baselines.kit.options import ShareAboveZero, ShareBelowOne
from baselines.kit.transport import partial_transport
from ncl_bench.errors import TrainingError

LABEL_FLOOR = 1e-7
PLAN_FLOOR = 1e-10


class L2RMConfig(WarmUpThenStepDecay):
    """Every constant of the paper, in its order.

    Attributes:
        temperature: tau, above 0 (code: 0.05).
        margin: margin of the triplet losses, at least 0 (code: 0.2).
        clean_threshold: pairs with a probability above it are clean, in [0, 1) (code: 0.5).
        transported_mass: rho, share of the captions that are matched, in (0, 1) (code: 0.1).
        regularisation: regularisation of the transport, above 0 (code: 0.01 Flickr30K, 0.07 COCO and CC152K).
        match_own_image: whether a noisy pair may be matched with itself (code: only CC152K).
        queue_size: images to match noisy captions with (code: 128; default: the batch size).
        known_share: maximum share of a batch that the cost function learns from per step, in (0, 1] (code: 0.1).
        warmup_epochs: epochs on all pairs (code: 5 Flickr30K, 10 COCO and CC152K).
        epochs: epochs after the warm-up (code: 35 Flickr30K, 20 COCO, 40 CC152K).
        learning_rate: learning rate of Adam (code: 2e-4).
        cost_learning_rate: learning rate of the cost function's Adam (code: 2e-6).
        lr_update: epochs between decays of both, counted after the warm-up (code: 15 Flickr30K, 10 COCO, 20 CC152K).
        lr_decay: factor of a decay (code: 0.1).
    """

    temperature: PositiveFloat = 0.05
    margin: NonNegativeFloat = 0.2
    clean_threshold: ShareBelowOne = 0.5
    transported_mass: Annotated[float, Field(gt=0, lt=1)] = 0.1
    regularisation: PositiveFloat = 0.01
    match_own_image: bool = False
    queue_size: PositiveInt | None = None
    known_share: ShareAboveZero = 0.1
    warmup_epochs: NonNegativeInt = 5
    epochs: PositiveInt = 35
    cost_learning_rate: PositiveFloat = 2e-6
    lr_update: PositiveInt = 15


def symmetric_cross_entropy(similarities: Tensor, temperature: float) -> Tensor:
    """Loss of the warm-up, ``(B,)``: cross entropy plus reversed cross entropy, mean of both directions."""
    labels = torch.eye(len(similarities), dtype=similarities.dtype, device=similarities.device)
    log_labels = (labels + LABEL_FLOOR).log()
    logits = similarities / temperature
    reversed_images = -(log_labels * logits.softmax(dim=1)).sum(dim=1)
    reversed_captions = -(log_labels * logits.softmax(dim=0)).sum(dim=0)
    return info_nce(similarities, temperature) + (reversed_images + reversed_captions) / 2


def normalised_losses(losses: Tensor) -> Tensor:
    """Losses scaled to [0, 1] and clamped to [0.001, 0.999] at exactly 0 and 1, ``(n,)``."""
    normalised = torch.from_numpy(min_max_normalised(losses.cpu().numpy()))
    return clamped(normalised)


def loss_mixture(normalised: Tensor, groups: Tensor) -> BetaMixture:
    """Mixture over losses in (0, 1), fitted twice, from int64 ``(n,)`` groups 0 and 1."""
    start = by_moments(normalised, nn.functional.one_hot(groups, 2))
    if not start.whole:
        return start
    first, _ = fitted(normalised, start, most_updates=10, least_gain=0.01)
    # fitted twice, as in the code: ten updates, then as many as gain
    return fitted(normalised, first, least_gain=0.1)[0]


def clean_component(mixture: BetaMixture) -> int:
    """The component of losses near 0; not always the one with the smaller mean."""
    return int(mixture.posterior(torch.tensor([NEAR_ZERO]))[0].argmax())


@fitted_once
def clean_posterior(losses: Tensor) -> Tensor:
    """Probability that each pair is clean, ``(n,)``; 1 if losses do not form two groups."""
    normalised = normalised_losses(losses)
    # the code starts from a random split, which changes some divisions
    mixture = loss_mixture(normalised, two_means(normalised))
    if not mixture.whole:
        # a component has lost its pairs: all pairs count as clean
        return torch.ones_like(losses)
    return mixture.posterior(normalised)[:, clean_component(mixture)].to(losses)


class CostFunction(nn.Module):
    """Cost of matching an image with a caption, from the image's similarities with all captions of a batch.

    It starts as 1 - similarity.

    Args:
        batch_size: number of captions in a batch.
    """

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.map = nn.Linear(batch_size, batch_size)
        with torch.no_grad():
            self.map.weight.copy_(-torch.eye(batch_size))
            self.map.bias.fill_(1.0)

    def forward(self, similarities: Tensor) -> Tensor:
        """Costs, float ``(images, B)``, at least 0."""
        return torch.relu(self.map(similarities))


def rectified_labels(plan: Tensor) -> tuple[Tensor, Tensor]:
    """The plan ``(Q, B)`` as labels of images ``(Q, B)`` and of captions ``(B, Q)``; each row sums to 1."""
    # every label has a logarithm
    plan = plan.clamp(min=PLAN_FLOOR)
    return plan / plan.sum(dim=1, keepdim=True), plan.T / plan.T.sum(dim=1, keepdim=True)


def symmetric_divergence(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Symmetric divergence between labels and probabilities, ``(queries,)``."""
    difference = labels.log() - log_probabilities
    return ((labels - log_probabilities.exp()) * difference).sum(dim=1)


def rematching_loss(similarities: Tensor, plan: Tensor, temperature: float) -> Tensor:
    """Loss of a noisy batch, scalar: both directions should agree with the rectified labels.

    Args:
        similarities: float ``(Q, B)``, images of the queue as rows.
        plan: float ``(Q, B)``.
        temperature: tau.
    """
    images, captions = (
        symmetric_divergence(matching_log_probabilities(scores, temperature), labels).mean()
        for scores, labels in zip((similarities, similarities.T), rectified_labels(plan), strict=True)
    )
    return (images + captions) / 2


class L2RM(Method):
    """One network, and a cost function trained with it."""

    name = "l2rm"
    title = "L2RM"
    paper = "https://arxiv.org/abs/2403.05105"
    Config = L2RMConfig
    config: L2RMConfig
    queue: Tensor

    def __init__(self, config: L2RMConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        if setting.n_pairs < setting.batch_size:
            raise TrainingError(
                f"L2RM trains on whole batches, and {setting.n_pairs} training pairs do not fill one of "
                f"{setting.batch_size}; set batch_size to {setting.n_pairs} or less"
            )
        self.clean_probability = PairMemory(setting.n_pairs, initial=1.0)
        self.cost_function = CostFunction(setting.batch_size)
        n_queued = config.queue_size or setting.batch_size
        # pairs, not their images, so that a checkpoint stays small; random until noisy batches fill it
        self.register_buffer("queue", torch.randint(setting.n_pairs, (n_queued,)))

    def plan(self) -> Sequence[EpochPlan]:
        """Epochs of training; warm-up epochs may also be chosen on dev."""
        return [replace(epoch, select=True) for epoch in super().plan()]

    def trained_modules(self) -> Sequence[nn.Module]:
        """The network and the cost function."""
        return [self.networks[0], self.cost_function]

    def learning_rate(self, module: nn.Module, plan: EpochPlan) -> float:
        """Decay the cost function's rate with the network's."""
        c = self.config
        ratio = c.cost_learning_rate / c.learning_rate if module is self.cost_function else 1.0
        return plan.learning_rate * ratio

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Warm up, or divide and rematch."""
        if plan.phase == "warmup":
            network = self.networks[0].train()
            for batch in batches.shuffled("warmup"):
                output = network(batch)
                losses = symmetric_cross_entropy(output.similarities, self.config.temperature)
                step(network, losses.mean() + output.auxiliary.mean(), batch)
            return
        self.divide(batches)
        clean_ids, noisy_ids = self.sides(batches.pair_ids)
        noisy_batches: Iterator[Batch] | None = None
        # the code stops if the noisy pairs do not fill a batch; here only clean pairs are used
        if len(noisy_ids) >= batches.batch_size:
            noisy_batches = whole(batches.endless("noisy", pair_ids=noisy_ids), batches.batch_size)
        random = np.random.default_rng(derive_seed(batches.seed, "known pairs", plan.epoch))
        queued = batches.read(self.queue)
        for clean in whole(batches.shuffled("clean", pair_ids=clean_ids), batches.batch_size):
            if noisy_batches is None:
                self.train_step(clean, None, None, step)
                continue
            self.cost_step(clean, queued, *self.known_pairs(random), step)
            noisy = next(noisy_batches)
            # before the matching, so with the published sizes the queue is the noisy batch
            queued = self.enqueue(noisy, queued)
            self.train_step(clean, noisy, queued, step)

    @torch.no_grad()
    def divide(self, batches: TrainingBatches) -> None:
        """Compute the clean probability of every pair: a mixture over losses, in evaluation mode."""
        network = self.networks[0].eval()
        losses = torch.zeros_like(self.clean_probability.values)
        for batch in batches.covering("divide"):
            losses[batch.pair_ids] = mean_triplet(network(batch).similarities, self.config.margin).to(losses)
        ids = batches.pair_ids.to(losses.device)
        posterior = clean_posterior(losses[ids].cpu())
        self.clean_probability.write(ids, posterior)

    def sides(self, pair_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Clean and noisy pairs; at least one batch is clean."""
        probability = self.clean_probability.read(pair_ids.to(self.clean_probability.values.device))
        clean = probability > self.config.clean_threshold
        if clean.sum() < self.setting.batch_size:
            # the code trains on nothing if the clean pairs do not fill a batch
            clean[probability.topk(self.setting.batch_size).indices] = True
        clean = clean.to(pair_ids.device)
        return pair_ids[clean], pair_ids[~clean]

    def known_pairs(self, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Positions in the queue, and the pairs of a clean batch placed there."""
        # a tenth of fewer than ten pairs: the code stops, here one pair is known
        most = max(int(self.config.known_share * self.setting.batch_size), 1)
        n = min(int(random.integers(1, most + 1)), len(self.queue))
        places, rows = (
            random.choice(size, n, replace=False) for size in (len(self.queue), self.setting.batch_size)
        )
        return to_device(torch.from_numpy(places), self.queue.device), to_device(
            torch.from_numpy(rows), self.queue.device
        )

    def cost_step(self, clean: Batch, queued: Batch, places: Tensor, rows: Tensor, step: Step) -> None:
        """Train the cost function: clean pairs hidden in a copy of the queue should cost nothing."""
        # a copy: the queue itself keeps its images
        images = queued.image_features.clone()
        images[places] = clean.image_features[rows]
        with torch.no_grad():
            known = replace(queued, image_features=images)
            similarities = compared(self.networks[0].eval(), known, clean)
        cost = self.cost_function(similarities)[places, rows].sum()
        step(self.cost_function, cost, clean, clip=False, known_cost=cost)

    def enqueue(self, noisy: Batch, queued: Batch) -> Batch:
        """The queue with the noisy batch's images in front."""
        kept = len(self.queue)
        self.queue = torch.cat([noisy.pair_ids.to(self.queue), self.queue])[:kept]
        return replace(
            queued,
            image_features=torch.cat([noisy.image_features, queued.image_features])[:kept],
            image_lengths=torch.cat([noisy.image_lengths, queued.image_lengths])[:kept],
            pair_ids=self.queue,
        )

    def train_step(self, clean: Batch, noisy: Batch | None, queued: Batch | None, step: Step) -> None:
        """Train on the clean batch, and on noisy captions rematched with the images of the queue."""
        c, network = self.config, self.networks[0].train()
        output = network(clean)
        triplet = hardest_triplet(output.similarities, c.margin).sum()
        auxiliary = output.auxiliary.mean()
        if noisy is None or queued is None:
            step(network, triplet + auxiliary, clean, triplet=triplet)
            return
        similarities = compared(network, queued, noisy)
        rematching = rematching_loss(similarities, self.rematched(similarities.detach()), c.temperature)
        step(network, triplet + rematching + auxiliary, clean, triplet=triplet, rematching=rematching)

    @torch.no_grad()
    def rematched(self, similarities: Tensor) -> Tensor:
        """Transport plan that moves part of the noisy captions to images of the queue, float ``(Q, B)``."""
        c = self.config
        costs = self.cost_function(similarities).clamp(min=PLAN_FLOOR)
        own = None
        if not c.match_own_image:
            # the noisy batch is in front of the queue, so its pairs lie on the diagonal; the code forbids
            # them unless the stated noise ratio is 0, as for CC152K
            own = torch.eye(*costs.shape, dtype=torch.bool, device=costs.device)
        plan = partial_transport(costs, c.transported_mass, c.regularisation, own).plan
        return plan[:-1, :-1].float()

    def estimates(self) -> dict[str, Tensor]:
        """Clean probability of the division."""
        return {"clean_probability": self.clean_probability.values}


def whole(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """Batches of exactly that size."""
    return (batch for batch in batches if len(batch) == size)


def compared(network: Backbone, images_of: Batch, captions_of: Batch) -> Tensor:
    """Similarities of the images of one batch with the captions of another, float ``(n_images, n_captions)``."""
    images = network.encode_images(images_of.image_features, images_of.image_lengths)
    return network.compare(images, network.captions_of(captions_of))
