"""Tokenizers by name: split a caption into words or word pieces."""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ncl_bench.data.languages import language_tag
from ncl_bench.data.scripts import UNSPACED, marks
from ncl_bench.data.vocabulary import SPECIAL_WORDS
from ncl_bench.errors import DataError, known_name
from ncl_bench.extras import require
from ncl_bench.foreign import readable, reading


@dataclass(frozen=True)
class Tokenizer:
    """Splits captions into words or word pieces; results record its name and version.

    Attributes:
        name: key in ``TOKENIZERS``.
        version: fixes the behaviour: rules, library version or file hash.
        split: caption to words or pieces, in order.
        threshold: minimum count of a word in train to enter the vocabulary.
    """

    name: str
    version: str
    split: Callable[[str], list[str]]
    threshold: int = 4

    def __call__(self, caption: str) -> list[str]:
        """Split a caption into words or pieces, in order; its Unicode form does not matter."""
        # `é` as one letter or as two is the same word
        return self.split(unicodedata.normalize("NFC", caption))


def turkic(caption: str) -> str:
    """Write the capitals of ``i`` and of the dotless ``ı`` small, as Turkish and Azerbaijani do."""
    return unicodedata.normalize("NFC", caption).replace("\u0130", "i").replace("I", "\u0131")


def tokenizer(name: str, *, file: Path | None = None) -> Tokenizer:
    """Make a tokenizer.

    ``word`` treats a caption as one sentence: only its final full stop is separated, and ``a bike. a dog`` gives
    ``bike.``. ``word-punkt`` splits sentences first, as SCAN did, and gives ``bike`` and ``.``; it needs NLTK's trained
    splitter. ``char`` makes every letter of a script without blanks a token, and splits other text as ``word`` does.

    Args:
        name: ``word``, ``word-punkt``, ``jieba``, ``char``, ``bpe``, ``bert`` or ``ids``.
        file: the ``tokenizer.json`` of ``bpe`` and ``bert``; the others need none.

    Raises:
        DataError: the name is unknown, or a needed file is missing or damaged.
    """
    if known_name("tokenizer", name, TOKENIZERS) not in _PIECES:
        return _WITHOUT_FILE[name]()
    if file is None:
        raise DataError(f"tokenizer {name} needs a tokenizer.json; give its path")
    return _pieces(name, file)


def _word() -> Tokenizer:
    return Tokenizer("word", WORD_RULES, lambda caption: split_words(caption.lower()))


def _word_punkt() -> Tokenizer:
    """SCAN's steps: sentences by punkt, then the word rules on each sentence."""
    require("punkt", "nltk", needed_by="tokenizer word-punkt")
    import nltk

    try:
        sentences = nltk.tokenize.PunktTokenizer("english")
    except LookupError:
        raise DataError(
            "tokenizer word-punkt needs NLTK's punkt_tab data, which is not on nltk.data.path; "
            "run `python -m nltk.downloader punkt_tab` or use the tokenizer `word`"
        ) from None

    def split(caption: str) -> list[str]:
        parts = sentences.tokenize(caption.lower())
        return [word for sentence in parts for word in split_words(sentence)]

    return Tokenizer("word-punkt", f"{WORD_RULES}+punkt_tab-english", split)


@cache
def _jieba() -> Tokenizer:
    """Default mode with new-word discovery, lower-cased; a space is a token, as in the published code.

    The dictionary is read from the package. jieba's own cache is in the system's temporary folder, where others may
    write and a killed process leaves an incomplete file.
    """
    require("data", "jieba", needed_by="tokenizer jieba")
    import jieba

    # the global tokenizer takes words that anybody adds, and caches its dictionary in the temporary folder
    cutter = jieba.Tokenizer()
    # what initialize() does, without the cache that it would read back from a world-writable folder
    cutter.FREQ, cutter.total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    return Tokenizer("jieba", str(jieba.__version__), lambda caption: list(cutter.cut(caption.lower())))


@cache
def _char() -> Tokenizer:
    """A letter keeps its vowel signs and tone marks; the zero-width space is a blank."""
    # the last range selects a variant of the letter before it
    letters = re.compile(f"[{UNSPACED}][{marks()}\U000e0100-\U000e01ef]*")

    def split(caption: str) -> list[str]:
        return split_words(letters.sub(r" \g<0> ", caption.lower().replace("\u200b", " ")))

    return Tokenizer("char", "1", split, threshold=1)


def _ids() -> Tokenizer:
    """Comma-separated ids, as Noise of Web ships them; empty fields are skipped."""

    def split(caption: str) -> list[str]:
        return [field.strip() for field in caption.split(",") if field.strip()]

    return Tokenizer("ids", "1", split, threshold=1)


def _pieces(name: str, file: Path) -> Tokenizer:
    require("data", "tokenizers", needed_by=f"tokenizer {name}")
    import tokenizers

    fix = "give a complete tokenizer.json, as save() of the tokenizers library writes it"
    with reading(file, fix=fix):
        content = readable(file, DataError, "a tokenizer.json").read_bytes()
        pieces = tokenizers.Tokenizer.from_str(content.decode())

    def split(caption: str) -> list[str]:
        with reading(file, fix=fix):  # as without the piece for unknown words
            return list(pieces.encode(caption, add_special_tokens=False).tokens)

    digest = hashlib.sha256(content).hexdigest()[:16]
    return Tokenizer(name, f"tokenizers-{tokenizers.__version__}:{digest}", split, 1)


