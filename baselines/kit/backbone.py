"""What a backbone promises: encode each side once, then compare every image with every caption."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from baselines.kit.batches import Batch
from baselines.kit.distributed import split_by_captions
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import DataError, TrainingError

IntraModal = Literal["gsc", "gsc+"]
"""How the published code of GSC, or of its two-network variant GSC+, compares items of one modality."""


@dataclass(frozen=True)
class Encoded:
    """One side of a batch in the joint space.

    Attributes:
        vectors: float; ``(n, items, dim)`` for backbones that compare regions with words, ``(n, dim)`` for
            pooled backbones.
        lengths: int64 ``(n,)``, valid items of each row, on the CPU; entries beyond are zero.
        pooled: float ``(n, dim)``, one vector per image or caption. None asks ``similarities`` to make it
            from ``vectors``, as it must be where a method changed these.
    """

    vectors: Tensor
    lengths: Tensor
    pooled: Tensor | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice) -> "Encoded":
        """Some of the rows."""
        pooled = None if self.pooled is None else self.pooled[rows]
        return Encoded(self.vectors[rows], self.lengths[rows], pooled)

    def chosen(self, rows: Tensor) -> "Encoded":
        """Rows in any order, int64 ``(n,)``; a row may come several times."""
        pooled = None if self.pooled is None else self.pooled[rows]
        return Encoded(self.vectors[rows], self.lengths[rows.cpu()], pooled)


class Backbone(nn.Module, ABC):
    """A matching network. ``similarities`` has images as rows and captions as columns.

    A backbone of the registry is built as ``cls(config, feature_dim, n_regions, vocabulary_size)``;
    ``Config`` is its frozen model of options.
    """

    name: ClassVar[str]
    """In recipes, such as ``vse_infinity``."""
    title: ClassVar[str]
    """In results, such as ``VSE-infinity``."""
    Config: ClassVar[type[BaseModel]]
    similarity_range: tuple[float, float]
    """Smallest and largest similarity that any pair can have, perhaps infinite; options may change it."""
    intra_modal: ClassVar[bool] = True
    """Images can be compared with images, and captions with captions."""
    pools: ClassVar[bool] = False
    """``Encoded.vectors`` hold one vector per image or caption; otherwise one per region or word."""
    fixed_regions: ClassVar[bool] = False
    """Every image must have the same number of regions; otherwise any number will do."""
    dot_products: ClassVar[bool] = False
    """Similarities are the dot products of ``Encoded.vectors``, so that these say all."""
    reads_images: ClassVar[bool] = False
    """Images themselves, and caption texts, come in place of region features and of the dataset's tokens."""
    tokenizer: ClassVar[str] = ""
    """What tokenizes the captions where the dataset's tokens are not read."""
    mixed: bool = False
    """Whether what goes through :meth:`autocast` is multiplied in bfloat16; set by the engine."""
    embed_size: int
    config: Any

    @abstractmethod
    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Embed images, float ``(n, regions, feature_dim)``; int64 ``(n,)`` valid regions lie on the CPU."""

    @abstractmethod
    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Embed captions, int64 ``(n, longest)`` padded with 0; int64 ``(n,)`` lengths lie on the CPU."""

    @abstractmethod
    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarity of every image with every caption, float ``(n_images, n_captions)``, never bfloat16."""

    @abstractmethod
    def image_image_similarities(self, images: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Similarity of every image with every image, ``[row item, anchor column]`` (GSC, Eq. 7)."""

    @abstractmethod
    def caption_caption_similarities(self, captions: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Similarity of every caption with every caption, ``[row item, anchor column]`` (GSC, Eq. 7)."""

    def autocast(self, function: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """``function(*inputs)``, with products in bfloat16 where the network is ``mixed``.

        Autocast keeps copies of the weights until it is left, so it is entered anew for every call: the copies are
        never older than the weights. The last product of a network stays outside, in float32: similarities and
        losses need more than the 8 bits of bfloat16.

        Returns:
            What ``function`` returns, in bfloat16 where the network is ``mixed`` and the function ends in a product.
        """
        with torch.autocast(next(self.parameters()).device.type, torch.bfloat16, enabled=self.mixed):
            return function(*inputs)

    @classmethod
    def title_of(cls, config: Any) -> str:
        """Name in results; a backbone of several architectures says which one it is."""
        return cls.title

    @classmethod
    def pretrained_encoder(cls, config: Any) -> str:
        """What :meth:`load_pretrained` loads, as a submission states it; empty where all weights are drawn."""
        return ""

    def load_pretrained(self) -> None:
        """Begin with weights that were trained on other image-text pairs; by default all weights stay as drawn."""
        return

    @classmethod
    def inputs(cls, config: Any, dataset: PairedDataset) -> PairedDataset:
        """The dataset as this backbone reads it; as it is by default.

        Raises:
            DataError: it lacks what the backbone reads.
        """
        if dataset.n_regions == 0:
            raise DataError(
                f"{dataset.name} has images without region features, which backbone {cls.name} reads; "
                "choose a backbone that reads images, such as clip"
            )
        return dataset

    def forward(self, batch: Batch) -> Tensor:
        """Similarities of a batch of B pairs, float ``(B, B)``; the diagonal holds the given pairs."""
        return self.compare(*self.encode(batch))

    def encode(self, batch: Batch) -> tuple[Encoded, Encoded]:
        """Images and captions of a batch in the joint space."""
        images = self.encode_images(batch.image_features, batch.image_lengths)
        return images, self.encode_captions(batch.caption_tokens, batch.caption_lengths)

    def auxiliary_losses(self, images: Encoded, batch: Batch) -> Tensor:
        """What the network itself adds to the loss of each given pair, float ``(pairs,)``; nothing by default.

        A method adds their mean over the pairs to its loss, whatever its own reduction, each times the trust that the
        method has in the pair; those of images with borrowed captions it leaves out.

        Args:
            images: the batch's, as :meth:`encode` returned them in training.
            batch: the pairs.
        """
        return images.vectors.new_zeros(len(images))

    def compare(self, images: Encoded, captions: Encoded) -> Tensor:
        """``similarities`` of a batch in training, the captions shared out over the ranks."""
        captions = self.with_pooled(captions)  # not after the split: all ranks draw the same random numbers
        return split_by_captions(lambda block: self.similarities(images, captions[block]), len(captions))

    def with_pooled(self, captions: Encoded) -> Encoded:
        """The captions with ``pooled``, for backbones that need it."""
        return captions

    def load_weights(self, state: Mapping[str, Tensor]) -> None:
        """Take weights over, in their own precision.

        Raises:
            TrainingError: a weight is missing, left over or of another shape.
        """
        self.to(next(tensor.dtype for tensor in state.values() if tensor.is_floating_point()))
        try:
            self.load_state_dict(dict(state))
        except RuntimeError as error:
            found = " ".join(str(error).split())
            raise TrainingError(f"the weights do not fit {type(self).__name__}: {found}") from None


class CosineBackbone(Backbone):
    """A backbone that makes one unit vector of each image and caption; similarities are cosines, in [-1, 1]."""

    similarity_range = (-1.0, 1.0)
    pools = True
    dot_products = True

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Cosines, float ``(n_images, n_captions)``."""
        return images.vectors @ captions.vectors.T

    def image_image_similarities(self, images: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Cosines between images; both variants agree."""
        return images.vectors @ images.vectors.T

    def caption_caption_similarities(self, captions: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Cosines between captions; both variants agree."""
        return captions.vectors @ captions.vectors.T
