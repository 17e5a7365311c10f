"""Read files of ``torch.save`` from strangers: tensors and plain containers, tried in a worker first."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ncl_bench.decoding import decode
from ncl_bench.errors import NclBenchError
from ncl_bench.foreign import readable, reading

SAVE_AGAIN = "give a file that torch.save wrote, with tensors and plain containers alone"


def opened(path: Path) -> Any:
    """Content of a file, on the CPU; nothing in it runs. Damage raises whatever torch raises."""
    import torch

    with path.open("rb") as stream:  # torch decodes every path as UTF-8
        return torch.load(stream, map_location="cpu", weights_only=True)


def try_to_open(path: Path, _: str) -> None:
    """Open a file and drop what it holds, in a worker: a key of nested tuples alone can take a lifetime."""
    check_sums(path)
    opened(path)


def check_sums(path: Path) -> None:
    """Compare the checksums of a file; torch compares none."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise ValueError(f"{damaged} is damaged")


def load_torch(
    path: Path,
    error: type[NclBenchError],
    fix: str = SAVE_AGAIN,
    *,
    reader: Callable[[Path], Any] = opened,
    trial: Callable[[Path, str], None] = try_to_open,
) -> Any:
    """Read a file of ``torch.save``.

    Args:
        path: of the file.
        error: class of what is raised.
        fix: what the user should do, in words that end the sentence.
        reader: reads the file.
        trial: does the same in a worker, and gives nothing.
    """
    decode(trial, readable(path, error, "a file that torch.save wrote"), error=error, fix=fix)
    with reading(path, error, fix=fix):
        return reader(path)
