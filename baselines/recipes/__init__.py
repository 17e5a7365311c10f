"""The shipped recipes: one file per method, which says only what is not a default of its Config or of the backbone.

A recipe is called ``METHOD/DATASET_BACKBONE``, or ``METHOD/DATASET_BACKBONE_VARIANT``. It takes what stands under the
beginnings of its name, later ones over earlier ones: ``triplet/coco_sgr_clean`` takes ``coco``, ``coco_sgr`` and
``coco_sgr_clean`` of ``triplet.yaml``, after the same ones of ``every_method.yaml``. A ``note`` is a sentence for
readers; ``like: pictograms_sgr`` takes the options of another recipe of the method.

A recipe whose name ends in ``_tuned`` takes the values that `ncl-bench tune` chose as well. They stand in
``tuned/METHOD/DATASET_BACKBONE_tuned.yaml``, with every trial beside them as CSV. ``tables`` holds what
`ncl-bench sweep --table` trains; the papers' ablation tables are among them, whose rows differ from a recipe in a few
options and stand beside the printed numbers.
"""

import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt

from ncl_bench.data import DATASETS
from ncl_bench.errors import RecipeError
from ncl_bench.names import Text
from ncl_bench.schema import Record, checked
from ncl_bench.yaml import read_yaml

RECIPES = Path(__file__).parent
EVERY_METHOD = RECIPES / "every_method.yaml"
TUNED = RECIPES / "tuned"
TABLES = RECIPES / "tables"


def recipe_names() -> list[str]:
    """Names of all shipped recipes, sorted."""
    return sorted(name for path in RECIPES.glob("*.yaml") for name in _names_of(path.stem))


@cache
def _shipped(file: Path) -> dict[str, Any]:
    """What a shipped file says; read once, since a check of one recipe's name may load a hundred."""
    return read_yaml(file)


def _names_of(method: str) -> list[str]:
    """Names of a method's shipped recipes; none where it has no file."""
    own = RECIPES / f"{method}.yaml"
    keys = _shipped(own) if own.is_file() and own != EVERY_METHOD else ()
    tuned = (path.stem for path in (TUNED / method).glob("*.yaml"))
    return [f"{method}/{key}" for key in (*keys, *tuned) if key not in DATASETS]


def split_name(name: str) -> tuple[str, str, str]:
    """Method, dataset and the rest of a recipe's name; empty where it has none, or no dataset that is known."""
    method, _, ending = name.partition("/")
    dataset = beginning(ending, DATASETS)
    return method, dataset, ending.removeprefix(f"{dataset}_")


def on_dataset(name: str, dataset: str) -> tuple[str, tuple[str, ...]]:
    """The recipe of another dataset that a recipe corresponds to, and the settings that it needs.

    Where none is shipped, it is the same recipe with the dataset replaced.
    """
    method, _, rest = split_name(name)
    there = f"{method}/{dataset}_{rest}"
    return (there, ()) if there in _names_of(method) else (name, (f"dataset={dataset}",))


def beginning(text: str, names: Iterable[str]) -> str:
    """The longest of some names that a text begins with, up to its end or a ``_``; empty where there is none."""
    return max((name for name in names if f"{text}_".startswith(f"{name}_")), key=len, default="")


def is_shipped(name: str) -> bool:
    """Whether a name is that of a shipped recipe; a method or dataset without shipped recipes is someone's own."""
    method, dataset, _ = split_name(name)
    if name in _names_of(method):
        return True
    names = recipe_names()
    shipped = [split_name(each) for each in names]
    own_method = method not in {each[0] for each in shipped} and "baselines.methods" in sys.modules
    own_dataset = dataset not in {each[1] for each in shipped}
    if not dataset or not (own_method or own_dataset):
        raise RecipeError(no_recipe(name))
    return False


def refuse_unknown(*recipes: str) -> None:
    """Refuse a name that no recipe has; commands ask before they import torch, which takes seconds."""
    for recipe in recipes:
        if not Path(recipe).is_file():
            is_shipped(recipe)


def table_file(source: str) -> Path:
    """The file of a table: a shipped one by its name, or a path."""
    path = Path(source) if Path(source).is_file() else TABLES / f"{source}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in TABLES.glob("*.yaml")))
        raise RecipeError(f"no table {source!r}: neither a file nor one of {known}")
    return path


