"""Errors that a user can cause and fix: one base class and a few named ones.

Every message is one sentence that names the argument, what it got, what was expected and the fix.
The command line prints the sentence and exits with code 2; nothing else of ours reaches a user.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


_OTHER_OPTIONS = {"settings": "--set", "place": "--from"}


def option_of(argument: str, *, repeatable: bool = False) -> str:
    """Return the option that an argument of a call is at a terminal; a repeatable one is in the singular."""
    option = _OTHER_OPTIONS.get(argument, f"--{argument.replace('_', '-')}")
    return option.removesuffix("s") if repeatable else option


_NAMED = re.compile("\ufdd0(?P<argument>\\w+)(?:=(?P<value>[^\ufdd1]*))?\ufdd1")
"""An argument that :func:`named` marks; no text of a user holds these noncharacters once it is escaped."""


def named(argument: str, value: object = None) -> str:
    """Name an argument in a sentence; the door writes it as its user does.

    Args:
        argument: name in the Python call, such as ``noise_ratio``.
        value: value to show with it (default: the name alone).

    Returns:
        A mark that becomes ``--noise-ratio 0.4`` at a terminal and ``noise_ratio=0.4`` in Python.
    """
    return f"\ufdd0{argument}{'' if value is None else f'={value}'}\ufdd1"


LONGEST = 2_000
"""Characters of an error's text; a file may hold megabytes where a name is expected."""


def one_line(text: str) -> str:
    """Escape what a terminal cannot show: line ends, control codes, lone surrogates."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: ``MemoryError``, or what torch, the system or the loader of libraries raise instead."""
    said = ("allocate memory", "out of memory", "failed to map segment")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | OSError | ImportError) and any(words in str(error) for words in said)
    )


def reason_of(error: Exception) -> str:
    """Return why a file of tensors cannot be read, for a sentence of ours; lack of memory is raised again.

    torch's own message about a damaged file advises ``weights_only=False``, which would run what the file holds.
    """
    if is_out_of_memory(error):
        raise error
    if type(error).__name__ == "ValidationError":  # of pydantic, which few commands import
        return first_problem(error)  # type: ignore[arg-type]
    if "weights_only" not in str(error):
        said = " ".join(str(error).split())  # torch names what does not fit below its first line
        return said[:200] or type(error).__name__
    refused = re.search(r"GLOBAL (\S+)", str(error))
    return f"it refers to {refused[1]}, which is not loaded" if refused else "no file of torch.save"


class NclBenchError(Exception):
    """Base of every error that a user can cause and fix; its text is one short line, whatever it quotes.

    Args:
        sentence: what was wrong, where, what was expected and the fix; or these as data:
        argument: name of the argument that is wrong.
        got: its value.
        expected: what it may be.
        fix: what to do.
    """

    options: Mapping[str, str] | None = MappingProxyType({})
    """Argument to the option of the command that was refused, which the command fills in; None: a call was refused."""

    def __init__(
        self, sentence: str = "", *, argument: str = "", got: object = None, expected: str = "", fix: str = ""
    ) -> None:
        if argument:
            sentence = f"{named(argument)} is {shorten(got)}, expected {expected}{'; ' * bool(fix)}{fix}"
        super().__init__(sentence)

    @property
    def argument(self) -> str:
        """The first argument that the sentence names; empty if it names none."""
        found = _NAMED.search(super().__str__())
        return found["argument"] if found else ""

    def __str__(self) -> str:
        text = one_line(_NAMED.sub(self._by_door, super().__str__()))
        if len(text) <= LONGEST:
            return text
        return (
            f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"  # what and where come first, the fix last
        )

    def _by_door(self, found: re.Match[str]) -> str:
        argument, value = found["argument"], found["value"]
        if self.options is not None:
            option = self.options.get(argument) or option_of(argument)
            return option if value is None else f"{option} {value}"
        if value is None:
            is_subject = found.string.startswith((" is ", " are "), found.end())
            return argument if is_subject else f"{argument}="
        plain = value in ("True", "False", "None") or re.fullmatch(r"-?[\d.]+|[A-Z]+", value)
        return f"{argument}={value if plain else repr(value)}"


class DataError(NclBenchError):
    """A dataset file is missing, damaged, or differs from the protocol."""


class RowError(DataError, IndexError):
    """A row does not exist in the dataset."""


class NoiseError(NclBenchError):
    """A noise setting or noise file is invalid; noise is never redrawn or reinterpreted."""


class ScoresError(NclBenchError):
    """A scores file or similarity matrix is invalid."""


class SubmissionError(NclBenchError):
    """A submission or a leaderboard row is invalid."""


class RecipeError(NclBenchError):
    """A training recipe is invalid."""


class TrainingError(NclBenchError):
    """Training stopped: a non-finite loss, a damaged checkpoint, an output folder in use."""


