"""Scripts that captions are written in."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

RARE_SCRIPT = 0.1
"""Share of captions below which those of another script than most cannot be judged."""
_EAST = "Chinese or Japanese"
_SCRIPTS = {"CJK": _EAST, "HIRAGANA": _EAST, "KATAKANA": _EAST, "HANGUL": "Korean"}


def other_script(captions: Sequence[str]) -> NDArray[np.object_]:
    """Why captions cannot be judged because too few others share their script; an empty text for the others.

    Args:
        captions: of each row; empty ones have no script.
    """
    scripts = [_script(caption) for caption in captions]
    counts = Counter(filter(None, scripts))
    most = counts.most_common(1)[0][0] if counts else None
    rare = {
        script for script, n in counts.items() if script != most and n < RARE_SCRIPT * sum(counts.values())
    }
    return np.array([f"a caption in {each} among others" if each in rare else "" for each in scripts], object)


def _script(caption: str) -> str | None:
    """The script of most letters of a caption; None without a letter."""
    counts = Counter(
        _script_of(letter) for letter in unicodedata.normalize("NFC", caption) if letter.isalpha()
    )
    return counts.most_common(1)[0][0] if counts else None


@cache
def _script_of(letter: str) -> str:
    """The script of a letter, by the first word of its name in Unicode, such as LATIN or CYRILLIC."""
    first = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "another script").partition(" ")[0]
    return _SCRIPTS.get(first, first.capitalize())