def train_bpe(captions: Iterable[str], file: Path, *, size: int = 10_000) -> None:
    """Train byte-pair encoding and write its ``tokenizer.json``; equal captions give equal bytes.

    Args:
        captions: training captions only, in their order.
        file: json file to write.
        size: maximum number of pieces, special words included.
    """
    require("data", "tokenizers", needed_by="tokenizer bpe")
    from tokenizers import Tokenizer as Pieces
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    pieces = Pieces(models.BPE(unk_token="<unk>"))
    pieces.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(SPECIAL_WORDS), show_progress=False)
    pieces.train_from_iterator(captions, trainer)
    file.write_text(pieces.to_str(), encoding="utf-8")


_WITHOUT_FILE: dict[str, Callable[[], Tokenizer]] = {
    "word": _word,
    "word-punkt": _word_punkt,
    "jieba": _jieba,
    "char": _char,
    "ids": _ids,
}
_PIECES = ("bpe", "bert")
TOKENIZERS = (*_WITHOUT_FILE, *_PIECES)
_OF_LANGUAGE = {"zh": "jieba", "yue": "jieba"} | dict.fromkeys(
    ("ja", "th", "lo", "km", "my", "bo", "dz", "ii"), "char"
)


def default_tokenizer(language: str) -> str:
    """Name a tokenizer: ``jieba`` for Chinese, ``char`` for other languages without blanks, else ``word``.

    Args:
        language: any name that :func:`ncl_bench.data.languages.language_tag` knows, or another word.
    """
    code, _, rest = (language_tag(language) or language).partition("-")
    # zh-Latn is Pinyin, which has blanks
    return "word" if rest.startswith("Latn") else _OF_LANGUAGE.get(code, "word")


WORD_RULES = "nltk-3.8.1-rules"
"""English words by the rules of NLTK's word tokenizer, frozen.

NLTK changed its rules in 3.9 (spaces), 3.10.0 (long dashes) and 3.10.1 (a leading apostrophe is cut off). The published
SCAN vocabularies contain words such as ``'stop``, so they need the older behaviour. These tables hold the rules of
``NLTKWordTokenizer`` in NLTK 3.8.1 (Apache-2.0, after Robert MacIntyre's Penn Treebank script). They need no data file
and do not change with the installed NLTK.
"""

_OPENING_QUOTES = (
    (r"([«“‘„]|`+)", r" \1 "),
    (r'^"', "``"),
    (r"(``)", r" \1 "),
    (r"""([ ([{<])("|'')""", r"\1 `` "),
    (r"(?i)(')(?!re|ve|ll|m|t|s|d|n)(\w)\b", r"\1 \2"),
)
_PUNCTUATION = (
    (r"""([^.])(\.)([\])}>"'»”’ ]*)\s*$""", r"\1 \2 \3 "),
    (r"([:,])([^\d])", r" \1 \2"),
    (r"([:,])$", r" \1 "),
    (r"(\.{2,})", r" \1 "),
    (r"([;@#$%&])", r" \1 "),
    (r"""([^.])(\.)([\])}>"']*)\s*$""", r"\1 \2\3 "),
    (r"([?!])", r" \1 "),
    (r"([^'])' ", r"\1 ' "),
    (r"(\*)", r" \1 "),
    (r"([][(){}<>])", r" \1 "),
    (r"(--)", r" \1 "),
)
_CLOSING_QUOTES = (
    (r"([»”’])", r" \1 "),
    (r"(''|\")", r" '' "),
    (r"([^' ])('[sS]|'[mM]|'[dD]|') ", r"\1 \2 "),
    (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
)
_CONTRACTIONS = tuple(
    (pattern, r" \1 \2 ")
    for pattern in (
        r"(?i)\b(can)(not)\b",
        r"(?i)\b(d)('ye)\b",
        r"(?i)\b(gim)(me)\b",
        r"(?i)\b(gon)(na)\b",
        r"(?i)\b(got)(ta)\b",
        r"(?i)\b(lem)(me)\b",
        r"(?i)\b(more)('n)\b",
        r"(?i)\b(wan)(na)(?=\s)",
        r"(?i) ('t)(is)\b",
        r"(?i) ('t)(was)\b",
    )
)


def _compiled(rules: tuple[tuple[str, str], ...]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in rules)


_BEFORE_PADDING = _compiled(_OPENING_QUOTES + _PUNCTUATION)
_AFTER_PADDING = _compiled(_CLOSING_QUOTES + _CONTRACTIONS)
_PLAIN = re.compile("[A-Za-z0-9 ]*(?:(?:-(?!-)|[:,](?= )|;)[A-Za-z0-9 ]*)*[.]?")
_IN_TWO = re.compile("cannot|gimme|gonna|gotta|lemme|wanna")


def split_words(sentence: str) -> list[str]:
    """Words and punctuation marks of a sentence; case is kept."""
    if _PLAIN.fullmatch(sentence) and not _IN_TWO.search(sentence.lower()):
        # most captions: the rules only set these marks apart
        for mark in ",:;.":
            sentence = sentence.replace(mark, f" {mark} ")
        return sentence.split()
    for pattern, replacement in _BEFORE_PADDING:
        sentence = pattern.sub(replacement, sentence)
    # the rules below look for blanks around words, also at both ends
    sentence = f" {sentence} "
    for pattern, replacement in _AFTER_PADDING:
        sentence = pattern.sub(replacement, sentence)
    return sentence.split()
