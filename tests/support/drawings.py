"""Image files that tests draw, and an encoder small enough to encode them at once."""

import csv
import hashlib

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

from baselines.encoders import Encoder

SIZE = 16


def drawing(number, sides=(24, 20)):
    """A picture of four coloured quarters, another one for every number."""
    quarters = np.random.default_rng(number).integers(0, 256, (2, 2, 3), dtype=np.uint8)
    return Image.fromarray(quarters).resize(sides, Image.Resampling.NEAREST)


def draw(folder, n):
    """Files ``000.png`` and so on; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:03}.png" for number in range(n)]
    for number, name in enumerate(names):
        drawing(number).save(folder / name)
    return names


SHAPES = {"circle": "圆形", "square": "正方形", "triangle": "三角形"}
COLOURS = {"red": "红色", "green": "绿色", "blue": "蓝色", "yellow": "黄色", "black": "黑色"}
SIDES = {"left": "左边", "right": "右边"}


def describe(folder, n):
    """Draw a coloured shape beside a grey one in ``photos/000.png`` and so on, with captions in ``captions.csv``."""
    random = np.random.default_rng(0)
    (folder / "photos").mkdir(parents=True)
    rows = [("image", "en", "zh")]
    for number in range(n):
        picture = Image.new("RGB", (96, 64), "white")
        brush = ImageDraw.Draw(picture)
        shape, other = random.permutation(list(SHAPES))[:2]
        colour, side = random.choice(list(COLOURS)), random.choice(list(SIDES))
        places = (8, 56) if side == "left" else (56, 8)
        for name, left, ink in ((shape, places[0], colour), (other, places[1], "grey")):
            x, y = left + random.integers(-6, 7), random.integers(8, 25)
            if name == "triangle":
                brush.polygon([(x, y + 32), (x + 32, y + 32), (x + 16, y)], fill=ink)
            else:
                drawn = brush.ellipse if name == "circle" else brush.rectangle
                drawn((x, y, x + 32, y + 32), fill=ink)
        picture.save(folder / "photos" / f"{number:03}.png")
        english = f"A {colour} {shape} on the {side} of a {other}."
        chinese = f"{SHAPES[other]}{SIDES[side]}有一个{COLOURS[colour]}的{SHAPES[shape]}。"
        rows.append((f"{number:03}.png", english, chinese))
    with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)


class TinyNetwork(nn.Module):
    """A grid of 4 x 4 with 5 numbers each, in the manner of timm."""

    num_features = 5

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 4, stride=4)
        with torch.no_grad():
            weights = np.random.default_rng(0).standard_normal(self.stem.weight.shape)
            self.stem.weight.copy_(torch.from_numpy(weights))
            self.stem.bias.zero_()

    def forward_features(self, pictures):
        return self.stem(pictures)


def tiny_encoder(weights="tiny"):
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
