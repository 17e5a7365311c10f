"""Checks of what strangers give: regular files, sizes, encodings, archives and the spelling of names."""

import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ncl_bench.errors import DataError, NclBenchError, is_out_of_memory, reason_of


@contextmanager
def reading(
    path: object, error: type[NclBenchError] = DataError, *, fix: str = "write or fetch it again"
) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into one sentence; inside, nothing else catches.

    Sentences of this project, lack of memory and interrupts pass through.

    Args:
        path: what is read, as the sentence names it.
        error: class of what is raised.
        fix: what the user should do, in words that end the sentence.
    """
    try:
        yield
    except Exception as problem:
        if isinstance(problem, NclBenchError) or is_out_of_memory(problem):
            raise
        raise error(f"{path} cannot be read ({_reason(problem)}); {fix}") from None


def _reason(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror  # without the path, which the sentence names
    if mark := getattr(problem, "problem_mark", None):  # YAML's own sentences have several lines
        return f"line {mark.line + 1}: {getattr(problem, 'problem', '')}"
    said = reason_of(problem)
    return said if " " in said else f"{type(problem).__name__} {said}"  # as of a key that is missing


def text_lines(content: bytes, name: str, error: type[NclBenchError]) -> list[str]:
    """Split UTF-8 text into lines, without line ends and byte-order mark.

    Only ``\\n`` and ``\\r\\n`` end a line: texts may hold the rarer line ends of ``str.splitlines``.

    Args:
        content: the file's bytes.
        name: name of the file in errors.
        error: class of what is raised.
    """
    return [line.removesuffix("\r") for line in decoded(content, name, error).split("\n")]


def decoded(content: bytes, name: str, error: type[NclBenchError]) -> str:
    """Decode UTF-8 text, without its byte-order mark; arguments as for :func:`text_lines`."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise error(
            f"{name} line {line}: byte 0x{content[problem.start]:02x} is not UTF-8; save it as text in UTF-8, or "
            "download the file again"
        ) from None


def readable(
    path: Path,
    error: type[NclBenchError],
    expected: str,
    *,
    inside: Path | None = None,
    fix: str = "correct its name or put the file there",
) -> Path:
    """Return the path of a user's file if it is a regular, readable file; opening a pipe would wait forever.

    Args:
        path: of the file.
        error: class of what is raised.
        expected: what the file should be, such as "an .npy file".
        inside: folder that a symbolic link must not leave.
        fix: what the user should do, in words that end the sentence.
    """
    problem = ""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            problem = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
    except (OSError, ValueError) as unreachable:  # no name holds a null character
        reason = "" if isinstance(unreachable, FileNotFoundError) else getattr(unreachable, "strerror", "")
        problem = f"cannot be read ({reason})" if reason else "does not exist"
    if inside is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(inside)):
        problem = f"is a link out of the folder {inside}"
    if problem:
        raise error(f"{path} {problem}, expected {expected}; {fix}")
    return path


def normalized(text: str) -> str:
    """Return a text in Unicode's composed form, NFC, in which names and words are compared.

    A Mac's archives decompose the ``é`` of a file name into two characters, and a table spells it as one.
    """
    return unicodedata.normalize("NFC", text)


def told_apart(names: Iterable[str]) -> dict[str, str]:
    """Each name to its composed form, or to itself where another name has the same: these are two names."""
    composed = {name: normalized(name) for name in names}
    n_alike = Counter(composed.values())
    return {name: one if n_alike[one] == 1 else name for name, one in composed.items()}


def whole_number(text: str) -> int | None:
    """Read a whole number from 0 that fits int64 and is written in ASCII digits; None for any other text."""
    # Python refuses to read thousands of digits, takes digits of any script, and 1_0 for 10
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def read_limited(path: Path, largest: int, error: type[NclBenchError], fix: str) -> bytes:
    """Read a whole file whose size is known; a larger one is refused unread.

    Args:
        path: of the file.
        largest: number of bytes that it can have.
        error: class of what is raised.
        fix: what the user should do, in words that end the sentence.
    """
    with reading(path, error, fix=fix):
        size = path.stat().st_size
        if size > largest:
            raise error(f"{path} has {size:,} bytes, expected at most {largest:,}; {fix}")
        return path.read_bytes()
