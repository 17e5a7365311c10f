import pytest
from pydantic import ValidationError
from support.board_rows import CONDITION, row

from leaderboard.entries import Recalls


def entry(**fields):
    return row(fields.pop("recalls", (70, 90, 95, 50, 80, 88)), **fields)


def test_a_printed_sum_stands_in_for_missing_recalls_only():
    assert entry(printed_r_sum=400.0).r_sum == pytest.approx(473.0)
    assert entry(recalls={}, printed_r_sum=480.5).r_sum == 480.5
    assert entry(recalls={"i2t_r1": 50.0}).r_sum is None


@pytest.mark.parametrize(("printed", "gap"), [(473.1, None), (472.9, None), (473.4, 0.4), (470.0, -3.0)])
def test_a_printed_sum_that_rounding_does_not_explain_is_shown(printed, gap):
    assert entry(printed_r_sum=printed).printed_gap == (None if gap is None else pytest.approx(gap))


MARKUP = [
    "<script>",
    "A<b>",
    'A" onclick="x',
    "A\n",
    "",
    "=1+1",
    "x" * 81,
    "\u202eA",
    "A`b`",
    "N^",
    "N†",
    "N[",
]
ODD_LETTERS = {
    "ＮＣＲ": "it holds 'Ｎ'; a name has Latin letters",
    "N\u200dCR": r"it holds '\\u200d'; a name has Latin letters",
    "N\ufe0fCR": "a name has Latin letters",
    "N" + "\u0301" * 3 + "CR": "a name has Latin letters",
}
"""Each stood on the board as a method of its own, on the page of ``NCR`` or over its neighbours."""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({"method": name}, "method") for name in MARKUP),
        *(({field: name}, told) for name, told in ODD_LETTERS.items() for field in ("method", "backbone")),
        *(({"recalls": {"t2i_r5": value}}, "t2i_r5") for value in (-0.1, 100.1, float("nan"))),
        *(({"paper": link}, "paper") for link in ("javascript:alert(1)", "ftp://x", "//x")),
        ({"condition": CONDITION | {"noise_ratio": 1.0}}, "noise_ratio"),
        ({"condition": CONDITION | {"text": "<b>"}}, "text"),
    ],
)
def test_what_no_row_may_hold_is_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        entry(**fields)


def test_falling_recalls_are_named():
    assert Recalls(i2t_r1=10, i2t_r5=5).falling == "i2t_r5 < i2t_r1"
    assert Recalls(i2t_r10=50, t2i_r1=40).falling == ""
