"""Digits: the embedded dataset, composed of real handwritten digits (docs/protocol.md, Datasets and splits).

A scene is a grid of cells. A few cells hold a handwritten digit, the others are blank; every cell is a region. Every
machine composes the same bytes: numpy's frozen ``RandomState`` makes all choices, and every feature is a multiple of
1/256, so nothing is rounded.

A caption names the digits of a scene and their places, by a small grammar: one table of words and sentence forms per
language. Like a person in a hurry, it may leave out a digit, or give only the row or only the column of one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from ncl_bench.data.embedded import EmbeddedDataset, MadeImages, frozen
from ncl_bench.data.spec import SPLITS, Origin, Split
from ncl_bench.npy import Float32Array, FloatArray, Int64Array

HANDWRITTEN = Path(__file__).with_name("digits.npz")
GRID = 4
PIXELS = 64
FEWEST_DIGITS, MOST_DIGITS = 3, 5
BLANK_NOISE = 48
"""Largest brightness of a blank cell's pixel, of 256."""
POOLS = {"train": 1_257, "dev": 270, "test": 270}
"""Handwritten digits of each split, 1,797 in all; no digit is in two splits."""
CONTENT_SEED = 2021
LEFT_OUT_SHARE = 0.6
"""Share of captions that leave a digit out, of scenes with more than ``FEWEST_NAMED`` digits."""
FEWEST_NAMED = 2
VAGUE_SHARE = 0.15
"""Share of named digits for which only the row or only the column is given."""
NUMBERS_AT_ONCE = 1_000

T = TypeVar("T")

ORIGIN = Origin(
    summary=(
        "Real handwritten digits on a grid, one region per cell, with English and Chinese captions that "
        "describe the layout. Generated when loaded, without a download."
    ),
    homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    obtain=("nothing to download: the digits come with the package, the rest is generated",),
    folders=(),
    files=(),
    licence="CC BY 4.0",
    licence_id="cc-by-4.0",
    licence_urls=("https://creativecommons.org/licenses/by/4.0/",),
    published="2026",
    terms="You may use, change and share it for any purpose, with credit to the makers of the digits.",
    upload=("captions", "images"),
    upload_reason="the licence asks for credit",
    citation="""@misc{alpaydin1998optical,
  title        = {Optical Recognition of Handwritten Digits},
  author       = {Alpaydin, Ethem and Kaynak, Cenk},
  howpublished = {UCI Machine Learning Repository},
  year         = {1998},
  doi          = {10.24432/C50P49}
}""",
)


FINGERPRINTS = {
    "train": "330f1ec19c4af61f2ba7d2885ecb6196ddfe353f043e079c366442d448b1acfa",
    "dev": "5ed4082beb29d4448100d1a2d2ea0b17de40adf985bf8c7059abb57037b3cd58",
    "test": "05640c77bfac75eb6e0f5f1d1b913b8515c60e5fd7a1333b1e77fab7fdb70349",
}
"""Fingerprints that every machine must reproduce; a test compares them."""


class Placed(NamedTuple):
    """A digit in a scene; row and column count from the top left, 0 to 3."""

    row: int
    column: int
    digit: int


@dataclass(frozen=True, eq=False)
class DigitsSplit(Split):
    """One split of clean pairs: float32 ``(n_images, 16, 66)`` in [0, 1]; 64 pixels, then the cell's row and column.

    Attributes:
        scenes: placed digits of each image.
    """

    scenes: tuple[tuple[Placed, ...], ...] = ()


class Written(Mapping[str, tuple[str, ...]]):
    """Captions of a split by language, each written when it is first asked for.

    Args:
        scenes: placed digits of each image.
        part: number of the split.
    """

    def __init__(self, scenes: tuple[tuple[Placed, ...], ...], part: int) -> None:
        self._scenes, self._part = scenes, part
        self._written: dict[str, tuple[str, ...]] = {}

    def __getitem__(self, language: str) -> tuple[str, ...]:
        """Captions of one language, in the order of the clean pairing."""
        if language not in self._written:
            # seeds of their own: another language, or another split, changes no caption
            seed = CONTENT_SEED + 100 * (1 + SPEC.languages.index(language)) + self._part
            writer = Writer(GRAMMARS[language], np.random.RandomState(seed))
            captions = (writer.captions(scene, SPEC.captions_per_image) for scene in self._scenes)
            self._written[language] = tuple(chain.from_iterable(captions))
        return self._written[language]

    def __iter__(self) -> Iterator[str]:
        return iter(SPEC.languages)

    def __len__(self) -> int:
        return len(SPEC.languages)


