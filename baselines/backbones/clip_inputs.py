"""Inputs of CLIP: images as rows of patches and captions as byte pairs, computed on demand."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baselines.kit.batches import Ids
from ncl_bench.data.columns import TableColumn, row_numbers
from ncl_bench.data.pictures import open_picture, with_8_bits
from ncl_bench.npy import FloatArray

WORKERS = min(8, os.cpu_count() or 1)
"""Threads that decode the images of a batch; Pillow releases the interpreter lock meanwhile."""

ASPECT = 4 / 3
"""Largest aspect ratio of a random crop, as in OpenCLIP's training."""


def patches_of(pixels: Tensor, patch: int) -> Tensor:
    """Split square images ``(n, 3, side, side)`` into rows of patches, ``(n, patches, 3 * patch * patch)``."""
    n, channels, side, _ = pixels.shape
    grid = side // patch
    cells = pixels.reshape(n, channels, grid, patch, grid, patch)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(n, grid * grid, -1)


def pixels_of(patches: Tensor, patch: int) -> Tensor:
    """Inverse of :func:`patches_of`: square images, ``(n, 3, side, side)``."""
    grid = round(patches.shape[1] ** 0.5)
    cells = patches.reshape(len(patches), grid, grid, -1, patch, patch)
    return cells.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), -1, grid * patch, grid * patch)


@dataclass(frozen=True, eq=False)
class ImagePatches:
    """Images as a network reads them, with patches as regions. Images are decoded in threads.

    Attributes:
        files: encoded images, such as JPEG.
        image_ids: ``(n_images,)``, for errors about images that cannot be decoded.
        transform: maps an RGB image of Pillow to float32 pixels ``(3, side, side)``.
        side: side of a transformed image, in pixels.
        patch: side of a patch in pixels; a divisor of ``side``.
        smallest_crop: minimum share of an image's area in a random crop, in (0, 1]; 1 keeps all of it.
    """

    files: Sequence[bytes]
    image_ids: NDArray[np.str_] | TableColumn
    transform: Callable[[Any], Tensor]
    side: int
    patch: int
    smallest_crop: float

    @property
    def shape(self) -> tuple[int, ...]:
        """``(n_images, patches, 3 * patch * patch)``."""
        return (len(self.image_ids), (self.side // self.patch) ** 2, 3 * self.patch**2)

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """float32."""
        return np.dtype(np.float32)

    @overload
    def __getitem__(self, rows: Ids, /) -> FloatArray: ...
    @overload
    def __getitem__(self, rows: slice, /) -> "ImagePatches": ...
    def __getitem__(self, rows: Ids | slice, /) -> "FloatArray | ImagePatches":
        """Return chosen images as for evaluation, in the given order; a slice is not decoded yet."""
        if isinstance(rows, slice):
            return replace(self, files=self.files[rows], image_ids=self.image_ids[rows])
        return self._decoded([(row, None) for row in row_numbers(rows, self.shape[0]).tolist()])

    def augmented(self, rows: Ids, seeds: Sequence[Sequence[int]]) -> FloatArray:
        """Return chosen images, each with a random crop given by its seed.

        Args:
            rows: int64 ``(n,)``.
            seeds: one seed per row.
        """
        if self.smallest_crop == 1:
            return self[rows]
        return self._decoded(list(zip(rows.tolist(), seeds, strict=True)))

    def _decoded(self, wanted: Sequence[tuple[int, Sequence[int] | None]]) -> FloatArray:
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="decode") as workers:
            pixels = torch.stack(list(workers.map(self._pixels, *zip(*wanted, strict=True))))
        return patches_of(pixels, self.patch).numpy()

    def _pixels(self, row: int, seed: Sequence[int] | None) -> Tensor:
        from PIL import Image

        with open_picture(self.files[row], f"image {self.image_ids[row]}") as picture:
            image = with_8_bits(picture).convert("RGB")
        if seed is not None:
            box = random_box(image.size, self.smallest_crop, np.random.default_rng(list(seed)))
            image = image.resize((self.side, self.side), Image.Resampling.BICUBIC, box)
        return self.transform(image)


def random_box(
    size: tuple[int, int], smallest: float, random: np.random.Generator
) -> tuple[float, float, float, float]:
    """Draw a part of an image as in OpenCLIP's training: left, top, right, bottom in pixels.

    Args:
        size: width and height.
        smallest: minimum share of the area, unless its sides would exceed the image's.
        random: draws area (uniform), aspect ratio (log-uniform) and position (uniform).
    """
    width, height = size
    area = width * height * random.uniform(smallest, 1)
    ratio = np.exp(random.uniform(-np.log(ASPECT), np.log(ASPECT)))
    across, down = min(width, float(np.sqrt(area * ratio))), min(height, float(np.sqrt(area / ratio)))
    left, top = random.uniform(0, width - across), random.uniform(0, height - down)
    return left, top, left + across, top + down


@dataclass(frozen=True, eq=False)
class BytePairs:
    """Captions as token ids of OpenCLIP's tokenizer.

    Attributes:
        captions: texts.
        rows: int64, selected texts, in order.
        tokenizer: ``open_clip.SimpleTokenizer``.
        longest: maximum tokens per caption, with start and end; longer captions are cut.
    """

    captions: Sequence[str]
    rows: Ids
    tokenizer: Any
    longest: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Ids:
        """Length of each caption, int64 ``(n_captions,)``; this tokenizes all of them."""
        return self.padded(np.arange(len(self)))[1]

    def padded(self, rows: Ids) -> tuple[Ids, Ids]:
        """Return captions as a padded array.

        Args:
            rows: int64 ``(n,)``, captions in any order.

        Returns:
            tokens int64 ``(n, longest of them)`` padded with 0, lengths int64 ``(n,)``.
        """
        texts = [self.captions[row] for row in self.rows[rows].tolist()]
        tokens: Ids = self.tokenizer(texts, self.longest).numpy()
        lengths = 1 + (tokens == self.tokenizer.eot_token_id).argmax(axis=1)
        return tokens[:, : lengths.max(initial=0)], lengths

    def take(self, rows: Ids) -> "BytePairs":
        """Return the captions ``rows``, int64 ``(n,)``, in the given order."""
        return BytePairs(self.captions, self.rows[rows], self.tokenizer, self.longest)
