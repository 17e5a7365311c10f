"""Recipes: method, backbone, dataset and options, from a YAML file or by the name of a shipped recipe."""

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from baselines.backbones import BACKBONES
from baselines.methods import METHODS
from baselines.recipes import beginning, is_shipped, no_recipe, recipe_names, split_name, written
from ncl_bench.data import DATASETS
from ncl_bench.errors import RecipeError, first_problem, named, shorten, unknown_name
from ncl_bench.plugins import names_of_plugins
from ncl_bench.schema import Record, checked
from ncl_bench.yaml import plain_value, read_yaml

if TYPE_CHECKING:
    from baselines.kit.backbone import Backbone
    from baselines.kit.method import Method

LARGEST_OPTION = 10**7
"""Largest number that an option of a recipe may be: a plan of more epochs would fill the memory."""


class Between(Record):
    """Range of a search, drawn uniformly or log-uniformly; integers if both ends are integers.

    Attributes:
        low, high: ends of the range, both included.
        log: draw log-uniformly; both ends must be above 0.
    """

    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(
                f"low {self.low} and high {self.high} are not a range; expected low < high, and low > 0 with log"
            )
        return self

    @property
    def samples(self) -> tuple[Any, ...]:
        """Values to check: an option that accepts both ends accepts the whole range."""
        return self.low, self.high


class OneOf(Record):
    """Choices of a search, drawn with equal probability."""

    choice: Annotated[tuple[bool | int | float | str, ...], Field(min_length=1)]

    @property
    def samples(self) -> tuple[Any, ...]:
        """Values to check: all choices."""
        return self.choice


def _kind_of_values(content: Any) -> str:
    return (
        "choice"
        if isinstance(content, OneOf) or (isinstance(content, dict) and "choice" in content)
        else "between"
    )


Values = Annotated[
    Annotated[Between, Tag("between")] | Annotated[OneOf, Tag("choice")], Discriminator(_kind_of_values)
]


