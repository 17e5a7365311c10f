"""Text that people are shown, names, links and look-alike names, and values that they write."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ncl_bench.errors import SubmissionError
from ncl_bench.foreign import whole_number
from ncl_bench.names import Link, LongText, Name, OptionalName, ShownText, Text, lookalike
from ncl_bench.yaml import plain_value

TYPES = (ShownText, Text, LongText, Name, OptionalName)
UNSEEN = (
    "\x00\t\n\r\x1b\x85\xad\u034f\u0378\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200d\u200f\u2028\u2029\u202e"
    "\u2060\u2066\u2800\u3164\ue000\ufe0f\ufeff\uffa0\U00016fe4\U0001d159\U000e0041\U000e0100"
)
"""Of every kind: control, format, private, unassigned, line ends, fillers, blanks that are letters, selectors, tags."""


def read(kind: Any, text: str) -> str:
    return TypeAdapter[str](kind).validate_python(text)


def test_a_whole_number_is_ascii_digits_that_fit_int64() -> None:
    for text in ("", "-1", "+1", " 1", "1\n", "1_0", "1.0", "0x1", "\u0663", "\u00b2", "9" * 19, "9" * 5_000):
        assert whole_number(text) is None, text
    assert [whole_number(text) for text in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]


def test_a_value_is_plain_yaml_or_one_line_says_why_not() -> None:
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
        with pytest.raises(SubmissionError, match=r"^it cannot be read [^\n]+$"):
            plain_value(text, "it")
    assert plain_value("{a: [1, 2.5, yes, x]}", "it") == {"a": [1, 2.5, True, "x"]}


@pytest.mark.parametrize("character", UNSEEN, ids=lambda character: f"U+{ord(character):04X}")
def test_a_character_that_shows_nothing_is_refused_by_every_type(character: str) -> None:
    for kind in (*TYPES, Link):
        for text in (f"NC{character}R", f"{character}NCR", f"NCR{character}", f"https://x.org/{character}"):
            with pytest.raises(ValidationError):
                read(kind, text)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *(
            (name, name)
            for name in ("Müller", "李", "Ünal", "Lê Văn Hệ", "O'Brien", "O’Brien", "艾达·洛夫莱斯")
        ),
        *((name, name) for name in ("می\u200cشود", "क्\u200dष", "ที่นี่", "น้ำ", "שלום", "བརྒྱད", "தமிழ்", "한국어")),
        *((name, name) for name in ("VSE∞ (GPO)", "SGR*", "CCR&CCS", "PCME++", "α-NCR")),
        ("e\u0301", "é"),
        (" NCR\u00a0X ", "NCR X"),
    ],
)
def test_names_of_every_script_pass_in_composed_form(given: str, kept: str) -> None:
    assert all(read(kind, given) == kept for kind in TYPES)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("RCL^2", r"it holds '\^'; a name has letters, digits, blanks and"),
        ("GSC†", "it holds '†'"),
        ("NCR [ours]", r"it holds '\['"),
        ("A\\input{x}", r"it holds '\\\\'"),
        ("<b>", "it holds '<'"),
        ("=1+1", "a name begins with a letter"),
        ("\u0301x", "a name begins with a letter"),
        ("ＮＣＲ", "write 'NCR'"),
        ("NCR²", "write 'NCR2'"),
        ("N" + "\u0301" * 3, "stacks several marks"),
        ("  ", "it is empty"),
        ("NCR\u0338", r"it holds the mark U\+0338, which no letter has"),
        ("N\u0335CR", r"mark U\+0335"),
        ("NCR\u20dd", r"mark U\+20DD"),
        ("NCR\u0347", r"mark U\+0347"),
        ("N\u0441R", "N\u0441R mixes Latin letters with CYRILLIC SMALL LETTER ES; write it in one script"),
        ("\u0391CL", "mixes Latin letters with GREEK CAPITAL LETTER ALPHA"),
        ("my L2R\u041c+", "mixes Latin letters with CYRILLIC CAPITAL LETTER EM"),
        ("\u13df\u13deIP", "mixes Latin letters with CHEROKEE"),
        ("x" * 200_000, "at most 80"),
    ],
)
def test_a_name_that_the_board_cannot_show_is_refused_in_words(name: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        read(Name, name)


@pytest.mark.parametrize(
    "link",
    [
        *("https://ada:secret@example.org/", "https://ada@example.org", "https://example.org\\@other.org"),
        *("ftp://example.org", "javascript:alert(1)", "//example.org", "https://", "https:///x"),
        *("https://example.org/a b", "https://gіthub.com/x", 'https://example.org/"x', "https://x.org:99999"),
    ],
)
def test_a_link_leads_to_a_web_page_without_a_user_name(link: str) -> None:
    with pytest.raises(ValidationError, match="a link"):
        read(Link, link)


@pytest.mark.parametrize(
    "link", ["", "http://x.org", "https://x.org:8/@user/repo?a=b@c#d", "https://doi.org/10.1/a(b)"]
)
def test_usual_links_pass(link: str) -> None:
    assert read(Link, link) == link


STANDING = ("NCR", "CLIP", "OSA", "GSC", "L2RM", "VSE∞", "Müller")


@pytest.mark.parametrize(
    ("name", "like"),
    [
        *(
            ("N\u0421R", "NCR"),
            ("ꓠꓚꓣ", "NCR"),
            ("ＮＣＲ", "NCR"),
            ("𝐍𝐂𝐑", "NCR"),
            ("ɴᴄʀ", "NCR"),
            ("\u039dCR", "NCR"),
        ),
        *(
            ("ᏟᏞIP", "CLIP"),
            ("ꮯlip", "CLIP"),
            ("CL1P", "CLIP"),
            ("0SA", "OSA"),
            ("GS\u03f9", "GSC"),
            ("GŚC", "GSC"),
        ),
        *(("L2R\u041c", "L2RM"), ("\u041culler", "Müller")),
    ],
)
def test_a_name_in_letters_that_look_like_anothers_gets_a_remark(name: str, like: str) -> None:
    assert lookalike(name, STANDING) == f"The name looks like {like}, but is written with other letters."


def test_a_word_of_two_scripts_gets_a_remark_and_honest_names_get_none() -> None:
    assert lookalike("Ma\u0440s", STANDING) == "The name mixes letters of two scripts in Ma\u0440s."
    for name in ("NCR", "ncr", "GSC+", "GSC++", "α-NCR", "方法A", "CLIP中文", "Дмитрий", "VSE∞", "李", "PC2"):
        assert lookalike(name, STANDING) is None
