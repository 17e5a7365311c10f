"""The interface of backbones: encode each side once, then compare every image with every caption."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.nn import functional

from baselines.kit.batches import Batch, memory_budget, to_device
from baselines.kit.distributed import split_by_captions
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import DataError, TrainingError, named

WORDS_AT_ONCE = 8
"""A compiled pass pads captions to a multiple of so many words, so that it has few shapes."""
MOST_GRAPHS = 64
"""Compiled passes by shape, by training or evaluation, with or without gradient; others are not compiled."""

IntraModal = Literal["gsc", "gsc+"]
"""How the published code of GSC, or of its two-network variant GSC+, compares items of one modality."""


@dataclass(frozen=True)
class Encoded:
    """One side of a batch in the joint space.

    Attributes:
        vectors: float; ``(n, items, dim)`` for backbones that compare regions with words, ``(n, dim)`` for
            pooled backbones.
        lengths: int64 ``(n,)``, valid items of each row, on the CPU; entries beyond are zero.
        pooled: float ``(n, dim)``, one vector per image or caption. With None, ``similarities`` computes it from
            ``vectors``; a method that changes ``vectors`` must set it to None.
    """

    vectors: Tensor
    lengths: Tensor
    pooled: Tensor | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice) -> "Encoded":
        """Select a slice of rows."""
        pooled = None if self.pooled is None else self.pooled[rows]
        return Encoded(self.vectors[rows], self.lengths[rows], pooled)

    def chosen(self, rows: Tensor) -> "Encoded":
        """Select rows in any order, int64 ``(n,)``; a row may occur several times."""
        pooled = None if self.pooled is None else self.pooled[rows]
        pools = self.vectors.dim() == 2  # one item each: no need to wait for rows on a GPU
        lengths = self.lengths.new_ones(len(rows)) if pools else self.lengths[rows.cpu()]
        return Encoded(self.vectors[rows], lengths, pooled)


def overall(encoded: Encoded) -> Tensor:
    """One vector per image or caption, ``(n, dim)``: the mean of its regions or words."""
    if encoded.vectors.dim() == 2:
        return encoded.vectors
    # entries beyond the length are zero, so the sum is that of the valid items
    return encoded.vectors.sum(dim=1) / to_device(encoded.lengths, encoded.vectors.device)[:, None]


@dataclass(frozen=True)
class Output:
    """What a network makes of a batch of B pairs.

    Attributes:
        similarities: float ``(B, B)``, images as rows and captions as columns; the diagonal holds the given pairs.
        images: encoded images of the batch.
        captions: encoded captions of the batch.
        auxiliary: the network's own loss of each given pair, float ``(B,)``: VSRN's captioner in training, else zero. A
            method adds its mean to its loss, weights each pair by its trust in the pair, and leaves out images with
            borrowed captions.
    """

    similarities: Tensor
    images: Encoded
    captions: Encoded
    auxiliary: Tensor


class Backbone(nn.Module, ABC):
    """A matching network. ``similarities`` has images as rows and captions as columns.

    The registry builds a backbone as ``cls(config, feature_dim, n_regions, vocabulary_size)``; ``Config`` is the frozen
    model of its options.
    """

    name: ClassVar[str]
    """Name in recipes, such as ``vse_infinity``."""
    title: ClassVar[str]
    """Name in results, such as ``VSE-infinity``."""
    Config: ClassVar[type[BaseModel]]
    similarity_range: tuple[float, float]
    """Smallest and largest possible similarity, possibly infinite; options may change it."""
    intra_modal: ClassVar[bool] = True
    """Whether images can be compared with images, and captions with captions."""
    pools: ClassVar[bool] = False
    """Whether ``Encoded.vectors`` hold one vector per image or caption; otherwise one per region or word."""
    fixed_regions: ClassVar[bool] = False
    """Whether every image must have the same number of regions."""
    dot_products: ClassVar[bool] = False
    """Whether similarities are the dot products of ``Encoded.vectors``, so that embeddings can be submitted."""
    closed_form: ClassVar[bool] = False
    """Whether the backbone has no gradient, so that only a method with ``closed_form`` can fit it."""
    reads_images: ClassVar[bool] = False
    """Whether the backbone reads images and caption texts in place of region features and token ids."""
    tokenizer: ClassVar[str] = ""
    """Tokenizer of a backbone that does not read the dataset's tokens."""
    whole_nodes: ClassVar[int] = 0
    """Number of nodes that stand beside a caption's words: tensor cores want both together in aligned rows."""
    captions_encoded: int = 0
    """Number of captions that :meth:`captions_of` and :meth:`encode` have encoded: the cost of a training."""
    mixed: bool = False
    """Whether :meth:`autocast` multiplies in bfloat16; set by the trainer."""
    compiled: int = 0
    """Number of pairs of the batches whose :meth:`forward` is compiled, 0 for none; set by the trainer."""
    embed_size: int
    config: Any

    @abstractmethod
    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Embed images, float ``(n, regions, feature_dim)``, with int64 ``(n,)`` counts of valid regions on the CPU."""

    @abstractmethod
    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Embed captions, int64 ``(n, longest)`` padded with 0, with int64 ``(n,)`` lengths on the CPU.

        Methods call :meth:`captions_of`, which counts them.
        """

    @abstractmethod
    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Similarity of every image with every caption, float ``(n_images, n_captions)``, never bfloat16."""

    def image_image_similarities(self, images: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Similarity of all images with all images, ``[row item, anchor column]`` (GSC, Eq. 7), if ``intra_modal``."""
        raise NotImplementedError

    def caption_caption_similarities(self, captions: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Similarity of every caption with every caption, ``[row item, anchor column]``, if ``intra_modal``."""
        raise NotImplementedError

    def autocast(self, function: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """Call ``function(*inputs)``, with products in bfloat16 if the network is ``mixed``.

        Returns:
            The function's result, in bfloat16 if the network is ``mixed`` and the function ends in a product.
        """
        # autocast caches bfloat16 copies of the weights until it exits, so it is entered for every call: no
        # copy is older than its weight. The last product of a network stays outside, in float32: similarities
        # and losses need more than the 8 bits of bfloat16
        with torch.autocast(next(self.parameters()).device.type, torch.bfloat16, enabled=self.mixed):
            return function(*inputs)

    @property
    def logit_scale(self) -> nn.Parameter | None:
        """Logarithm of the factor of cosines that pre-training learned; None where there is none.

        It is not trained unless a method lets it.
        """
        return None

    @classmethod
    def title_of(cls, config: Any) -> str:
        """Return the name in results; a backbone with several architectures names the configured one."""
        return cls.title

    @classmethod
    def pretrained_encoder(cls, config: Any) -> str:
        """Name the weights that :meth:`load_pretrained` loads, for submissions; empty if all weights are random."""
        return ""

    def load_pretrained(self) -> None:
        """Load weights that were trained on other image-text pairs; does nothing by default."""
        return

    @classmethod
    def inputs(cls, config: Any, dataset: PairedDataset) -> PairedDataset:
        """Return the dataset in the form that this backbone reads; unchanged by default."""
        if dataset.n_regions == 0:
            raise DataError(
                f"{dataset.name} has images without region features, which backbone {cls.name} reads; "
                "choose a backbone that reads images, such as clip"
            )
        return dataset

    if TYPE_CHECKING:

        def __call__(self, batch: Batch) -> Output: ...

    def forward(self, batch: Batch) -> Output:
        """Encode a batch of pairs and compare all its images with all its captions."""
        if len(batch) == self.compiled:
            self.captions_encoded += len(batch)
            return _compiled(self, batch)
        return self.output(batch, *self.encode(batch))

    def output(self, batch: Batch, images: Encoded, captions: Encoded) -> Output:
        """Compare the encoded sides of a batch."""
        similarities = self.compare(images, captions)
        return Output(similarities, images, captions, self.auxiliary_losses(images, batch))

    def encode(self, batch: Batch) -> tuple[Encoded, Encoded]:
        """Embed the images and captions of a batch."""
        images = self.encode_images(batch.image_features, batch.image_lengths)
        return images, self.captions_of(batch)

    def captions_of(self, batch: Batch) -> Encoded:
        """Embed the captions of a batch, and count them."""
        self.captions_encoded += len(batch)
        return self.encode_captions(batch.caption_tokens, batch.caption_lengths)

    def auxiliary_losses(self, images: Encoded, batch: Batch) -> Tensor:
        """Compute ``auxiliary`` of :class:`Output`, float ``(pairs,)``; zero by default."""
        # zeros instead of None: every method adds them, and no gradient comes of it
        return images.vectors.new_zeros(len(images))

    def compare(self, images: Encoded, captions: Encoded) -> Tensor:
        """Compute ``similarities`` of a batch in training, with the captions split over the ranks."""
        captions = self.with_pooled(
            captions
        )  # before the split, so that all ranks draw the same random numbers
        return split_by_captions(lambda block: self.similarities(images, captions[block]), len(captions))

    def with_pooled(self, captions: Encoded) -> Encoded:
        """Fill in ``pooled``, for backbones that need it."""
        return captions

    def load_weights(self, state: Mapping[str, Tensor]) -> None:
        """Load weights, in their own precision."""
        self.to(next(tensor.dtype for tensor in state.values() if tensor.is_floating_point()))
        self.load_state_dict(dict(state))


def _compiled(network: Backbone, batch: Batch) -> Output:
    """Run a network's forward pass as one graph; a new shape is compiled first."""
    from torch._dynamo.exc import TorchDynamoException  # a second of imports

    device, (_, longest) = batch.image_features.device, batch.caption_tokens.shape
    padded = replace(
        batch,
        image_lengths=to_device(batch.image_lengths, device),
        caption_tokens=functional.pad(
            batch.caption_tokens, (0, -(longest + network.whole_nodes) % WORDS_AT_ONCE)
        ),
        caption_lengths=to_device(batch.caption_lengths, device),
    )
    try:
        output = _graphs(device.type)(network, padded)
    except TorchDynamoException as error:
        raise TrainingError(
            f"torch cannot compile backbone {network.name} ({why_not_compiled(error)}); train with "
            f"{named('compile', 'off')}"
        ) from None
    words = {} if network.pools else {"vectors": output.captions.vectors[:, :longest]}
    return Output(
        # the next step overwrites the results of a CUDA graph
        output.similarities.clone(),
        _kept(output.images, lengths=batch.image_lengths),
        _kept(replace(output.captions, **words), lengths=batch.caption_lengths),
        output.auxiliary.clone(),
    )


def _kept(side: Encoded, lengths: Tensor) -> Encoded:
    tensors = {name: x.clone() for name, x in vars(side).items() if isinstance(x, Tensor)}
    return replace(side, **{**tensors, "lengths": lengths})


def why_not_compiled(error: Exception) -> str:
    """Return the line of torch's message that says why it could not compile, or the name of the error."""
    return str(error).split("raised:")[-1].strip().partition("\n")[0] or type(error).__name__


@cache
def _graphs(device: str) -> Callable[[Backbone, Batch], Output]:
    torch._dynamo.config.recompile_limit = MOST_GRAPHS
    torch._dynamo.config.allow_rnn = True  # a network's own GRU, which is only asked for its weights
    # the same throughout a run
    torch.compiler.assume_constant_result(memory_budget)  # type: ignore[no-untyped-call]
    mode = "reduce-overhead" if device == "cuda" else None
    return torch.compile(_pass, dynamic=False, mode=mode)


def _pass(network: Backbone, batch: Batch) -> Output:
    images = network.encode_images(batch.image_features, batch.image_lengths)
    captions = network.encode_captions(batch.caption_tokens, batch.caption_lengths)
    return network.output(batch, images, captions)


class CosineBackbone(Backbone):
    """A backbone with one unit vector per image and caption; similarities are cosines, in [-1, 1]."""

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
