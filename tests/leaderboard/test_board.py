import numpy as np
import pytest
from support.board_rows import row

from leaderboard.board import board_of, compared, merge_seeds, with_look_alikes
from leaderboard.entries import Condition, Entry
from leaderboard.significance import SignificanceTest
from ncl_bench.evaluation.difference import Hits
from ncl_bench.papers import Family

BY_R_SUM_ALONE = SignificanceTest({}, ())
"""Without ranks of queries no pair is tested."""


class Test(SignificanceTest):
    """A test that a function decides."""

    __test__ = False

    def __init__(self, apart):
        super().__init__({}, ())
        self.apart = apart

    def __call__(self, rows):
        return self.apart(rows)


def entry(r_sum, **fields):
    return row(r_sum, **{"method": f"M{r_sum:g}"} | fields)


def ranked_rows(*entries, significantly_different=BY_R_SUM_ALONE):
    return board_of(entries, significantly_different)


def ranks(*entries, significantly_different=BY_R_SUM_ALONE):
    rows = ranked_rows(*entries, significantly_different=significantly_different)
    return [(row.method, row.rank) for row in rows]


def test_equal_sums_share_a_rank_and_the_next_counts_on():
    found = ranks(entry(300), entry(420, method="A"), entry(420, method="B"))
    assert found == [("A", 1), ("B", 1), ("M300", 3)]


def test_a_doubtful_row_stands_in_its_place_without_a_rank():
    found = ranks(entry(300), entry(420, doubts=("why",)), entry(500))
    assert found == [("M500", 1), ("M420", None), ("M300", 2)]


def test_a_rank_counts_the_better_rows_that_are_significantly_different():
    def significantly_different(rows):
        sums = np.array([row.r_sum for row in rows])
        return np.abs(sums[:, None] - sums) > 10

    found = ranks(
        entry(400), entry(395), entry(388), entry(370), significantly_different=Test(significantly_different)
    )
    assert found == [("M400", 1), ("M395", 1), ("M388", 2), ("M370", 4)]


def test_a_row_of_wide_spread_does_not_pass_the_row_above_it():
    def significantly_different(rows):
        return np.array([["wide" not in (a.method, b.method) for a in rows] for b in rows])

    found = ranks(
        entry(400),
        entry(390),
        entry(380, method="wide"),
        significantly_different=Test(significantly_different),
    )
    assert found == [("M400", 1), ("M390", 2), ("wide", 2)]


def measured(r_sum, *runs, **fields):
    seeds = tuple(int(seed) for run in runs for seed in run.split("+"))
    facts = {"status": "submitted", "source": "submission", "runs": runs, "seeds": seeds}
    return entry(r_sum, **facts | fields)


def test_a_row_of_fewer_than_three_seeds_stands_below_all_others_and_takes_no_rank():
    """A lone lucky seed ranked better than the mean of the same method."""
    found = ranks(
        measured(500, "7"),
        measured(450, "0", "1"),
        measured(420, "0+1+2"),  # one result of three networks whose similarities were averaged
        measured(400, "0", "1", "2"),
        entry(390),
        measured(380, "0", "1", "2", "3+4"),
        measured(510, "0", doubts=("why",)),
    )
    assert found == [
        ("M510", None),
        ("M400", 1),
        ("M390", 2),
        ("M380", 3),
        ("M500", None),
        ("M450", None),
        ("M420", None),
    ]


def test_a_preliminary_row_has_an_interval_of_its_r_sum_that_no_r_sum_can_leave():
    hits = {
        ("x", run, "1k"): Hits(np.array([[1, 1, 1, n, 5, 5]] * 50 + [[1, 1, 1, 5, 5, 5]] * 50), 5, 100)
        for run, n in (("0", 5), ("1", 3), ("2", 4))
    }
    two, three = ([measured(580, run, file="x", seeds=(int(run),)) for run in runs] for runs in ("01", "012"))
    ((few,), _), ((enough,), _) = compared(two, hits), compared(three, hits)
    low, high = few.intervals["r_sum"]
    assert 0 < low < 590 < high == 600
    assert enough.intervals == {}


@pytest.mark.parametrize(
    ("fields", "division"),
    [
        ({}, "single"),
        ({"networks": "ensemble"}, "ensemble"),
        ({"networks": "unknown"}, "unstated"),
        ({"extra": "3,000 clean pairs"}, "extra"),
        ({"features": "pretrained", "extra": "x"}, "pretrained"),
        ({"features": "unknown"}, "encoder-unstated"),
        ({"features": "images"}, "images"),
        ({"kind": "ablation", "features": "pretrained"}, "controls"),
    ],
)
def test_incomparable_rows_are_divided(fields, division):
    assert entry(400, **fields).category == division


