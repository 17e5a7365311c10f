"""Common parts of typed files: the frozen base model, types of text, paths and hashes, and strict YAML.

A text that people are shown is in Unicode's composed form (NFC), in one line, and shows every character that it has.
Names also keep to letters, digits and a few signs. The writers of HTML, Markdown, LaTeX and CSV escape a text
themselves.
"""

import itertools
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import yaml
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
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from ncl_bench.errors import SubmissionError, first_problem
from ncl_bench.foreign import read_limited, readable

Precision = Literal["32-true", "tf32", "bf16-mixed"]
"""float32; float32 with products in TF32 on a GPU's tensor cores; products inside the networks in bfloat16."""
LARGEST_YAML = 64 * 1024
MOST_SAID = 100
"""Letters of what PyYAML says of a value; some of it repeats the value."""
FEWEST_DIGITS = 8
"""Least number of distinct digits in a sha256; a random hash has fewer once in 10^19."""


_YAML_ERRORS = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
"""What parsing YAML can raise: also numbers of thousands of digits, bytes that are no UTF-8, and deep nesting."""


class Record(BaseModel):
    """A frozen model that refuses unknown keys, and numbers that JSON does not have: NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __dir__(self) -> list[str]:
        """The fields and methods of its own, so that tab completion does not show pydantic's."""
        return sorted({*super().__dir__()} - {*dir(BaseModel)})


_UNSEEN_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_UNSEEN = frozenset(
    itertools.chain(
        # Default_Ignorable_Code_Point of Unicode, as far as its letters and marks are in no category above
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),
        *(range(first, last + 1) for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0000, 0xE0FFF))),
        (0x2800, 0x16FE4, 0x1D159),  # drawn as a blank
    )
)
_JOINERS = "\u200c\u200d"
_GENERAL_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
"""Marks that go on any letter; the vowels and tones of a script are not among them."""
MOST_MARKS = 3
"""Marks of a script on one letter, such as vowel and tone in Thai."""
SIGNS = " .,:;+*∞()&=/@'’·・-_"
"""Signs in a name beside letters and digits."""


def unseen(text: str, *, allowed: str = "") -> str:
    """Name the first character that shows nothing or acts on its neighbours, such as
    ``control character U+200B``; empty if there is none.

    Joiners stand where the spelling of a script needs them: after a virama, as in Hindi, and the non-joiner between
    letters that would join, as in Persian.

    Args:
        text: any text.
        allowed: characters that pass.
    """
    for place, letter in enumerate(text):
        if letter in allowed or (letter in _JOINERS and _joins(text, place)):
            continue
        category = unicodedata.category(letter)
        if ord(letter) in _UNSEEN or category in _UNSEEN_CATEGORIES:
            kind = "control" if category in ("Cc", "Cf", "Zl", "Zp") else "invisible"
            return f"{kind} character U+{ord(letter):04X}"
    return ""


def _joins(text: str, place: int) -> bool:
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    if before and unicodedata.combining(before) == 9:  # a virama
        return True
    return text[place] == "\u200c" and _has_form(before, "INITIAL") and _has_form(after, "FINAL")


def _has_form(letter: str, form: str) -> bool:
    """Whether an Arabic letter joins its neighbour: Unicode then has a form for that place."""
    try:
        return bool(unicodedata.lookup(f"{unicodedata.name(letter)} {form} FORM"))
    except (KeyError, TypeError, ValueError):
        return False


def _shown(text: str) -> str:
    text = "".join(" " if unicodedata.category(letter) == "Zs" else letter for letter in text)
    text = unicodedata.normalize("NFC", text).strip(" ")
    if any(letter in "\n\r\t" for letter in text):
        raise ValueError("it has a line break or a tab; write it in one line")
    found = unseen(text)
    if found:
        raise ValueError(f"it holds the {found}; remove it")
    marks = "".join("g" if _GENERAL_MARKS.match(c) else "m" if is_mark(c) else " " for c in text)
    if "gg" in marks or re.search(f"[gm]{{{MOST_MARKS + 1}}}", marks):
        raise ValueError("it stacks several marks on one letter; write at most one")
    return text


def is_mark(letter: str) -> bool:
    return unicodedata.category(letter) in ("Mn", "Me")


def _something(text: str) -> str:
    if not text:
        raise ValueError("it is empty; write at least one letter")
    return text


