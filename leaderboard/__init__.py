"""The leaderboard: submitted and published entries, ranked on boards and shown on a site."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderboard.calls import load_results, table

__all__ = ["load_results", "table"]


def __getattr__(name: str) -> Any:
    # imported when first used, so that a command that only prints its help stays fast
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("leaderboard.calls"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
