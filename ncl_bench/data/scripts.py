"""Scripts that texts are written in, and what a word is in each."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Tibetan, Myanmar
    "\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf"  # Khmer, Tai Le, New Tai Lue, Tai Tham
    "\u3001-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana, and punctuation
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"  # punctuation of full width
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\ua000-\ua4cf"  # Yi
)
"""Characters of the scripts that are written without blanks between words, as ranges of a regular expression."""
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
    counts: Counter[str] = Counter()
    for letter, n in Counter(unicodedata.normalize("NFC", text)).items():  # a text has few different letters
        if letter.isalpha():
            counts[_script_of_letter(letter)] += n
    return counts.most_common(1)[0][0] if counts else None


def script_of_most(texts: Iterable[str]) -> str | None:
    """The script that more than half of the texts with a letter are written in; None if there is none."""
    counts = Counter(script for text in texts if (script := script_of(text)))
    script, n = counts.most_common(1)[0] if counts else (None, 0)
    return script if 2 * n > sum(counts.values()) else None


@cache
def marks() -> str:
    """All marks that belong to the letter before them, such as vowel signs, for a set of a regular expression."""
    return "".join(
        letter
        for letter in map(chr, range(0x0300, 0xFF9F + 1))
        if unicodedata.category(letter)[0] == "M" or letter in "\u200c\u200d"
    )


@cache
def _words() -> re.Pattern[str]:
    letter = rf"[^\W_][{marks()}]*"
    return re.compile(rf"(?P<unspaced>(?:(?=[{UNSPACED}]){letter})+)|(?:(?![{UNSPACED}]){letter})+")


@cache
def _letters() -> re.Pattern[str]:
    return re.compile(rf"[^\W_][{marks()}]*")


def terms(text: str) -> list[str]:
    """Split a text into lower-case words; scripts without blanks into letters and pairs of neighbours.

    Composed and decomposed letters are the same, and a letter keeps its marks. Digits are letters here.
    """
    words: list[str] = []
    for run in _words().finditer(unicodedata.normalize("NFC", text).lower()):
        if run["unspaced"]:
            letters = _letters().findall(run[0])
            words += [*letters, *map("".join, pairwise(letters))]
        else:
            words.append(run[0])
    return words


@cache
def _script_of_letter(letter: str) -> str:
    """The script of a letter, by the first word of its name in Unicode, such as LATIN or CYRILLIC."""
    first = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "another script").partition(" ")[0]
    return _NAMES.get(first, first.capitalize())
