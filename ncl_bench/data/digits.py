"""Digits: the embedded dataset, composed of real handwritten digits (docs/protocol.md, Datasets and splits).

A scene is a grid of cells. A few cells hold a handwritten digit, the others are blank; every cell is a region. Every
machine composes the same bytes: numpy's frozen ``RandomState`` makes all choices, and every feature is a multiple of
1/256, so nothing is rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.columns import FloatArray
from ncl_bench.data.digits_captions import Placed, write_captions
from ncl_bench.data.embedded import EmbeddedDataset, EmbeddedSplit, frozen
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.spec import CLEAN_PAIRS, SPLITS, Origin

HANDWRITTEN = Path(__file__).with_name("digits.npz")
GRID = 4
PIXELS = 64
FEWEST_DIGITS, MOST_DIGITS = 3, 5
BLANK_NOISE = 48
"""Largest brightness of a blank cell's pixel, of 256."""
POOLS = {"train": 1_257, "dev": 270, "test": 270}
"""Handwritten digits of each split, 1,797 in all; no digit is in two splits."""
SEED = 2021

ORIGIN = Origin(
    summary=(
        "Real handwritten digits on a grid, one region per cell, with English and Chinese captions that "
        "describe the layout. Generated when loaded, without a download."
    ),
    homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    obtain=("nothing to download: the digits come with the package, the rest is generated",),
    folders=(),
    files=(),
    licence="CC BY 4.0",
    licence_id="cc-by-4.0",
    licence_urls=("https://creativecommons.org/licenses/by/4.0/",),
    published="2026",
    terms="You may use, change and share it for any purpose, with credit to the makers of the digits.",
    noise=CLEAN_PAIRS,
    upload=("captions", "images"),
    upload_reason="the licence asks for credit",
    citation="""@misc{alpaydin1998optical,
  title        = {Optical Recognition of Handwritten Digits},
  author       = {Alpaydin, Ethem and Kaynak, Cenk},
  howpublished = {UCI Machine Learning Repository},
  year         = {1998},
  doi          = {10.24432/C50P49}
}""",
)


FINGERPRINTS = {
    "train": "330f1ec19c4af61f2ba7d2885ecb6196ddfe353f043e079c366442d448b1acfa",
    "dev": "5ed4082beb29d4448100d1a2d2ea0b17de40adf985bf8c7059abb57037b3cd58",
    "test": "05640c77bfac75eb6e0f5f1d1b913b8515c60e5fd7a1333b1e77fab7fdb70349",
}
"""Fingerprints that every machine must reproduce; a test compares them."""


@dataclass(frozen=True, eq=False)
class DigitsSplit(EmbeddedSplit):
    """One split of clean pairs: float32 ``(n_images, 16, 66)`` in [0, 1]; 64 pixels, then the cell's row and column.

    Attributes:
        scenes: placed digits of each image.
    """

    scenes: tuple[tuple[Placed, ...], ...]


@dataclass(frozen=True, eq=False)
class DrawnImages(Sequence[bytes]):
    """Images drawn from their features on demand."""

    image_features: FloatArray

    def __len__(self) -> int:
        return len(self.image_features)

    @overload
    def __getitem__(self, row: int) -> bytes: ...
    @overload
    def __getitem__(self, row: slice) -> "DrawnImages": ...
    def __getitem__(self, row: int | slice) -> "bytes | DrawnImages":
        """Return one image as PNG, or a slice that is not drawn yet."""
        if isinstance(row, slice):
            return DrawnImages(self.image_features[row])
        return SPEC.picture("", self.image_features[row])


class Digits(EmbeddedDataset):
    """Composed when loaded, with clean pairs. The grammar is small, so no word is too rare to learn."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The handwritten digits."""
        return (HANDWRITTEN,)

    def load_embedded(
        self, split: str, language: str | None = None, tokenizer: str | None = None
    ) -> PairedDataset:
        """Open one split with its images, drawn from the features; see the base class."""
        dataset = super().load_embedded(split, language, tokenizer)
        return replace(dataset, images=DrawnImages(self.content(split).image_features))

    def content(self, split: str) -> EmbeddedSplit:
        """Compose one split, once per process."""
        return digits_split(split)

    def picture(self, image_id: str, features: FloatArray) -> bytes:
        """Draw an image from its regions: float ``(16, 66)``, 64 pixels, then row and column of the cell's centre."""
        from PIL import Image

        side = 8
        canvas = np.zeros((GRID * side, GRID * side), np.uint8)
        for region in features:
            row, column = (int(centre * GRID) * side for centre in region[PIXELS:])
            pixels = region[:PIXELS].reshape(side, side)
            canvas[row : row + side, column : column + side] = np.minimum(pixels * 255, 255)
        stream = BytesIO()
        Image.fromarray(canvas).save(stream, "PNG")
        return stream.getvalue()


