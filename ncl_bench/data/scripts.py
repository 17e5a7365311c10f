"""Scripts that texts are written in."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

LATIN = "Latin"
_EAST = "Chinese or Japanese"
_NAMES = {"CJK": _EAST, "HIRAGANA": _EAST, "KATAKANA": _EAST, "HANGUL": "Korean"}
LANGUAGE_OF = {
    _EAST: "zh",
    "Korean": "ko",
    "Cyrillic": "ru",
    "Arabic": "ar",
    "Thai": "th",
    "Devanagari": "hi",
}
"""Script to a language that is often written in it, to show how one is named."""


def script_of(text: str) -> str | None:
    """The script of most letters of a text, such as ``Latin``; None without a letter."""
    counts = Counter(
        _script_of_letter(letter) for letter in unicodedata.normalize("NFC", text) if letter.isalpha()
    )
    return counts.most_common(1)[0][0] if counts else None


def script_of_most(texts: Iterable[str]) -> str | None:
    """The script that more than half of the texts with a letter are written in; None if there is none."""
    counts = Counter(script for text in texts if (script := script_of(text)))
    script, n = counts.most_common(1)[0] if counts else (None, 0)
    return script if 2 * n > sum(counts.values()) else None


@cache
def _script_of_letter(letter: str) -> str:
    """The script of a letter, by the first word of its name in Unicode, such as LATIN or CYRILLIC."""
    first = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "another script").partition(" ")[0]
    return _NAMES.get(first, first.capitalize())
