"""Measured tables: what is trained for one, at equal compute and after equal tuning (docs/measured-tables.md)."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from baselines.engine.recipe import Recipe
from baselines.recipes import TABLES, recipe_names
from ncl_bench.errors import RecipeError, SubmissionError, first_problem
from ncl_bench.schema import Record, Text, read_yaml

TUNED = "_tuned"


class Tuning(Record):
    """How every recipe of a table is tuned.

    Attributes:
        trials: of each recipe, the first of which is the recipe as it is.
        noise: under which trials are judged on dev.
        seed: of the trainings, and of what is drawn.
    """

    trials: Annotated[int, Field(ge=1)] = 12
    noise: str = "caption-60"
    seed: Annotated[int, Field(ge=0)] = 1000


class Table(Record):
    """One measured table.

    Attributes:
        title: of the table.
        steps: optimiser steps of the networks, in their mean.
        recipes: names of shipped recipes; the tuned ones of them are trained too.
        noises: such as ``none`` and ``caption-60``.
        seeds: of the trainings; that of the tuning is not among them.
        tuning: of every recipe.
    """

    title: Text
    steps: Annotated[int, Field(ge=1)]
    recipes: Annotated[tuple[str, ...], Field(min_length=1)]
    noises: Annotated[tuple[str, ...], Field(min_length=1)]
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    tuning: Tuning = Tuning()

    @model_validator(mode="after")
    def _is_tuned_apart(self) -> Self:
        if self.tuning.seed in self.seeds:
            raise ValueError(f"tuning.seed is {self.tuning.seed}, one of seeds; choose another one")
        return self

    @classmethod
    def load(cls, source: str) -> Self:
        """Read and check a table.

        Args:
            source: name of a shipped table, or a YAML file.

        Raises:
            RecipeError: no such table, or it is refused.
        """
        path = Path(source) if Path(source).is_file() else TABLES / f"{source}.yaml"
        if not path.is_file():
            raise RecipeError(f"no table {source!r}: neither a file nor one of {', '.join(table_names())}")
        try:
            return cls.model_validate(read_yaml(path))
        except ValidationError as error:
            raise RecipeError(f"{path}: {first_problem(error)}") from None
        except SubmissionError as error:
            raise RecipeError(str(error)) from None

    def trained(self) -> list[str]:
        """The recipes, each followed by its tuned one where tuning has changed something."""
        shipped = set(recipe_names())
        chosen = []
        for name in self.recipes:
            chosen.append(name)
            tuned = f"{name}{TUNED}"
            if tuned in shipped and Recipe.load(tuned) != Recipe.load(name):
                chosen.append(tuned)
        return chosen


def table_names() -> list[str]:
    """Names of the shipped tables, sorted."""
    return sorted(path.stem for path in TABLES.glob("*.yaml"))
