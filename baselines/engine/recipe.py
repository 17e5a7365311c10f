"""Recipes: YAML read into frozen models that refuse unknown keys."""

from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from baselines.backbones import BACKBONES
from baselines.methods import METHODS
from ncl_bench.data import DATASETS
from ncl_bench.errors import RecipeError, SubmissionError, first_problem, unknown_name
from ncl_bench.schema import read_yaml

RECIPES = Path(__file__).parents[1] / "recipes"


class Recipe(BaseModel):
    """What is trained on what; noise ratio, noise seed and training seed come from the command line.

    Attributes:
        dataset: name of the dataset.
        language: caption language; the dataset's first by default.
        tokenizer: tokenizer; the language's default by default.
        batch_size: pairs in a batch, at least 2.
        gradient_clip: largest gradient norm over all parameters of a network.
        clean_only: train on the truly clean pairs alone: an upper-bound control, not a method.
        backbone: ``name`` and the options of the backbone.
        method: ``name`` and the options of the method.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    language: str | None = None
    tokenizer: str | None = None
    batch_size: Annotated[int, Field(ge=2)] = 128
    gradient_clip: Annotated[float, Field(gt=0)] = 2.0
    clean_only: bool = False
    backbone: dict[str, Any]
    method: dict[str, Any]

    @model_validator(mode="after")
    def _knows_what_is_clean(self) -> Self:
        if self.clean_only and self.dataset in DATASETS and DATASETS[self.dataset].noise == "natural":
            raise ValueError(
                f"clean_only is true, but nobody knows which pairs of {self.dataset} are clean; leave clean_only out"
            )
        return self

    @property
    def backbone_config(self) -> Any:
        """The backbone's options, validated."""
        return _validated("backbone", self.backbone, {name: cls.Config for name, cls in BACKBONES.items()})

    @property
    def method_config(self) -> Any:
        """The method's options, validated."""
        return _validated("method", self.method, {name: cls.Config for name, cls in METHODS.items()})

    @classmethod
    def load(cls, source: str | Path) -> Self:
        """Read and check a recipe.

        Args:
            source: path of a YAML file, or the name of a shipped recipe such as ``ncr/digits_vse_infinity``.

        Raises:
            RecipeError: no such recipe, not YAML, an unknown key or name, or a value out of range.
        """
        path = find_recipe(source)
        try:
            content = read_yaml(path)
        except SubmissionError as error:
            raise RecipeError(str(error)) from None
        return cls.from_dict(content, where=str(path))

    @classmethod
    def from_dict(cls, content: dict[str, Any], *, where: str = "recipe") -> Self:
        """Check a recipe's content; ``where`` opens the error messages."""
        try:
            recipe = cls.model_validate(content)
        except ValidationError as error:
            raise RecipeError(f"{where}: {first_problem(error)}") from None
        try:
            _ = recipe.backbone_config, recipe.method_config
        except RecipeError as error:
            raise RecipeError(f"{where}: {error}") from None
        return recipe


def shipped_name(recipe: Recipe) -> str | None:
    """Name of the shipped recipe with this content, or None."""
    for path in sorted(RECIPES.rglob("*.yaml")):
        if Recipe.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))) == recipe:
            return str(path.relative_to(RECIPES).with_suffix(""))
    return None


def find_recipe(source: str | Path) -> Path:
    """Path of a recipe given as a file or by its name below ``baselines/recipes``."""
    shipped = RECIPES / f"{source}.yaml"
    for candidate in (Path(source), shipped):
        if candidate.is_file():
            return candidate
    names = (str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.rglob("*.yaml"))
    near = [name for name in sorted(names) if str(source).split("/")[0] == name.split("/")[0]]
    hint = f"; known for this method: {', '.join(near)}" if near else "; see `ncl-bench recipes`"
    raise RecipeError(f"no recipe {str(source)!r}: neither a file nor a shipped recipe{hint}")


def _validated(kind: str, options: dict[str, Any], models: dict[str, type[BaseModel]]) -> Any:
    rest = dict(options)
    name = rest.pop("name", None)
    if name not in models:
        raise RecipeError(unknown_name(kind, name, models))
    try:
        return models[name].model_validate(rest)
    except ValidationError as error:
        raise RecipeError(f"{kind}: {first_problem(error)}") from None
