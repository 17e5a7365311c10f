"""Render pictures and compute their region features by a small CNN, in blocks that survive an interruption."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ncl_bench.data.pictures import open_picture
from ncl_bench.errors import DataError
from ncl_bench.progress import Progress, silent
from tools.pictograms.items import SourceItem

if TYPE_CHECKING:
    from baselines.encoders import Encoder

DRAWN, SIDE, GRID = 224, 160, 4
CHANNELS = 1_280
BLOCK = 128


@dataclass(frozen=True, eq=False)
class PictureBlock:
    """Consecutive items.

    Attributes:
        ids: ids of the items that could be drawn.
        pictures: uint8 ``(n, 160, 160, 3)``.
        grids: float32 ``(n, 16, 1280)``, row by row.
        empty: ids of blank items, or of items that the renderer refuses.
    """

    ids: list[str]
    pictures: NDArray[np.uint8]
    grids: NDArray[np.float32]
    empty: list[str]


def draw(svg: str) -> NDArray[np.uint8] | None:
    """Render a drawing on white, centred in a square; None if nothing is visible.

    Args:
        svg: text of the drawing.

    Returns:
        uint8 ``(160, 160, 3)``.
    """
    try:
        picture = _render(svg, width=DRAWN)
        if picture.height > DRAWN:
            picture = _render(svg, height=DRAWN)
    except (ValueError, OSError, DataError):
        return None
    canvas = Image.new("RGBA", (DRAWN, DRAWN), "white")
    canvas.alpha_composite(picture, ((DRAWN - picture.width) // 2, (DRAWN - picture.height) // 2))
    pixels = np.asarray(canvas.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS))
    return None if np.ptp(pixels.astype(np.int64)) < 8 else pixels


def _render(svg: str, *, width: int | None = None, height: int | None = None) -> Image.Image:
    import resvg_py

    # Inkscape used 90 dpi when the clip art was drawn. Ignore installed fonts, so that every machine draws the same.
    png = resvg_py.svg_to_bytes(svg_string=svg, width=width, height=height, dpi=90, skip_system_fonts=True)
    with open_picture(png, "the drawing") as picture:
        return picture.convert("RGBA")


def encode(network: "Encoder", pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Compute the last convolution's grid, pooled to 4 x 4 regions.

    Args:
        network: EfficientNet-lite0.
        pictures: uint8 ``(n, 160, 160, 3)``.

    Returns:
        float32 ``(n, 16, 1280)``, row by row.
    """
    import torch
    from torch.nn.functional import adaptive_avg_pool2d

    grids = np.empty((len(pictures), GRID * GRID, CHANNELS), np.float32)
    with torch.inference_mode():
        for start in range(0, len(pictures), 32):
            pooled = adaptive_avg_pool2d(network(torch.from_numpy(pictures[start : start + 32])), GRID)
            grids[start : start + 32] = pooled.flatten(2).transpose(1, 2).numpy()
    return grids


@cache
def encoder() -> "Encoder":
    """Load EfficientNet-lite0, which accepts any picture size."""
    from baselines.encoders import load_encoder

    return load_encoder()


def make_blocks(items: Sequence[SourceItem], work: Path, progress: Progress = silent) -> list[Path]:
    """Draw all items and compute their grids; existing blocks are kept.

    Args:
        items: items, in order.
        work: folder of the blocks.
        progress: reports the amount done.

    Returns:
        Files of the blocks, in order.
    """
    work.mkdir(parents=True, exist_ok=True)
    parts = [items[start : start + BLOCK] for start in range(0, len(items), BLOCK)]
    paths = [work / f"block-{_digest(part)}.npz" for part in parts]
    missing = [(path, part) for path, part in zip(paths, parts, strict=True) if not path.exists()]
    with progress("drawing", len(missing)) as advance:
        for path, part in missing:
            _write_block(path, part)
            advance(1)
    return paths


def _digest(items: Sequence[SourceItem]) -> str:
    return hashlib.sha256("".join(f"{item.id}{item.svg}" for item in items).encode()).hexdigest()[:16]


def _write_block(path: Path, items: Sequence[SourceItem]) -> None:
    drawn = [(item.id, draw(item.svg)) for item in items]
    seen = [(name, pixels) for name, pixels in drawn if pixels is not None]
    pictures = np.array([pixels for _, pixels in seen], np.uint8).reshape(-1, SIDE, SIDE, 3)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as stream:
        np.savez(
            stream,
            ids=np.array([name for name, _ in seen], np.str_),
            pictures=pictures,
            grids=encode(encoder(), pictures),
            empty=np.array([name for name, pixels in drawn if pixels is None], np.str_),
        )
    os.replace(unfinished, path)


def read_block(path: Path) -> PictureBlock:
    """Read a block written by :func:`make_blocks`."""
    with np.load(path, allow_pickle=False) as stored:
        return PictureBlock(
            stored["ids"].tolist(), stored["pictures"], stored["grids"], stored["empty"].tolist()
        )