def no_recipe(name: str) -> str:
    """The sentence for a name that no recipe has."""
    names = recipe_names()
    method, dataset, _ = split_name(name)
    of_method = [each for each in names if each.startswith(f"{method}/")]
    if dataset and not any(
        split_name(each)[1] == dataset for each in of_method
    ):  # its recipes on another dataset
        of_method = sorted({f"{method}/{dataset}_{split_name(each)[2]}" for each in of_method})
    near = get_close_matches(name, of_method or names, n=3, cutoff=0.7)
    hints = [f"did you mean {' or '.join(near)}?"] if near else []
    if of_method and not near:
        hints.append(f"known for this method: {', '.join(of_method)};")
    if not (of_method and dataset):
        hints.append(
            "a method or dataset of your own needs --plugin FILE, which registers it (in Python: import it);"
        )
    return (
        f"no recipe {name!r}: neither a file nor a shipped recipe; {' '.join(hints)} see `ncl-bench recipes`"
    )


def written(name: str) -> dict[str, Any]:
    """What the files say for a recipe's name; everything else has its default."""
    method = name.split("/", 1)[0]
    merged: dict[str, Any] = {}
    for entry in _entries(name):
        if like := entry.pop("like", ""):
            taken = written(f"{method}/{like}") | {"note": f"Its options are those of {method}/{like}."}
            merged = _merge(merged, taken)
        merged = _merge(merged, entry)
    tuned = TUNED / f"{name}.yaml"
    return _merge(merged, _shipped(tuned)) if tuned.is_file() else merged


def tuned_options(name: str) -> dict[str, Any]:
    """Options that `ncl-bench tune` chose for a recipe; empty where the recipe stayed as it was, or was not tuned."""
    path = TUNED / f"{name}.yaml"
    chosen = _shipped(path) if path.is_file() else {}
    return {section: options for section, options in chosen.items() if section != "note"}


def tuned_on(name: str) -> str:
    """Dataset on which `ncl-bench tune` chose values of a recipe, its own or those it takes by ``like``; else empty."""
    method, dataset, _ = split_name(name)
    if name.endswith("_tuned"):
        return dataset
    likes = [entry["like"] for entry in _entries(name) if "like" in entry]
    return tuned_on(f"{method}/{likes[-1]}") if likes else ""


def _entries(name: str) -> Iterator[dict[str, Any]]:
    """Copies of the entries whose keys a recipe's name begins with, later ones over earlier ones."""
    method, _, ending = name.partition("/")
    for path in filter(Path.is_file, (EVERY_METHOD, RECIPES / f"{method}.yaml")):
        entries = _shipped(path)
        for key in sorted(entries, key=len):
            if f"{ending}_".startswith(f"{key}_"):
                yield dict(entries[key])


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both, with ``above`` winning; ``backbone``, ``method`` and ``search`` are merged key by key, null empties one."""
    merged = ("backbone", "method", "search")
    sections = {key: below.get(key, {}) | above[key] if above[key] else {} for key in merged if key in above}
    return below | above | sections


Recall = Annotated[float, Field(ge=0, le=100)]


class AblationLine(Record):
    """One line of a table.

    Attributes:
        title: what is left out, as the paper says it.
        printed: R@1, R@5 and R@10 of image to text, then of text to image, in percent; two lines that share the numbers
            of one printed line are two readings of it.
        recipe: where it is not the table's.
        settings: options that differ from the recipe, by dotted name.
    """

    title: Text
    printed: Annotated[tuple[Recall, ...], Field(min_length=6, max_length=6)]
    recipe: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)


class Ablation(Record):
    """A file ``tables/ablation_*.yaml``.

    Attributes:
        title: of the table.
        source: paper, table, dataset and noise of the printed numbers.
        steps: mean number of gradient steps per network.
        recipe: the method's shipped recipe.
        noise: the paper's, such as ``caption-40``.
        seeds: training seeds.
        rows: the first one is the full method.
    """

    title: Text
    source: Text
    steps: PositiveInt
    recipe: str
    noise: str
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    rows: Annotated[tuple[AblationLine, ...], Field(min_length=2)]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check a table."""
        return checked(cls, read_yaml(path), str(path), RecipeError)

    def printed_drop(self, row: AblationLine) -> float:
        """The share of the full method's printed rSum that a row loses, in percent."""
        full = sum(self.rows[0].printed)
        return 100 * (full - sum(row.printed)) / full


def ablations() -> dict[str, Ablation]:
    """The shipped tables by name, sorted."""
    return {path.stem: Ablation.load(path) for path in sorted(TABLES.glob("ablation_*.yaml"))}
