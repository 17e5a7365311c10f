"""Plain YAML, which anybody may give: without aliases, tags, repeated keys and numbers of thousands of digits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ncl_bench.errors import NclBenchError, SubmissionError
from ncl_bench.foreign import read_limited, readable, reading
from ncl_bench.names import unseen

LARGEST_YAML = 64 * 1024
_SafeLoader: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Refuses a key that occurs twice in a mapping: the first one would be lost without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            keys = [key.value for key, _ in node.value]
            twice = next(key for n, (key, _) in enumerate(node.value) if key.value in keys[:n])
            raise _refused(f"the key {twice.value!r} occurs twice", twice)
        return mapping


def _refused(problem: str, place: Any) -> Exception:
    return yaml.constructor.ConstructorError(None, None, problem, place.start_mark)


def read_yaml(path: Path, *, largest: int = LARGEST_YAML) -> dict[str, Any]:
    """Read the mapping in a YAML file.

    Args:
        path: the file.
        largest: size in bytes above which the file is refused unread.
    """
    fix = "write plain YAML: keys and values"
    text = read_limited(readable(path, SubmissionError, "a short text"), largest, SubmissionError, fix)
    with reading(path, SubmissionError, fix=fix):
        content = _loaded(text.decode("utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it holds {type(content).__name__}")
    for key, value in leaves(content):
        if found := unseen(f"{key}{value}", allowed="\t\n"):
            raise SubmissionError(f"{path}: {key} holds the {found}; remove it")
    return content


def plain_value(text: str, name: str, error: type[NclBenchError] = SubmissionError) -> Any:
    """Parse a value that a user wrote, such as that of an option: plain YAML without aliases and tags.

    Args:
        text: the value.
        name: what errors call it.
        error: class of what is raised.
    """
    with reading(name, error, fix="write one plain value"):
        return _loaded(text)


def _loaded(text: str) -> Any:
    if any(sign in text for sign in "&*!"):  # few texts hold one
        for event in yaml.parse(text, _SafeLoader):
            # aliases can expand without bound
            if type(event) is yaml.AliasEvent or getattr(event, "tag", None):
                raise _refused("aliases and tags are not allowed", event)
    value = yaml.load(text, _Loader)
    str(value)  # Python writes no integer of more than 4,300 digits, which base 16 may hold
    return value


def leaves(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that holds no others, after its keys joined by dots; the entries of a list are numbered."""
    if isinstance(content, list):
        content = dict(enumerate(content))
    if not isinstance(content, dict):
        yield key, content
        return
    for name, below in content.items():
        yield from leaves(below, f"{key}.{name}".lstrip("."))
