"""Methods as the board shows them: their pages, and the commands that reproduce a result."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache

from baselines.recipes import beginning, recipe_names, split_name
from leaderboard.entries import Condition, Entry
from ncl_bench.data import DATASETS
from ncl_bench.lookalike import lookalike
from ncl_bench.papers import Family, base_name, command_lines, drawn_noise, family_of


def own_key(method: str) -> str:
    """Page key of a method that no family claims; two names share it only if they differ in letter case alone."""
    name = method.lower()
    plain = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return "-".join(filter(None, ("own", plain, "" if plain == name else digest)))


def with_look_alikes(entries: Iterable[Entry], families: Mapping[str, Family]) -> list[Entry]:
    """Add a remark to entries whose name looks like another method's name in other letters."""
    entries = list(entries)
    standing = [name for family in families.values() for name in family.names]
    standing += sorted({base_name(entry.method) for entry in entries if entry.method.isascii()})
    remarks = {
        name: lookalike(base_name(name), () if family_of(name, dict(families)) else standing)
        for name in {entry.method for entry in entries}
    }
    return [
        entry.model_copy(update={"notes": (remark, *entry.notes)})
        if (remark := remarks[entry.method])
        else entry
        for entry in entries
    ]


def commands(
    family: Family,
    method: str,
    backbone: str,
    networks: str,
    condition: Condition,
    *,
    printed: bool = False,
) -> tuple[str, ...]:
    """Commands that train, score and evaluate an entry with the recipes of this repository.

    Args:
        family: family of the method.
        method: name of the method in the entry.
        backbone: name of the backbone in the entry.
        networks: ``single``, ``ensemble`` or ``unknown``.
        condition: condition of the entry.
        printed: whether a paper prints the number. Its image noise then comes from a file that no seed draws.

    Returns:
        One command per line; empty if the noise unit is unknown or the repository has no recipe for this method,
        dataset, backbone and text.
    """
    names = family.recipe_names(method, backbone, condition.dataset, condition.text, networks)
    if condition.noise_unit == "unknown" or not names or not set(names) <= set(known_recipes()):
        return ()
    options = drawn_noise(condition.noise_ratio or 0.0, condition.noise_unit)
    if printed:
        if condition.noise_unit == "image":
            options = " --noise-file FILE --noise-unit image"
        setting = family.settings.get(f"{condition.dataset} {condition.noise_ratio or 0:g}")
        options += f" --set {setting}" if setting else ""
    return command_lines(names, options, condition.slug)


@cache
def known_recipes() -> tuple[str, ...]:
    """Names of the recipes of this repository, such as ``ncr/flickr30k_sgr``, sorted."""
    return tuple(recipe_names())


def family_recipes(family: Family) -> list[tuple[str, tuple[str, ...]]]:
    """Recipes of a method in this repository by name, each with the commands that use it.

    The commands use 40 % caption noise as an example.
    """
    found = []
    for name in known_recipes():
        method, dataset, rest = split_name(name)
        if method not in (family.recipes, family.ensemble_recipes):
            continue
        if not family.backbones or beginning(rest, family.backbones):
            options = drawn_noise(0.4 if DATASETS[dataset].noise == "synthetic" else 0.0, "caption")
            found.append((name, command_lines([name], options, f"{dataset}_{rest}")))
    return found
