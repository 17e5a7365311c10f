"""Options that commands of several modules share, each declared once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

LARGEST_SEED = 2**32 - 1

Root = Annotated[
    Path | None, typer.Option("--root", help="Folder of prepared datasets (default: NCL_BENCH_DATA).")
]


NoiseRatio = Annotated[
    float | None,
    typer.Option(
        "--noise-ratio",
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

Pictures = Annotated[
    Path | None,
    typer.Option("--images", help="Folder of the pictures (default: the folder of the table)."),
]
ImageColumn = Annotated[
    str | None,
    typer.Option(
        "--image-column",
        help="Column of image paths or pictures (default: image, file_name, path, filename or alike).",
    ),
]
CaptionColumn = Annotated[
    str | None,
    typer.Option(
        "--caption-column", help="Column of captions (default: caption, text, title, alt or alike)."
    ),
]
SplitColumn = Annotated[
    str | None, typer.Option("--split-column", help="Column of splits (default: split, if there is one).")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON alone.")]
