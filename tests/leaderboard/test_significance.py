"""Which rows of the board are significantly different."""

import math
import re
import statistics
from pathlib import Path

from leaderboard.board import Content, boards
from leaderboard.entries import Row
from leaderboard.results import read_measured
from leaderboard.significance import SignificanceTest
from ncl_bench.papers import read_families


def test_close_rows_share_a_rank_and_distant_ones_do_not(small_board: Path) -> None:
    entries, hits = read_measured(small_board, read_families())
    rows = [entry.row() for entry in entries]
    significantly_different = SignificanceTest(hits, rows)
    crcl = [row for row in rows if row["method"] == "CRCL" and row["noise_ratio"] == 0.4]
    triplet = [row for row in rows if row["method"] != "CRCL" and row["noise_ratio"] == 0.4]
    apart = significantly_different([crcl[0], crcl[1], triplet[0]])
    assert apart.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert SignificanceTest({}, ())(crcl[:2]).all(), "without evidence rSum alone decides"


def test_the_rows_of_the_pages_simulation_vary_over_seeds_as_those_of_the_board(whole_board: Content) -> None:
    """docs/protocol.md states the standard deviation and simulates with its parts."""
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    stated = re.search(r"deviation of about (\d+) over the seeds", page)
    assert stated is not None
    wanted = ("pictograms-1k-caption-40", "method", "VSE∞")
    rows = [row for row in whole_board.rows if (row["slug"], row["kind"], row["backbone"]) == wanted]
    found = math.sqrt(statistics.fmean(row["spread"]["r_sum"] ** 2 for row in rows))
    assert f"{found:.0f}" == stated[1]
    assert f"{math.hypot(4.0, 32 / math.sqrt(100)):.0f}" == stated[1], (
        "of the seed, and of seed and image together"
    )


def test_no_measured_row_stands_below_rows_whose_seeds_overlap_with_its_own(whole_board: Content) -> None:
    overlapping = 0
    for board in boards(whole_board.rows):
        for division in board["categories"]:
            placed = [row for row in division["rows"] if row["rank"] is not None]
            best_of_next = 1
            for at, one in enumerate(placed):
                beyond = sum(not seeds_overlap(above, one) for above in placed[:at])
                overlapping += at - beyond
                best_of_next = max(best_of_next, 1 + beyond)
                assert one["rank"] <= best_of_next, (one["slug"], one["method"])
    assert overlapping


def seeds_overlap(above: Row, below: Row) -> bool:
    """Whether two rows differ by less than either one's seeds do; one seed alone does not differ."""
    spreads = (row["spread"].get("r_sum", 0) for row in (above, below))
    return bool(above["r_sum"] - below["r_sum"] < min(spreads))
