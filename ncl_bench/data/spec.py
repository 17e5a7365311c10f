"""The facts that protocol.md fixes about a dataset: sizes, splits, captions per image, noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class DatasetSpec:
    """One dataset as the protocol sees it.

    Attributes:
        name: the registry key, such as ``"flickr30k"``.
        title: the name as papers print it.
        images: number of unique images per split (``train``, ``dev``, ``test``).
        captions_per_image: captions of every image; a fact of the dataset, never inferred.
        n_regions: regions per image.
        feature_dim: dimension of one region feature.
        noise: ``"synthetic"`` (clean pairs, corrupted by us) or ``"natural"`` (crawled mismatches).
        protocols: evaluation protocols of the test split, first one is the default.
        languages: caption languages, first one is the default.
        tokenizers: default tokenizer of each language.
    """

    name: str
    title: str
    images: Mapping[str, int]
    captions_per_image: int
    n_regions: int
    feature_dim: int
    noise: Literal["synthetic", "natural"]
    protocols: tuple[str, ...]
    languages: tuple[str, ...]
    tokenizers: Mapping[str, str]

    def n_captions(self, split: str) -> int:
        """Number of captions of a split: images times ``captions_per_image``."""
        return self.images[split] * self.captions_per_image
