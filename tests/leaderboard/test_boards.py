from itertools import pairwise
from typing import Any

import pytest

from leaderboard.boards import Ranked, boards_of, cell_title, division_of, merge_seeds
from leaderboard.rows import RECALLS, Cell, Row


def row(r_sum: float, **fields: Any) -> Row:
    cell = {"dataset": "flickr30k", "protocol": "1k", "noise_unit": "caption", "noise_ratio": 0.4}
    content = {
        "method": f"M{r_sum:g}",
        "family": "a",
        "cell": cell,
        "recalls": dict.fromkeys(RECALLS, r_sum / 6),
        "status": "reported",
        "source": "s",
        "networks": "single",
    }
    return Row.model_validate(content | fields)


def ranks(*rows: Row, **options: Any) -> list[tuple[str, int | None]]:
    (board,) = boards_of(rows, **options)
    return [(ranked.row.method, ranked.rank) for division in board.divisions for ranked in division.rows]


def test_equal_sums_share_a_rank_and_the_next_counts_on() -> None:
    assert ranks(row(300), row(420, method="A"), row(420, method="B")) == [("A", 1), ("B", 1), ("M300", 3)]


def test_a_doubtful_row_stands_in_its_place_without_a_rank() -> None:
    assert ranks(row(300), row(420, doubts=("why",)), row(500)) == [("M500", 1), ("M420", None), ("M300", 2)]


def test_a_rank_counts_the_better_rows_that_are_told_apart() -> None:
    def told_apart(a: Row, b: Row) -> bool:
        return abs((a.r_sum or 0) - (b.r_sum or 0)) > 10

    found = ranks(row(400), row(395), row(388), row(370), told_apart=told_apart)
    assert found == [("M400", 1), ("M395", 1), ("M388", 2), ("M370", 4)]


def test_a_row_of_wide_spread_does_not_pass_the_row_above_it() -> None:
    def told_apart(a: Row, b: Row) -> bool:
        return "wide" not in (a.method, b.method)

    assert ranks(row(400), row(390), row(380, method="wide"), told_apart=told_apart) == [
        ("M400", 1),
        ("M390", 2),
        ("wide", 2),
    ]


@pytest.mark.parametrize(
    ("fields", "division"),
    [
        ({}, "single"),
        ({"networks": "ensemble"}, "ensemble"),
        ({"networks": "unknown"}, "unstated"),
        ({"extra": "3,000 clean pairs"}, "extra"),
        ({"features": "pretrained", "extra": "x"}, "pretrained"),
        ({"features": "unknown"}, "encoder-unstated"),
        ({"kind": "ablation", "features": "pretrained"}, "controls"),
    ],
)
def test_incomparable_rows_are_divided(fields: dict[str, Any], division: str) -> None:
    assert division_of(row(400, **fields)) == division


def test_each_division_has_a_first_rank_of_its_own() -> None:
    found = ranks(row(400), row(500, networks="ensemble"), row(450, networks="ensemble"))
    assert found == [("M400", 1), ("M500", 1), ("M450", 2)]


def test_cells_are_never_mixed() -> None:
    image = {"dataset": "flickr30k", "protocol": "1k", "noise_unit": "image", "noise_ratio": 0.4}
    boards = boards_of([row(400), row(410, cell=image)])
    assert [board.cell.noise_unit for board in boards] == ["caption", "image"]
    assert all(a.cell.order < b.cell.order for a, b in pairwise(boards))


def test_the_same_numbers_in_several_papers_are_one_entry_led_by_the_own_paper() -> None:
    quoted, own = row(400, source="quoting"), row(400, source="zz_own", own=True)
    (board,) = boards_of([quoted, own, row(390)])
    assert board.divisions[0].rows[0] == Ranked(1, own, (quoted,))
    assert board.divisions[0].rows[1].rank == 2
    assert len(board.rows) == 3


def test_seeds_become_mean_deviation_and_count() -> None:
    measured = [
        row(value, method="A", status=status, source="submission", seeds=(seed,), files=(f"{seed}.yaml",))
        for seed, value, status in (
            (0, 390.0, "recomputed"),
            (1, 402.0, "submitted"),
            (2, 408.0, "reproduced"),
        )
    ]
    (merged,) = merge_seeds(measured)
    assert merged.r_sum == pytest.approx(400.0)
    assert merged.spread["r_sum"] == pytest.approx(9.1651514)
    assert merged.spread["i2t_r1"] == pytest.approx(9.1651514 / 6)
    assert merged.seeds == (0, 1, 2)
    assert merged.status == "submitted"


def test_reported_rows_and_other_noise_draws_are_not_merged() -> None:
    measured = {"method": "A", "status": "recomputed", "source": "submission"}
    rows = [row(400), row(400), row(300, **measured), row(310, noise="noise seed 7", **measured)]
    assert len(merge_seeds(rows)) == 4


def test_titles_say_unknown_where_the_unit_is_unknown() -> None:
    cell = Cell(dataset="coco", protocol="5fold-1k", noise_unit="unknown", noise_ratio=0.2)
    assert cell_title(cell) == "MS-COCO, mean of five 1K folds, 20 % noise, unit unknown"
