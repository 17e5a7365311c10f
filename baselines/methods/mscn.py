"""MSCN: Noisy Correspondence Learning with Meta Similarity Correction. Han et al., CVPR 2023.

https://arxiv.org/abs/2304.06275

A small meta network replaces a matching network's last layer. It learns from a few trusted pairs how to read a
similarity: its gradient measures the loss on the trusted pairs after a virtual step on noisy pairs. Its similarities
also divide the pairs and set the margins.

It uses more knowledge than the other methods: pairs known to match. Results have to state this.

We follow the published code; the paper's text was not available. Deviations, each at its line:
  * trusted pairs are training pairs, kept out of training. The code takes them from dev, which also selects the
    checkpoint: 2,900 of the dev pairs on Flickr30K; all 5,000 dev pairs and 6,328 training pairs on COCO;
  * mismatched items have the given images, and both networks draw both sides anew in every epoch;
  * margins of an image's costs are those of its negatives;
  * the virtual weights of the words' GRU, see ``virtual_gru``;
  * a mixture that collapses, and the meta loss from logits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Annotated, Literal, cast

import numpy as np
import torch
from numpy.random import RandomState
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from baselines.backbones.sgraf import SGRAF
from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches, derive_seed, in_blocks, to_device
from baselines.kit.distributed import fitted_once
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Method, Modules, PairMemory, Setting, Step, WarmUpThenStepDecay
from baselines.kit.mixture import by_moments, clamped, fitted
from baselines.kit.options import ShareAboveZero, ShareBelowOne
from ncl_bench.errors import TrainingError
from ncl_bench.npy import Int64Array


class MSCNConfig(WarmUpThenStepDecay):
    """Every constant of the paper, in its order.

    Attributes:
        trusted_pairs: training pairs known to match, at least 2 (code: 2,900 of Flickr30K, 11,328 of COCO).
        hidden_size: hidden size of the meta network (code: 64).
        margin: m, at least 0 (code: 0.2).
        clean_threshold: pairs with a probability above it are trained on, in [0, 1) (code: 0.5).
        virtual_gru: whether the words' GRU has virtual weights too (``updated``). In the torch version of the published
            numbers it kept its own (``kept``).
        batch_size: batch size of training pairs and trusted items after the warm-up, which uses the recipe's (code:
            64).
        warmup_epochs: epochs on all pairs (code: 5).
        epochs: epochs after the warm-up (code: 50).
        learning_rate: learning rate of the networks' Adam and of the virtual step (code: 2e-4).
        meta_learning_rate: learning rate of the meta networks' Adam after the warm-up (code: 1.7e-5).
        lr_update: epochs between decays of both, counted after the warm-up (code: 30).
        lr_decay: factor of a decay (code: 0.1).
    """

    trusted_pairs: Annotated[int, Field(ge=2)] = 2900
    hidden_size: PositiveInt = 64
    margin: NonNegativeFloat = 0.2
    clean_threshold: ShareBelowOne = 0.5
    virtual_gru: Literal["updated", "kept"] = "updated"
    batch_size: Annotated[int, Field(ge=2)] = 64
    warmup_epochs: NonNegativeInt = 5
    epochs: PositiveInt = 50
    meta_learning_rate: PositiveFloat = 1.7e-5
    lr_update: PositiveInt = 30
    lr_decay: ShareAboveZero = 0.1


class MetaNetwork(nn.Module):
    """Map a similarity vector to a similarity before its sigmoid.

    Args:
        sim_dim: dimension of the vector.
        hidden_size: size of the hidden layer.
    """

    def __init__(self, sim_dim: int, hidden_size: int) -> None:
        super().__init__()
        self.in_features = sim_dim
        self.hidden = nn.Linear(sim_dim, hidden_size)
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map float ``(..., sim_dim)`` to ``(..., 1)``."""
        logits: Tensor = self.out(torch.relu(self.hidden(vectors)))
        return logits


