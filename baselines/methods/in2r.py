"""IN2R: Intra-Modal Neighbors Never Lie.

Rectifying Inter-Modal Noisy Correspondence via Graph-Based Intra-Modal Reasoning. Liu et al., ICML 2026.
https://arxiv.org/abs/2606.04061

Two networks divide the pairs for each other, as in NCR. Surely clean pairs go into a memory. A noisy image finds its
nearest images in the peer's memory, and a small attention network (refiner) turns their captions into a prototype,
which replaces its own caption. A noisy caption gets an image prototype likewise.

Deviations between paper and published code, each at its line; we follow the code unless said otherwise:
  * the loss of noisy pairs (Eq. 10 and 11), see ``rectification``;
  * two refiners without a feed-forward layer, whose prototypes have unit length (Eq. 9);
  * the warm-up compares two views of each image, and of each caption;
  * the paper has Adam, a cosine schedule, and intra-modal terms with margin 0.2 and weight 0.1. The code has AdamW, a
    step schedule, margin 0.3 and weight 1. Warm-up epochs and neighbours are the paper's; the code's defaults are 1
    and 1;
  * the memories change within an epoch;
  * the threshold of stored pairs, see ``faults``;
  * the code's VSE-infinity has an MLP over captions, dropout and centred vectors, and so have the recipes; its word
    vectors start from GloVe, ours are drawn;
  * the code centres vectors by the mean of their batch everywhere. So do training and division here; scoring takes a
    running mean of training batches, so that no similarity depends on other test items;
  * a memory holds at most as many pairs as the training set has, see ``memory``;
  * batches of one, and divisions that separate nothing (in ``kit/batches.py`` and ``kit/mixture.py``).
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from baselines.backbones.vse_infinity import centred_by_batch
from baselines.kit.augmentation import augmented
from baselines.kit.backbone import Backbone, Output
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.co_teaching import CoTeaching, Faults
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Modules, Setting, Step, WarmUpThenStepDecay, adamw
from baselines.kit.options import Share, ShareBelowOne
from ncl_bench.errors import RecipeError

SMALLEST_TARGET = 1e-7
"""Added to a one-hot target before the logarithm."""

Form = Literal["published", "paper"]


class IN2RConfig(WarmUpThenStepDecay):
    """Every constant of the paper and its code.

    Attributes:
        temperature: tau of the softmax over a batch, above 0 (paper: 0.05).
        margin: margin between images and captions, at least 0 (paper: 0.2).
        intra_margin: margin between two views of images, or of captions, at least 0 (code: 0.3).
        intra_weight: weight of the two intra-modal terms, at least 0 (code: 1).
        rectification_weight: weight of Eq. 11, at least 0 (paper: 1).
        rectification: loss of noisy pairs, the code's (``published``) or that of Eq. 10 (``paper``).
        neighbours: K, pairs per prototype, at least 1 (paper: 5).
        heads: heads of a refiner's attention, a divisor of the joint space's dimension (paper: 4).
        refiner_dropout: in [0, 1) (code: 0.1).
        memory: M, maximum pairs in a memory (paper: 65,536 Flickr30K, 448,000 COCO). A smaller training set lowers it
            to its number of pairs; the code keeps M there, and vectors of earlier epochs with it.
        clean_threshold: pairs with a probability above it are clean, in [0, 1) (code: 0.5).
        faults: ``published`` keeps the code's threshold of stored pairs.
        word_change: probability of masking, replacing or dropping a word, in [0, 1] (code: 0.2).
        region_change: probability of dropping or blanking a region, in [0, 1] (code: 0.2).
        weight_decay: weight decay of AdamW, at least 0 (code: 1e-4).
        warmup_epochs: epochs of warm-up (paper: 5).
        epochs: epochs after the warm-up (paper: 40).
        learning_rate: learning rate of AdamW (paper: 5e-4).
        warmup_learning_rate: learning rate of the warm-up (default, as published: ``learning_rate``).
        lr_update: epochs between decays, counted after the warm-up (code: 15).
        lr_decay: factor of a decay (code: 0.1).
    """

    temperature: PositiveFloat = 0.05
    margin: NonNegativeFloat = 0.2
    intra_margin: NonNegativeFloat = 0.3
    intra_weight: NonNegativeFloat = 1.0
    rectification_weight: NonNegativeFloat = 1.0
    rectification: Form = "published"
    neighbours: PositiveInt = 5
    heads: PositiveInt = 4
    refiner_dropout: ShareBelowOne = 0.1
    memory: PositiveInt = 65_536
    clean_threshold: ShareBelowOne = 0.5
    faults: Faults = "repaired"
    word_change: Share = 0.2
    region_change: Share = 0.2
    weight_decay: NonNegativeFloat = 1e-4
    warmup_epochs: NonNegativeInt = 5
    learning_rate: PositiveFloat = 5e-4
    lr_update: PositiveInt = 15


def robust_loss(similarities: Tensor, temperature: float) -> Tensor:
    """Eq. 1, ``(B,)``: cross entropy plus reversed cross entropy of the given pair, mean of both directions.

    The reversed one of a distribution p is ``-sum_j p_j log(y_j + 1e-7)`` with the one-hot target y.
    """
    of_hit, of_miss = (math.log(y + SMALLEST_TARGET) for y in (1, 0))

    def of_rows(logits: Tensor) -> Tensor:
        log_hit = logits.log_softmax(dim=1).diagonal()
        hit = log_hit.exp()
        return -log_hit - (1 - hit) * of_miss - hit * of_hit

    logits = similarities / temperature
    return (of_rows(logits) + of_rows(logits.T)) / 2


def rectification(
    queries: Tensor, prototypes: Tensor, others: Tensor, temperature: float, form: Form = "published"
) -> Tensor:
    """Eq. 10 for one direction, ``(B,)``: loss of noisy queries against their prototypes.

    Args:
        queries: unit vectors of images (or captions), ``(B, dim)``.
        prototypes: replace their captions (or images), ``(B, dim)``; they receive a gradient too.
        others: their own captions (or images), ``(B, dim)``; the pairing is not used.
        temperature: tau.
        form: ``published`` or ``paper``.
    """
    if form == "published":
        # the code: a pair's prototype is its positive, those of the others are its negatives
        return robust_loss(queries @ prototypes.T, temperature)
    # Eq. 10: a query and its prototype should see the noisy batch alike; cross entropies both ways
    log_p, log_q = (
        (vectors @ others.T / temperature).log_softmax(dim=1) for vectors in (queries, prototypes)
    )
    return -(log_q.exp() * log_p + log_p.exp() * log_q).sum(dim=1)


def nearest(queries: Tensor, stored: Tensor, k: int) -> Tensor:
    """Positions of the k stored vectors ``(m, dim)`` with the largest dot products, best first, int64 ``(n, k)``."""
    return (queries @ stored.T).topk(k, dim=1).indices


class Refiner(nn.Module):
    """Eq. 9: self-attention over the vectors of K neighbours; their normalised mean is the prototype."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        # Eq. 9 has a feed-forward layer behind the attention, and one refiner for both directions; the code
        # has neither
        self.q_proj, self.k_proj, self.v_proj, self.output_layer = (nn.Linear(dim, dim) for _ in range(4))
        self.layer_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, neighbours: Tensor) -> Tensor:
        """Map float ``(n, K, dim)`` to prototypes ``(n, dim)``."""
        q, k, v = (
            project(neighbours).unflatten(2, (self.heads, -1)).transpose(1, 2)  # (n, heads, K, dim / heads)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        attention = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).softmax(dim=3)
        attended = self.output_layer((attention @ v).transpose(1, 2).flatten(2))
        # unit length, as the queries; not in Eq. 9
        return functional.normalize(self.layer_norm(neighbours + self.dropout(attended)).mean(dim=1), dim=1)


class Memory(nn.Module):
    """Vectors of the surest pairs; the newest overwrite the oldest.

    Attributes:
        images: float ``(M, dim)``.
        captions: float ``(M, dim)``, of the same pairs.
        image_ids: int64 ``(M,)``, image of each pair.
        pushed: int64 scalar, total number of pairs stored so far.
    """

    images: Tensor
    captions: Tensor
    image_ids: Tensor
    pushed: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("images", torch.zeros(size, dim))
        self.register_buffer("captions", torch.zeros(size, dim))
        self.register_buffer("image_ids", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("pushed", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return min(int(self.pushed), len(self.images))

    @torch.no_grad()
    def push(self, images: Tensor, captions: Tensor, image_ids: Tensor, chosen: Tensor) -> None:
        """Store the chosen pairs of a batch, in order.

        Args:
            images: ``(B, dim)``, of at most M pairs.
            captions: ``(B, dim)``.
            image_ids: int64 ``(B,)``.
            chosen: bool ``(B,)``.
        """
        # chosen pairs first; the rest rewrite the old values, so that no tensor size depends on the choice
        order, ranks = (~chosen).long().argsort(stable=True), torch.arange(len(chosen), device=chosen.device)
        places, is_new = (self.pushed + ranks) % len(self.images), ranks < chosen.sum()
        for store, new in ((self.images, images), (self.captions, captions), (self.image_ids, image_ids)):
            kept = is_new[:, None] if store.dim() == 2 else is_new
            store[places] = torch.where(kept, new.detach()[order].to(store), store[places])
        self.pushed += chosen.sum()


class IN2R(CoTeaching):
    """Two networks, each trained on its peer's division and on prototypes from its peer's memory."""

    name = "in2r"
    title = "IN2R"
    paper = "https://arxiv.org/abs/2606.04061"
    variants = (
        ("rectification", "paper", "the paper's rectification"),
        ("faults", "published", "the code's fault"),
    )
    Config = IN2RConfig
    config: IN2RConfig
    extra_words = 1
    needs_cosines = True

    def __init__(self, config: IN2RConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        dim, size = self.networks[0].embed_size, min(config.memory, setting.n_pairs)
        if dim % config.heads:
            raise RecipeError(
                f"method.heads is {config.heads}, which does not divide the backbone's embed_size of {dim}"
            )
        if size < min(setting.batch_size, setting.n_pairs):
            raise RecipeError(
                f"method.memory is {config.memory}, but must hold a batch of {setting.batch_size} pairs; enlarge it"
            )
        self.refiners: Modules[nn.ModuleDict] = Modules(
            nn.ModuleDict({way: Refiner(dim, config.heads, config.refiner_dropout) for way in ("i2t", "t2i")})
            for _ in range(self.n_networks)
        )
        self.stores: Modules[Memory] = Modules(Memory(size, dim) for _ in range(self.n_networks))

    def renew_networks(self) -> None:
        """Make two equal networks."""
        network = self.make_network()
        # unlike NCR's: vectors of one network are looked up among those of the other, so both need one space
        self.networks = Modules([network, deepcopy(network)])

    def trained_modules(self) -> Sequence[nn.Module]:
        """The networks and their refiners."""
        return [*self.networks, *self.refiners]

    def make_optimizer(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """AdamW (published code)."""
        return adamw(module, learning_rate, weight_decay=self.config.weight_decay)

    def augmented(self, batch: Batch) -> Batch:
        """Drop or mask words and regions, as CRCL does; also in the division (published code)."""
        return augmented(
            batch,
            word_change=self.config.word_change,
            region_change=self.config.region_change,
            vocabulary_size=self.setting.vocabulary_size,
            fixed_regions=self.networks[0].fixed_regions,
        )

    def co_divide(self, plan: EpochPlan, batches: TrainingBatches) -> None:
        """NCR's division, of vectors that are centred by their batch as in training."""
        # one running mean for all batches would bring back the common part that training removes, and the losses of a
        # division would be those of another network
        with centred_by_batch(self.networks):
            super().co_divide(plan, batches)

    def warmup_step(self, k: int, batch: Batch, step: Step) -> None:
        """Eq. 1 between images and captions, and between two views of either."""
        network, batch = self.networks[k].train(), self.augmented(batch)

        def loss_of(similarities: Tensor) -> Tensor:
            return robust_loss(similarities, self.config.temperature).mean()

        # the paper warms up with the first term alone; the code adds two views of either side
        _, loss, terms = self.two_views(network, batch, loss_of, loss_of)
        step(network, loss, batch, clip=True, learning_rate=None, **terms)

    def two_views(
        self,
        network: Backbone,
        batch: Batch,
        between: Callable[[Tensor], Tensor],
        within: Callable[[Tensor], Tensor],
    ) -> tuple[Output, Tensor, dict[str, Tensor]]:
        """Output, loss and its terms of a batch whose views differ in their dropout masks.

        Args:
            network: in training mode.
            batch: B pairs.
            between: loss of similarities ``(B, B)`` of images and captions, scalar.
            within: loss of those of two views of one side.
        """
        sides, again = (network.encode(batch) for _ in range(2))
        output = network.output(batch, *sides)
        matching = between(output.similarities)
        images, captions = (
            within(one.vectors @ other.vectors.T) for one, other in zip(sides, again, strict=True)
        )
        loss = matching + self.config.intra_weight * (images + captions) + output.auxiliary.mean()
        return output, loss, {"matching": matching, "images": images, "captions": captions}

    def pair_losses(self, similarities: Tensor) -> Tensor:
        """Triplet loss over all negatives, as in NCR."""
        return mean_triplet(similarities, self.config.margin)

    def storing_threshold(self, k: int, batches: TrainingBatches) -> Tensor:
        """Minimum probability of a pair that network k stores, scalar: the mean over the clean pairs."""
        published = self.config.faults == "published"
        # fault of the code: it compares the peer's probabilities with the mean of the network's own
        memory = self.clean_probability[k if published else 1 - k]
        probability = memory.read(batches.pair_ids.to(memory.values.device))
        if not published:
            # in float32 the mean of a sure mixture rounds to 1; no pair exceeds it and nothing is ever stored
            probability = probability.double()
        return probability[self.is_clean(probability)].mean()

    def is_stored(self, probability: Tensor, threshold: Tensor) -> Tensor:
        """Which pairs of a batch to store, bool ``(B,)``, by the peer's probabilities ``(B,)``."""
        if self.config.faults == "published":
            return probability > threshold
        # a pair at the mean is stored too, as in a division of all ones
        return probability.double() >= threshold

    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train once over the clean pairs, with a batch of noisy pairs for each batch."""
        probability, threshold = self.clean_probability[1 - k], self.storing_threshold(k, batches)
        image_ids = batches.shown_images.to(threshold.device)
        peer_stored = len(self.stores[1 - k])  # read once: it does not change while network k trains
        for clean, noisy in self.divided_batches(k, batches, noisy=True):
            stored = self.is_stored(probability.read(clean.pair_ids), threshold)
            self.train_step(k, clean, noisy, stored, image_ids, peer_stored, step)

    def train_step(
        self,
        k: int,
        clean: Batch,
        noisy: Batch | None,
        stored: Tensor,
        image_ids: Tensor,
        peer_stored: int,
        step: Step,
    ) -> None:
        """Train on two views of clean pairs with hardest negatives, store some, and apply Eq. 11 to noisy pairs.

        Args:
            k: number of the network.
            clean: B pairs.
            noisy: noisy pairs, if any.
            stored: bool ``(B,)``, clean pairs to store in the memory.
            image_ids: int64 ``(n_pairs,)``, image of every pair.
            peer_stored: number of pairs in the peer's memory; Eq. 11 needs K.
            step: the trainer's step.
        """
        c, network = self.config, self.networks[k].train()
        clean = self.augmented(clean)
        output, loss, terms = self.two_views(
            network,
            clean,
            lambda s: hardest_triplet(s, c.margin).sum(),
            lambda s: hardest_triplet(s, c.intra_margin).sum(),
        )
        # the paper freezes both memories within an epoch; in the code the second network reads what the first
        # has just stored, and in the first epoch the first one reads nothing
        sides = output.images.vectors, output.captions.vectors
        self.stores[k].push(*sides, image_ids[clean.pair_ids], stored)
        terms["stored"] = stored.float().mean()
        modules: list[nn.Module] = [network]
        rectified = {} if noisy is None else self.rectify(k, self.augmented(noisy), image_ids, peer_stored)
        if rectified:
            both = rectified["image_rectification"] + rectified["caption_rectification"]
            loss = loss + c.rectification_weight * both / 2
            modules.append(self.refiners[k])
        # the refiners' gradient is not clipped
        step(modules, loss, clean, clip=network, learning_rate=None, **terms, **rectified)

    def rectify(self, k: int, noisy: Batch, image_ids: Tensor, peer_stored: int) -> dict[str, Tensor]:
        """Eq. 10 in both directions, scalars by name; nothing if the peer stores fewer than K pairs.

        The third is the share of neighbours with the same image as the query.
        """
        c, peer, refiners = self.config, self.stores[1 - k], self.refiners[k].train()
        images, captions = (side.vectors for side in self.networks[k].encode(noisy))
        if peer_stored < c.neighbours:
            return {}
        # with several captions an image, neighbours may be the query's own image; the log gives their share
        near_images = nearest(images.detach(), peer.images[:peer_stored], c.neighbours)
        near_captions = nearest(captions.detach(), peer.captions[:peer_stored], c.neighbours)
        # images find neighbours among images, and their captions become the prototype: modalities are
        # compared within themselves alone
        caption_prototypes = refiners["i2t"](peer.captions[near_images])
        image_prototypes = refiners["t2i"](peer.images[near_captions])
        form = (c.temperature, c.rectification)
        own_image = peer.image_ids[near_images] == image_ids[noisy.pair_ids][:, None]
        return {
            "image_rectification": rectification(images, caption_prototypes, captions, *form).mean(),
            "caption_rectification": rectification(captions, image_prototypes, images, *form).mean(),
            "own_image": own_image.float().mean(),
        }