def test_each_pretrained_encoder_has_a_first_rank_of_its_own():
    clip, align = ({"features": "pretrained", "encoder": name} for name in ("CLIP ViT-B/32", "ALIGN"))
    found = ranks(entry(400, **clip), entry(500, **align), entry(390, **clip))
    assert found == [("M500", 1), ("M400", 1), ("M390", 2)]


def test_a_name_that_only_looks_like_another_one_says_so():
    families = {"osa": Family(title="OSA", summary="S.", names=("OSA",))}
    names = ["OSA", "0SA", "osa", "Max", "Máx", "Moy"]
    found = with_look_alikes([entry(400, method=name) for name in names], families)
    assert [" ".join(one.notes).split(",")[0] for one in found] == [
        "",
        "The name looks like OSA",
        "",
        "",
        "The name looks like Max",
        "",
    ]


def test_the_same_numbers_in_several_papers_are_one_entry_led_by_the_own_paper():
    quoted, own = entry(400, source="quoting"), entry(400, source="zz_own", own=True)
    rows = ranked_rows(quoted, own, entry(390))
    assert [(row.source, row.rank, row.also) for row in rows] == [
        ("zz_own", 1, ("quoting",)),
        ("quoting", 1, None),
        ("s", 2, ()),
    ]


def test_a_row_that_is_quoted_under_a_name_with_its_backbone_stands_once_with_all_remarks():
    quoted = entry(400, method="GSC", backbone="SGR", source="later", notes=("as quoted",))
    own = entry(400, method="GSC-SGR", backbone="SGR", source="own", own=True, notes=("as printed",))
    other = entry(400, method="GSC-SAF", backbone="SAF", source="own", own=True)
    doubted = entry(400, method="GSC", backbone="SGR", source="third", doubts=("odd",))
    rows = ranked_rows(quoted, own, other, doubted)
    leads = {(row.source, row.method): row for row in rows if row.also is not None}
    assert {name: row.also for name, row in leads.items()} == {
        ("own", "GSC-SGR"): ("later",),
        ("own", "GSC-SAF"): (),
        ("third", "GSC"): (),
    }
    assert leads["own", "GSC-SGR"].notes == ("as printed", "as quoted")


def test_a_paper_that_prints_the_sum_alone_is_a_source_of_the_row_with_the_same_sum():
    whole, other = entry(400, source="whole"), entry(420, source="other", method="M400")
    alone = Entry.model_validate(
        whole.model_dump() | {"recalls": {}, "printed_r_sum": 400.0, "source": "alone"}
    )
    rows = ranked_rows(alone, whole, other)
    assert [(row.source, row.also) for row in rows] == [
        ("other", ()),
        ("whole", ("alone",)),
        ("alone", None),
    ]


def test_doubtful_copies_are_one_row_with_all_doubts():
    first, second = (entry(400, source=name, doubts=(f"odd in {name}",)) for name in ("a", "b"))
    lead, _ = ranked_rows(first, second)
    assert (lead.also, lead.doubts) == (("b",), ("odd in a", "odd in b"))


def test_seeds_become_mean_deviation_and_count():
    seeds = [(0, 390.0, "reproduced"), (1, 402.0, "submitted"), (2, 408.0, "reproduced")]
    rows = [
        measured(value, str(seed), method="A", status=status, file="digits/a/x")
        for seed, value, status in seeds
    ]
    (merged,) = merge_seeds(rows)
    assert merged.r_sum == pytest.approx(400.0)
    assert merged.spread["r_sum"] == pytest.approx(9.1651514)
    assert merged.spread["i2t_r1"] == pytest.approx(9.1651514 / 6)
    assert merged.seeds == (0, 1, 2)
    assert merged.ranked
    assert merged.status == "submitted"


def test_reported_rows_and_other_files_are_not_merged():
    entries = [
        entry(400),
        entry(400),
        measured(300, "0", file="digits/a/x"),
        measured(310, "0", file="digits/a/y"),
    ]
    assert len(merge_seeds(entries)) == 4


def test_titles_say_unknown_where_the_unit_is_unknown():
    cell = Condition(dataset="coco", protocol="5fold-1k", noise_unit="unknown", noise_ratio=0.2)
    assert cell.title == "MS-COCO, mean of five 1K folds, 20 % noise, unit unknown"
