"""Options that commands of several modules share, each declared once."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from ncl_bench.errors import NclBenchError

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


def _device(given: str) -> Literal["auto", "cpu", "cuda"]:
    devices: dict[str, Literal["auto", "cpu", "cuda"]] = {"auto": "auto", "cpu": "cpu", "cuda": "cuda"}
    if given in devices:
        return devices[given]
    fix = "choose auto, cpu or cuda"
    if given == "mps":
        fix = "Apple's GPUs are not supported; use cpu"
    elif card := re.fullmatch(r"(?:cuda:)?(\d+)", given):
        fix = f"choose the card before the command, CUDA_VISIBLE_DEVICES={card[1]}, and use cuda"
    raise NclBenchError(f"--device is {given!r}; {fix}")


Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option(
        "--device",
        parser=_device,
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
