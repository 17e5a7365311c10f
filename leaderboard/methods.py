"""What each method is: methods.yaml, typed, and the commands that reproduce a row."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from leaderboard.row_files import other_noise, reduced_precision
from leaderboard.rows import Cell
from ncl_bench.datasets import DATASETS
from ncl_bench.errors import SubmissionError, first_problem
from ncl_bench.submission import Submission
from ncl_bench.yaml_files import read_yaml

METHODS_FILE = Path(__file__).parent / "methods.yaml"
RECIPES = Path(__file__).parents[1] / "baselines" / "recipes"
_BACKBONES = {"SGR": ("sgr",), "SAF": ("saf",), "SGRAF": ("sgr", "saf"), "VSE∞": ("vse_infinity",)}


class Family(BaseModel):
    """One page: a method in all its published spellings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[str, Field(max_length=120)]
    summary: Annotated[str, Field(max_length=900)]
    names: tuple[str, ...]
    single: tuple[str, ...] = ()
    ensemble: tuple[str, ...] = ()
    source: str = ""
    recipes: str = ""
    ensemble_recipes: str = ""
    recipe_suffixes: dict[str, str | None] = {}

    def networks(self, method: str, backbone: str) -> Literal["single", "ensemble", "unknown"]:
        """Whether a row stands for one network, for an average of several, or nobody says."""
        if backbone == "SGRAF":
            return "ensemble"
        for name in (method, base_name(method)):
            if name in self.single:
                return "single"
            if name in self.ensemble:
                return "ensemble"
        return "unknown"


def base_name(method: str) -> str:
    """A method's name without what stands in brackets after it."""
    return method.split(" (")[0]


def read_families(path: Path = METHODS_FILE) -> dict[str, Family]:
    """The families of methods.yaml by key, in the file's order.

    Raises:
        SubmissionError: an entry does not fit the schema, or two families claim one name.
    """
    families: dict[str, Family] = {}
    claimed: dict[str, str] = {}
    for key, content in read_yaml(path).items():
        try:
            families[key] = Family.model_validate(content)
        except ValidationError as error:
            raise SubmissionError(f"{path}: {key}: {first_problem(error)}") from None
        for name in {*families[key].names, key}:
            if claimed.setdefault(name, key) != key:
                raise SubmissionError(
                    f"{path}: {name!r} is claimed by {claimed[name]} and {key}; name it once"
                )
    return families


def family_of(method: str, families: dict[str, Family]) -> str:
    """Key of the family that claims a method's name; ``""`` where none does.

    The key itself, and names in other letter case, are understood too.
    """
    wanted = base_name(method).lower()
    for key, family in families.items():
        if wanted == key or wanted in (name.lower() for name in family.names):
            return key
    return ""


def own_key(method: str) -> str:
    """Key of the page of a method that no family claims."""
    return "own-" + (re.sub(r"[^a-z0-9]+", "-", method.lower()).strip("-") or "method")


def commands(
    family: Family,
    method: str,
    backbone: str,
    networks: str,
    cell: Cell,
    *,
    printed: bool = False,
    recipes: Path = RECIPES,
) -> tuple[str, ...]:
    """The command lines that train, score and evaluate a row with the recipes of this repository.

    Args:
        family: of the method.
        method: as the row names it.
        backbone: likewise.
        networks: ``single``, ``ensemble`` or ``unknown``.
        cell: of the row.
        printed: a paper prints the row; if its noise moves images, that came from a file that no seed draws.
        recipes: folder of the recipes.

    Returns:
        One command per line, empty where the noise unit is unknown, or the repository has no recipe for this
        method, dataset, backbone and text.
    """
    names = [name for name in _recipe_names(family, method, backbone, networks, cell) if name]
    if cell.noise_unit == "unknown" or not all((recipes / f"{name}.yaml").is_file() for name in names):
        return ()
    if not names:
        return ()
    if printed and cell.noise_unit == "image":
        return _lines(names, " --noise-file FILE --noise-unit image", cell.slug)
    return _lines(names, _drawn(cell.noise_ratio or 0.0, cell.noise_unit), cell.slug)


def family_recipes(family: Family, *, recipes: Path = RECIPES) -> list[tuple[str, tuple[str, ...]]]:
    """The repository's recipes of a method by name, each with the commands that use it.

    Synthetic noise of 40 % of the captions stands as an example.
    """
    found = []
    for folder in filter(None, (family.recipes, family.ensemble_recipes)):
        for path in sorted((recipes / folder).glob("*.yaml")):
            dataset = DATASETS.get(str(read_yaml(path).get("dataset")))
            ratio = 0.4 if dataset is not None and dataset.noise == "synthetic" else 0.0
            name = f"{folder}/{path.stem}"
            found.append((name, _lines([name], _drawn(ratio, "caption"), path.stem)))
    return found


def _recipe_names(family: Family, method: str, backbone: str, networks: str, cell: Cell) -> list[str]:
    """Names that the recipes of a row would have; a bracketed variant has one only where the family says which."""
    suffix = family.recipe_suffixes.get(method, "" if method == base_name(method) else None)
    folder = (networks == "ensemble" and family.ensemble_recipes) or family.recipes
    if suffix is None or not folder:
        return []
    text = f"_{cell.text}" if cell.text not in ("", "jieba") else ""
    parts = _BACKBONES.get(base_name(backbone), ())
    return [f"{folder}/{cell.dataset}_{part}{text}{suffix}" for part in parts]


def recipe_commands(submission: Submission, cell: Cell) -> tuple[str, ...]:
    """The command lines of a row that states its recipes: on its noise, with its first seed, in its precision."""
    noise, seed, training = submission.noise, submission.training_seeds[0], submission.training
    options = _drawn(cell.noise_ratio or 0.0, cell.noise_unit)
    if noise.unit in ("caption", "image") and noise.seed is None:
        options = f" --noise-file FILE --noise-unit {noise.unit}"
    elif other_noise(submission):
        options += f" --noise-seed {noise.seed}"
    options += f" --seed {seed}" if seed else ""
    options += f" --precision {training.precision}" if training and reduced_precision(submission) else ""
    return _lines(list(submission.recipes), options, cell.slug)


def _drawn(ratio: float, unit: str) -> str:
    return f" --noise-ratio {ratio:g} --noise-unit {unit}" if ratio else ""


def _lines(names: list[str], noise: str, target: str) -> tuple[str, ...]:
    runs = [f"runs/{name.replace('/', '-')}" for name in names]
    train = [f"ncl-bench train {name}{noise} --to {run}" for name, run in zip(names, runs, strict=True)]
    place = f"submissions/{names[0].split('/')[0]}-{target}"
    return (*train, f"ncl-bench score {' '.join(runs)} --to {place}", f"ncl-bench evaluate {place}")
