"""How a class becomes known by its name."""

from typing import Any

from ncl_bench.errors import RecipeError

NEEDED = ("name", "title", "Config")


def add(registry: dict[str, type[Any]], kind: str, entry: type[Any]) -> None:
    """Put a class into a registry under its ``name``.

    Args:
        registry: name to class.
        kind: ``method`` or ``backbone``.
        entry: with a name for recipes, a title for results, and the model of its options.

    Raises:
        RecipeError: one of these is missing, or another class has the name.
    """
    for needed in NEEDED:
        if not hasattr(entry, needed):
            raise RecipeError(f"{kind} {entry.__name__} has no {needed}; set it in the class")
    if entry.name in registry:
        raise RecipeError(f"a {kind} named {entry.name!r} exists already; give {entry.__name__} another name")
    registry[entry.name] = entry
