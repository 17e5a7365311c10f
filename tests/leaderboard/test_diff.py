"""What moved between two leaderboards."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderboard.add import add
from leaderboard.board import Content
from leaderboard.diff import diff, row_key
from ncl_bench.errors import SubmissionError

Maker = Callable[..., Path]


def cell_file(board: Path, words: str) -> Path:
    (path,) = (path for path in board.glob("results/*/*/*.yaml") if re.search(words, path.as_posix()))
    return path


def test_every_row_has_a_key_of_its_own(whole_board: Content) -> None:
    """Rows were keyed without link, paper, recipe and steps: 98 of 1,287 stood for others, and were not compared."""
    keys = [row_key(entry) for board in whole_board.boards for _, entry in board.ranks]
    assert len(keys) > 1200
    assert len(set(keys)) == len(keys)


def test_nothing_moved_is_said(board: Path, small_board: Path) -> None:
    assert diff(small_board, board, published=False) == "No row of the leaderboard moved.\n"


def test_new_changed_and_removed_rows_and_moved_ranks_are_named(
    ranked_board: Path, make: Maker, tmp_path: Path
) -> None:
    board = Path(shutil.copytree(ranked_board, tmp_path / "board"))
    for seed in (0, 1, 2):
        add(make(tmp_path / f"new{seed}", method="Better", difficulty=1.0, seed=seed), board)
    add(make(tmp_path / "one", method="Lone", difficulty=0.9, seed=7), board)
    add(make(tmp_path / "seed", ratio=0.6, difficulty=1.7, seed=3), board)
    removed = cell_file(board, "triplet.*caption-60")
    removed.unlink()
    removed.with_suffix(".npz").unlink()
    text = diff(ranked_board, board, published=False)
    assert re.search(
        r"### New rows \(2\)\n\n- \*\*Better \(VSE∞\)\*\*, Digits, 200 test images, 40 % caption noise: "
        r"rSum [\d.]+, seeds 0 1 2, submitted, rank 1\n- \*\*Lone .*, seeds 7, submitted, no rank\n",
        text,
    )
    assert "### Removed rows (1)\n\n- **Triplet (hardest) (VSE∞)**" in text
    assert re.search(
        r"### Changed rows \(1\)\n\n- \*\*CRCL \(VSE∞\)\*\*.*r\\_sum [\d.]+ → [\d.]+.*; seeds 0 1 2 → 0 1 2 3",
        text,
    )
    assert re.search(r"### Ranks that moved \(2\)\n\n- \*\*CRCL.*: 1 → 2", text)


def test_a_row_of_another_paper_and_code_is_not_hidden_by_one_of_the_same_name(
    board: Path, small_board: Path, make: Maker, tmp_path: Path
) -> None:
    """It had the key of the standing row, which it could pass on the board without a line in the difference."""
    add(make(tmp_path / "new", difficulty=1.0, seed=7, code="https://example.org/mine"), board)
    text = diff(small_board, board, published=False)
    assert "### New rows (1)\n\n- **CRCL (VSE∞)**" in text
    assert "Changed rows" not in text


def test_an_edited_remark_is_shown_in_one_line(board: Path, small_board: Path) -> None:
    path = cell_file(board, "crcl.*caption-40")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("  noise:", '  notes: "*a*\\n### b"\n  noise:', 1), encoding="utf-8")
    assert "notes nothing → \\*a\\* ### b\n" in diff(small_board, board, published=False)


def test_a_folder_that_is_no_leaderboard_is_refused(board: Path, tmp_path: Path) -> None:
    with pytest.raises(SubmissionError, match="nowhere is no leaderboard; give a folder that holds results/"):
        diff(tmp_path / "nowhere", board)
