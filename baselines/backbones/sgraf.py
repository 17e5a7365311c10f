"""SGRAF: Similarity Reasoning and Filtration for Image-Text Matching. Diao et al., AAAI 2021.

https://arxiv.org/abs/2101.01368

Regions and words are compared one by one: each word attends to the regions, the squared difference of word
and attended regions becomes a similarity node, and one more node compares the whole image with the whole
caption. SGR reasons over the graph of nodes, SAF filters them; SGRAF is the mean similarity of a trained
SGR and a trained SAF.

Points of the published code, which we follow:
  * ``embed_size`` is 1024 (NCR's paper says 2048).
  * Attention is scaled to unit length over the words, not over the regions, and every length has 1e-8 added.
  * In training, SAF's batch normalisation sees one caption at a time (see ``saf.py``).
  * All regions count: ``image_lengths`` is carried along and not read.

The published code compares one caption at a time. Here captions of similar length go through in blocks,
nothing of the size images x captions x words x dim is kept, and terms that drop out of the result are not
computed.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from baselines.backbones.encoders import GlobalVector, WordEncoder, unit_length, valid_items, xavier_linear
from baselines.backbones.pairwise import (
    Block,
    Nodes,
    attention,
    memory_budget,
    plan_blocks,
)
from baselines.backbones.squared_difference import (
    attended_difference,
    positionwise_difference,
)
from baselines.backbones.weight_names import size_of, translate
from baselines.kit.backbone import Backbone, Encoded, IntraModal
from baselines.kit.distributed import own_strips, split_by_captions, summed_over_ranks
from baselines.kit.on_host import on_host

INTRA_MODAL_OFFSET = 1e-6


class SGRAFConfig(BaseModel):
    """Sizes of the network.

    Attributes:
        embed_size: of the joint space (section 4.1: 1024).
        word_dim: of a word embedding (section 4.1: 300).
        sim_dim: of a similarity node (section 4.1: 256).
        dropout: on word embeddings and in the global vectors, in [0, 1) (code: 0.4).
        block_captions: captions compared at once; chosen from the free memory by default. It never changes a
            result beyond rounding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    embed_size: Annotated[int, Field(ge=1)] = 1024
    word_dim: Annotated[int, Field(ge=1)] = 300
    sim_dim: Annotated[int, Field(ge=1)] = 256
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.4
    block_captions: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_kernel(cls, content: Any) -> Any:
        """Earlier versions wrote ``kernel: torch`` into run folders, which computed the same."""
        if isinstance(content, dict) and content.get("kernel") == "torch":
            return {name: value for name, value in content.items() if name != "kernel"}
        return content


