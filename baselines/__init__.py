"""Reference methods for noisy correspondence: train them, score them, find the wrong pairs of a dataset."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baselines.calls import Run, score, sweep, train

__all__ = ["Run", "score", "sweep", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("baselines.calls"), name)  # when first used: it imports torch
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
