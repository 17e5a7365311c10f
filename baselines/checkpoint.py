"""The resumable state of a run: written whole, checked when read, the last two kept."""

import hashlib
import io
import re
from pathlib import Path
from typing import Any

import torch

from ncl_bench.files import write_bytes

KEPT = 2
_NAME = re.compile(r"epoch-(\d{6})\.([0-9a-f]{16})\.pt")


def save_state(folder: Path, epoch: int, state: dict[str, Any]) -> Path:
    """Write the state after ``epoch`` epochs and delete all but the last two.

    Args:
        folder: of the run's checkpoints.
        epoch: epochs done, at least 0.
        state: tensors and plain Python values, as ``torch.load(weights_only=True)`` reads them back.

    Returns:
        The file; its name carries the epoch and the start of its sha256.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    target = folder / f"epoch-{epoch:06d}.{hashlib.sha256(content).hexdigest()[:16]}.pt"
    write_bytes(target, content)
    for old in sorted(path for path in _checkpoints(folder) if path != target)[: -(KEPT - 1)]:
        old.unlink()
    return target


def latest_state(folder: Path) -> tuple[dict[str, Any] | None, list[Path]]:
    """Read the newest whole checkpoint.

    Returns:
        The state, or None where there is none, and the damaged files passed over.
    """
    damaged: list[Path] = []
    for path in sorted(_checkpoints(folder), reverse=True):
        content = path.read_bytes()
        match = _NAME.fullmatch(path.name)
        if match and hashlib.sha256(content).hexdigest().startswith(match[2]):
            return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu"), damaged
        damaged.append(path)
    return None, damaged


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob("epoch-*.pt") if _NAME.fullmatch(path.name)]
