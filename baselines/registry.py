"""Registries of methods and backbones; asking for a name imports nothing heavy, asking for a class imports torch."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from ncl_bench import plugins
from ncl_bench.errors import RecipeError

T = TypeVar("T")
Entry = TypeVar("Entry", bound=type[Any])


class Registry(plugins.Registry[type[T]]):
    """Mapping from name to class; classes of this package are imported on first use, plugins add theirs.

    Args:
        kind: ``method`` or ``backbone``.
        shipped: mapping from name to ``module:Class`` for the classes of this package.
    """

    def __init__(self, kind: str, shipped: Mapping[str, Any]) -> None:
        super().__init__(kind)
        self.data.update(shipped)

    def __getitem__(self, name: str) -> type[T]:
        entry: Any = self.data[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self.data[name] = getattr(import_module(module), attribute)
        loaded: type[T] = entry
        return loaded

    def add(self, entry: Entry) -> Entry:
        """Register a class under its ``name``; also a decorator, for a class in a user's own file.

        Args:
            entry: class with ``name`` (in recipes), ``title`` (in results) and ``Config`` (options).
        """
        for needed in ("name", "title", "Config"):
            if not hasattr(entry, needed):
                raise RecipeError(f"{self._kind} {entry.__name__} has no {needed}; set it in the class")
        self[entry.name] = entry
        plugins.registered(entry.name)
        return entry
