"""English words by the rules of NLTK's word tokenizer, frozen.

NLTK changed its rules in 3.9 (spaces), 3.10.0 (long dashes) and 3.10.1 (a leading apostrophe is cut off).
The published SCAN vocabularies hold words such as ``'stop``, so they need the older behaviour. This table has
the rules of ``NLTKWordTokenizer`` in NLTK 3.8.1 (Apache-2.0, after Robert MacIntyre's Penn Treebank script);
it needs no data file and does not change with the installed NLTK.
"""

import re

VERSION = "nltk-3.8.1-rules"

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


def split_words(sentence: str) -> list[str]:
    """Words and punctuation marks of a sentence; upper and lower case stay as they are."""
    for pattern, replacement in _BEFORE_PADDING:
        sentence = pattern.sub(replacement, sentence)
    sentence = f" {sentence} "
    for pattern, replacement in _AFTER_PADDING:
        sentence = pattern.sub(replacement, sentence)
    return sentence.split()
