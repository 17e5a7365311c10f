"""Texts that people are shown, names and links, as types of a record's fields; and names that look like another.

A text that people are shown is in Unicode's composed form (NFC), in one line, and without control characters.
Names also keep to Latin letters, digits and a few signs. The writers of HTML, Markdown, LaTeX and CSV escape a text
themselves.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, Field

_JOINERS = "\u200c\u200d"
"""Letters of Hindi, of Persian and of emoji need them."""
NAME_SIGNS = " .,:;+*∞()&=/@'’·-_"
"""Signs in a name beside letters and digits."""


def unseen(text: str, *, allowed: str = "") -> str:
    """Name the first character that shows nothing or acts on its neighbours, such as
    ``control character U+200B``; empty if there is none.

    Args:
        text: any text.
        allowed: characters that pass.
    """
    if text.isprintable():
        return ""  # most texts, and there are many
    hidden = (
        letter
        for letter in text
        if not (letter.isprintable() or letter in allowed + _JOINERS or unicodedata.category(letter) == "Zs")
    )
    return next((f"control character U+{ord(letter):04X}" for letter in hidden), "")


@lru_cache(maxsize=1 << 12)  # a leaderboard repeats its names and notes thousands of times
def _shown(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text.strip(" ")  # nothing below changes or refuses it
    text = "".join(" " if unicodedata.category(letter) == "Zs" else letter for letter in text)
    text = unicodedata.normalize("NFC", text).strip(" ")
    hidden = unseen(text)
    if hidden:
        raise ValueError(f"it holds the {hidden}; remove it")
    return text


def is_mark(letter: str) -> bool:
    return unicodedata.category(letter) in ("Mn", "Me")


def _something(text: str) -> str:
    if not text:
        raise ValueError("it is empty; write at least one letter")
    return text


@lru_cache(maxsize=1 << 12)
def _name(text: str) -> str:
    text = _shown(text)
    odd = next((letter for letter in text if letter not in NAME_SIGNS and not _is_latin(letter)), "")
    if odd:
        signs = " ".join(NAME_SIGNS.strip())
        raise ValueError(f"it holds {odd!r}; a name has Latin letters, digits, blanks and {signs}")
    if text and text[0] not in "*_" and not text[0].isalnum():
        raise ValueError("a name begins with a letter, a digit or *")
    return text


@lru_cache  # a leaderboard spells thousands of names in some sixty letters
def _is_latin(letter: str) -> bool:
    """Whether it is a digit or a Latin letter, also with an accent; small capitals look like other names' letters.

    Special forms such as the long s are none: Unicode's NFKC writes them as other letters.
    """
    latin = unicodedata.name(letter, "").startswith(("LATIN SMALL LETTER", "LATIN CAPITAL LETTER", "DIGIT"))
    return latin and unicodedata.normalize("NFKC", letter) == letter


_LINK = re.compile(r"https?://[A-Za-z0-9._~-]+(:[0-9]{1,5})?([/?#][A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*)?")


@lru_cache(maxsize=1 << 12)
def _link(text: str) -> str:
    if text and not _LINK.fullmatch(text):
        raise ValueError(
            "a link begins with http:// or https:// and names a host, without a user name; write letters that no link "
            "may hold as %XX"
        )
    return text


ShownText = Annotated[str, Field(max_length=300), AfterValidator(_shown)]
"""One line that a page, a table or a terminal shows; may be empty."""
Text = Annotated[ShownText, AfterValidator(_something)]
"""One line that is not empty."""
LongText = Annotated[str, Field(max_length=3_000), AfterValidator(_shown)]
"""Notes and remarks."""
OptionalName = Annotated[str, Field(max_length=80), AfterValidator(_name)]
Name = Annotated[OptionalName, AfterValidator(_something)]
"""Name of a method or a network."""
Link = Annotated[str, Field(max_length=300), AfterValidator(_link)]
"""An address of a page (RFC 3986, http or https, no user name); may be empty."""


def _skeleton(name: str) -> str:
    """Letters that a name looks like: without accents and case, 0 as o, and 1, i and | as l."""
    letters = (c for c in unicodedata.normalize("NFKD", name) if not is_mark(c))
    return "".join(letters).casefold().translate(str.maketrans("01i|", "olll"))


def lookalike(name: str, standing: Iterable[str]) -> str | None:
    """Remark on a name that may be taken for another one; it is a remark, because honest names can look alike.

    Args:
        name: of a method or a network.
        standing: names that it may imitate; the name itself, in any letter case, does not count.

    Returns:
        One sentence, or None.
    """
    for other in standing:
        if _skeleton(other) == _skeleton(name) and other.casefold() != name.casefold():
            return f"The name looks like {other}, but is written with other letters."
    return None
