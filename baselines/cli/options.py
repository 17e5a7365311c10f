"""Options that commands of several modules share, each declared once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

NoiseFile = Annotated[
    Path | None,
    typer.Option("--noise-file", help="Noise file of the training, which replaces drawn noise."),
]
Keep = Annotated[
    Path | None,
    typer.Option(
        "--keep",
        help="Folder of `ncl-bench audit apply`, whose pairs alone are trained on (default: all pairs).",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="[auto|cpu|cuda]",
        help="Device of the networks; auto takes a GPU if there is one.",
    ),
]
Arithmetic = Annotated[
    Literal["32-true", "tf32", "bf16-mixed"], typer.Option("--precision", help="Arithmetic of the networks.")
]
Features = Annotated[
    Literal["auto", "mapped", "gpu"],
    typer.Option(
        "--features",
        help="Place of the training features: read from disk as needed (mapped), or kept on the device (gpu). auto "
        "takes gpu if they fit into half of the GPU's free memory.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Override a recipe option, such as method.epochs=10; repeatable.",
    ),
]
Target = Annotated[Path, typer.Option("--to", help="Folder to write.")]
