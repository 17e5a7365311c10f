"""Typed records: the frozen base model, and the types of its fields that hold a hash, a file name or a pattern."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from ncl_bench.arguments import Precision as Precision
from ncl_bench.errors import NclBenchError, SubmissionError, first_problem

FEWEST_DISTINCT = 8
"""Least number of distinct digits in a sha256; a random hash has fewer once in 10^19."""


class Record(BaseModel):
    """A frozen model that refuses unknown keys, and numbers that JSON does not have: NaN and infinity."""

    # schemas take long to build, and most commands read few of the records that they import
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def __dir__(self) -> list[str]:
        """The fields and methods of its own, so that tab completion does not show pydantic's."""
        return sorted({*super().__dir__()} - {*dir(BaseModel)})


class Described(Record):
    """A record whose fields are described by the text below each, also in the JSON Schema and in the template."""

    model_config = ConfigDict(use_attribute_docstrings=True)


@dataclass(frozen=True)
class Matching:
    """Validator of a text that matches a whole pattern; an error says it in words.

    Attributes:
        pattern: regular expression, also in the JSON Schema.
        words: what the pattern means, after "expected".
    """

    pattern: str
    words: str

    def _check(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"expected {self.words}")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {"pattern": f"^({self.pattern})$"}


Model = TypeVar("Model", bound=Record)


def checked(
    model: type[Model], content: Any, where: str, kind: type[NclBenchError] = SubmissionError
) -> Model:
    """Validate content as a record; the error, of this kind, begins with ``where`` and names the field."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise kind(f"{where}: {first_problem(error, content)}") from None


def _stays_inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\\" in value or "\0" in value:
        raise ValueError("it must be a path below the folder")
    return value


def _is_a_hash(value: str) -> str:
    if len(set(value)) < FEWEST_DISTINCT:
        raise ValueError("not a real sha256: too few distinct digits; state the hash of the file or the data")
    return value


Sha256 = Annotated[
    str, Matching("[0-9a-f]{64}", "a sha256: 64 digits 0-9 and a-f"), AfterValidator(_is_a_hash)
]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
RSum = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_stays_inside)]
"""A path below the folder that a record is about, with ``/``."""
