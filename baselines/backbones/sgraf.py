"""SGRAF: Similarity Reasoning and Filtration for Image-Text Matching. Diao et al., AAAI 2021.

https://arxiv.org/abs/2101.01368

Each word attends to the regions. The squared difference of a word and its attended regions becomes a similarity node,
and a global node compares the whole image with the whole caption. SGR reasons over the graph of nodes, SAF filters
them; SGRAF is the mean similarity of a trained SGR and a trained SAF.

Points of the published code, which we follow:
  * ``embed_size`` is 1024 (NCR's paper says 2048).
  * Attention is normalised over the words, not over the regions, and 1e-8 is added to every norm.
  * In training, SAF's batch normalisation sees one caption at a time (see ``reasoning.py``).
  * All regions count: ``image_lengths`` is not read.

The published code compares one caption at a time. Here captions of similar length are compared in blocks, no tensor of
size images x captions x words x dim is kept, and terms that cancel out of the result are not computed.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional

from baselines.backbones.encoders import WordEncoder, unit_length, xavier_linear
from baselines.backbones.pairwise import (
    SHARPNESS,
    SLOPE,
    Block,
    Nodes,
    attention,
    in_given_order,
    joined,
    mirrored,
    plan_blocks,
    within_memory,
)
from baselines.backbones.reasoning import AttentionFiltration, GlobalVector, GraphReasoning, moments
from baselines.backbones.squared_difference import (
    attended_difference,
    positionwise_difference,
)
from baselines.kit.backbone import Backbone, Encoded, IntraModal
from baselines.kit.batches import memory_budget, valid_items
from baselines.kit.distributed import of_all_captions, own_strips, split_by_captions, summed_over_ranks
from baselines.kit.options import Options, ShareBelowOne

INTRA_MODAL_OFFSET = 1e-6


class SGRAFConfig(Options):
    """Sizes of the network.

    Attributes:
        embed_size: size of the joint space (section 4.1: 1024).
        word_dim: size of a word embedding (section 4.1: 300).
        sim_dim: size of a similarity node (section 4.1: 256).
        dropout: dropout on word embeddings and in the global vectors, in [0, 1) (code: 0.4).
        block_captions: captions compared at once; chosen from the device's memory by default. It changes results only
            by rounding.
    """

    embed_size: PositiveInt = 1024
    word_dim: PositiveInt = 300
    sim_dim: PositiveInt = 256
    dropout: ShareBelowOne = 0.4
    block_captions: PositiveInt | None = None


class SGRAF(Backbone):
    """Common part of SGR and SAF: encoders, similarity nodes, and the loop over blocks.

    Similarities are in (0, 1). Arguments are those of every backbone; all images have ``n_regions`` regions.
    """

    similarity_range = (0.0, 1.0)
    fixed_regions = True
    whole_nodes = 1

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
        """Encode all regions and the whole image as unit vectors."""
        vectors = unit_length(self.autocast(self.regions, image_features))
        return Encoded(vectors, image_lengths, self.autocast(self.image_vector, vectors))

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Encode the words, zero beyond a caption's length, and the whole caption as unit vectors."""
        vectors = unit_length(self.autocast(self.words, caption_tokens, caption_lengths))
        return self.with_pooled(Encoded(vectors, caption_lengths))

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Compute similarities, float ``(n_images, n_captions)`` in (0, 1)."""
        whole_images = images.pooled
        if whole_images is None:
            whole_images = self.autocast(self.image_vector, images.vectors)
        captions = self.with_pooled(captions)
        # the nodes of all images may not fit into memory, so images are processed in parts
        rows = self._rows_at_once(len(images), images.vectors.shape[1], captions)
        logits = [
            self._attended(part, whole, None, captions)
            for part, whole in zip(
                torch.split(images.vectors, rows), torch.split(whole_images, rows), strict=True
            )
        ]
        return torch.sigmoid(torch.cat(logits))

    def image_image_similarities(self, images: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Compare region r with region r of every other image, float ``(n, n)`` in (0, 1).

        Global vectors are computed again, as in the published code, which updates the batch statistics again.
        """
        whole = self.autocast(self.image_vector, images.vectors)
        return torch.sigmoid(self._positionwise(images.vectors, whole, variant))

    def caption_caption_similarities(self, captions: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Compare captions with captions, float ``(n, n)`` in (0, 1), not symmetric for ``gsc``.

        ``gsc``: the words of the anchor (column) attend to the words of the item (row). ``gsc+``: word w is compared
        with word w, up to the longest caption and including padding, so values depend on the batch, as published.
        """
        captions = self.with_pooled(Encoded(captions.vectors, captions.lengths))
        vectors, lengths, whole = captions.vectors, captions.lengths, captions.pooled
        assert whole is not None
        longest = int(lengths.max())
        if variant == "gsc+":
            return torch.sigmoid(self._positionwise(vectors[:, :longest], whole, variant))
        valid = valid_items(lengths, longest, vectors.device)
        keys = vectors[:, :longest] + INTRA_MODAL_OFFSET
        return torch.sigmoid(
            split_by_captions(
                lambda own: self._attended(keys, whole, valid, captions[own], INTRA_MODAL_OFFSET),
                len(captions),
            )
        )

    @abstractmethod
    def _logits(
        self, whole: Tensor, parts: Tensor, valid: Tensor | None, *shared: Tensor
    ) -> tuple[Tensor, ...]:
        """Reason over (SGR) or filter (SAF) the nodes of a block.

        Args:
            whole: float ``(items, anchors, sim_dim)``, see :class:`Nodes`.
            parts: float ``(items, anchors, positions, sim_dim)``.
            valid: bool ``(anchors, 1 + positions)``; None without padding.
            shared: result of :meth:`_shared_terms`.

        Returns:
            Similarities before the sigmoid, float ``(items, anchors)``, and statistics of each anchor ``(anchors,)``.
        """

    def _shared_terms(self) -> tuple[Tensor, ...]:
        """Return what all blocks of a batch use; computed once, so that its gradient is too."""
        return ()

    def _track(self, *statistics: Tensor) -> None:
        """Update running statistics from those of all anchors, in the order of the batch; by default there are none."""

    def _in_blocks(self, nodes: Iterable[Nodes], blocks: Sequence[Block]) -> Tensor:
        """Compute logits block by block, float ``(items, anchors)``, anchors in the caller's order."""
        shared, run = self._shared_terms(), within_memory(len(blocks))
        results = [
            run(self._logits, *block_nodes, block.valid, *shared)
            for block_nodes, block in zip(nodes, blocks, strict=True)
        ]
        logits, *statistics = (in_given_order(columns, blocks) for columns in zip(*results, strict=True))
        self._track(*statistics)
        return logits

    def _in_one_block(self, nodes: Nodes, captions: Encoded) -> Tensor:
        """Compute logits from the nodes of all captions at once, float ``(items, n_captions)``.

        Nothing is recomputed in the backward pass, because a caller may exchange weights only for the forward pass.
        """
        valid = valid_items(1 + captions.lengths, 1 + captions.vectors.shape[1], captions.vectors.device)
        logits, *statistics = self._logits(*nodes, valid, *self._shared_terms())
        self._track(*statistics)
        return logits

    def _symmetric(self, n: int, nodes: Sequence[Nodes], variant: IntraModal) -> Tensor:
        """Compute logits from nodes that are equal for (a, b) and (b, a), float ``(n, n)``.

        Each block has consecutive anchors and all items from its first anchor on. Pairs that are in no block are zero.
        """
        shared, run = self._shared_terms(), within_memory(len(nodes))
        columns = [run(self._logits, *block_nodes, None, *shared)[0] for block_nodes in nodes]
        return mirrored(n, columns, columns)

    def all_logits(self, images: Encoded, captions: Encoded) -> Tensor:
        """Compute similarities before the sigmoid in one pass, float ``(n_images, n_captions)``.

        Unlike :meth:`similarities`, the result can be differentiated twice. It keeps tensors of size images x captions
        x words x dim, so batches must be small.
        """
        words = captions.vectors
        context = torch.bmm(attention(words, images.vectors), images.vectors)
        difference = unit_length(context) - words.flatten(0, 1)
        parts = self.local_nodes(difference.square()).view(len(images), *words.shape[:2], -1)
        assert images.pooled is not None
        assert captions.pooled is not None
        whole = self.global_nodes((images.pooled[:, None] - captions.pooled).square())
        return self._in_one_block(Nodes(whole, parts), captions)

    def own_logits(self, images: Encoded, captions: Encoded) -> Tensor:
        """Compute :meth:`all_logits` of each image with the caption at the same index only, float ``(n,)``."""
        words = captions.vectors
        scores = functional.leaky_relu(images.vectors @ words.transpose(1, 2), SLOPE)
        weights = torch.softmax(SHARPNESS * unit_length(scores), dim=1).transpose(1, 2)
        parts = self.local_nodes((unit_length(weights @ images.vectors) - words).square())
        assert images.pooled is not None
        assert captions.pooled is not None
        whole = self.global_nodes((images.pooled - captions.pooled).square())
        return self._in_one_block(Nodes(whole[None], parts[None]), captions).squeeze(0)

    def with_pooled(self, captions: Encoded) -> Encoded:
        """Add the global vector of each caption, if missing."""
        if captions.pooled is not None:
            return captions
        whole = self.autocast(self.caption_vector, captions.vectors, captions.lengths)
        return Encoded(captions.vectors, captions.lengths, whole)

    def _attended(
        self, keys: Tensor, whole: Tensor, valid: Tensor | None, anchors: Encoded, offset: float = 0.0
    ) -> Tensor:
        blocks = plan_blocks(anchors, len(keys), self._bytes_per_position(keys), self.block_captions)
        return self._in_blocks(
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

    def _positionwise(self, vectors: Tensor, whole: Tensor, variant: IntraModal) -> Tensor:
        n, positions = vectors.shape[:2]
        fitting = memory_budget(vectors.device) // (n * positions * self._bytes_per_position(vectors))
        strips = own_strips(n, self.block_captions or max(1, fitting))
        local = self.local_nodes
        # the published code adds an offset to every squared difference; through the linear layer it is a bias
        bias = local.bias + INTRA_MODAL_OFFSET * local.weight.sum(dim=1)
        nodes = []
        for anchors in strips:
            items = slice(anchors.start, None)
            parts = self.autocast(
                positionwise_difference, vectors[items], vectors[anchors], local.weight, bias
            )
            nodes.append(Nodes(self._whole_nodes(whole[items], whole[anchors], INTRA_MODAL_OFFSET), parts))
        return summed_over_ranks(self._symmetric(n, nodes, variant))

    def _whole_nodes(self, items: Tensor, anchors: Tensor, offset: float) -> Tensor:
        layer = self.global_nodes
        bias = layer.bias + offset * layer.weight.sum(dim=1) if offset else layer.bias
        return self.autocast(positionwise_difference, items, anchors, layer.weight, bias)

    def _bytes_per_position(self, vectors: Tensor) -> int:
        """Return the bytes of temporary tensors that exist at once, per item and anchor position."""
        wide, narrow = (2, 8) if torch.is_grad_enabled() else (1, 5)
        width = wide * self.embed_size + narrow * self.head.in_features
        return width * vectors.element_size()

    def _rows_at_once(self, n_images: int, n_regions: int, captions: Encoded) -> int:
        """Return the number of images compared at once: all in training, where batch statistics need them.

        A block reads its regions and words once. Among blocks of equal size, those with equal numbers of regions and
        words read least.
        """
        if self.training or torch.is_grad_enabled():
            return n_images
        longest = int(captions.lengths.max())
        budget = memory_budget(captions.vectors.device)
        pairs = budget // (longest * self._bytes_per_position(captions.vectors))
        square = math.isqrt(pairs * longest // n_regions)
        return min(n_images, max(1, square, pairs // len(captions)))


class SGRConfig(SGRAFConfig):
    """Sizes of SGR.

    Attributes:
        sgr_steps: number of steps of graph reasoning (section 4.1: 3).
    """

    sgr_steps: PositiveInt = 3


class SGR(SGRAF):
    """Similarity graph reasoning."""

    name = "sgr"
    title = "SGR"
    Config = SGRConfig

    def __init__(self, config: SGRConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, n_regions, vocabulary_size)
        self.reasoning = GraphReasoning(config.sim_dim, config.sgr_steps)

    def _shared_terms(self) -> tuple[Tensor, ...]:
        return self.reasoning.shared_terms()

    def _logits(
        self, whole: Tensor, parts: Tensor, valid: Tensor | None, *shared: Tensor
    ) -> tuple[Tensor, ...]:
        vectors = self.autocast(self.reasoning, joined(Nodes(whole, parts)), valid, *shared)
        logits: Tensor = self.head(vectors.to(next(self.head.parameters()).dtype))
        return (logits.squeeze(-1),)


class SAF(SGRAF):
    """Similarity attention filtration."""

    name = "saf"
    title = "SAF"
    Config = SGRAFConfig

    def __init__(self, config: SGRAFConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, n_regions, vocabulary_size)
        self.reasoning = AttentionFiltration(config.sim_dim)

    def _logits(
        self, whole: Tensor, parts: Tensor, valid: Tensor | None, *shared: Tensor
    ) -> tuple[Tensor, ...]:
        """Filter the nodes; the statistics are those that normalise each anchor's scores in training."""
        nodes = joined(Nodes(whole, parts))
        scores = self.reasoning.scores(nodes)
        mean, variance, count = moments(scores, valid)
        statistics = (mean.flatten(), variance.flatten(), count.flatten())
        if not self.training:
            mean, variance = self.reasoning.running_moments()
        vectors = self.reasoning(nodes, scores, valid, mean, variance)
        return self.head(vectors).squeeze(-1), *statistics

    def _track(self, *statistics: Tensor) -> None:
        if self.training:
            self.reasoning.track(*(of_all_captions(values) for values in statistics))

    def _symmetric(self, n: int, nodes: Sequence[Nodes], variant: IntraModal) -> Tensor:
        mean, variance = self._symmetric_moments(n, nodes, variant)
        # a pair has the same nodes in both orders, but each anchor normalises its scores with its own statistics
        lower, upper, run = [], [], within_memory(len(nodes))
        for block in nodes:
            first, size = n - len(block.whole), block.whole.shape[1]
            of_anchors = (x[:, first : first + size] for x in (mean, variance))
            of_items = (x[:, first:].transpose(0, 1) for x in (mean, variance))
            lower.append(run(self._filtered, *block, *of_anchors))
            upper.append(run(self._filtered, *block, *of_items))
        return mirrored(n, lower, upper)

    def _symmetric_moments(
        self, n: int, nodes: Sequence[Nodes], variant: IntraModal
    ) -> tuple[Tensor, Tensor]:
        """Compute the mean and variance that normalise each anchor's scores, ``(1, anchors, 1)``.

        ``gsc`` normalises anchor by anchor, ``gsc+`` all pairs at once.
        """
        if not self.training:
            mean, variance = self.reasoning.running_moments()
            return mean.expand(1, n, 1), variance.expand(1, n, 1)
        run = within_memory(len(nodes))
        columns = [run(self._scores, *block) for block in nodes]
        scores = summed_over_ranks(mirrored(n, columns, columns))
        if variant == "gsc+":
            mean, variance, count = moments(scores.flatten(0, 1)[:, None], None)
        else:
            mean, variance, count = moments(scores, None)
        self.reasoning.track(mean.flatten(), variance.flatten(), count.flatten())
        return mean.expand(1, n, 1), variance.expand(1, n, 1)

    def _scores(self, whole: Tensor, parts: Tensor) -> Tensor:
        return self.reasoning.scores(joined(Nodes(whole, parts)))

    def _filtered(self, whole: Tensor, parts: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        nodes = joined(Nodes(whole, parts))
        vectors = self.reasoning(nodes, self.reasoning.scores(nodes), None, mean, variance)
        logits: Tensor = self.head(vectors)
        return logits.squeeze(-1)