def first_line(error: Exception) -> str:
    """Return the first line of another library's error message, cut to 200 characters, or the name of the error."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


PLUGGABLE = ("dataset", "method", "backbone", "noise unit")
"""Kinds of names that a plugin can register."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Build the error message for an unknown name.

    Args:
        kind: kind of name, such as ``"dataset"``.
        name: what was given.
        known: the registry's keys.

    Returns:
        One sentence that lists the known names.
    """
    names = sorted(known)
    near = _nearest(name, names)
    meant = f"did you mean {near}? Choose" if near else "choose"
    sentence = f"unknown {kind} {shorten(name)}; {meant} one of: {', '.join(names)}"
    return (
        f"{sentence}; or name the file that registers it with --plugin (in Python: import it)"
        if kind in PLUGGABLE
        else sentence
    )


def known_name(kind: str, name: str, known: Iterable[str], error: type[Exception] = DataError) -> str:
    """Return a name that is known; raise the error of :func:`unknown_name` for any other.

    Args:
        kind, name, known: as there.
        error: class of what is raised.
    """
    if name in (names := [*known]):
        return name
    raise error(unknown_name(kind, name, names))


def refuse_difference(
    where: object,
    facts: Mapping[str, tuple[object, object]],
    fix: str,
    error: type[NclBenchError] = DataError,
) -> None:
    """Refuse the first fact that is not as expected.

    Args:
        where: what the facts are of, as the sentence names it.
        facts: name to what was found and what is expected.
        fix: what the user should do, in words that end the sentence.
        error: class of what is raised.
    """
    for fact, (found, expected) in facts.items():
        if found != expected:
            raise error(f"{where}: {fact} is {shorten(found)}, expected {shorten(expected)}; {fix}")


def _nearest(name: object, names: list[str]) -> str:
    """The name that was probably meant: ``Flickr30K``, ``flicker30k`` and ``f30k`` mean ``flickr30k``; or empty."""
    given = str(name).casefold().replace("_", "-").replace(" ", "-")
    close = get_close_matches(given, names, n=1, cutoff=0.8)
    if close or len(given) < 3:
        return close[0] if close else ""
    letters = ".*".join(map(re.escape, given))
    short = [each for each in names if re.fullmatch(f"{letters}", each)]  # an abbreviation: f30k
    return short[0] if len(short) == 1 else ""


def first_problem(error: "ValidationError", given: object = None) -> str:
    """Describe the first problem of a pydantic error in one sentence: key, problem, value.

    An unknown key comes first, since a misspelt key is missing too.

    Args:
        error: of one record.
        given: content that was read; with it, the key shows only its entries, not the names of pydantic's unions.
    """
    problems = error.errors(include_url=False)
    problem = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    key = ".".join(_written(problem["loc"], given))
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}; remove it or correct its spelling"
    if problem["type"] == "missing":
        return f"key {key!r} is missing"
    if problem["type"] == "union_tag_invalid":
        union = problem["ctx"]
        name = union["discriminator"].strip("'")
        return f"{key}.{name} is {union['tag']!r}, expected one of: {union['expected_tags']}"
    sentence = problem["msg"].removeprefix("Value error, ")
    sentence = sentence[0].lower() + sentence[1:]
    if isinstance(problem["input"], dict):  # a whole section would not show what is wrong in it
        return f"{key}: {sentence}" if key else sentence
    return f"{key or 'content'} is {shorten(problem['input'])}: {sentence}"


def _written(place: tuple[int | str, ...], given: object) -> list[str]:
    """Return the parts of a location that occur in the content, and the last part, which may be missing there."""
    if given is None:
        return [str(part) for part in place]
    parts = []
    for part in place[:-1]:
        with suppress(KeyError, IndexError, TypeError):
            given = given[part]  # type: ignore[index]
            parts.append(str(part))
    return [*parts, *map(str, place[-1:])]


def shorten(value: object) -> str:
    """Return the ``repr`` of a value, cut to at most 80 characters; of an array its shape."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    got = "a number of thousands of digits"
    with suppress(ValueError):  # Python writes no integer of more than 4,300 digits
        got = repr(value)
    return got if len(got) <= 80 else f"{got[:77]}..."


def shown(text: str) -> str:
    """Return a word from a file as prose shows it: as it is if it is plain and short, else by :func:`shorten`."""
    plain = text == text.strip() != "" and text.isprintable() and "," not in text
    return text if plain and len(text) <= 80 else shorten(text)


def listed(values: Iterable[str], most: int = 8) -> str:
    """Name the first few values, each by :func:`shown`, and the number of the others; ``none`` without a value."""
    every = [shown(value) for value in values]
    others = [f"{len(every) - most:,} more"] if len(every) > most else []
    return ", ".join([*every[:most], *others]) or "none"


def as_size(n_bytes: float) -> str:
    """Format a size in a unit that leaves at least one digit of it: ``4.6 GB``, ``81.2 kB``, ``12 bytes``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:,.1f} {unit}"
    return f"{n_bytes:.0f} bytes"