class Digits(EmbeddedDataset):
    """Composed when loaded, with clean pairs. The grammar is small, so no word is too rare to learn."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The handwritten digits."""
        return (HANDWRITTEN,)

    def drawn_images(self, split: str) -> MadeImages:
        """Draw images from their regions."""
        return MadeImages(np.asarray(self.content(split).image_features), _drawn)

    def content(self, split: str) -> Split:
        """Compose one split, once per process."""
        return digits_split(split)


def _drawn(features: FloatArray) -> bytes:
    """Draw an image from its regions: float ``(16, 66)``, 64 pixels, then row and column of the cell's centre."""
    from PIL import Image

    side = 8
    canvas = np.zeros((GRID * side, GRID * side), np.uint8)
    for region in features:
        row, column = (int(centre * GRID) * side for centre in region[PIXELS:])
        pixels = region[:PIXELS].reshape(side, side)
        canvas[row : row + side, column : column + side] = np.minimum(pixels * 255, 255)
    stream = BytesIO()
    Image.fromarray(canvas).save(stream, "PNG")
    return stream.getvalue()


SPEC = Digits(
    name="digits",
    title="Digits",
    images={"train": 2_000, "dev": 200, "test": 200},
    captions_per_image=5,
    n_regions=GRID * GRID,
    feature_dim=PIXELS + 2,
    protocols=("200",),
    order_fingerprints={
        "dev": "57d778c176dc55123ac2918bc87d4326b8b9549dca8006f4e38dac7a6c1d7b87",
        "test": "c1ca0865455edf46d41d58be79d81af634d5a4f24a05d3d61ad83646eb495f1a",
    },
    languages=("en", "zh"),
    origin=ORIGIN,
)


@lru_cache(maxsize=len(SPLITS))
def digits_split(split: str) -> DigitsSplit:
    """Compose one split, once per process.

    Args:
        split: ``train``, ``dev`` or ``test``.
    """
    # every split has a generator of its own, so one can be loaded alone
    part = SPLITS.index(split)
    scenes, features = _compose(split, np.random.RandomState(CONTENT_SEED + part))
    image_ids = [f"digits-{split}-{row:04d}" for row in range(SPEC.images[split])]
    # the known fingerprint, since a hash would need the captions of every language; a test makes it anew
    return DigitsSplit(
        image_ids,
        Written(scenes, part),
        image_features=frozen(features),
        fingerprint=FINGERPRINTS[split],
        scenes=scenes,
    )


