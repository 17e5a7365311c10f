"""A linear map of each side into one space, found in closed form: the backbone of CCA (``baselines/methods/cca.py``).

An image is the mean of its regions, each number replaced by the signed square root. A caption is a bag of words,
weighted by TF-IDF (``1 + log tf``, and a smoothed ``idf``) and scaled to unit length. The similarity is a cosine.
"""

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor

from baselines.backbones.encoders import unit_length
from baselines.kit.backbone import CosineBackbone, Encoded, overall
from baselines.kit.batches import to_device, valid_items
from baselines.kit.cca import Projections
from baselines.kit.options import Options


class LinearConfig(Options):
    """Size of the joint space.

    Attributes:
        embed_size: largest number of components; fewer fill the rest with zeros, which no cosine sees.
    """

    embed_size: PositiveInt = 256


class Linear(CosineBackbone):
    """Cosine of projected means of regions and of weighted words; it has no parameters, only buffers.

    Args:
        config: configuration.
        feature_dim: dimension of a region feature.
        n_regions: not used; any number of regions is averaged.
        vocabulary_size: number of token ids.
    """

    name = "linear"
    title = "linear"
    closed_form = True
    Config = LinearConfig
    image_mean: Tensor
    image_weights: Tensor
    word_idf: Tensor
    word_weights: Tensor
    caption_mean: Tensor

    def __init__(self, config: LinearConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config, self.embed_size = config, config.embed_size
        for name, shape in (
            ("image_mean", (feature_dim,)),
            ("image_weights", (feature_dim, config.embed_size)),
            ("word_idf", (vocabulary_size,)),
            ("word_weights", (vocabulary_size, config.embed_size)),
            ("caption_mean", (config.embed_size,)),
        ):
            self.register_buffer(name, torch.zeros(shape))

    def pooled(self, image_features: Tensor, image_lengths: Tensor) -> Tensor:
        """Signed square root of the mean region, float ``(n, feature_dim)``, of float ``(n, regions, feature_dim)``."""
        mean = overall(Encoded(image_features, image_lengths))
        return mean.sign() * mean.abs().sqrt()

    def word_shares(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Tensor:
        """Split the TF-IDF weight of each word evenly over its places in the caption.

        Args:
            caption_tokens: int64 ``(n, longest)``, padded.
            caption_lengths: int64 ``(n,)``, on the CPU.

        Returns:
            float ``(n, longest)``, 0 beyond the length. A caption's words have unit length together, or are all 0.
        """
        valid = valid_items(caption_lengths, caption_tokens.shape[1], caption_tokens.device)
        same = (caption_tokens[:, :, None] == caption_tokens[:, None, :]) & valid[:, None, :]
        times = same.sum(dim=2).clamp(min=1)  # tf of the word at each place
        weight = (1 + times.log()) * self.word_idf[caption_tokens] * valid
        # a word at tf places is counted tf times in this sum
        length = (weight**2 / times).sum(dim=1, keepdim=True).sqrt()
        return weight / times / length.clamp(min=torch.finfo(weight.dtype).tiny)

    @torch.no_grad()
    def project_by(self, projections: Projections, words: Tensor, components: int) -> None:
        """Take the first components of CCA's solution.

        Args:
            projections: the solution, of all features and of some words.
            words: int64 ``(t,)``, token ids of the solution's words.
            components: number of components, at most ``embed_size``.
        """
        images, captions = projections.images[:, :components], projections.captions[:, :components]
        k = images.shape[1]
        for buffer in (self.image_weights, self.word_weights, self.caption_mean):
            buffer.zero_()
        self.image_mean.copy_(_tensor(projections.image_mean))
        self.image_weights[:, :k] = _tensor(images).to(self.image_weights)
        self.word_weights[words, :k] = _tensor(captions).to(self.word_weights)
        self.caption_mean[:k] = _tensor(projections.caption_mean @ captions).to(self.caption_mean)

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Pool and project images."""
        centred = self.pooled(image_features, image_lengths) - self.image_mean
        vectors = unit_length(centred @ self.image_weights)
        return Encoded(vectors, image_lengths, vectors)

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Weight and project words."""
        shares = to_device(self.word_shares(caption_tokens, caption_lengths), self.word_weights.device)
        words = torch.einsum("nl,nlk->nk", shares, self.word_weights[caption_tokens])
        vectors = unit_length(words - self.caption_mean)
        return Encoded(vectors, caption_lengths, vectors)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))
