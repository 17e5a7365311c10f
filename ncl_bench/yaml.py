"""Plain YAML, which anybody may give: without aliases, tags, repeated keys and numbers of thousands of digits."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from ncl_bench.errors import NclBenchError, SubmissionError
from ncl_bench.foreign import read_limited, readable, reading
from ncl_bench.names import unseen

LARGEST_YAML = 64 * 1024
_SafeLoader: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


_SCALARS = _SafeLoader("")


@lru_cache(maxsize=1 << 16)  # files of results repeat their numbers and words
def _plain(text: str) -> Any:
    """A scalar without quotes: a number, a date, true, null or a text."""
    tag = _SCALARS.resolve(yaml.ScalarNode, text, (True, False))
    return _SCALARS.construct_document(yaml.ScalarNode(tag, text))


def _value(next_event: Callable[[], Any], event: Any) -> Any:
    """Build the value that begins with an event of the parser, a third of the time that PyYAML's loader takes."""
    if type(event) is yaml.AliasEvent or event.tag:
        raise _refused("aliases and tags are not allowed", event)  # aliases can expand without bound
    if type(event) is yaml.ScalarEvent:
        return _plain(event.value) if event.implicit[0] else event.value
    if type(event) is yaml.SequenceStartEvent:
        values = []
        while type(inner := next_event()) is not yaml.SequenceEndEvent:
            values.append(_value(next_event, inner))
        return values
    mapping: dict[Any, Any] = {}
    while type(inner := next_event()) is not yaml.MappingEndEvent:
        key = _value(next_event, inner)
        if key in mapping:  # the first one would be lost without a word
            raise _refused(f"the key {key!r} occurs twice", inner)
        mapping[key] = _value(next_event, next_event())
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
    if b"\\" not in text and text.isascii() and text.replace(b"\n", b"").decode().isprintable():
        return content  # no letter of it is hidden, and no escape names one
    for key, value in leaves(content):
        if hidden := unseen(f"{key}{value}", allowed="\t\n"):
            raise SubmissionError(f"{path}: {key} holds the {hidden}; remove it")
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
    parser = _SafeLoader(text)
    parser.get_event()  # the stream begins
    if type(parser.get_event()) is yaml.StreamEndEvent:
        return None
    value = _value(parser.get_event, parser.get_event())
    parser.get_event()  # the document ends
    if type(after := parser.get_event()) is not yaml.StreamEndEvent:
        raise _refused("it holds several documents", after)
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