def _name(text: str) -> str:
    text = _shown(text)
    plain = "".join(map(_plain_form, text))
    if plain != text:
        raise ValueError(f"it holds special forms of letters; write {plain!r}")
    odd = next((letter for letter in text if letter not in SIGNS and not _in_a_word(letter)), "")
    if odd:
        raise ValueError(
            f"it holds {odd!r}; a name has letters, digits, blanks and {' '.join(SIGNS.strip())}"
        )
    if text and text[0] not in "*_" and unicodedata.category(text[0])[0] not in "LN":
        raise ValueError("a name begins with a letter, a digit or *")
    overlay = next((c for c in text if unicodedata.combining(c) == 1 or unicodedata.category(c) == "Me"), "")
    if not overlay and _GENERAL_MARKS.fullmatch(text[-1:]) and text[-2:-1].isascii():
        overlay = text[-1]
    if overlay:
        raise ValueError(
            f"it holds the mark U+{ord(overlay):04X}, which no letter has; write the name without it"
        )
    for word in re.findall(r"[^\W_]+", text):
        odd = next((letter for letter in word if _IMITATES.match(unicodedata.name(letter, ""))), "")
        if odd and any(unicodedata.name(letter, "").startswith("LATIN") for letter in word):
            raise ValueError(
                f"{word} mixes Latin letters with {unicodedata.name(odd)}; write it in one script"
            )
    return text


_IMITATES = re.compile(
    "CYRILLIC|LISU|CHEROKEE|COPTIC|ARMENIAN|GREEK CAPITAL LETTER "
    "(ALPHA|BETA|EPSILON|ZETA|ETA|IOTA|KAPPA|MU|NU|OMICRON|RHO|TAU|UPSILON|CHI)$|GREEK SMALL LETTER (OMICRON|NU|IOTA)$"
)
"""Names of letters that look like Latin ones; other Greek letters, as in a formula, stay."""


def _in_a_word(letter: str) -> bool:
    return (
        unicodedata.category(letter)[0] in "LM" or unicodedata.category(letter) == "Nd" or letter in _JOINERS
    )


def _plain_form(letter: str) -> str:
    """Full-width, raised, mathematical and ligature forms as plain letters; letters of a script stay."""
    plain = unicodedata.normalize("NFKC", letter)
    special = plain.isascii() or not unicodedata.decomposition(letter).startswith("<compat>")
    return plain if special and plain.isprintable() and letter != " " else letter


_LINK = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")


def _link(text: str) -> str:
    if not text:
        return text
    found = unseen(text)
    if found:
        raise ValueError(f"it holds the {found}; remove it")
    if not _LINK.fullmatch(text):
        raise ValueError(
            "a link begins with http:// or https:// and has no blank; write other letters as %XX"
        )
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or "@" in parts.netloc:
        raise ValueError("a link names a host, without a user name or password")
    return text


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


ShownText = Annotated[str, Field(max_length=300), AfterValidator(_shown)]
"""One line that a page, a table or a terminal shows; may be empty."""
Text = Annotated[ShownText, AfterValidator(_something)]
"""One line that is not empty."""
LongText = Annotated[str, Field(max_length=3_000), AfterValidator(_shown)]
"""Notes and remarks."""
OptionalName = Annotated[str, Field(max_length=80), AfterValidator(_name)]
Name = Annotated[OptionalName, AfterValidator(_something)]
"""Name of a method, a network or a person, in any script."""
Link = Annotated[str, Field(max_length=300), AfterValidator(_link)]
"""An address of a page (RFC 3986, http or https, no user name); may be empty."""


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
    """
    return parse_yaml(read_short(path, largest=largest), path)


def read_short(path: Path, *, largest: int = LARGEST_YAML) -> bytes:
    """Read a short file."""
    readable(path, SubmissionError, "a short text")
    return read_limited(path, largest, SubmissionError, "give a short text")


def plain_value(text: str) -> Any:
    """Parse a value that a user wrote, such as that of an option: plain YAML without aliases and tags.

    Raises:
        ValueError: it is none; the message says why in one line.
    """
    try:
        value = _loaded(text)
    except _YAML_ERRORS as error:
        raise ValueError(_problem(error)[:MOST_SAID]) from None
    return value


def whole_number(text: str) -> int | None:
    """Read a whole number from 0 that fits int64 and is written in ASCII digits; None for any other text."""
    # Python refuses to read thousands of digits, takes digits of any script, and 1_0 for 10
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def _loaded(text: str) -> Any:
    value = yaml.load(text, Loader=_PlainLoader)
    str(value)  # Python writes no integer of more than 4,300 digits, which base 16 may hold
    return value


def _problem(error: Exception) -> str:
    return getattr(error, "problem", None) or (str(error).splitlines() or ["it cannot be parsed"])[0]


def parse_yaml(text: bytes, path: Path) -> dict[str, Any]:
    """Parse the mapping in a file's text."""
    try:
        content = _loaded(text.decode("utf-8"))
    except _YAML_ERRORS as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise SubmissionError(
            f"{where} is not plain YAML: {_problem(error)}; write keys and plain values"
        ) from None
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
