"""The papers' ablation tables: rows that differ from a recipe in a few options, beside the printed numbers."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from baselines.recipes import TABLES
from ncl_bench.errors import RecipeError, first_problem
from ncl_bench.schema import Record, Text, read_yaml

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
    steps: Annotated[int, Field(ge=1)]
    recipe: str
    noise: str
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    rows: Annotated[tuple[AblationLine, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _names_rows_apart(self) -> Self:
        titles = [row.title for row in self.rows]
        twice = next((title for place, title in enumerate(titles) if title in titles[:place]), None)
        if twice is not None:
            raise ValueError(f"two rows are called {twice!r}; give each a title of its own")
        return self

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check a table."""
        try:
            return cls.model_validate(read_yaml(path))
        except ValidationError as error:
            raise RecipeError(f"{path}: {first_problem(error)}") from None

    def printed_drop(self, row: AblationLine) -> float:
        """The share of the full method's printed rSum that a row loses, in percent."""
        full = sum(self.rows[0].printed)
        return 100 * (full - sum(row.printed)) / full


def ablations() -> dict[str, Ablation]:
    """The shipped tables by name, sorted."""
    return {path.stem: Ablation.load(path) for path in sorted(TABLES.glob("ablation_*.yaml"))}
