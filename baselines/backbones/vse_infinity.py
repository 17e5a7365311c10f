"""VSE-infinity: Learning the Best Pooling Strategy for Visual Semantic Embedding. Chen et al., CVPR 2021.

https://arxiv.org/abs/2011.04305

Regions and words are embedded one by one, then pooled by a generalised pooling operator (GPO): features are sorted
along each dimension and summed with weights that depend only on the rank. The similarity is a cosine.

Points of the published code (the copy that CRCL trains), which we follow:
  * The region MLP also processes padding, so in training padding enters its batch statistics.
  * Captions go through a bidirectional GRU without dropout, not BERT.

The options ``caption_mlp``, ``dropout`` and ``centred`` come from IN2R's code; they are off by default.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from baselines.backbones.encoders import WordEncoder, both_directions, on_gpu_path, unit_length, xavier_linear
from baselines.kit.backbone import CosineBackbone, Encoded
from baselines.kit.batches import to_device, valid_items
from baselines.kit.options import Options, ShareBelowOne

OUT_OF_RANGE = -10000.0
MOMENTUM = 0.1
"""Weight of a batch's mean in the running mean, as in batch normalisation."""


class VSEInfinityConfig(Options):
    """Sizes of the network.

    Attributes:
        embed_size: dimension of the joint space (section 4.1: 1024).
        word_dim: dimension of a word embedding (section 4.1: 300).
        position_dim: dimension of the position codes and of the GRU that reads them (section 3.3: 32).
        temperature: temperature of the softmax over pooling weights, above 0 (code: 0.1).
        caption_mlp: words pass the same layers as regions before pooling (IN2R).
        dropout: dropout of region features and word embeddings, in [0, 1) (IN2R: 0.3).
        centred: subtract the mean of the vectors and normalise again, see :class:`Centring` (IN2R).
    """

    embed_size: Annotated[int, Field(ge=2)] = 1024
    word_dim: PositiveInt = 300
    position_dim: Annotated[int, Field(ge=2, multiple_of=2)] = 32
    temperature: PositiveFloat = 0.1
    caption_mlp: bool = False
    dropout: ShareBelowOne = 0.0
    centred: bool = False


