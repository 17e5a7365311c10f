"""Reads a caption of the digits back, without the grammar that wrote it."""

import re
from collections.abc import Sequence

from ncl_bench.data.digits import Placed

Named = tuple[int, int | None, int | None]
"""Digit, row and column; None where the caption does not say."""

ENGLISH_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COORDINATES = {
    "en": {
        "r0c0": "top left corner",
        "r0c3": "top right corner",
        "r3c0": "bottom left corner",
        "r3c3": "bottom right corner",
        "r0": "topmost|top",
        "r1": "upper",
        "r2": "lower",
        "r3": "bottommost|bottom",
        "c0": "leftmost|far-left",
        "c1": "mid-left|left-centre",
        "c2": "mid-right|right-centre",
        "c3": "rightmost|far-right",
    },
    "zh": {
        "r0c0": "左上角",
        "r0c3": "右上角",
        "r3c0": "左下角",
        "r3c3": "右下角",
        "r0": "第一行",
        "r1": "第二行",
        "r2": "第三行",
        "r3": "第四行|最后一行",
        "c0": "左边第一列|第一列",
        "c1": "第二列",
        "c2": "第三列",
        "c3": "第四列|最后一列",
    },
}
PREFIX = {"en": r"^\w+ digits, with |^from the top: ", "zh": r"^共.个数字，其中|一个"}


def read(caption: str, language: str) -> list[Named]:
    """Everything that a caption names."""
    text = re.sub(PREFIX[language], "", caption)
    for symbol, words in COORDINATES[language].items():
        text = re.sub(words, f"<{symbol}>", text)
    for digit in range(10):
        word = rf"\b{ENGLISH_DIGITS[digit]}\b" if language == "en" else "零一二三四五六七八九"[digit]
        text = re.sub(rf"{word}|(?<![rcd]){digit}", f"<d{digit}>", text)
    symbols = re.findall(r"<(\w+)>", text)
    items, item = [], []
    place_first = not symbols[0].startswith("d")
    for position, symbol in enumerate(symbols):
        item.append(symbol)
        following = symbols[position + 1 : position + 2]
        ends = symbol[0] == "d" if place_first else not following or following[0][0] == "d"
        if ends:
            found = dict(re.findall(r"([drc])(\d)", "".join(item)))
            row, column = (int(found[axis]) if axis in found else None for axis in "rc")
            items.append((int(found["d"]), row, column))
            item = []
    assert not item
    return items


def agrees(named: Named, placed: Placed) -> bool:
    digit, row, column = named
    return digit == placed.digit and row in (None, placed.row) and column in (None, placed.column)


def matches(named: list[Named], scene: Sequence[Placed]) -> bool:
    """Whether every named digit is a different one of the scene."""
    if not named:
        return True
    rest = [placed for placed in scene if agrees(named[0], placed)]
    return any(matches(named[1:], [other for other in scene if other != placed]) for placed in rest)
