"""Common parts of typed files: the frozen base model, checked texts and paths, and strict YAML."""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from ncl_bench.errors import SubmissionError, first_problem
from ncl_bench.files import read_limited, readable
from ncl_bench.shown import Matching, unseen

LARGEST_YAML = 64 * 1024
FEWEST_DIGITS = 8
"""Least number of distinct digits in a sha256; a random hash has fewer once in 10^19."""


YAML_ERRORS = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
"""What parsing YAML can raise: also numbers of thousands of digits, bytes that are no UTF-8, and deep nesting."""


class Record(BaseModel):
    """A frozen model that refuses unknown keys, and numbers that JSON does not have: NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Model = TypeVar("Model", bound=Record)


def checked(model: type[Model], content: Any, where: str) -> Model:
    """Validate content as a record; the error begins with ``where`` and names the field."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise SubmissionError(f"{where}: {first_problem(error, content)}") from None


def _stays_inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\\" in value or "\0" in value:
        raise ValueError("it must be a path below the folder")
    return value


def _is_a_hash(value: str) -> str:
    if len(set(value)) < FEWEST_DIGITS:
        raise ValueError("not a real sha256: too few distinct digits; state the hash of the file or the data")
    return value


Sha256 = Annotated[
    str, Matching("[0-9a-f]{64}", "a sha256: 64 digits 0-9 and a-f"), AfterValidator(_is_a_hash)
]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_stays_inside)]
"""A path below the folder that a record is about, with ``/``."""


if TYPE_CHECKING or not yaml.__with_libyaml__:
    _Loader = yaml.SafeLoader
else:

    class _Loader(Composer, yaml.cyaml.CParser, SafeConstructor, Resolver):
        """libyaml's events, ten times faster than Python's, composed and constructed in Python."""

        def __init__(self, stream: str) -> None:
            yaml.cyaml.CParser.__init__(self, stream)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)


class _PlainLoader(_Loader):
    """A safe loader that also refuses aliases (which can expand without bound), tags and duplicate keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        unwanted = (
            "aliases" if isinstance(event, yaml.AliasEvent) else "tags" if event.tag is not None else ""
        )
        if unwanted:
            mark: Any = event.start_mark
            raise yaml.constructor.ConstructorError(None, None, f"{unwanted} are not allowed", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            keys = [key.value for key, _ in node.value]
            twice = next(key for n, (key, _) in enumerate(node.value) if key.value in keys[:n])
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {twice.value!r} occurs twice", twice.start_mark
            )
        return mapping


def read_yaml(path: Path, *, largest: int = LARGEST_YAML) -> dict[str, Any]:
    """Read the mapping in a YAML file.

    Args:
        path: the file.
        largest: size in bytes above which the file is refused unread.

    Raises:
        SubmissionError: missing, too large, not UTF-8, not YAML, holding an alias or a tag, or not a mapping.
    """
    return parse_yaml(read_short(path, largest=largest), path)


def read_short(path: Path, *, largest: int = LARGEST_YAML) -> bytes:
    """Read a short file.

    Raises:
        SubmissionError: missing, no regular file, or larger than ``largest`` bytes; it is not read then.
    """
    readable(path, SubmissionError, "a short text")
    return read_limited(path, largest, SubmissionError, "give a short text")


def parse_yaml(text: bytes, path: Path) -> dict[str, Any]:
    """Parse the mapping in a file's text.

    Raises:
        SubmissionError: not UTF-8, not YAML, holding an alias, a tag or an invisible character, or not a mapping.
    """
    try:
        content = yaml.load(text.decode("utf-8"), Loader=_PlainLoader)
    except YAML_ERRORS as error:
        problem = getattr(error, "problem", None) or (str(error).splitlines() or ["it cannot be parsed"])[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise SubmissionError(f"{where} is not plain YAML: {problem}; write keys and plain values") from None
    if not isinstance(content, dict):
        raise SubmissionError(f"{path} holds {type(content).__name__}, expected keys and values")
    _refuse_unseen(content, path)
    return content


def _refuse_unseen(value: Any, path: Path, key: str = "") -> None:
    if isinstance(value, str):
        found = unseen(value, allowed="\t\n")
        if found:
            raise SubmissionError(f"{path}: {key or 'a key'} holds the {found}; remove it")
    elif isinstance(value, dict):
        for name, below in value.items():
            _refuse_unseen(name, path)
            _refuse_unseen(below, path, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for below in value:
            _refuse_unseen(below, path, key)
