"""What a preparation writes: captions and features of each split, wherever they come from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ncl_bench.data.paired import FloatArray, TokenTable

Cut = tuple[str | None, str]
"""Caption language (None: any) and tokenizer."""


class FeatureRows(Protocol):
    """Region features of the unique images of a split, in order."""

    @property
    def dtype(self) -> np.dtype[np.floating]: ...

    def blocks(self, first: int, size: int) -> Iterator[FloatArray]:
        """Blocks of ``size`` images (the last may be smaller) from image ``first`` on, in one buffer."""
        ...


@dataclass(frozen=True)
class SplitCaptions:
    """Captions of one split.

    Attributes:
        image_ids: one id per unique image.
        texts: language to captions, in the order of the clean pairing; empty where the source gives only ids.
        tokens: token ids that the source itself gives.
    """

    image_ids: list[str]
    texts: Mapping[str, list[str]] = field(default_factory=dict)
    tokens: Mapping[Cut, TokenTable] = field(default_factory=dict)


@dataclass(frozen=True)
class Material:
    """A whole dataset whose names, sizes and texts are as expected, ready to be verified and written.

    Attributes:
        captions: of each split.
        features: of each split.
        vocabularies: json bytes behind the token ids that the source itself gives, with their version.
        fingerprints: of each split, where the source fixes them; empty where they are computed while writing.
        identity: names and sizes of the files it comes from, or what else tells one source from another.
        times: when those files were changed; a stopped preparation goes on only if they were not.
    """

    captions: Mapping[str, SplitCaptions]
    features: Mapping[str, FeatureRows]
    vocabularies: Mapping[Cut, tuple[bytes, str]]
    fingerprints: Mapping[str, str]
    identity: object
    times: tuple[int, ...] = ()