def _compose(
    split: str, random: np.random.RandomState
) -> tuple[tuple[tuple[Placed, ...], ...], Float32Array]:
    pixels, classes, pool = *_handwritten(), _pool(split)
    features = np.empty((SPEC.images[split], SPEC.n_regions, SPEC.feature_dim), np.float32)
    rows, columns = np.divmod(np.arange(SPEC.n_regions), GRID)
    # in 1/256, as the pixels: exact in float32, so the bits are the same on every machine
    centres = (2 * np.stack([rows, columns], axis=1) + 1) * (128 // GRID)
    scenes = []
    for image in features:
        n_digits = random.randint(FEWEST_DIGITS, MOST_DIGITS + 1, dtype=np.int64)
        cells = _shuffled(SPEC.n_regions, random)[:n_digits]
        chosen = pool[random.randint(0, len(pool), n_digits, dtype=np.int64)]
        # blank cells hold weak noise, because an empty region would be told by its sum alone
        levels = random.randint(0, BLANK_NOISE + 1, (SPEC.n_regions, PIXELS), dtype=np.int64)
        levels[cells] = pixels[chosen]
        # regions come in no order, as those of a detector do; their centres tell the place
        order = _shuffled(SPEC.n_regions, random)
        image[...] = np.concatenate([levels, centres], axis=1)[order] / 256
        placed = zip(cells.tolist(), classes[chosen].tolist(), strict=True)
        scenes.append(tuple(sorted(Placed(cell // GRID, cell % GRID, digit) for cell, digit in placed)))
    return tuple(scenes), features


def _shuffled(n: int, random: np.random.RandomState) -> Int64Array:
    # int64 everywhere: the default integer of some systems has 32 bits, and its draws differ
    order = np.arange(n, dtype=np.int64)
    random.shuffle(order)
    return order


def _pool(split: str) -> Int64Array:
    """Rows of the handwritten digits that belong to a split."""
    # the same order for every split, cut into three: no handwritten digit is in two of them
    order = _shuffled(sum(POOLS.values()), np.random.RandomState(CONTENT_SEED))
    ends = np.cumsum([POOLS[name] for name in SPLITS])
    return np.split(order, ends[:-1])[SPLITS.index(split)]


def _handwritten() -> tuple[Int64Array, Int64Array]:
    """Pixels ``(1797, 64)`` from 0 to 256, and classes ``(1797,)``, as scikit-learn's ``load_digits`` gives them."""
    with np.load(HANDWRITTEN, allow_pickle=False) as digits:
        return digits["pixels"].astype(np.int64) * 16, digits["classes"].astype(np.int64)


@dataclass(frozen=True)
class SentenceForm:
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
    forms: tuple[SentenceForm, ...]
    finish: Callable[[str], str]


class Writer:
    """Write captions in one language.

    Args:
        grammar: words of the language.
        random: source of every choice.
    """

    def __init__(self, grammar: Grammar, random: np.random.RandomState) -> None:
        self._grammar = grammar
        # the stream of single draws, a thousand at a time
        self._number = chain.from_iterable(
            iter(lambda: random.random_sample(NUMBERS_AT_ONCE).tolist(), None)
        ).__next__
        # every phrase is written once, and captions choose among them
        self._digits = [
            [[noun.format(name=name) for noun in grammar.nouns] for name in names] for names in grammar.digits
        ]
        self._places = {place: self._phrases(*place) for place in product(range(GRID), repeat=2)}

    def _phrases(self, row: int, column: int) -> list[list[list[list[str]]]]:
        """Phrases for a place by the words of its row and of its column: in its row, in its column, and exact ones."""
        grammar = self._grammar
        patterns = (grammar.in_row, grammar.in_column, grammar.exact + grammar.corners.get((row, column), ()))
        return [
            [
                [[one.format(row=a, column=b) for one in own] for own in patterns]
                for b in grammar.columns[column]
            ]
            for a in grammar.rows[row]
        ]

    def captions(self, scene: tuple[Placed, ...], n_captions: int) -> list[str]:
        """Write different captions of one scene."""
        # a dict as an ordered set: captions of an image differ, and their order is that of the draw
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
        return sorted(named, key=lambda placed: self._number())

    def _item(self, form: SentenceForm, placed: Placed) -> str:
        digit = self._one_of(self._one_of(self._digits[placed.digit]))
        in_row, in_column, phrases = self._one_of(self._one_of(self._places[placed[:2]]))
        if self._chance(VAGUE_SHARE):
            phrases = in_row if self._chance(0.5) else in_column
        return form.item.format(digit=digit, place=self._one_of(phrases))

    def _one_of(self, choices: Sequence[T]) -> T:
        return choices[int(self._number() * len(choices))]

    def _below(self, n: int) -> int:
        return int(self._number() * n)

    def _chance(self, share: float) -> bool:
        return bool(self._number() < share)


def _english_article(sentence: str) -> str:
    # of ten digits, eight alone begins with a vowel that is spoken
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
        SentenceForm("", "{digit} {place}", ", ", " and "),
        SentenceForm("there is ", "{digit} {place}", ", ", " and "),
        SentenceForm("we see ", "{digit} {place}", ", ", " with "),
        SentenceForm("", "{place} {digit}", "; ", "; "),
        SentenceForm("", "{place} is {digit}", ", ", ", "),
        SentenceForm("{count} digits, with ", "{digit} {place}", ", ", " and "),
        SentenceForm("from the top: ", "{digit} {place}", ", then ", ", last ", "rows"),
        SentenceForm("from the left: ", "{digit} {place}", ", then ", ", last ", "columns"),
        SentenceForm("someone wrote ", "{digit} {place}", ", ", ", also "),
        SentenceForm("a grid with ", "{digit} {place}", ", ", " and "),
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
        SentenceForm("", "{place}是{digit}", "，", "，"),
        SentenceForm("", "{place}有{digit}", "，", "，还有"),
        SentenceForm("图中", "{digit}在{place}", "，", "，以及"),
        SentenceForm("图片里", "{digit}位于{place}", "，", "，"),
        SentenceForm("", "{digit}写在{place}", "，", "，另外"),
        SentenceForm("共{count}个数字，其中", "{digit}在{place}", "，", "，"),
        SentenceForm("从上到下，", "{place}是{digit}", "，然后", "，最后", "rows"),
        SentenceForm("从左到右，", "{place}是{digit}", "，接着", "，最后", "columns"),
        SentenceForm("有人写了", "{place}的{digit}", "、", "和"),
        SentenceForm("方格里", "{digit}在{place}", "，", "，同时"),
    ),
    finish=str,
)

GRAMMARS: Mapping[str, Grammar] = {"en": ENGLISH, "zh": CHINESE}
