"""YAML from strangers: small, without aliases or tags, and plain data only."""

import stat
from pathlib import Path
from typing import Any

import yaml

from ncl_bench.errors import SubmissionError

LARGEST = 64 * 1024


class _PlainLoader(yaml.SafeLoader):
    """A safe loader that also refuses aliases (which can expand without bound), tags, and keys that stand twice."""

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
            raise yaml.constructor.ConstructorError(None, None, "a key stands twice", node.start_mark)
        return mapping


def read_yaml(path: Path, *, largest: int = LARGEST) -> dict[str, Any]:
    """The mapping in a YAML file.

    Args:
        path: the file.
        largest: size in bytes above which the file is refused unread.

    Raises:
        SubmissionError: missing, too large, not UTF-8, not YAML, holding an alias or a tag, or not a mapping.
    """
    try:
        status = path.stat()
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            raise SubmissionError(f"{path} is no regular file, expected a short text")
        if size > largest:
            raise SubmissionError(
                f"{path} has {size:,} bytes, expected at most {largest:,}; it should be a short text"
            )
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_PlainLoader)
    except OSError as error:
        raise SubmissionError(f"cannot read {path}: {error.strerror}; give a readable file") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, OverflowError, RecursionError) as error:
        problem = getattr(error, "problem", None) or (str(error).splitlines() or ["it cannot be parsed"])[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise SubmissionError(f"{where} is not plain YAML: {problem}; write keys and plain values") from None
    if not isinstance(content, dict):
        raise SubmissionError(f"{path} holds {type(content).__name__}, expected keys and values")
    return content
