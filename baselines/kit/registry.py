"""Registry of classes by name; classes of this package are imported on first use, plugins register theirs."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

from ncl_bench.errors import RecipeError
from ncl_bench.plugins import registered

NEEDED = ("name", "title", "Config")
T = TypeVar("T")


class Registry(MutableMapping[str, type[T]]):
    """Mapping from name to class.

    Args:
        kind: ``method`` or ``backbone``.
        shipped: mapping from name to ``module:Class`` for the classes of this package.
    """

    def __init__(self, kind: str, shipped: Mapping[str, str]) -> None:
        self._kind = kind
        self._entries: dict[str, Any] = dict(shipped)

    def __getitem__(self, name: str) -> type[T]:
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(import_module(module), attribute)
        found: type[T] = entry
        return found

    def __setitem__(self, name: str, entry: type[T]) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: type[Any]) -> None:
        """Register a class under its ``name``.

        Args:
            entry: class with ``name`` (in recipes), ``title`` (in results) and ``Config`` (options).

        Raises:
            RecipeError: one of these is missing, or the name is taken.
        """
        for needed in NEEDED:
            if not hasattr(entry, needed):
                raise RecipeError(f"{self._kind} {entry.__name__} has no {needed}; set it in the class")
        if entry.name in self:
            raise RecipeError(
                f"a {self._kind} named {entry.name!r} already exists; give {entry.__name__} another name"
            )
        self[entry.name] = entry
        registered(entry.name)