class Recipe(Record):
    """Method, backbone, dataset and their options. Noise and training seed come from the command line.

    Attributes:
        dataset: name of the dataset.
        language: caption language; the dataset's first by default.
        tokenizer: tokenizer; by default the language's own.
        batch_size: pairs per batch, at least 2.
        gradient_clip: largest gradient norm over all parameters of a network; null for no limit.
        clean_only: train only on the truly clean pairs: a control that knows the truth, not a method.
        steps: mean number of gradient steps per network, to which the method's schedule is stretched or compressed; by
            default the schedule's epochs are trained, however many steps they take.
        backbone: ``name`` and options of the backbone; missing options get their defaults.
        method: ``name`` and options of the method; missing options get their defaults.
        search: ranges or choices for `ncl-bench tune`, by dotted option name; ignored in training.
    """

    dataset: str
    language: str | None = None
    tokenizer: str | None = None
    batch_size: Annotated[int, Field(ge=2, le=LARGEST_OPTION, strict=True)] = 128
    gradient_clip: Annotated[float, Field(gt=0, le=LARGEST_OPTION, strict=True)] | None = 2.0
    clean_only: bool = False
    steps: Annotated[int, Field(ge=1, le=LARGEST_OPTION, strict=True)] | None = None
    backbone: dict[str, Any]
    method: dict[str, Any]
    search: dict[str, Values] = Field(default_factory=dict, exclude=True)

    @field_validator("backbone", "method")
    @classmethod
    def _every_option(cls, options: dict[str, Any], field: ValidationInfo) -> dict[str, Any]:
        config = _config(str(field.field_name), options)
        return {"name": options.get("name"), **config.model_dump(mode="json")}

    @model_validator(mode="after")
    def _knows_what_is_clean(self) -> Self:
        if self.clean_only and self.dataset in DATASETS and DATASETS[self.dataset].noise == "natural":
            raise ValueError(
                f"clean_only is true, but it is unknown which pairs of {self.dataset} are clean; leave clean_only out"
            )
        return self

    @model_validator(mode="after")
    def _compares_as_the_method_does(self) -> Self:
        from baselines.kit.backbone import CosineBackbone

        method, backbone = self.method_class, self.backbone_class
        needs: dict[str, Callable[[type[Backbone]], bool]] = {
            "is fitted in closed form": lambda each: each.closed_form or not method.closed_form,
            "is trained by gradient steps": lambda each: method.closed_form or not each.closed_form,
            "compares images with images and captions with captions": lambda each: (
                each.intra_modal or not method.needs_intra_modal
            ),
            "needs cosines between one vector of each image and caption": lambda each: (
                issubclass(each, CosineBackbone) or not method.needs_cosines
            ),
        }
        for what, fits in needs.items():
            if not fits(backbone):  # only now are all backbones imported
                able = (
                    n for n, each in sorted(BACKBONES.items()) if all(fit(each) for fit in needs.values())
                )
                raise ValueError(
                    f"method {method.name} {what}, and backbone {backbone.name} cannot; "
                    f"choose one of: {', '.join(able)}"
                )
        return self

    @model_validator(mode="after")
    def _searches_what_it_has(self) -> Self:
        for name, values in self.search.items():
            for value in values.samples:
                try:
                    with_values(self, {name: value})
                except RecipeError as error:
                    raise ValueError(f"search: {error}") from None
        return self

    @property
    def backbone_class(self) -> "type[Backbone]":
        """Class of the networks."""
        return BACKBONES[self.backbone["name"]]

    @property
    def method_class(self) -> "type[Method]":
        """Class of the method."""
        return METHODS[self.method["name"]]

    @property
    def backbone_config(self) -> Any:
        """Typed options of the backbone."""
        return _config("backbone", self.backbone)

    @property
    def method_config(self) -> Any:
        """Typed options of the method."""
        return _config("method", self.method)

    @classmethod
    def load(cls, source: str | Path) -> Self:
        """Read and check a recipe.

        Args:
            source: path of a YAML file, or a name such as ``ncr/digits_vse_infinity``. For methods and datasets of a
                plugin, every such name is a recipe with default options.
        """
        if Path(source).is_file():
            return cls.from_dict(read_yaml(Path(source)), where=str(source))
        return cls.from_dict(named_content(str(source)), where=f"recipe {source}")

    @classmethod
    def from_dict(cls, content: dict[str, Any], *, where: str = "recipe") -> Self:
        """Check a recipe's content; error messages begin with ``where``."""
        return checked(cls, content, where, RecipeError)


def named_content(name: str) -> dict[str, Any]:
    """Return the content of a named recipe, complete as in a file of its own."""
    shipped = is_shipped(name)
    method, dataset, variant = split_name(name)
    backbone = beginning(variant, BACKBONES)
    if not shipped and (method not in METHODS or variant != backbone):
        raise RecipeError(no_recipe(name))
    content = {key: value for key, value in written(name).items() if key != "note"}
    sections = {"backbone": {"name": backbone}, "method": {"name": method}}
    for key, section in sections.items():
        section.update(content.get(key, {}))
    return {"dataset": dataset, **content, **sections}


def names_with_plugins() -> list[str]:
    """Names of the shipped recipes, and of the default recipes of the methods and datasets that plugins registered."""
    own = names_of_plugins()
    default = (
        f"{method}/{dataset}_{backbone}"
        for method, dataset, backbone in product(METHODS, DATASETS, BACKBONES)
        if method in own or dataset in own
    )
    return sorted({*recipe_names(), *default})