def adaptive_margin(similarities: Tensor, margin: float) -> Tensor:
    """Margin of each pair, ``(B,)`` in [0, margin], without gradient: small if its own similarity p is."""
    p = similarities.diagonal().detach()
    return margin * p.square() / (p.square() + (1 - p).square())


def adaptive_triplet(similarities: Tensor, margin: float) -> Tensor:
    """Hardest negatives, margin of pair j in column j of both directions, ``(B,)``."""
    # as published: right for caption queries, but an image's costs have the margins of its negatives
    return hardest_triplet(similarities, adaptive_margin(similarities, margin)[None, :])


def meta_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross entropy of trusted items, scalar."""
    # from logits; the code takes probabilities and clamps their logarithms at -100
    return functional.binary_cross_entropy_with_logits(logits, labels.to(logits))


def mismatched(
    n: int, n_captions: int, n_images: int, captions_per_image: int, random: RandomState
) -> tuple[Int64Array, Int64Array]:
    """Draw distinct captions with images that are not theirs, both int64 ``(n,)``; redraw until no pair is true.

    Args:
        n: number of pairs.
        n_captions: captions to draw from, at least ``n``.
        n_images: images to draw from.
        captions_per_image: caption c belongs to image ``c // captions_per_image``.
        random: random stream.
    """
    while True:
        captions = random.choice(n_captions, n, replace=False)
        images = random.choice(n_images, n, replace=True)
        if not (captions // captions_per_image == images).any():
            return captions, images


@fitted_once
def matched_posterior(similarities: Tensor, trusted: Tensor, labels: Tensor) -> Tensor:
    """Probability that each pair matches, ``(n,)``; 1 if the trusted items do not form two components.

    A beta mixture over the similarities starts from the trusted items: component 1 from those of label 1.

    Args:
        similarities: similarities of training pairs, float ``(n,)``.
        trusted: similarities of trusted items, float ``(m,)``.
        labels: int64 ``(m,)``.
    """
    start = by_moments(clamped(trusted), functional.one_hot(labels, 2))
    if not start.whole:
        # the code drops all pairs
        return torch.ones_like(similarities)
    values = clamped(similarities)
    mixture, _ = fitted(values, start, most_updates=10, least_gain=0.01)
    return mixture.posterior(values)[:, 1].to(similarities)


class SinglePass(nn.Module):
    """A network's similarities in one pass, which allows second derivatives and replaced weights.

    Args:
        network: the network.
    """

    def __init__(self, network: Backbone) -> None:
        super().__init__()
        self.network = cast(SGRAF, network)

    def forward(self, batch: Batch, own: bool) -> Tensor:
        """Logits of each pair, float ``(B,)``, or of every image with every caption, ``(B, B)``."""
        images = self.network.encode_images(batch.image_features, batch.image_lengths)
        captions = self.network.captions_of(batch)
        compare = self.network.own_logits if own else self.network.all_logits
        return compare(images, captions)


class MSCN(Method):
    """Two networks with a meta network each; each is trained on the other's division."""

    name = "mscn"
    title = "MSCN"
    paper = "https://arxiv.org/abs/2304.06275"
    Config = MSCNConfig
    config: MSCNConfig
    n_networks = 2

    @classmethod
    def extra_clean_data(cls, config: MSCNConfig) -> int:
        """Number of trusted pairs."""
        return config.trusted_pairs

    def __init__(self, config: MSCNConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.clean_probability: Modules[PairMemory] = Modules(
            PairMemory(setting.n_pairs, initial=1.0) for _ in range(self.n_networks)
        )

    def make_network(self) -> Backbone:
        """A backbone with a meta network as its last layer."""
        network = super().make_network()
        if not isinstance(network, SGRAF):
            raise TrainingError(
                "MSCN replaces the last layer of SGR or SAF by its meta network, and "
                f"{type(network).__name__} has none; set the backbone to sgr or saf"
            )
        # in the place of the last layer, so scoring passes through it too
        network.head = MetaNetwork(network.head.in_features, self.config.hidden_size)  # type: ignore[assignment]
        return network

    def plan(self) -> Sequence[EpochPlan]:
        """The last warm-up epoch may be chosen on dev; training begins with fresh optimisers."""
        last, first = ("warmup", self.config.warmup_epochs - 1), ("train", 0)
        return [
            replace(
                epoch,
                select=epoch.phase == "train" or (epoch.phase, epoch.epoch) == last,
                new_optimizers=(epoch.phase, epoch.epoch) == first,
            )
            for epoch in super().plan()
        ]

    def trained_modules(self) -> Sequence[nn.Module]:
        """Every network without its meta network, and every meta network."""
        return [*self.networks, *(self.head(k) for k in range(self.n_networks))]

    def head(self, k: int) -> nn.Module:
        """The meta network of network k."""
        return cast(SGRAF, self.networks[k]).head

    def make_optimizer(self, network: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """Adam with default parameters."""
        return torch.optim.Adam(matching_weights(network).values(), lr=learning_rate)

    def learning_rate(self, module: nn.Module, plan: EpochPlan) -> float:
        """Decay the meta networks' rate with the networks'; the warm-up has one rate for all."""
        c = self.config
        if plan.phase == "warmup" or not isinstance(module, MetaNetwork):
            return plan.learning_rate
        return plan.learning_rate * c.meta_learning_rate / c.learning_rate

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Warm up, or purify the pairs with each network and train the other."""
        if plan.phase == "warmup":
            for k, network in enumerate(self.networks):
                for batch in batches.shuffled("warmup", k):
                    loss = mean_triplet(network.train()(batch).similarities, self.config.margin).sum()
                    step([network, self.head(k)], loss, batch)
            return
        for divider in range(self.n_networks):
            items = self.trusted_items(plan, divider, batches)
            self.purify(divider, batches, items)
            self.train_network(1 - divider, plan, batches, items, step)

    def trusted_items(self, plan: EpochPlan, k: int, batches: TrainingBatches) -> Tensor:
        """Caption, image and label of trusted pairs and equally many mismatched pairs, int64 ``(3, 2n)``."""
        trusted, ids = self.setting.trusted_ids, batches.pair_ids
        n = len(trusted)
        if len(ids) < max(n, 2):
            raise TrainingError(
                f"MSCN draws as many mismatched captions as it has trusted pairs, {n}, but only {len(ids)} "
                "other training pairs exist; set trusted_pairs lower"
            )
        # the code draws captions once and only images anew, and divides by the draw of the epoch before; here
        # network k draws both anew, and its division uses that draw
        random = RandomState(derive_seed(batches.seed, "mismatched", plan.epoch, k))
        # given images: the code knows the clean order, which no method may. A true match is drawn
        # occasionally in both, about once per number of images
        captions, images = map(torch.from_numpy, mismatched(n, len(ids), len(ids), 1, random))
        labels = torch.arange(2).flip(0).repeat_interleave(n)
        return torch.stack([torch.cat([trusted, ids[captions]]), torch.cat([trusted, ids[images]]), labels])

    @torch.no_grad()
    def purify(self, k: int, batches: TrainingBatches, items: Tensor) -> None:
        """Compute the matching probability of every pair by the similarities of network k in evaluation mode."""
        network = SinglePass(self.networks[k].eval())
        memory = self.clean_probability[k]
        similarities = torch.zeros_like(memory.values)
        for batch in batches.covering("purify", k):
            similarities[batch.pair_ids] = network(batch, own=True).sigmoid().to(similarities)
        trusted = torch.cat(
            [
                network(batches.read(*items[:2, rows]), own=True).sigmoid()
                for rows in in_blocks(np.arange(items.shape[1]), batches.batch_size)
            ]
        )
        ids = batches.pair_ids.to(similarities.device)
        given = (similarities[ids].cpu(), trusted.cpu(), items[2])
        memory.write(ids, matched_posterior(*given))

    def train_network(
        self, k: int, plan: EpochPlan, batches: TrainingBatches, items: Tensor, step: Step
    ) -> None:
        """Train network k on the pairs that its peer calls clean: in each batch its meta network first, then itself."""
        c, network = self.config, self.networks[k]
        clean_ids = self.clean_ids(1 - k, batches.pair_ids)
        trusted_batches = self.trusted_batches(plan, k, batches, items)
        for batch in batches.shuffled("clean", k, pair_ids=clean_ids, batch_size=c.batch_size):
            trusted, labels = next(trusted_batches)
            loss = self.loss_after_virtual_step(network.train(), plan.learning_rate, batch, trusted, labels)
            # unclipped, and before the network's own step, which already uses the new meta network
            step(self.head(k), loss, trusted, clip=False, meta=loss)
            triplet = adaptive_triplet(network(batch).similarities, c.margin).sum()
            step(network, triplet, batch, triplet=triplet)

    def clean_ids(self, k: int, pair_ids: Tensor) -> Tensor:
        """Pairs that network k calls clean; all if these are fewer than two."""
        memory = self.clean_probability[k]
        clean = memory.read(pair_ids.to(memory.values.device)) > self.config.clean_threshold
        # the code drops all pairs then
        return pair_ids[clean.to(pair_ids.device)] if clean.sum() > 1 else pair_ids

    def trusted_batches(
        self, plan: EpochPlan, k: int, batches: TrainingBatches, items: Tensor
    ) -> Iterator[tuple[Batch, Tensor]]:
        """Endless batches of matched and mismatched items in random order, with their labels."""
        for turn in count():
            seed = derive_seed(batches.seed, "trusted", plan.epoch, k, turn)
            order = RandomState(seed).permutation(items.shape[1])
            for rows in in_blocks(order, self.config.batch_size):
                if len(rows) > 1:
                    captions, images, labels = items[:, rows]
                    batch = batches.read(captions, images)
                    yield batch, to_device(labels, batch.pair_ids.device)

    def loss_after_virtual_step(
        self, network: Backbone, learning_rate: float, batch: Batch, trusted: Batch, labels: Tensor
    ) -> Tensor:
        """Meta loss of a network after one virtual step of gradient descent on ``batch``.

        The network itself does not change. The gradient reaches its meta network directly and through the step.
        """
        whole = SinglePass(network)
        # copies, because the virtual pass must not move the running statistics
        copied = {f"network.{name}": x.clone() for name, x in network.named_buffers()}
        # cuDNN's GRU cannot be differentiated twice
        with torch.backends.cudnn.flags(enabled=False):
            similarities = functional_call(whole, copied, (batch, False)).sigmoid()
            loss = adaptive_triplet(similarities, self.config.margin).sum()
            virtual = self.virtual_weights(network, loss, learning_rate)
            weights = {f"network.{name}": x for name, x in virtual.items()}
            return meta_loss(functional_call(whole, {**copied, **weights}, (trusted, True)), labels)

    def virtual_weights(self, network: nn.Module, loss: Tensor, learning_rate: float) -> dict[str, Tensor]:
        """Weights after the step, by name, as functions of the meta network's weights."""
        weights = matching_weights(network)
        if self.config.virtual_gru == "kept":
            # as in the torch version of the published numbers
            recurrent = {id(w) for m in network.modules() if isinstance(m, nn.GRU) for w in m.parameters()}
            weights = {name: w for name, w in weights.items() if id(w) not in recurrent}
        # plain gradient descent, whose step can be differentiated; Adam's moments play no part
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True, allow_unused=True)
        return {
            name: weight if gradient is None else weight - learning_rate * gradient
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }

    def estimates(self) -> dict[str, Tensor]:
        """Mean clean probability of both networks."""
        return {"clean_probability": torch.stack([m.values for m in self.clean_probability]).mean(dim=0)}


def matching_weights(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters by name: of a network without its meta network, or of a whole meta network."""
    return {name: w for name, w in module.named_parameters() if not name.startswith("head.")}
