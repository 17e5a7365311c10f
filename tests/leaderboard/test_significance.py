"""Which rows of the board are told apart."""

import math
import re
import statistics
from pathlib import Path

from leaderboard.board import Content
from leaderboard.entries import Entry
from leaderboard.results import read_measured
from leaderboard.significance import ToldApart
from ncl_bench.papers import read_families


def test_close_rows_share_a_rank_and_distant_ones_do_not(small_board: Path) -> None:
    entries, hits = read_measured(small_board, read_families())
    told_apart = ToldApart(hits, entries)
    crcl = [entry for entry in entries if entry.method == "CRCL" and entry.cell.percent == "40"]
    triplet = [entry for entry in entries if entry.method != "CRCL" and entry.cell.percent == "40"]
    apart = told_apart([crcl[0], crcl[1], triplet[0]])
    assert apart.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert ToldApart({}, ())(crcl[:2]).all(), "without evidence rSum alone decides"


def test_the_rows_of_the_pages_simulation_vary_over_seeds_as_those_of_the_board(whole_board: Content) -> None:
    """docs/protocol.md states the standard deviation and simulates with its parts."""
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    stated = re.search(r"deviation of ([\d.]+) over the seeds", page)
    assert stated is not None
    (board,) = (board for board in whole_board.boards if board.cell.slug == "pictograms-1k-caption-40")
    rows = [row for row in board.entries if row.kind == "method" and row.backbone == "VSE∞"]
    found = math.sqrt(statistics.fmean(row.spread["r_sum"] ** 2 for row in rows))
    assert f"{found:.1f}" == stated[1]
    assert f"{math.hypot(4.0, 32 / math.sqrt(100)):.1f}" == stated[1], (
        "of the seed, and of seed and image together"
    )


def test_no_measured_row_stands_below_rows_whose_seeds_overlap_with_its_own(whole_board: Content) -> None:
    overlapping = 0
    for board in whole_board.boards:
        for division in board.divisions:
            placed = [one for one in division.ranked if one.rank is not None]
            best_of_next = 1
            for at, one in enumerate(placed):
                beyond = sum(not seeds_overlap(above.entry, one.entry) for above in placed[:at])
                overlapping += at - beyond
                best_of_next = max(best_of_next, 1 + beyond)
                assert (one.rank or 0) <= best_of_next, (board.cell.slug, one.entry.method)
    assert overlapping


def seeds_overlap(above: Entry, below: Entry) -> bool:
    """Whether two rows differ by less than either one's seeds do; one seed alone does not differ."""
    difference = (above.r_sum or 0) - (below.r_sum or 0)
    return difference < min(above.spread.get("r_sum", 0), below.spread.get("r_sum", 0))