def with_settings(recipe: Recipe, given: Sequence[str]) -> tuple[Recipe, dict[str, Any]]:
    """Override options of a recipe.

    Args:
        recipe: recipe to start from.
        given: settings such as ``method.epochs=10`` or ``batch_size=32``, with YAML values; the last one of a name
            counts. Another ``method.name`` or ``backbone.name`` starts from the defaults of that name.

    Returns:
        The new recipe, and the options that differ from the old one, such as ``{"method.epochs": 10}``.
    """
    return with_values(recipe, dict(map(named_value, given)))


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> tuple[Recipe, dict[str, Any]]:
    """As :func:`with_settings`, from values by dotted name."""
    if not values:
        return recipe, {}
    content = recipe.model_dump(mode="json")
    for section in ("backbone", "method"):
        name = values.get(f"{section}.name", content[section]["name"])
        if name != content[section]["name"]:
            # the options of another method or backbone would be unknown there
            content[section] = {"name": name}
    where = " ".join(f"{name}={_short(x)}" for name, x in values.items())
    where = named("settings", where if len(where) <= 200 else f"{where[:197]}...")
    known = options_of(Recipe.from_dict(content, where=where))
    for name, value in values.items():
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.4)
            meant = f"did you mean {' or '.join(near)}?" if near else f"choose one of: {', '.join(known)}"
            raise RecipeError(f"{named('settings', _short(name))}: the recipe has no such option; {meant}")
        section, _, option = name.rpartition(".")
        (content[section] if section else content)[option] = value
    changed = Recipe.from_dict(content, where=where)
    if "method.name" not in values and "backbone.name" not in values:
        # model_dump leaves the search out
        changed = changed.model_copy(update={"search": recipe.search})
    # a value that the recipe had anyway is no change, and is not stated in a submission
    before, after = options_of(recipe), options_of(changed)
    return changed, {name: after[name] for name in values if before.get(name) != after[name]}


def _short(value: Any) -> str:
    """Write a value of ``--set`` in at most 80 characters."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def named_value(text: str, option: str = "settings", example: str = "method.epochs=10") -> tuple[str, Any]:
    """Split a setting such as ``method.epochs=10`` into name and value; option and example are for the error."""
    name, _, value = text.partition("=")
    where = named(option, _short(text))
    if not (name and value):
        raise RecipeError(f"{where}: expected NAME=VALUE, such as {example}")
    return name, plain_value(value, where, RecipeError)


def options_of(recipe: Recipe) -> dict[str, Any]:
    """Return every option of a recipe by its dotted name."""
    content = recipe.model_dump(mode="json")
    sections = {section: content.pop(section) for section in ("backbone", "method")}
    return content | {
        f"{section}.{name}": x for section, inner in sections.items() for name, x in inner.items()
    }


def shipped_name(recipe: Recipe, settings: Mapping[str, Any] | None = None) -> str | None:
    """Return the name of the shipped recipe with this content, after these settings; None if there is none."""
    renamed = {"method.name", "dataset", "backbone.name"} & set(settings or {})
    # read only recipes that can match: there are hundreds
    beginning = "" if renamed else _generated_name(recipe)
    names = (name for name in recipe_names() if name.startswith(beginning))
    return next((name for name in names if _gives(name, recipe, settings)), None)


def own_name(recipe: Recipe, settings: Mapping[str, Any] | None = None) -> str | None:
    """Return the generated name of this recipe, after these settings, for a plugin's method or dataset; else None."""
    name = _generated_name(recipe)
    return name if _gives(name, recipe, settings) else None


def _generated_name(recipe: Recipe) -> str:
    return f"{recipe.method['name']}/{recipe.dataset}_{recipe.backbone['name']}"


def _gives(name: str, recipe: Recipe, settings: Mapping[str, Any] | None) -> bool:
    try:
        return with_values(Recipe.load(name), settings or {})[0].model_dump() == recipe.model_dump()
    except RecipeError:  # another method's recipe lacks the option
        return False


def _config(kind: str, options: dict[str, Any]) -> Any:
    """Validate options with the ``Config`` of the class that they name, a method or a backbone."""
    registry: Mapping[str, Any] = METHODS if kind == "method" else BACKBONES
    rest = dict(options)
    name = rest.pop("name", None)
    if name not in registry:
        raise ValueError(unknown_name(kind, name, registry))
    try:
        config = registry[name].Config.model_validate(rest)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    for option, value in config.model_dump().items():
        # pydantic takes true for 1, and infinity for a number; a plan of too many epochs would fill the memory
        truth = isinstance(rest.get(option), bool) and not isinstance(value, bool)
        numbers = value if isinstance(value, list | tuple) else (value,)
        if truth or any(isinstance(x, int | float) and not abs(x) <= LARGEST_OPTION for x in numbers):
            raise ValueError(
                f"{option} is {shorten(rest.get(option))}, expected a finite number of at most {LARGEST_OPTION:,}"
            )
    return config
