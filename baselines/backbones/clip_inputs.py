"""What CLIP reads of a dataset: images as rows of patches, and captions as byte pairs, made when they are asked for."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baselines.kit.batches import Ids
from ncl_bench.data.columns import TableColumn, row_numbers
from ncl_bench.errors import DataError

WORKERS = min(8, os.cpu_count() or 1)
"""Threads that decode the images of a batch; Pillow leaves the others running meanwhile."""

ASPECT = 4 / 3
"""Largest ratio of the sides of a random crop, as in OpenCLIP's training."""


def patches_of(pixels: Tensor, patch: int) -> Tensor:
    """Square images ``(n, 3, side, side)`` as rows of their patches, ``(n, patches, 3 * patch * patch)``."""
    n, channels, side, _ = pixels.shape
    grid = side // patch
    cells = pixels.reshape(n, channels, grid, patch, grid, patch)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(n, grid * grid, -1)


def pixels_of(patches: Tensor, patch: int) -> Tensor:
    """The square images of :func:`patches_of`, ``(n, 3, side, side)``."""
    grid = round(patches.shape[1] ** 0.5)
    cells = patches.reshape(len(patches), grid, grid, -1, patch, patch)
    return cells.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), -1, grid * patch, grid * patch)


@dataclass(frozen=True, eq=False)
class ImagePatches:
    """Images as a network reads them: the patches of an image are its regions. Images are decoded in threads.

    Attributes:
        files: an encoded image each, such as a JPEG.
        image_ids: ``(n_images,)``, named where an image cannot be decoded.
        transform: an RGB image of Pillow to its pixels, float32 ``(3, side, side)``.
        side: pixels of a transformed image along each side.
        patch: pixels of a patch along each side; a divisor of ``side``.
        smallest_crop: share of an image's area that a random crop keeps at least, in (0, 1]; 1 keeps all of it.
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
    def __getitem__(self, rows: Ids, /) -> NDArray[np.floating]: ...
    @overload
    def __getitem__(self, rows: slice, /) -> "ImagePatches": ...
    def __getitem__(self, rows: Ids | slice, /) -> "NDArray[np.floating] | ImagePatches":
        """Chosen images as they are evaluated, in the order asked for; those of a slice are not decoded yet."""
        if isinstance(rows, slice):
            return replace(self, files=self.files[rows], image_ids=self.image_ids[rows])
        return self._decoded([(row, None) for row in row_numbers(rows, self.shape[0]).tolist()])

    def augmented(self, rows: Ids, seeds: Sequence[Sequence[int]]) -> NDArray[np.floating]:
        """Chosen images, each randomly cropped as its seed says.

        Args:
            rows: int64 ``(n,)``.
            seeds: of each of them.
        """
        if self.smallest_crop == 1:
            return self[rows]
        return self._decoded(list(zip(rows.tolist(), seeds, strict=True)))

    def _decoded(self, wanted: Sequence[tuple[int, Sequence[int] | None]]) -> NDArray[np.floating]:
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="decode") as workers:
            pixels = torch.stack(list(workers.map(self._pixels, *zip(*wanted, strict=True))))
        return patches_of(pixels, self.patch).numpy()

    def _pixels(self, row: int, seed: Sequence[int] | None) -> Tensor:
        from PIL import Image

        try:
            with Image.open(BytesIO(self.files[row])) as file:
                image = file.convert("RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(
                f"image {self.image_ids[row]} cannot be decoded ({error}); replace its file and add the images again"
            ) from None
        if seed is not None:
            box = random_box(image.size, self.smallest_crop, np.random.default_rng(list(seed)))
            image = image.resize((self.side, self.side), Image.Resampling.BICUBIC, box)
        return self.transform(image)


def random_box(
    size: tuple[int, int], smallest: float, random: np.random.Generator
) -> tuple[float, float, float, float]:
    """Part of an image, as OpenCLIP's training draws it: left, top, right, bottom in pixels.

    Args:
        size: width and height.
        smallest: share of the area that it has at least, unless its sides would be longer than the image's.
        random: decides on area (uniform), ratio of the sides (log-uniform) and place (uniform).
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
        rows: int64, which of them, in order.
        tokenizer: ``open_clip.SimpleTokenizer``.
        longest: tokens of a caption at most, start and end included; longer ones are cut.
    """

    captions: Sequence[str]
    rows: Ids
    tokenizer: Any
    longest: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Ids:
        """Length of each caption, int64 ``(n_captions,)``; all of them are tokenized for it."""
        return self.padded(np.arange(len(self)))[1]

    def padded(self, rows: Ids) -> tuple[Ids, Ids]:
        """Captions as a rectangle.

        Args:
            rows: int64 ``(n,)``, which captions, in any order.

        Returns:
            tokens int64 ``(n, longest of them)`` padded with 0, lengths int64 ``(n,)``.
        """
        texts = [self.captions[row] for row in self.rows[rows].tolist()]
        tokens: Ids = self.tokenizer(texts, self.longest).numpy()
        lengths = 1 + (tokens == self.tokenizer.eot_token_id).argmax(axis=1)
        return tokens[:, : lengths.max(initial=0)], lengths

    def take(self, rows: Ids) -> "BytePairs":
        """The captions ``rows``, int64 ``(n,)``, in the order asked for."""
        return BytePairs(self.captions, self.rows[rows], self.tokenizer, self.longest)