class SGRAF(Backbone):
    """What SGR and SAF share: encoders, similarity nodes, and the way through the blocks.

    Similarities are in (0, 1). Args as for every backbone; all images have ``n_regions`` regions.
    """

    similarity_range = (0.0, 1.0)
    fixed_regions = True

    def __init__(self, config: SGRAFConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embed_size, self.block_captions = config.embed_size, config.block_captions
        self.regions = xavier_linear(feature_dim, config.embed_size)
        self.words = WordEncoder(vocabulary_size, config.word_dim, config.embed_size, config.dropout)
        self.image_vector = GlobalVector(config.embed_size, config.dropout, n_regions)
        self.caption_vector = GlobalVector(config.embed_size, config.dropout)
        self.local_nodes = xavier_linear(config.embed_size, config.sim_dim)
        self.global_nodes = xavier_linear(config.embed_size, config.sim_dim)
        self.head = xavier_linear(config.sim_dim, 1)

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Unit vectors of all regions, and one of the whole image."""
        vectors = unit_length(self.autocast(self.regions, image_features))
        return Encoded(vectors, image_lengths, self.autocast(self.image_vector, vectors))

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Unit vectors of the words, zero beyond a caption's length, and one of the whole caption."""
        vectors = unit_length(self.autocast(self.words, caption_tokens, caption_lengths))
        return self.with_pooled(Encoded(vectors, caption_lengths))

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarities, float ``(n_images, n_captions)`` in (0, 1)."""
        whole_images = images.pooled
        if whole_images is None:
            whole_images = self.autocast(self.image_vector, images.vectors)
        captions = self.with_pooled(captions)
        # the nodes of a part of the images fit into memory, those of all of them do not
        rows = self._rows_at_once(len(images), images.vectors.shape[1], captions)
        logits = [
            self._attended_logits(part, whole, None, captions)
            for part, whole in zip(
                torch.split(images.vectors, rows), torch.split(whole_images, rows), strict=True
            )
        ]
        return torch.sigmoid(torch.cat(logits))

    def image_image_similarities(self, images: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Region r against region r, float ``(n, n)`` in (0, 1).

        The global vectors are made anew, as in the published code; so batch statistics move again.
        """
        whole = self.autocast(self.image_vector, images.vectors)
        return torch.sigmoid(self._positionwise_logits(images.vectors, whole, variant))

    def caption_caption_similarities(self, captions: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Captions against captions, float ``(n, n)`` in (0, 1), not symmetric for ``gsc``.

        ``gsc``: the words of the anchor (column) attend to the words of the item (row). ``gsc+``: word w
        against word w up to the longest caption, padding included, so a value depends on the batch; as
        published.
        """
        captions = self.with_pooled(Encoded(captions.vectors, captions.lengths))
        vectors, lengths, whole = captions.vectors, captions.lengths, captions.pooled
        assert whole is not None
        longest = int(on_host(lengths).max())
        if variant == "gsc+":
            return torch.sigmoid(self._positionwise_logits(vectors[:, :longest], whole, variant))
        valid = valid_items(lengths, longest)
        keys = vectors[:, :longest] + INTRA_MODAL_OFFSET
        return torch.sigmoid(
            split_by_captions(
                lambda own: self._attended_logits(keys, whole, valid, captions[own], INTRA_MODAL_OFFSET),
                len(captions),
            )
        )

    @abstractmethod
    def _logits(self, nodes: Iterable[Nodes], blocks: Sequence[Block]) -> Tensor:
        """Similarities before the sigmoid, float ``(items, anchors)``, anchors in the caller's order."""

    @abstractmethod
    def _symmetric_logits(self, n: int, nodes: Sequence[Nodes], variant: IntraModal) -> Tensor:
        """The same from nodes that are equal for (a, b) and (b, a), float ``(n, n)``.

        Each block holds consecutive anchors and the items from its first anchor on; where none holds a pair,
        the result is zero.
        """

    def with_pooled(self, captions: Encoded) -> Encoded:
        """The captions, and the global vector of each."""
        if captions.pooled is not None:
            return captions
        whole = self.autocast(self.caption_vector, captions.vectors, captions.lengths)
        return Encoded(captions.vectors, captions.lengths, whole)

    def _attended_logits(
        self, keys: Tensor, whole: Tensor, valid: Tensor | None, anchors: Encoded, offset: float = 0.0
    ) -> Tensor:
        blocks = plan_blocks(anchors.lengths, len(keys), self._bytes_per_position(keys), self.block_captions)
        return self._logits(
            (self._attended_nodes(keys, whole, valid, anchors, block, offset) for block in blocks), blocks
        )

    def _attended_nodes(
        self, keys: Tensor, whole: Tensor, valid: Tensor | None, anchors: Encoded, block: Block, offset: float
    ) -> Nodes:
        assert anchors.pooled is not None
        queries = anchors.vectors[block.anchors, : block.longest]
        weights = self.autocast(attention, queries, keys, valid)
        parts = self.autocast(
            attended_difference,
            weights,
            keys,
            queries.flatten(0, 1),
            self.local_nodes.weight,
            self.local_nodes.bias,
        )
        return Nodes(
            self._whole_nodes(whole, anchors.pooled[block.anchors], offset),
            parts.view(len(keys), *queries.shape[:2], -1),
        )

    def _positionwise_logits(self, vectors: Tensor, whole: Tensor, variant: IntraModal) -> Tensor:
        n, positions = vectors.shape[:2]
        fitting = memory_budget(vectors.device) // (n * positions * self._bytes_per_position(vectors))
        strips = own_strips(n, self.block_captions or max(1, fitting))
        local = self.local_nodes
        bias = local.bias + INTRA_MODAL_OFFSET * local.weight.sum(dim=1)
        nodes = []
        for anchors in strips:
            items = slice(anchors.start, None)
            parts = self.autocast(
                positionwise_difference, vectors[items], vectors[anchors], local.weight, bias
            )
            nodes.append(Nodes(self._whole_nodes(whole[items], whole[anchors], INTRA_MODAL_OFFSET), parts))
        return summed_over_ranks(self._symmetric_logits(n, nodes, variant))

    def _whole_nodes(self, items: Tensor, anchors: Tensor, offset: float) -> Tensor:
        layer = self.global_nodes
        bias = layer.bias + offset * layer.weight.sum(dim=1)
        return self.autocast(positionwise_difference, items, anchors, layer.weight, bias)

    def _bytes_per_position(self, vectors: Tensor) -> int:
        """Temporary memory of one item and one anchor position: the tensors that live at once."""
        wide, narrow = (2, 8) if torch.is_grad_enabled() else (1, 5)
        width = wide * self.embed_size + narrow * self.head.in_features
        return width * vectors.element_size()

    def _rows_at_once(self, n_images: int, n_regions: int, captions: Encoded) -> int:
        """Images compared at once: all in training, where batch statistics need them.

        A block reads its regions and its words once, so of all blocks that fit into the memory those with as many
        regions as words read least.
        """
        if self.training or torch.is_grad_enabled():
            return n_images
        longest = int(on_host(captions.lengths).max())
        budget = memory_budget(captions.vectors.device)
        pairs = budget // (longest * self._bytes_per_position(captions.vectors))
        square = math.isqrt(pairs * longest // n_regions)
        return min(n_images, max(1, square, pairs // len(captions)))

    @classmethod
    def _with_weights(
        cls, state: Mapping[str, Tensor], config: SGRAFConfig, names: Mapping[str, str]
    ) -> Self:
        feature_dim = size_of(state, "img_enc.fc.weight", 1)
        n_regions = size_of(state, "sim_enc.v_global_w.embedding_local.1.weight")
        network = cls(config, feature_dim, n_regions, size_of(state, "txt_enc.embed.weight"))
        network.load_weights(translate(state, {**WEIGHT_NAMES, **names}))
        return network


WEIGHT_NAMES = {
    "img_enc.fc.": "regions.",
    "txt_enc.embed.": "words.embedding.",
    "txt_enc.cap_rnn.": "words.gru.",
    "sim_enc.v_global_w.embedding_local.": "image_vector.local.",
    "sim_enc.v_global_w.embedding_global.": "image_vector.overall.",
    "sim_enc.v_global_w.embedding_common.0.": "image_vector.common.",
    "sim_enc.t_global_w.embedding_local.": "caption_vector.local.",
    "sim_enc.t_global_w.embedding_global.": "caption_vector.overall.",
    "sim_enc.t_global_w.embedding_common.0.": "caption_vector.common.",
    "sim_enc.sim_tranloc_w.": "local_nodes.",
    "sim_enc.sim_tranglo_w.": "global_nodes.",
    "sim_enc.sim_eval_w.": "head.",
}


def weight_sizes(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Sizes that the weights have, as options of a config."""
    return {
        "embed_size": size_of(state, "img_enc.fc.weight"),
        "word_dim": size_of(state, "txt_enc.embed.weight", 1),
        "sim_dim": size_of(state, "sim_enc.sim_eval_w.weight", 1),
    }
