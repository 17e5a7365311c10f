"""Words of captions in several scripts: composed and decomposed letters are the same, and marks stay with theirs."""

import unicodedata

import pytest

from ncl_bench.data.scripts import script_of_most, terms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A dog's 2 cats_run.", ["a", "dog", "s", "2", "cats", "run"]),
        ("एक कुत्ता बर्फ में", ["एक", "कुत्ता", "बर्फ", "में"]),
        ("நாய் பனியில்", ["நாய்", "பனியில்"]),
        ("كِتَابٌ جَدِيدٌ", ["كِتَابٌ", "جَدِيدٌ"]),
        ("שָׁלוֹם כלב", ["שָׁלוֹם", "כלב"]),
        ("می\u200cروم خانه", ["می\u200cروم", "خانه"]),
        ("Zürich, café", ["zürich", "café"]),
        ("한국어 강아지", ["한국어", "강아지"]),
        ("两只狗。", ["两", "只", "狗", "两只", "只狗"]),
        ("犬が・犬", ["犬", "が", "犬が", "犬"]),
        ("ที่นี่", ["ที่", "นี่", "ที่นี่"]),
        ("狗 runs", ["狗", "runs"]),
        ("...", []),
    ],
)
def test_terms(text, words):
    assert terms(text) == [unicodedata.normalize("NFC", word) for word in words]
    assert terms(unicodedata.normalize("NFD", text)) == terms(text)


def test_the_script_of_most():
    assert script_of_most(["a dog", "一只狗", "два кота", "cats"]) is None
    assert script_of_most(["a dog", "一只狗", "cats", "..."]) == "Latin"
    assert script_of_most(["犬が走る", "一只狗", "cats"]) == "Chinese or Japanese"
    assert script_of_most(["", "1 2"]) is None
