"""Checkpoints of a run: written atomically, verified by sha256 when read, the last two kept."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any

import torch

from ncl_bench.errors import TrainingError, first_line, shorten
from ncl_bench.files import atomic_path, check_torch_file, sha256_of_file

KEPT = 2
_NAME = re.compile(r"epoch-(\d{6})\.([0-9a-f]{16})\.pt")


class _HashedFile(BufferedWriter):
    """A file that is hashed while it is written, so that a large state needs no second copy in memory."""

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path, "w"))
        self.digest = hashlib.sha256()
        self._problem: OSError | None = None

    def write(self, content: Any) -> int:
        self.digest.update(content)
        try:
            if self._problem is None:
                super().write(content)
        except OSError as error:
            self._problem = error
        return memoryview(content).nbytes

    def refuse_partial(self) -> None:
        """Raise the first write error, such as a full disk, which torch would replace by an unrelated message."""
        if self._problem is not None:
            raise self._problem


def save_state(folder: Path, epoch: int, state: dict[str, Any]) -> Path:
    """Write the state after ``epoch`` epochs and delete all but the last two.

    Args:
        folder: checkpoint folder of the run.
        epoch: number of epochs done, at least 0.
        state: tensors and plain Python values that ``torch.load(weights_only=True)`` can read.

    Returns:
        Path of the file, whose name contains the epoch and the start of its sha256.
    """
    unnamed = folder / f"epoch-{epoch:06d}.pt"
    with atomic_path(unnamed) as temporary, _HashedFile(temporary) as file:
        torch.save(state, file)
        file.refuse_partial()
    target = unnamed.with_suffix(f".{file.digest.hexdigest()[:16]}.pt")
    os.replace(unnamed, target)
    for old in sorted(path for path in _checkpoints(folder) if path != target)[: -(KEPT - 1)]:
        old.unlink()
    return target


def latest_state(folder: Path) -> tuple[dict[str, Any] | None, list[Path]]:
    """Read the newest intact checkpoint.

    Returns:
        The state, or None if there is no checkpoint, and the damaged files that were skipped.
    """
    damaged: list[Path] = []
    for path in sorted(_checkpoints(folder), reverse=True):
        match = _NAME.fullmatch(path.name)
        if match and sha256_of_file(path).startswith(match[2]):
            return _parsed(path), damaged
        damaged.append(path)
    return None, damaged


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load an optimiser's state, which torch does not compare with the parameters.

    Raises:
        ValueError: it belongs to other parameters.
    """
    optimizer.load_state_dict(saved)
    for parameter, kept in optimizer.state.items():
        for name, values in kept.items():
            if isinstance(values, torch.Tensor) and values.ndim and values.shape != parameter.shape:
                raise ValueError(f"{name} of an optimizer has shape {tuple(values.shape)}")


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Use the content of a checkpoint; one that does not fit the run is refused in a sentence."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise TrainingError(
            f"the newest checkpoint in {folder} does not fit this run ({shorten(first_line(error))}); delete the "
            "folder, or train into a new one"
        ) from None


def _parsed(path: Path) -> dict[str, Any]:
    check_torch_file(path, TrainingError)
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        if not isinstance(state, dict):
            raise TypeError(f"it holds a {type(state).__name__}")
    except Exception as error:  # torch raises many classes
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingError(
            f"{path} cannot be read by torch {torch.__version__} ({problem}); "
            "use the version that wrote it, or train into a new folder"
        ) from None
    return state


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob("epoch-*.pt") if _NAME.fullmatch(path.name)]