def position_codes(n: int, dim: int, device: torch.device) -> Tensor:
    """Sine and cosine codes of the ranks 0 to n - 1, float32 ``(n, dim)``: sines at even entries."""
    frequencies = torch.exp(torch.arange(0, dim, 2, device=device) * -(math.log(10000.0) / dim))
    angles = torch.arange(n, device=device)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class GeneralizedPooling(nn.Module):
    """GPO (section 3): pooling weights from a GRU over position codes, one weight per rank."""

    def __init__(self, position_dim: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.gru = nn.GRU(position_dim, position_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(position_dim, 1, bias=False)

    def weights(self, lengths: Tensor, longest: int) -> Tensor:
        """Pooling weights, float ``(n, longest)``: zero beyond a row's length, each row sums to 1.

        They depend only on the length, so the GRU runs once per distinct length.
        """
        weight = self.linear.weight
        if torch.compiler.is_compiling():  # all lengths, so that no length changes a shape
            distinct, row = torch.arange(1, 1 + longest, device=weight.device), lengths - 1
        else:
            distinct, row = torch.unique(lengths, return_inverse=True)
        codes = to_device(position_codes(longest, self.gru.input_size, distinct.device), weight.device)
        codes = codes.to(weight.dtype)
        states = both_directions(self.gru, codes.expand(len(distinct), -1, -1), distinct)
        scores = self.linear(states).squeeze(-1)
        scores = scores.masked_fill(~valid_items(distinct, longest, weight.device), OUT_OF_RANGE)
        return torch.softmax(scores / self.temperature, dim=1)[to_device(row, weight.device)]

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Pool float ``(n, longest, dim)`` into ``(n, dim)``."""
        longest = features.shape[1]
        if torch.compiler.is_compiling() or int(lengths.min()) < longest:
            # padding sorts below every value, where its weight is zero
            features = features.masked_fill(
                ~valid_items(lengths, longest, features.device)[..., None], OUT_OF_RANGE
            )
        ranked = _falling(features)
        weights = self.weights(lengths, longest)
        return (weights[:, None] @ ranked.to(weights.dtype)).squeeze(1)


def _falling(features: Tensor) -> Tensor:
    """Sort each dimension over the items of a row, largest value first; float ``(n, longest, dim)``."""
    if on_gpu_path(features):
        return features.sort(dim=1, descending=True).values
    # on a CPU, NumPy's vectorised sort is about seven times as fast as torch's
    by_dimension = features.transpose(1, 2).contiguous()
    keys = by_dimension.detach().to(torch.promote_types(features.dtype, torch.float32))
    order = np.argsort(-keys.numpy(), axis=2)
    return by_dimension.gather(2, torch.from_numpy(order)).transpose(1, 2)


class ItemEncoder(nn.Module):
    """A linear layer plus a two-layer MLP with batch normalisation, item by item, padding included."""

    def __init__(self, feature_dim: int, embed_size: int) -> None:
        super().__init__()
        self.linear = xavier_linear(feature_dim, embed_size)
        self.hidden = nn.Linear(feature_dim, embed_size // 2)
        self.norm = nn.BatchNorm1d(embed_size // 2)
        self.out = nn.Linear(embed_size // 2, embed_size)

    def forward(self, features: Tensor) -> Tensor:
        """Embed float ``(n, items, feature_dim)`` as ``(n, items, embed_size)``."""
        items = features.flatten(0, 1)
        embedded: Tensor = self.linear(items) + self.out(torch.relu(self.norm(self.hidden(items))))
        return embedded.view(*features.shape[:2], -1)


class Centring(nn.Module):
    """Subtracts a mean from vectors and scales them to unit length again.

    In training it is the batch's mean. In evaluation it is a running mean of training batches, so that a vector does
    not depend on its batch. IN2R's code uses the batch's mean in evaluation too, see :func:`centred_by_batch`.

    Attributes:
        mean: the running mean, float ``(dim,)``.
        by_batch: whether evaluation uses the batch's mean; the running mean then stays as it is.
    """

    mean: Tensor
    by_batch: bool = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))

    def forward(self, vectors: Tensor) -> Tensor:
        """Centre float ``(n, dim)``."""
        if not (self.training or self.by_batch):
            return unit_length(vectors - self.mean)
        mean = vectors.mean(dim=0)
        if self.training:
            self.mean.lerp_(mean.detach(), MOMENTUM)
        return unit_length(vectors - mean)


@contextmanager
def centred_by_batch(module: nn.Module) -> Iterator[None]:
    """Within it, all networks of ``module`` centre every batch by its own mean in evaluation too."""
    centrings = [each for each in module.modules() if isinstance(each, Centring)]
    for each in centrings:
        each.by_batch = True
    try:
        yield
    finally:
        for each in centrings:
            each.by_batch = False


class VSEInfinity(CosineBackbone):
    """Cosine of pooled embeddings, in [-1, 1].

    Args:
        config: configuration.
        feature_dim: dimension of a region feature.
        n_regions: not used; any number of regions can be pooled.
        vocabulary_size: rows of the word embedding.
    """

    name = "vse_infinity"
    title = "VSE-infinity"
    Config = VSEInfinityConfig

    def __init__(
        self, config: VSEInfinityConfig, feature_dim: int, n_regions: int, vocabulary_size: int
    ) -> None:
        super().__init__()
        self.config, self.embed_size = config, config.embed_size
        self.region_dropout = nn.Dropout(config.dropout)
        self.regions = ItemEncoder(feature_dim, config.embed_size)
        self.region_pooling = GeneralizedPooling(config.position_dim, config.temperature)
        self.words = WordEncoder(vocabulary_size, config.word_dim, config.embed_size, config.dropout)
        self.word_pooling = GeneralizedPooling(config.position_dim, config.temperature)
        self.word_layers = (
            ItemEncoder(config.embed_size, config.embed_size) if config.caption_mlp else nn.Identity()
        )
        self.centre_images, self.centre_captions = (
            Centring(config.embed_size) if config.centred else nn.Identity() for _ in range(2)
        )

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Embed and pool the valid regions of each image."""
        regions = self.autocast(self.regions, self.region_dropout(image_features))
        pooled = self.region_pooling(regions, image_lengths)
        vectors = self.centre_images(unit_length(pooled))
        return Encoded(vectors, image_lengths, vectors)

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Embed and pool the words of each caption."""
        words = self.autocast(self.words, caption_tokens, caption_lengths)
        pooled = self.word_pooling(self.autocast(self.word_layers, words), caption_lengths)
        vectors = self.centre_captions(unit_length(pooled))
        return Encoded(vectors, caption_lengths, vectors)