SPEC = Digits(
    name="digits",
    title="Digits",
    images={"train": 2_000, "dev": 200, "test": 200},
    captions_per_image=5,
    n_regions=GRID * GRID,
    feature_dim=PIXELS + 2,
    noise="synthetic",
    protocols=("200",),
    order_fingerprints={
        "dev": "57d778c176dc55123ac2918bc87d4326b8b9549dca8006f4e38dac7a6c1d7b87",
        "test": "c1ca0865455edf46d41d58be79d81af634d5a4f24a05d3d61ad83646eb495f1a",
    },
    languages=("en", "zh"),
    tokenizers={"en": "word", "zh": "jieba"},
    origin=ORIGIN,
)


@lru_cache(maxsize=len(SPLITS))
def digits_split(split: str) -> DigitsSplit:
    """Compose one split, once per process.

    Args:
        split: ``train``, ``dev`` or ``test``.
    """
    part = SPLITS.index(split)
    scenes, features = _compose(split, np.random.RandomState(SEED + part))
    captions = {
        language: tuple(
            write_captions(
                scenes,
                language=language,
                n_captions=SPEC.captions_per_image,
                seed=SEED + 100 * (1 + SPEC.languages.index(language)) + part,
            )
        )
        for language in SPEC.languages
    }
    image_ids = np.array([f"digits-{split}-{row:04d}" for row in range(SPEC.images[split])])
    return DigitsSplit(frozen(features), frozen(image_ids), captions, scenes)


def _compose(
    split: str, random: np.random.RandomState
) -> tuple[tuple[tuple[Placed, ...], ...], NDArray[np.float32]]:
    pixels, classes, pool = *_handwritten(), _pool(split)
    features = np.empty((SPEC.images[split], SPEC.n_regions, SPEC.feature_dim), np.float32)
    rows, columns = np.divmod(np.arange(SPEC.n_regions), GRID)
    centres = (2 * np.stack([rows, columns], axis=1) + 1) * (128 // GRID)
    scenes = []
    for image in features:
        n_digits = random.randint(FEWEST_DIGITS, MOST_DIGITS + 1, dtype=np.int64)
        cells = _shuffled(SPEC.n_regions, random)[:n_digits]
        chosen = pool[random.randint(0, len(pool), n_digits, dtype=np.int64)]
        levels = random.randint(0, BLANK_NOISE + 1, (SPEC.n_regions, PIXELS), dtype=np.int64)
        levels[cells] = pixels[chosen]
        order = _shuffled(SPEC.n_regions, random)
        image[...] = np.concatenate([levels, centres], axis=1)[order] / 256
        placed = zip(cells.tolist(), classes[chosen].tolist(), strict=True)
        scenes.append(tuple(sorted(Placed(cell // GRID, cell % GRID, digit) for cell, digit in placed)))
    return tuple(scenes), features


def _shuffled(n: int, random: np.random.RandomState) -> NDArray[np.int64]:
    order = np.arange(n, dtype=np.int64)
    random.shuffle(order)
    return order


def _pool(split: str) -> NDArray[np.int64]:
    """Rows of the handwritten digits that belong to a split."""
    order = _shuffled(sum(POOLS.values()), np.random.RandomState(SEED))
    ends = np.cumsum([POOLS[name] for name in SPLITS])
    return np.split(order, ends[:-1])[SPLITS.index(split)]


def _handwritten() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pixels ``(1797, 64)`` from 0 to 256, and classes ``(1797,)``, as scikit-learn's ``load_digits`` gives them."""
    with np.load(HANDWRITTEN, allow_pickle=False) as digits:
        return digits["pixels"].astype(np.int64) * 16, digits["classes"].astype(np.int64)
