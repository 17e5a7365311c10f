"""Options that commands of several modules share, each declared once."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

LARGEST_SEED = 2**32 - 1

Root = Annotated[
    Path | None, typer.Option("--root", help="Folder of prepared datasets (default: NCL_BENCH_DATA).")
]


def finite(number: float | None) -> float | None:
    """Refuse NaN and infinity: the callback of every option that takes a ratio or a threshold."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number, expected one such as 0.4")
    return number


NoiseRatio = Annotated[
    float | None,
    typer.Option(
        "--noise-ratio",
        callback=finite,
        help="Nominal noise ratio of the training pairs, in [0, 1) (default: no noise).",
    ),
]
NoiseUnit = Annotated[
    Literal["caption", "image", "similar"] | None,
    typer.Option(
        "--noise-unit",
        help="Unit that the noise moves: random captions (caption), images with all their captions (image), or "
        "captions to images of similar captions (similar) (default: caption).",
    ),
]
NoiseSeed = Annotated[
    int | None,
    typer.Option("--noise-seed", help="Seed of the noise (default: the standard seed of this setting)."),
]
DevImages = Annotated[
    int | None,
    typer.Option(min=1, help="Number of dev images to draw if no split is given (default: a tenth)."),
]
TestImages = Annotated[
    int | None,
    typer.Option(min=1, help="Number of test images to draw if no split is given (default: a tenth)."),
]
SplitSeed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the random split.")]
