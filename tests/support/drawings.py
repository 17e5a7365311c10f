"""Image files that tests draw, and an encoder small enough to encode them at once."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from baselines.features.encoders import Encoder

SIZE = 16


def drawing(number: int, sides: tuple[int, int] = (24, 20)) -> Image.Image:
    """A picture of four coloured quarters, another one for every number."""
    quarters = np.random.default_rng(number).integers(0, 256, (2, 2, 3), dtype=np.uint8)
    return Image.fromarray(quarters).resize(sides, Image.Resampling.NEAREST)


def draw(folder: Path, n: int) -> list[str]:
    """Files ``000.png`` and so on; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:03}.png" for number in range(n)]
    for number, name in enumerate(names):
        drawing(number).save(folder / name)
    return names


class TinyNetwork(nn.Module):
    """A grid of 4 x 4 with 5 numbers each, in the manner of timm."""

    num_features = 5

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 4, stride=4)
        with torch.no_grad():
            weights = np.random.default_rng(0).standard_normal(self.stem.weight.shape)
            self.stem.weight.copy_(torch.from_numpy(weights))
            self.stem.bias.zero_()

    def forward_features(self, pictures: Tensor) -> Tensor:
        return self.stem(pictures)


def tiny_encoder(weights: str = "tiny") -> Encoder:
    """An encoder of 16 x 16 pixels."""
    return Encoder(
        "tiny",
        TinyNetwork().eval(),
        SIZE,
        (127.0,) * 3,
        (128.0,) * 3,
        "bilinear",
        weights,
        hashlib.sha256(weights.encode()).hexdigest(),
        "torch",
    )
