"""What a backbone promises: encode each side once, then compare every image with every caption."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor, nn

from baselines.batches import Batch


@dataclass(frozen=True)
class Encoded:
    """One side of a batch in the joint space.

    Attributes:
        vectors: float; ``(n, items, dim)`` for backbones that compare regions with words, ``(n, dim)`` for
            pooled backbones.
        lengths: int64 ``(n,)``, valid items of each row; entries beyond are zero.
        pooled: float ``(n, dim)``, one vector per image or caption; None where the backbone makes it per pair.
    """

    vectors: Tensor
    lengths: Tensor
    pooled: Tensor | None = None

    def __len__(self) -> int:
        return len(self.vectors)


class Backbone(nn.Module, ABC):
    """A matching network. ``similarities`` has images as rows and captions as columns."""

    similarity_range: tuple[float, float]
    embed_size: int
    fixed_regions: ClassVar[bool] = False
    """Every image must have the same number of regions; otherwise any number will do."""

    @abstractmethod
    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Embed images, float ``(n, regions, feature_dim)`` with int64 ``(n,)`` valid regions."""

    @abstractmethod
    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Embed captions, int64 ``(n, longest)`` padded with 0, with int64 ``(n,)`` valid lengths, in any order."""

    @abstractmethod
    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarity of every image with every caption, float ``(n_images, n_captions)``."""

    @abstractmethod
    def image_image_similarities(self, images: Encoded) -> Tensor:
        """Similarity of every image with every image, ``[row item, anchor column]`` (GSC, Eq. 7)."""

    @abstractmethod
    def caption_caption_similarities(self, captions: Encoded) -> Tensor:
        """Similarity of every caption with every caption, ``[row item, anchor column]`` (GSC, Eq. 7)."""

    @classmethod
    @abstractmethod
    def from_published_state_dict(cls, state: Mapping[str, Tensor]) -> Self:
        """Build the network from a state dict with the published names; sizes are read from the tensors."""

    def forward(self, batch: Batch) -> Tensor:
        """Similarities of a batch of B pairs, float ``(B, B)``; the diagonal holds the given pairs."""
        images = self.encode_images(batch.image_features, batch.image_lengths)
        captions = self.encode_captions(batch.caption_tokens, batch.caption_lengths)
        return self.similarities(images, captions)
