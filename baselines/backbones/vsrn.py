"""VSRN: Visual Semantic Reasoning for Image-Text Matching. Li et al., ICCV 2019.

https://arxiv.org/abs/1909.02701

Regions exchange information along a graph (section 3.2), and a GRU reads them one after the other into one vector
(section 3.3). The similarity is its cosine with the last state of a GRU over the caption. In addition to the matching
loss, a captioner generates the caption from the regions (section 3.4): :meth:`VSRN.auxiliary_losses`.

Points of the published code, which we follow:
  * There are two image encoders, chosen by the dataset. ``scaled`` normalises the regions before the graph: the code
    uses it for all datasets but Flickr30K. For Flickr30K it uses ``batch_norm``, which does not normalise the
    regions, but the GRU's last state over the batch.
  * Where regions are scaled to unit length, each feature is scaled over the regions of its image, not each region over
    its features. Nothing is added to the lengths.
  * Graph edges are inner products divided by the number of regions, without a softmax.
  * A graph layer starts as the identity, because the weight of its normalisation starts at zero.
  * The order of the regions matters, and their number is fixed.
  * The caption loss is a sum over the words of a caption and a mean over the batch; the matching loss is a sum over the
    batch. A caption continues with one padding token after its end token, unless it was cut.
  * The caption loss trains the region layer and the graph, but neither the GRU over the regions nor the caption
    encoder.

Deviations:
  * The published loss is NaN for a blank image, whose features are all zero. Here zero vectors stay zero.
  * The published optimiser holds the captioner's parameters twice, so they take two steps per batch and count twice in
    the gradient norm. Here they count once.
  * The paper's result averages two trained networks; one run here is one network.

The published code generates captions up to 60 words, whatever their length, with the whole attention inside the loop
over the words. Here only words that the loss reads are generated, and whatever does not depend on the previous word is
computed for all words at once.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, cast

from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from baselines.backbones.captioner import Captioner
from baselines.backbones.encoders import all_states, last_state, scaled, xavier_linear
from baselines.kit.backbone import CosineBackbone, Encoded
from baselines.kit.batches import Batch
from baselines.kit.options import Options, ShareBelowOne


class VSRNConfig(Options):
    """Sizes of the network.

    Attributes:
        embed_size: dimension of the joint space (code: 2048).
        word_dim: dimension of a word embedding (code: 300).
        image_encoder: ``scaled`` or ``batch_norm``, see above.
        graph_layers: layers of region relationship reasoning (code: 4).
        caption_weight: weight of the caption loss, at least 0 (code: 1); with 0 there is no captioner.
        caption_hidden: size of the captioner's states (code: 512).
        caption_word_dim: dimension of a word embedding in the captioner (code: 300).
        caption_dropout: dropout of the captioner's inputs, in [0, 1) (code: 0.2).
        caption_longest: maximum words of a generated caption, with start and end token; longer ones are cut and still
            end with the end token (code: 60).
    """

    embed_size: PositiveInt = 2048
    word_dim: PositiveInt = 300
    image_encoder: Literal["scaled", "batch_norm"] = "scaled"
    graph_layers: PositiveInt = 4
    caption_weight: NonNegativeFloat = 1.0
    caption_hidden: PositiveInt = 512
    caption_word_dim: PositiveInt = 300
    caption_dropout: ShareBelowOne = 0.2
    caption_longest: Annotated[int, Field(ge=2)] = 60


@dataclass(frozen=True)
class EncodedImages(Encoded):
    """Encoded images, and in training the captioner's input.

    Attributes:
        regions: float ``(n, regions, embed_size)``.
    """

    regions: Tensor | None = None


class GraphLayer(nn.Module):
    """Region relationship reasoning (section 3.2): every region receives from all others, weighted by affinity."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm = nn.BatchNorm1d(dim)
        nn.init.zeros_(self.norm.weight)

    def forward(self, regions: Tensor) -> Tensor:
        """New regions, float ``(n, regions, dim)``."""
        ours, theirs, values = self.project(regions).chunk(3, dim=-1)
        affinity = ours @ theirs.transpose(1, 2) / regions.shape[1]
        taken: Tensor = self.norm(self.out(affinity @ values).flatten(0, 1))
        return regions + taken.view_as(regions)


class ImageEncoder(nn.Module):
    """Regions related by a graph, then one vector of them all."""

    def __init__(self, feature_dim: int, embed_size: int, n_layers: int, form: str) -> None:
        super().__init__()
        self.scaled_first = form == "scaled"
        self.regions = xavier_linear(feature_dim, embed_size)
        self.graph = nn.Sequential(*(GraphLayer(embed_size) for _ in range(n_layers)))
        self.gru = nn.GRU(embed_size, embed_size, batch_first=True)
        self.norm = nn.BatchNorm1d(embed_size) if form == "batch_norm" else nn.Identity()

    def related(self, image_features: Tensor) -> Tensor:
        """Regions after the graph, float ``(n, regions, embed_size)``."""
        regions = self.regions(image_features)
        return scaled(self.graph(scaled(regions) if self.scaled_first else regions))

    def whole(self, related: Tensor) -> Tensor:
        """Global semantic reasoning (section 3.3): unit vectors, float ``(n, embed_size)``."""
        return scaled(self.norm(all_states(self.gru, related)[:, -1]))


class CaptionEncoder(nn.Module):
    """Word embedding and one GRU; its state at the last word."""

    def __init__(self, vocabulary_size: int, word_dim: int, embed_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, word_dim)
        self.gru = nn.GRU(word_dim, embed_size, batch_first=True)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Unit vectors of captions in any order, float ``(n, embed_size)``."""
        return scaled(last_state(self.gru, self.embedding(tokens), lengths))


class VSRN(CosineBackbone):
    """Cosine of one vector per image and one per caption, in [-1, 1].

    Args:
        config: configuration.
        feature_dim: dimension of a region feature.
        n_regions: not used; all images have the same number of regions.
        vocabulary_size: rows of the word embeddings.
    """

    name = "vsrn"
    title = "VSRN"
    Config = VSRNConfig
    config: VSRNConfig
    fixed_regions = True

    def __init__(self, config: VSRNConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config, self.embed_size = config, config.embed_size
        self.images = ImageEncoder(feature_dim, config.embed_size, config.graph_layers, config.image_encoder)
        self.captions = CaptionEncoder(vocabulary_size, config.word_dim, config.embed_size)
        if config.caption_weight > 0:
            self.captioner = Captioner(
                config.embed_size,
                vocabulary_size,
                config.caption_hidden,
                config.caption_word_dim,
                config.caption_dropout,
                config.caption_longest,
            )

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> EncodedImages:
        """Encode images as unit vectors; in training also keep the regions for the captioner."""
        related = self.autocast(self.images.related, image_features)
        vectors = self.autocast(self.images.whole, related)
        return EncodedImages(vectors, image_lengths, vectors, related if self.training else None)

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Encode captions as unit vectors."""
        vectors = self.autocast(self.captions, caption_tokens, caption_lengths)
        return Encoded(vectors, caption_lengths, vectors)

    def auxiliary_losses(self, images: Encoded, batch: Batch) -> Tensor:
        """Weighted caption loss of each pair, float ``(pairs,)``; the published loss is their mean."""
        if self.config.caption_weight == 0 or not self.training:
            return super().auxiliary_losses(images, batch)
        regions = cast(EncodedImages, images).regions
        assert regions is not None
        losses = self.autocast(self.captioner, regions, batch.caption_tokens, batch.caption_lengths)
        return self.config.caption_weight * losses
