"""IMRAM: Iterative Matching with Recurrent Attention Memory for Cross-Modal Image-Text Retrieval. CVPR 2020.

Chen et al. https://arxiv.org/abs/2003.03772

Words attend to regions several times (``text``), or regions to words (``image``), or both (``full``). After each look a
memory unit merges the query with what it attended to, and this memory guides the next look. The similarity is the sum
over the looks, and over both directions with ``full``, of the mean cosine of an item with its attended vector.

Points of the published code, which we follow:
  * Cosines use the item itself, not its memory; only the attention uses the memory.
  * The attention is SCAN's, leaky ReLU and scaling included (see ``scan.py``).
  * The similarity is the sum over the looks, not their mean, so the loss's margin of 0.2 is relatively small.
  * The memory is not scaled to unit length; the option ``memory_norm`` does it, which its scripts switch off.
  * The scripts train one direction each: ``text`` with 3 looks and a sharpness of 11 on COCO, ``image`` with a single
    look and 9 on Flickr30K. The paper reports ``full``.
  * In training the published network returns the transposed matrix; here images are always the rows.

The published code requires 36 regions. Here any number is allowed: padding takes no part in the attention.

The published code compares one caption at a time and multiplies every attended vector by the memory's matrices. Here
the seen items are multiplied before they are mixed, so the first memory needs no product of full width per pair. The
memory after the last look is never read, so it is not computed.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from baselines.backbones.cross_attention import (
    CrossAttention,
    CrossAttentionConfig,
    Side,
    attention,
    gram,
    in_tiles,
    mean_over_items,
    products,
    relevance,
    unmixed,
)
from baselines.backbones.encoders import on_gpu_path, unit_length
from baselines.kit.backbone import Encoded


class IMRAMConfig(CrossAttentionConfig):
    """Sizes of the encoders and the form of the matching.

    Attributes:
        mode: ``text``, words look at regions; ``image``, regions look at words; or ``full``, the sum of both.
        steps: K, number of looks per item, at least 1 (code: 3).
        attention_sharpness: inverse temperature of the attention, above 0 (code: 9; 11 in the script for COCO).
        memory_norm: scale the memory to unit length (code: an option, off in its scripts).
    """

    mode: Literal["full", "text", "image"] = "full"
    steps: PositiveInt = 3
    attention_sharpness: PositiveFloat = 9.0
    memory_norm: bool = False


class Look(NamedTuple):
    """One look of a tile.

    Attributes:
        memory: float ``(n seen or 1, n looking, looking items, dim)``, the memory that guided it.
        weights: float ``(n seen, seen items, n looking, looking items)``, the attention.
        cosines: float ``(n seen, n looking, looking items)``.
    """

    memory: Tensor
    weights: Tensor
    cosines: Tensor


class MemoryUnit(nn.Module):
    """The memory distillation unit: a gate between the old memory and a candidate made of memory and attended vector.

    Both layers read the concatenated memory and attended vector. Their two halves are computed separately, and the half
    for the attended vector before it is mixed.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.linear = nn.Linear(2 * dim, dim)
        self.gate = nn.Linear(2 * dim, dim)

    def of_memory(self, memory: Tensor) -> tuple[Tensor, ...]:
        """The memory's share of candidate and gate: each of the memory's shape, or joined along the dimension."""
        return tuple(
            functional.linear(memory, weight[:, : self.dim], bias) for weight, bias in self._layers(memory)
        )

    def of_seen(self, vectors: Tensor) -> tuple[Tensor, ...]:
        """The seen items' share of candidate and gate, likewise."""
        return tuple(functional.linear(vectors, weight[:, self.dim :]) for weight, _ in self._layers(vectors))

    def _layers(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of candidate and gate; one of both on a GPU, for one product in place of two."""
        layers: list[tuple[Tensor, Tensor]] = [
            (layer.weight, layer.bias) for layer in (self.linear, self.gate)
        ]
        if not on_gpu_path(x):
            return layers
        weights, biases = zip(*layers, strict=True)
        return [(torch.cat(weights), torch.cat(biases))]


class Direction(nn.Module):
    """One side attends to the other several times.

    Args:
        config: configuration of the network.
    """

    def __init__(self, config: IMRAMConfig) -> None:
        super().__init__()
        self.steps, self.sharpness = config.steps, config.attention_sharpness
        self.memory_norm = config.memory_norm
        self.unit = MemoryUnit(config.embed_size)

    def of_looking(self, side: Side) -> tuple[Tensor, ...]:
        """Tensors shared by all pairs with the same looking side."""
        return self.unit.of_memory(side.vectors) if self.steps > 1 else ()

    def of_seen(self, side: Side) -> tuple[Tensor, ...]:
        """Tensors shared by all pairs with the same seen side: its Gram matrix, and its share in the memory unit."""
        return (gram(side), *(self.unit.of_seen(side.vectors) if self.steps > 1 else ()))

    def forward(
        self, looking: Side, seen: Side, of_looking: tuple[Tensor, ...], of_seen: tuple[Tensor, ...]
    ) -> Tensor:
        """Similarities summed over the looks, float ``(n seen, n looking)``."""
        means = [
            mean_over_items(look.cosines, looking.valid)
            for look in self.looks(looking, seen, of_looking, of_seen)
        ]
        return torch.stack(means).sum(dim=0)

    def looks(
        self, looking: Side, seen: Side, of_looking: tuple[Tensor, ...], of_seen: tuple[Tensor, ...]
    ) -> Iterator[Look]:
        """Iterate over the looks; arguments as in :meth:`forward`."""
        among, *shares = of_seen
        between = scores = unmixed(products, looking, seen)
        memory, of_memory = looking.vectors[None], tuple(x[None] for x in of_looking)
        for step in range(self.steps):
            weights = attention(scores, seen.valid, self.sharpness)
            yield Look(memory, weights, unmixed(relevance, looking, between, weights, among))
            if step + 1 < self.steps:
                by_item = weights.flatten(2).transpose(1, 2)
                seen_parts = [
                    (by_item @ share).view(-1, *looking.vectors.shape[:2], share.shape[-1])
                    for share in shares
                ]
                memory = self._updated(
                    memory, of_memory if step == 0 else self.unit.of_memory(memory), seen_parts
                )
                scores = (seen.vectors @ memory.flatten(1, 2).transpose(1, 2)).view_as(between)
                if looking.valid is not None:
                    scores = scores.masked_fill(~looking.valid, 0.0)

    def _updated(self, memory: Tensor, of_memory: tuple[Tensor, ...], seen_parts: list[Tensor]) -> Tensor:
        sums = [ours.to(theirs.dtype) + theirs for ours, theirs in zip(of_memory, seen_parts, strict=True)]
        if len(sums) == 2:
            candidate, gate = torch.tanh(sums[0]), torch.sigmoid(sums[1])
            memory = candidate + gate * (memory - candidate)
        else:
            candidate, gate = sums[0].chunk(2, dim=-1)
            memory = torch.lerp(torch.tanh(candidate), memory.to(candidate.dtype), torch.sigmoid(gate))
        return unit_length(memory) if self.memory_norm else memory


class IMRAM(CrossAttention):
    """Iterative matching in one direction or both.

    Similarities are in [-K, K], with ``full`` in [-2 K, 2 K].

    Args:
        config: configuration.
        feature_dim: dimension of a region feature.
        n_regions: not used; any number of regions is allowed.
        vocabulary_size: rows of the word embedding.
    """

    name = "imram"
    title = "IMRAM"
    Config = IMRAMConfig
    config: IMRAMConfig
    intra_modal = False  # a memory joins a word with regions or a region with words, never items of one side

    def __init__(self, config: IMRAMConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, n_regions, vocabulary_size)
        names = {"text": ("t2i",), "image": ("i2t",), "full": ("t2i", "i2t")}[config.mode]
        self.directions = nn.ModuleDict({name: Direction(config) for name in names})
        largest = float(config.steps * len(names))
        self.similarity_range = (-largest, largest)

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarities, float ``(n_images, n_captions)``."""
        looks = {"t2i": self._words_look, "i2t": self._regions_look}
        return torch.stack([looks[name](images, captions) for name in self.directions]).sum(dim=0)

    def _words_look(self, images: Encoded, captions: Encoded) -> Tensor:
        direction: Any = self.directions["t2i"]

        def compare(images: Side, captions: Side, *of_images: Tensor) -> Tensor:
            return self.autocast(direction, captions, images, direction.of_looking(captions), of_images)

        return self._in_tiles(images, captions, direction.of_seen, compare, lambda regions, words: words)

    def _regions_look(self, images: Encoded, captions: Encoded) -> Tensor:
        direction: Any = self.directions["i2t"]

        def compare(images: Side, captions: Side, *of_images: Tensor) -> Tensor:
            return self.autocast(direction, images, captions, of_images, direction.of_seen(captions)).T

        return self._in_tiles(images, captions, direction.of_looking, compare, lambda regions, words: regions)

    def _in_tiles(
        self,
        images: Encoded,
        captions: Encoded,
        prepare: Callable[[Side], tuple[Tensor, ...]],
        compare: Callable[..., Tensor],
        n_looking: Callable[[int, int], int],
    ) -> Tensor:
        wide = 8 * self.embed_size if self.config.steps > 1 else 0

        def bytes_of_pair(regions: int, words: int) -> int:
            return (6 * regions * words + wide * n_looking(regions, words)) * images.vectors.element_size()

        return in_tiles(images, captions, prepare, compare, bytes_of_pair, self.config.block_captions)
