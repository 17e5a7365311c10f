from typing import Any

import pytest
from pydantic import ValidationError

from leaderboard.entries import Cell, Entry, Recalls
from ncl_bench.evaluation.metrics import RECALLS


def entry(**fields: Any) -> Entry:
    cell = {"dataset": "flickr30k", "protocol": "1k", "noise_unit": "caption", "noise_ratio": 0.4}
    recalls = dict(zip(RECALLS, (70.0, 90.0, 95.0, 50.0, 80.0, 88.0), strict=True))
    content = {
        "method": "A",
        "family": "a",
        "cell": cell,
        "recalls": recalls,
        "status": "reported",
        "source": "s",
    }
    return Entry.model_validate(content | fields)


def test_r_sum_is_computed_from_the_recalls() -> None:
    assert entry(printed_r_sum=400.0).r_sum == pytest.approx(473.0)


def test_a_printed_sum_stands_in_for_missing_recalls_only() -> None:
    assert entry(recalls={}, printed_r_sum=480.5).r_sum == 480.5
    assert entry(recalls={"i2t_r1": 50.0}).r_sum is None


@pytest.mark.parametrize(("printed", "gap"), [(473.1, None), (472.9, None), (473.4, 0.4), (470.0, -3.0)])
def test_a_printed_sum_that_rounding_does_not_explain_is_shown(printed: float, gap: float | None) -> None:
    assert entry(printed_r_sum=printed).printed_gap == (None if gap is None else pytest.approx(gap))


def test_a_row_without_any_number_is_refused() -> None:
    with pytest.raises(ValidationError, match="neither a recall nor a printed rSum"):
        entry(recalls={})


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", "A<b>", 'A" onclick="x', "A\n", "", "=1+1", "x" * 81, "\u202eA", "A`b`"],
)
def test_markup_and_formulas_in_a_name_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="method"):
        entry(method=name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ＮＣＲ", "write 'NCR'"),
        ("N\u200dCR", "write 'NCR'"),
        ("e\u0301", "write 'é'"),
        ("N" + "\u0301" * 3 + "CR", "it stacks several marks on one letter"),
    ],
)
def test_invisible_letters_special_forms_and_stacked_marks_are_refused(name: str, message: str) -> None:
    """Each stood on the board as a method of its own, on the page of ``NCR`` or over its neighbours."""
    with pytest.raises(ValidationError, match=message):
        entry(method=name)
    with pytest.raises(ValidationError, match=message):
        entry(backbone=name)


@pytest.mark.parametrize(
    "name", ["VSE∞ (GPO)", "SGR*", "CCR&CCS", "PCME++", "GSC-SGR (batch 32)", "ALIGN+OSA"]
)
def test_published_names_are_accepted(name: str) -> None:
    assert entry(method=name).method == name


@pytest.mark.parametrize("value", [-0.1, 100.1, float("nan")])
def test_a_recall_is_a_percentage(value: float) -> None:
    with pytest.raises(ValidationError, match="t2i_r5"):
        entry(recalls={"t2i_r5": value})


def test_falling_recalls_are_named() -> None:
    assert Recalls(i2t_r1=10, i2t_r5=5).falling == "i2t_r5 < i2t_r1"
    assert Recalls(i2t_r10=50, t2i_r1=40).falling == ""


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dataset": "flickr"}, "dataset"),
        ({"protocol": "5k"}, "protocol"),
        ({"noise_unit": "natural", "noise_ratio": None}, "noise_unit"),
        ({"noise_ratio": None}, "noise_ratio"),
        ({"noise_ratio": 0.0}, "noise_ratio"),
        ({"noise_ratio": 1.0}, "noise_ratio"),
        ({"text": "<b>"}, "text"),
    ],
)
def test_a_cell_must_agree_with_the_protocol(change: dict[str, Any], field: str) -> None:
    cell = {"dataset": "flickr30k", "protocol": "1k", "noise_unit": "caption", "noise_ratio": 0.4}
    with pytest.raises(ValidationError, match=field):
        Cell.model_validate(cell | change)


def test_doubtful_rows_and_ablations_take_no_rank() -> None:
    assert entry().ranked
    assert not entry(doubts=("no",)).ranked
    assert not entry(kind="ablation").ranked


@pytest.mark.parametrize("link", ["javascript:alert(1)", "ftp://x", "//x"])
def test_links_are_web_addresses(link: str) -> None:
    with pytest.raises(ValidationError, match="paper"):
        entry(paper=link)
