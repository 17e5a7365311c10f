"""Captions of the embedded digits: a small grammar, one table of words and sentence forms per language.

A caption names the digits of a scene and their places. Like a person in a hurry, it may leave out a digit, or give only
the row or only the column of one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

LEFT_OUT_SHARE = 0.6
"""Share of captions that leave a digit out, of scenes with more than ``FEWEST_NAMED`` digits."""
FEWEST_NAMED = 2
VAGUE_SHARE = 0.15
"""Share of named digits for which only the row or only the column is given."""

T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Placed:
    """A digit in a scene; row and column count from the top left, 0 to 3."""

    row: int
    column: int
    digit: int


@dataclass(frozen=True)
class Form:
    """A sentence form.

    Attributes:
        opening: start of the sentence; ``{count}`` is the number of digits in the scene.
        item: one named digit: ``{digit}`` and ``{place}``.
        joint: text between two items.
        last_joint: text before the last item.
        order: ``free``, ``rows`` (top to bottom) or ``columns`` (left to right).
    """

    opening: str
    item: str
    joint: str
    last_joint: str
    order: str = "free"


@dataclass(frozen=True)
class Grammar:
    """The words of one language; a tuple of strings holds synonyms.

    Attributes:
        digits: names of each digit, 0 to 9.
        nouns: noun phrases of a digit, with ``{name}``.
        rows, columns: names of each row from the top and each column from the left.
        exact: phrases that give both coordinates, with ``{row}`` and ``{column}``.
        in_row, in_column: phrases that give one coordinate.
        corners: names of the four corners, by ``(row, column)``.
        counts: number words for 3, 4 and 5 digits.
        forms: sentence forms.
        finish: final edit of a sentence, such as the English article.
    """

    digits: tuple[tuple[str, ...], ...]
    nouns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    exact: tuple[str, ...]
    in_row: tuple[str, ...]
    in_column: tuple[str, ...]
    corners: Mapping[tuple[int, int], tuple[str, ...]]
    counts: Mapping[int, str]
    forms: tuple[Form, ...]
    finish: Callable[[str], str]


class Writer:
    """Write captions in one language.

    Args:
        grammar: words of the language.
        random: source of every choice.
    """

    def __init__(self, grammar: Grammar, random: np.random.RandomState) -> None:
        self._grammar = grammar
        self._random = random

    def captions(self, scene: tuple[Placed, ...], n_captions: int) -> list[str]:
        """Write different captions of one scene."""
        found: dict[str, None] = {}
        while len(found) < n_captions:
            found[self._caption(scene)] = None
        return list(found)

    def _caption(self, scene: tuple[Placed, ...]) -> str:
        form = self._one_of(self._grammar.forms)
        items = [self._item(form, placed) for placed in self._in_order(self._named(scene), form.order)]
        opening = form.opening.format(count=self._grammar.counts[len(scene)])
        body = form.joint.join(items[:-1]) + form.last_joint + items[-1]
        return self._grammar.finish(opening + body)

    def _named(self, scene: tuple[Placed, ...]) -> list[Placed]:
        named = list(scene)
        if len(named) > FEWEST_NAMED and self._chance(LEFT_OUT_SHARE):
            del named[self._below(len(named))]
        return named

    def _in_order(self, named: list[Placed], order: str) -> list[Placed]:
        if order == "rows":
            return sorted(named)
        if order == "columns":
            return sorted(named, key=lambda placed: (placed.column, placed.row))
        return sorted(named, key=lambda placed: self._random.random_sample())

    def _item(self, form: Form, placed: Placed) -> str:
        name = self._one_of(self._grammar.digits[placed.digit])
        noun = self._one_of(self._grammar.nouns).format(name=name)
        return form.item.format(digit=noun, place=self._place(placed))

    def _place(self, placed: Placed) -> str:
        grammar = self._grammar
        row, column = self._one_of(grammar.rows[placed.row]), self._one_of(grammar.columns[placed.column])
        if self._chance(VAGUE_SHARE):
            patterns = grammar.in_row if self._chance(0.5) else grammar.in_column
        else:
            patterns = grammar.exact + grammar.corners.get((placed.row, placed.column), ())
        return self._one_of(patterns).format(row=row, column=column)

    def _one_of(self, choices: tuple[T, ...]) -> T:
        return choices[self._below(len(choices))]

    def _below(self, n: int) -> int:
        return int(self._random.random_sample() * n)

    def _chance(self, share: float) -> bool:
        return bool(self._random.random_sample() < share)


def _english_article(sentence: str) -> str:
    for vowel in ("eight", "8"):
        sentence = sentence.replace(f"a {vowel}", f"an {vowel}")
    return sentence


ENGLISH = Grammar(
    digits=tuple(
        (word, str(digit))
        for digit, word in enumerate(
            ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
        )
    ),
    nouns=("{name}", "a {name}", "the {name}", "digit {name}"),
    rows=(("top", "topmost"), ("upper",), ("lower",), ("bottom", "bottommost")),
    columns=(
        ("leftmost", "far-left"),
        ("mid-left", "left-centre"),
        ("mid-right", "right-centre"),
        ("rightmost", "far-right"),
    ),
    exact=("{row} {column}", "{row} {column}", "{column} {row}", "at the {row} {column}"),
    in_row=("in the {row} row",),
    in_column=("in the {column} column",),
    corners={
        (0, 0): ("top left corner",),
        (0, 3): ("top right corner",),
        (3, 0): ("bottom left corner",),
        (3, 3): ("bottom right corner",),
    },
    counts={3: "three", 4: "four", 5: "five"},
    forms=(
        Form("", "{digit} {place}", ", ", " and "),
        Form("there is ", "{digit} {place}", ", ", " and "),
        Form("we see ", "{digit} {place}", ", ", " with "),
        Form("", "{place} {digit}", "; ", "; "),
        Form("", "{place} is {digit}", ", ", ", "),
        Form("{count} digits, with ", "{digit} {place}", ", ", " and "),
        Form("from the top: ", "{digit} {place}", ", then ", ", last ", "rows"),
        Form("from the left: ", "{digit} {place}", ", then ", ", last ", "columns"),
        Form("someone wrote ", "{digit} {place}", ", ", ", also "),
        Form("a grid with ", "{digit} {place}", ", ", " and "),
    ),
    finish=_english_article,
)

CHINESE = Grammar(
    digits=tuple((word, str(digit)) for digit, word in enumerate("零一二三四五六七八九")),
    nouns=("{name}", "数字{name}", "一个{name}", "手写的{name}"),
    rows=(("第一行",), ("第二行",), ("第三行",), ("第四行", "最后一行")),
    columns=(("第一列", "左边第一列"), ("第二列",), ("第三列",), ("第四列", "最后一列")),
    exact=("{row}{column}", "{row}{column}", "{column}{row}", "{row}的{column}"),
    in_row=("{row}里",),
    in_column=("{column}里",),
    corners={(0, 0): ("左上角",), (0, 3): ("右上角",), (3, 0): ("左下角",), (3, 3): ("右下角",)},
    counts={3: "三", 4: "四", 5: "五"},
    forms=(
        Form("", "{place}是{digit}", "，", "，"),
        Form("", "{place}有{digit}", "，", "，还有"),
        Form("图中", "{digit}在{place}", "，", "，以及"),
        Form("图片里", "{digit}位于{place}", "，", "，"),
        Form("", "{digit}写在{place}", "，", "，另外"),
        Form("共{count}个数字，其中", "{digit}在{place}", "，", "，"),
        Form("从上到下，", "{place}是{digit}", "，然后", "，最后", "rows"),
        Form("从左到右，", "{place}是{digit}", "，接着", "，最后", "columns"),
        Form("有人写了", "{place}的{digit}", "、", "和"),
        Form("方格里", "{digit}在{place}", "，", "，同时"),
    ),
    finish=str,
)

GRAMMARS: Mapping[str, Grammar] = {"en": ENGLISH, "zh": CHINESE}


def write_captions(
    scenes: tuple[tuple[Placed, ...], ...], *, language: str, n_captions: int, seed: int
) -> Iterator[str]:
    """Write captions of scenes, in the order of the clean pairing.

    Args:
        scenes: the digits of each scene.
        language: key of ``GRAMMARS``.
        n_captions: captions per scene, all different.
        seed: seed of ``numpy.random.RandomState``.
    """
    writer = Writer(GRAMMARS[language], np.random.RandomState(seed))
    for scene in scenes:
        yield from writer.captions(scene, n_captions)
