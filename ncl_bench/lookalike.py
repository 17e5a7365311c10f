"""Names that look like another name: a reviewer is told of them, because honest names can look alike."""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from ncl_bench.schema import is_mark, unseen

# Pairs of a letter and the Latin letter that it looks like (after Unicode's confusables.txt).
_LOOKS = {
    "Cyrillic": (
        "АВЕЅІЈКМНОРСТУХҮԌԚԜӀѴ" + "авеѕіјкмнорстухүһԁԛԝӏѵгп",
        "ABESIJKMHOPCTYXYGQWIV" + "abesijkmhopctyxyhdqwlvrn",
    ),
    "Greek": ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϺϜ" + "αβγεηικνορτυχωϲϳ", "ABEZHIKMNOPTYXCMF" + "abyenikvoptuxwcj"),
    "Lisu": ("ꓐꓑꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ", "BPDTGKJCZFMNLSRVHWXYAEIOU"),
    "Cherokee": ("ᎠᎡᎢᎥᎩᎪᎫᎬᎳᎷᎻᎽᏀᏂᏃᏏᏒᏔᏕᏙᏚᏞᏟᏢᏦᏧᏴᏻ", "DRTiYAJEWMHYGhZbRWSVSLCPKdBG"),
    "Coptic": ("ⲀⲂⲈⲎⲒⲔⲘⲚⲞⲢⲤⲦⲨⲬ", "ABEHIKMNOPCTYX"),
    "Armenian": ("ՍՕԼՏօոսհցզյ", "UOLSonuhgqj"),
    "signs": ("01|ı∣‐‑‒–—−’ʼ׳", "oll" + "il" + "------" + "'''"),
}
_SAME = str.maketrans(
    "".join(odd for odd, _ in _LOOKS.values()), "".join(latin for _, latin in _LOOKS.values())
)
_BASE = re.compile(
    r"LATIN (?:SMALL|CAPITAL)? ?(?:LETTER )?(?:SMALL CAPITAL |SCRIPT |DOTLESS )?([A-Z])(?: WITH .*)?"
)


@cache
def skeleton(name: str) -> str:
    """Letters that a name looks like; two names with one skeleton are easily taken for each other."""
    found = []
    for letter in unicodedata.normalize("NFKD", name.translate(_SAME)):
        if is_mark(letter) or unseen(letter):
            continue
        letter = letter.upper() if "CHEROKEE" in unicodedata.name(letter, "") else letter
        base = _BASE.fullmatch(unicodedata.name(letter, ""))
        found.append((base[1] if base else letter).translate(_SAME) if not letter.isascii() else letter)
    return "".join(found).casefold().translate(_SAME).replace("i", "l")


_EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC")
_WORD = re.compile(r"[^\W_]+")


def _mixed(name: str) -> str:
    """First word in which letters of two scripts meet; Latin letters beside Chinese, Japanese or Korean are usual."""
    for word in _WORD.findall(unicodedata.normalize("NFKC", name)):
        scripts = {unicodedata.name(c, "").split(" ")[0] for c in word if unicodedata.category(c)[0] == "L"}
        if len(scripts - set(_EAST_ASIAN)) > 1:
            return str(word)
    return ""


def lookalike(name: str, standing: Iterable[str]) -> str | None:
    """Remark on a name that may be taken for another one; it is a remark, because honest names can look alike.

    Args:
        name: of a method, a network or a person.
        standing: names that it may imitate; the name itself, in any letter case, does not count.

    Returns:
        One sentence, or None.
    """
    for other in standing:
        if skeleton(other) == skeleton(name) and other.casefold() != name.casefold():
            return f"The name looks like {other}, but is written with other letters."
    word = _mixed(name)
    return f"The name mixes letters of two scripts in {word}." if word else None
