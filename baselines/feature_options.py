"""Options of the encoding of pictures; this module imports nothing heavy, as ``--help`` reads them."""

from dataclasses import dataclass
from typing import Literal

from ncl_bench.arguments import Count, Seed


@dataclass(frozen=True)
class FeatureOptions:
    """Options of the encoding.

    Attributes:
        grid: regions per side: 4 gives 16 regions, 1 a single vector per image.
        pca: principal components to keep, fitted on the training images (default: all).
        dtype: number type of the features.
        dev: number of dev images to draw if no split is given (default: a tenth).
        test: number of test images to draw if no split is given (default: a tenth).
        seed: seed of the random split.
        batch_size: images per batch of the encoder.
        skip_damaged: skip and list files that are not readable images.
    """

    grid: Count = 4
    pca: Count | None = None
    dtype: Literal["float32", "float16"] = "float16"
    dev: Count | None = None
    test: Count | None = None
    seed: Seed = 0
    batch_size: Count = 32
    skip_damaged: bool = False
