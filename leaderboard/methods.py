"""Methods: the typed content of methods.yaml, and the commands that reproduce a result."""

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from baselines.recipes import beginning, recipe_names, split_name
from leaderboard.entries import Cell, Entry, checked
from ncl_bench.data import DATASETS
from ncl_bench.errors import SubmissionError
from ncl_bench.lookalike import lookalike
from ncl_bench.schema import Link, LongText, Name, Record, ShownText, Text, read_yaml

METHODS_FILE = Path(__file__).parent / "methods.yaml"


class Reference(Record):
    """A paper by its first author; ``link`` is its first known address."""

    authors: Text
    title: Text
    venue: Text
    year: int
    doi: ShownText = ""
    arxiv: ShownText = ""
    url: Link = ""

    @property
    def link(self) -> str:
        """Address of the paper; empty if unknown."""
        if self.doi:
            return f"https://doi.org/{self.doi}"
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else self.url


class Family(Record):
    """A method with all its published spellings; one page of the site.

    Attributes:
        title, summary: for readers.
        names: its names in results.
        single, ensemble: names of single-network results, and of averages of several networks.
        source: key in ``published/sources.yaml`` of the paper that introduced it; empty if none of its tables is
            copied.
        paper: that paper, if ``source`` is empty.
        recipes: folder of its recipes; empty if it has none.
        ensemble_recipes: folder of its recipes for an average of several networks.
        recipe_suffixes: name to the ending of its recipe; None if it has no recipe.
        backbones: for a plain model: backbones of its own recipes.
        settings: ``--set`` options of the printed rows at some noise ratios, such as ``{"coco 0.6":
            "method.epochs=2"}``.
    """

    title: Annotated[Text, Field(max_length=120)]
    summary: Annotated[LongText, Field(max_length=900)]
    names: tuple[Name, ...]
    single: tuple[str, ...] = ()
    ensemble: tuple[str, ...] = ()
    source: str = ""
    paper: Reference | None = None
    recipes: str = ""
    ensemble_recipes: str = ""
    recipe_suffixes: dict[str, str | None] = Field(default_factory=dict)
    backbones: tuple[str, ...] = ()
    settings: dict[str, str] = Field(default_factory=dict)

    def networks(self, method: str, backbone: str) -> Literal["single", "ensemble", "unknown"]:
        """Whether a result uses one network, an average of several, or does not say."""
        if backbone == "SGRAF":
            return "ensemble"
        for name in (method, base_name(method)):
            if name in self.single:
                return "single"
            if name in self.ensemble:
                return "ensemble"
        return "unknown"


def base_name(method: str) -> str:
    """A method's name without a bracketed suffix."""
    return method.split(" (")[0]


def read_families(path: Path = METHODS_FILE) -> dict[str, Family]:
    """Read the families of methods.yaml by key, in the file's order.

    Raises:
        SubmissionError: an entry does not fit the schema, or two families claim one name.
    """
    families: dict[str, Family] = {}
    claimed: dict[str, str] = {}
    for key, content in read_yaml(path).items():
        families[key] = checked(Family, content, f"{path}: {key}")
        for name in {*families[key].names, key}:
            if claimed.setdefault(name, key) != key:
                raise SubmissionError(
                    f"{path}: {name!r} is claimed by {claimed[name]} and {key}; name it once"
                )
    return families


def family_of(method: str, families: dict[str, Family]) -> str:
    """Key of the family that claims a method's name; ``""`` if none does.

    Accepts the key itself and any letter case.
    """
    wanted = base_name(method).lower()
    for key, family in families.items():
        if wanted == key or wanted in (name.lower() for name in family.names):
            return key
    return ""


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
    cell: Cell,
    *,
    printed: bool = False,
) -> tuple[str, ...]:
    """Commands that train, score and evaluate an entry with the recipes of this repository.

    Args:
        family: family of the method.
        method: name of the method in the entry.
        backbone: name of the backbone in the entry.
        networks: ``single``, ``ensemble`` or ``unknown``.
        cell: cell of the entry.
        printed: whether a paper prints the number. Its image noise then comes from a file that no seed draws.

    Returns:
        One command per line; empty if the noise unit is unknown or the repository has no recipe for this method,
        dataset, backbone and text.
    """
    names = _recipe_names(family, method, backbone, networks, cell)
    if cell.noise_unit == "unknown" or not names or not set(names) <= set(known_recipes()):
        return ()
    options = drawn_noise(cell.noise_ratio or 0.0, cell.noise_unit)
    if printed:
        if cell.noise_unit == "image":
            options = " --noise-file FILE --noise-unit image"
        setting = family.settings.get(f"{cell.dataset} {cell.noise_ratio or 0:g}")
        options += f" --set {setting}" if setting else ""
    return command_lines(names, options, cell.slug)


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


def _recipe_names(family: Family, method: str, backbone: str, networks: str, cell: Cell) -> list[str]:
    """Names of the recipes that would reproduce an entry; a bracketed variant needs an entry in ``recipe_suffixes``."""
    suffix = family.recipe_suffixes.get(method, "" if method == base_name(method) else None)
    folder = (networks == "ensemble" and family.ensemble_recipes) or family.recipes
    if suffix is None or not folder:
        return []
    text = f"_{cell.text}" if cell.text not in ("", "jieba") else ""
    name = (
        base_name(backbone).lower().removesuffix(" vit-b/32").replace("∞", "_infinity")
    )  # CLIP's own tokenizer
    parts = ("sgr", "saf") if name == "sgraf" else (name,)  # SGRAF averages the similarities of SGR and SAF
    return [f"{folder}/{cell.dataset}_{part}{text}{suffix}" for part in parts]


def drawn_noise(ratio: float, unit: str) -> str:
    """Options of ``ncl-bench train`` for the standard draw; empty without noise."""
    return f" --noise-ratio {ratio:g} --noise-unit {unit}" if ratio else ""


def command_lines(
    names: Sequence[str], options: str, target: str, plugins: Sequence[str] = ()
) -> tuple[str, ...]:
    """Commands that train recipes, score them together and evaluate the scores.

    Args:
        names: names of the recipes.
        options: options of ``ncl-bench train``, with a leading space.
        target: end of the submission folder's name.
        plugins: files that register the submitter's method or dataset.
    """
    command = " ".join(["ncl-bench", *(f"--plugin {shlex.quote(plugin)}" for plugin in plugins)])
    runs = [f"runs/{name.replace('/', '-')}" for name in names]
    train = [f"{command} train {name}{options} --to {run}" for name, run in zip(names, runs, strict=True)]
    place = f"submissions/{names[0].split('/')[0]}-{target}"
    return (*train, f"{command} score {' '.join(runs)} --to {place}", f"{command} evaluate {place}")
