"""SCAN: Stacked Cross Attention for Image-Text Matching. Lee et al., ECCV 2018.

https://arxiv.org/abs/1803.08024

Each word attends to the regions and is compared with its attended vector (``t2i``, the paper's text-image attention),
or each region attends to the words (``i2t``, image-text). The similarity is the mean (``avg``) or the LogSumExp
(``lse``) of these cosines over the looking items. The paper's best results average two trained networks of different
directions.

Points of the published code, which we follow:
  * The paper removes negative products before the attention; the code keeps a tenth of them (leaky ReLU).
  * Products are scaled to unit length over the looking items, with 1e-8 added to every length; a cosine instead
    has a lower bound of 1e-8 on the product of lengths.
  * Attended vectors are not scaled to unit length.
  * LogSumExp is a sum, not a mean: it grows with the number of looking items, so ``lse`` with ``t2i`` prefers long
    captions.
  * Its loss is the sum over the batch of the costs of the hardest negatives, from the first step on: the method
    ``triplet`` with a margin of 0.2 and no warm-up.

The published code requires 36 regions. Here any number is allowed: padding takes no part in the attention.

The published code compares one caption at a time and computes every attended vector. Here captions of similar length
are compared together, and cosines follow from inner products (see ``cross_attention.py``).
"""

import math
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

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
)
from baselines.kit.backbone import Encoded, IntraModal
from baselines.kit.distributed import split_by_captions

PUBLISHED_SHARPNESS = {"t2i": 9.0, "i2t": 4.0}
PUBLISHED_LSE_SHARPNESS = {"t2i": 6.0, "i2t": 5.0}


class SCANConfig(CrossAttentionConfig):
    """Sizes of the encoders and the form of the similarity.

    Attributes:
        direction: ``t2i``, words attend to regions, or ``i2t``, regions attend to words.
        aggregation: ``avg``, mean over the looking items, or ``lse``, LogSumExp.
        attention_sharpness: lambda_1, inverse temperature of the attention, above 0 (default, as in the code: 9 for
            ``t2i``, 4 for ``i2t``).
        lse_sharpness: lambda_2, factor in LogSumExp, above 0 (default, as in the code on Flickr30K: 6 for ``t2i``, 5
            for ``i2t``; 20 on COCO). Not used with ``avg``.
    """

    direction: Literal["t2i", "i2t"] = "t2i"
    aggregation: Literal["avg", "lse"] = "avg"
    attention_sharpness: PositiveFloat | None = None
    lse_sharpness: PositiveFloat | None = None


def log_sum_exp(values: Tensor, valid: Tensor | None, sharpness: float) -> Tensor:
    """``log(sum(exp(sharpness * value))) / sharpness`` over the items without padding.

    Args:
        values: float ``(m, n, items)``.
        valid: bool ``(n, items)`` (default: no padding).
        sharpness: above 0; larger values approach the maximum.
    """
    if valid is not None:
        values = values.masked_fill(~valid, -torch.inf)
    return torch.logsumexp(sharpness * values, dim=-1) / sharpness


class SCAN(CrossAttention):
    """Stacked cross attention in one direction.

    Similarities are in [-1, 1] with ``avg``. With ``lse`` they reach ``1 + log(n) / lse_sharpness`` for n looking
    items, so there is no common bound.

    Args:
        config: configuration.
        feature_dim: dimension of a region feature.
        n_regions: not used; any number of regions is allowed.
        vocabulary_size: rows of the word embedding.
    """

    name = "scan"
    title = "SCAN"
    Config = SCANConfig
    config: SCANConfig

    def __init__(self, config: SCANConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, n_regions, vocabulary_size)
        c = config
        self.sharpness = c.attention_sharpness or PUBLISHED_SHARPNESS[c.direction]
        self.lse_sharpness = c.lse_sharpness or PUBLISHED_LSE_SHARPNESS[c.direction]
        self.similarity_range = (-1.0, 1.0 if c.aggregation == "avg" else math.inf)

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarities, float ``(n_images, n_captions)``."""
        return self._matrix(images, captions, columns_look=self.config.direction == "t2i")

    def image_image_similarities(self, images: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Regions of the anchor (column) attend to those of the item (row); both variants agree.

        Not published; attention, sharpness and aggregation are as in ``similarities``.
        """
        return split_by_captions(
            lambda own: self._matrix(images, images[own], columns_look=True), len(images)
        )

    def caption_caption_similarities(self, captions: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Words of the anchor (column) attend to those of the item (row); both variants agree.

        Not published; attention, sharpness and aggregation are as in ``similarities``.
        """
        return split_by_captions(
            lambda own: self._matrix(captions, captions[own], columns_look=True), len(captions)
        )

    def _matrix(self, rows: Encoded, columns: Encoded, *, columns_look: bool) -> Tensor:
        def prepare(rows: Side) -> tuple[Tensor, ...]:
            return (gram(rows),) if columns_look else ()

        def compare(rows: Side, columns: Side, *prepared: Tensor) -> Tensor:
            if columns_look:
                return self._tile(columns, rows, *prepared)
            return self._tile(rows, columns, gram(columns)).T

        def bytes_of_pair(row_items: int, column_items: int) -> int:
            return 6 * row_items * column_items * rows.vectors.element_size()

        return in_tiles(rows, columns, prepare, compare, bytes_of_pair, self.config.block_captions)

    def _tile(self, looking: Side, seen: Side, among: Tensor) -> Tensor:
        """Similarities, float ``(n seen, n looking)``; ``among`` is the Gram matrix of the seen items."""
        between = products(looking, seen)
        weights = attention(between, seen.valid, self.sharpness)
        cosines = relevance(looking, between, weights, among)
        if self.config.aggregation == "avg":
            return mean_over_items(cosines, looking.valid)
        return log_sum_exp(cosines, looking.valid, self.lse_sharpness)
