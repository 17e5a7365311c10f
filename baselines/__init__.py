"""Reference methods for noisy correspondence: train and score them, and find the wrong pairs of a dataset."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baselines.audit.call import find_wrong_embeddings, find_wrong_pairs
    from baselines.calls import Execution, Run, Sweep, score, sweep, train

__all__ = [
    "Execution",
    "Run",
    "Sweep",
    "find_wrong_embeddings",
    "find_wrong_pairs",
    "score",
    "sweep",
    "train",
]

_HOMES = {
    "Execution": "baselines.calls",
    "Run": "baselines.calls",
    "Sweep": "baselines.calls",
    "find_wrong_embeddings": "baselines.audit.call",
    "find_wrong_pairs": "baselines.audit.call",
    "score": "baselines.calls",
    "sweep": "baselines.calls",
    "train": "baselines.calls",
}
"""Where each public name lives; it is imported when first used, because it needs torch."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        from ncl_bench.extras import not_installed

        raise not_installed(error, needed_by=f"baselines.{name}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
