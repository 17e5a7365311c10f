"""Text that people are shown, names, links and look-alike names, and values that they write."""

import pytest
from pydantic import TypeAdapter, ValidationError
from support.refusals import refused

from ncl_bench.errors import SubmissionError
from ncl_bench.foreign import whole_number
from ncl_bench.names import Link, LongText, Name, OptionalName, ShownText, Text, lookalike
from ncl_bench.yaml import plain_value

TYPES = (ShownText, Text, LongText, Name, OptionalName)
UNSEEN = (
    "\x00\t\n\r\x1b\x85\xad\u0378\u061c\u180e\u200b\u200f\u2028\u2029\u202e\u2060\u2066\ue000\ufeff\U000e0041"
)
"""Of every kind: control, format, private, unassigned, line ends, tags."""
BLANK = "\u034f\u115f\u1160\u17b4\u200c\u200d\u2800\u3164\ufe0f\uffa0\U00016fe4\U0001d159\U000e0100"
"""Joiners, fillers, blanks that are letters, selectors: of texts with emoji and of other scripts."""


def read(kind, text):
    return TypeAdapter[str](kind).validate_python(text)


def test_a_whole_number_is_ascii_digits_that_fit_int64():
    for text in ("", "-1", "+1", " 1", "1\n", "1_0", "1.0", "0x1", "\u0663", "\u00b2", "9" * 19, "9" * 5_000):
        assert whole_number(text) is None, text
    assert [whole_number(text) for text in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]


def test_a_value_is_plain_yaml_or_one_line_says_why_not():
    wrong = (
        "&a [*a]",
        "!!binary aa",
        "{a: 1, a: 2}",
        "{[1]: 2}",
        "{<<: 3}",
        "2024-99-99",
        "a: b: c",
        "[",
        "=",
        "\0",
        "\ud800",
    )
    for text in (*wrong, "9" * 5_000, f"[0x{'f' * 4_000}]", "[" * 3_000, "--- 1\n--- 2"):
        with refused(SubmissionError):
            plain_value(text, "it")
    assert plain_value("{a: [1, 2.5, yes, x]}", "it") == {"a": [1, 2.5, True, "x"]}


@pytest.mark.parametrize("character", UNSEEN, ids=lambda character: f"U+{ord(character):04X}")
def test_a_character_that_shows_nothing_is_refused_by_every_type(character):
    for kind in (*TYPES, Link):
        for text in (f"NC{character}R", f"{character}NCR", f"NCR{character}", f"https://x.org/{character}"):
            with pytest.raises(ValidationError):
                read(kind, text)


@pytest.mark.parametrize("character", BLANK, ids=lambda character: f"U+{ord(character):04X}")
def test_a_letter_that_shows_nothing_is_in_no_name(character):
    assert read(ShownText, f"A{character}b") == f"A{character}b"
    for kind in (Name, OptionalName, Link):
        with pytest.raises(ValidationError):
            read(kind, f"https://x.org/{character}" if kind is Link else f"NC{character}R")


PEOPLE = (
    "李",
    "艾达·洛夫莱斯",
    "می\u200cشود",
    "क्\u200dष",
    "ที่นี่",
    "น้ำ",
    "שלום",
    "བརྒྱད",
    "தமிழ்",
    "한국어",
    "Дмитрий",
)
METHODS = (
    "Müller",
    "Ünal",
    "Lê Văn Hệ",
    "O'Brien",
    "O’Brien",
    "VSE∞ (GPO)",
    "SGR*",
    "CCR&CCS",
    "PCME++",
    "L2RM",
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [*((name, name) for name in METHODS), ("e\u0301", "é"), (" NCR\u00a0X ", "NCR X")],
)
def test_names_pass_in_composed_form(given, kept):
    assert all(read(kind, given) == kept for kind in TYPES)


@pytest.mark.parametrize("text", PEOPLE)
def test_texts_have_every_script_and_names_of_methods_are_latin(text):
    assert all(read(kind, text) == text for kind in (ShownText, Text, LongText))
    with pytest.raises(ValidationError, match=r"a name has Latin letters|special forms"):
        read(Name, text)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        *((f"NC{odd}R", "it holds") for odd in "^†[\\<ↁ\u0441\u0391\u041c\u13dfɴꓠ中\u0338\u0335\u20dd\u0347"),
        *((name, "a name begins with a letter") for name in ("=1+1", ".x", "(x)")),
        *((name, "a name has Latin letters") for name in ("ＮＣＲ", "NCR²", "𝐍𝐂𝐑", "NCRſ", "NCŉR")),
        ("N" + "\u0301" * 3, "a name has Latin letters"),
        ("  ", "it is empty"),
        ("x" * 200_000, "at most 80"),
    ],
)
def test_a_name_that_the_board_cannot_show_is_refused_in_words(name, told):
    with pytest.raises(ValidationError, match=told):
        read(Name, name)


@pytest.mark.parametrize(
    "link",
    [
        *("https://ada:secret@example.org/", "https://ada@example.org", "https://example.org\\@other.org"),
        *("ftp://example.org", "javascript:alert(1)", "//example.org", "https://", "https:///x"),
        *("https://example.org/a b", "https://gіthub.com/x", 'https://example.org/"x'),
    ],
)
def test_a_link_leads_to_a_web_page_without_a_user_name(link):
    with pytest.raises(ValidationError, match="a link"):
        read(Link, link)


@pytest.mark.parametrize(
    "link", ["", "http://x.org", "https://x.org:8/@user/repo?a=b@c#d", "https://doi.org/10.1/a(b)"]
)
def test_usual_links_pass(link):
    assert read(Link, link) == link


STANDING = ("NCR", "CLIP", "OSA", "GSC", "L2RM", "VSE∞", "Müller")


@pytest.mark.parametrize(
    ("name", "like"), [("CL1P", "CLIP"), ("0SA", "OSA"), ("GŚC", "GSC"), ("Muller", "Müller")]
)
def test_a_name_in_letters_that_look_like_anothers_gets_a_remark(name, like):
    assert lookalike(name, STANDING) == f"The name looks like {like}, but is written with other letters."


def test_honest_names_get_no_remark():
    assert not any(lookalike(name, STANDING) for name in ("NCR", "ncr", "GSC+", "GSC++", "VSE∞", "PC2"))
