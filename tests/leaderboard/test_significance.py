"""Which rows of the board are told apart."""

from itertools import pairwise
from pathlib import Path

from leaderboard.board import read_content
from leaderboard.methods import read_families
from leaderboard.significance import ToldApart
from leaderboard.submissions import read_submissions


def test_close_rows_share_a_rank_and_distant_ones_do_not(small_board: Path) -> None:
    entries, hits = read_submissions(small_board / "submissions", read_families())
    apart = ToldApart(hits)
    crcl = [entry for entry in entries if entry.method == "CRCL" and entry.cell.percent == "40"]
    triplet = [entry for entry in entries if entry.method != "CRCL" and entry.cell.percent == "40"]
    assert not apart(crcl[0], crcl[0])
    assert not apart(crcl[0], crcl[1])
    assert apart(crcl[0], triplet[0])
    assert ToldApart({})(crcl[0], crcl[0])


def test_rows_of_the_digits_whose_seeds_overlap_share_a_rank() -> None:
    boards = read_content(Path(__file__).parents[2] / "leaderboard", published=False).boards
    for board in boards:
        for division in board.divisions:
            ranked = [one for one in division.ranked if one.rank is not None]
            for a, b in pairwise(ranked):
                difference = (a.entry.r_sum or 0) - (b.entry.r_sum or 0)
                if difference < min(a.entry.spread["r_sum"], b.entry.spread["r_sum"]):
                    assert a.rank == b.rank, (board.cell.slug, a.entry.method, b.entry.method)
