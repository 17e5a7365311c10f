"""Downloads, and the difference of two builds."""

import csv
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderboard.add import add
from leaderboard.board import read_content
from leaderboard.build import build
from leaderboard.cells import read_cell
from leaderboard.diff import diff
from leaderboard.evidence import read_ranks, write_ranks
from leaderboard.exports import bibtex_text, csv_text, latex_text
from leaderboard.published import read_papers
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.metrics import RECALLS

Maker = Callable[..., Path]


@pytest.fixture
def board(small_board: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(small_board, tmp_path / "board"))
    build(root, root / "site", published=False)
    return root


def test_the_csv_holds_every_row(board: Path) -> None:
    boards = read_content(board, published=True).boards
    lines = list(csv.DictReader(io.StringIO(csv_text(boards))))
    assert len(lines) == 1058 + 4
    for line in lines:
        recalls = [line[name] for name in RECALLS]
        if "" not in recalls:
            assert float(line["r_sum"]) == pytest.approx(sum(map(float, recalls)), abs=0.051)
    measured = [line for line in lines if line["source"] == "submission"]
    assert {line["seeds"] for line in measured} == {"0 1"}
    assert all(float(line["r_sum_std"]) > 0 for line in measured)


def test_a_spreadsheet_computes_no_cell(make: Maker, tmp_path: Path) -> None:
    """``=HYPERLINK(...)`` stood in the file as it was submitted."""
    add(
        make(tmp_path / "new", extra_clean_data="+1+1", notes='=HYPERLINK("https://example.org")'),
        tmp_path / "board",
    )
    (line,) = csv.DictReader(io.StringIO(csv_text(read_content(tmp_path / "board", published=False).boards)))
    assert line["notes"].startswith("'=HYPERLINK")
    assert line["extra"] == "'+1+1"
    assert not any(str(value).startswith(("=", "+", "-", "@")) for value in line.values())


def test_latex_tables_have_equal_columns_and_no_bare_specials() -> None:
    for board in read_content(Path("/nonexistent"), published=True).boards:
        text = latex_text(board)
        body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert len(body) > 1
        assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {7}
        assert not re.search(r"(?<!\\)[%#_∞]", "".join(text.splitlines()[1:]))


def test_bibtex_has_one_entry_per_source() -> None:
    papers = read_papers()
    text = bibtex_text(papers)
    assert re.findall(r"@misc\{(\w+),", text) == sorted(papers)
    assert text.count("{") == text.count("}")


def remove_seed(path: Path, seed: int) -> None:
    cell = read_cell(path)
    ranks = read_ranks(path.with_suffix(".npz"), [one.key for one in cell.seeds], dataset_spec("digits"))
    kept = [one for one in cell.seeds if one.training_seeds != (seed,)]
    path.write_text(cell.model_copy(update={"seeds": tuple(kept)}).to_yaml(), encoding="utf-8")
    write_ranks(path.with_suffix(".npz"), {one.key: ranks[one.key] for one in kept})


def test_nothing_moved_is_said(board: Path) -> None:
    assert diff(board, board, published=False) == "No row of the leaderboard moved.\n"


def test_new_changed_and_removed_rows_and_moved_ranks_are_named(
    board: Path, make: Maker, tmp_path: Path
) -> None:
    before = Path(shutil.copytree(board, tmp_path / "before"))
    add(make(tmp_path / "new", method="Better", difficulty=1.0), board)
    for path in (board / "results/digits").glob("triplet*/*caption-60*"):
        path.unlink()
    remove_seed(next((board / "results/digits/crcl").glob("*caption-60*.yaml")), 1)
    text = diff(before, board, published=False)
    assert (
        "### New rows (1)\n\n- **Better (VSE∞)**, Digits, 200 test images, 40 % caption noise: rSum" in text
    )
    assert "### Removed rows (1)\n\n- **Triplet (hardest) (VSE∞)**" in text
    assert re.search(
        r"### Changed rows \(1\)\n\n- \*\*CRCL \(VSE∞\)\*\*.*r\\_sum [\d.]+ → [\d.]+; seeds 0 1 → 0", text
    )
    assert re.search(r"### Ranks that moved \(2\)\n\n- \*\*CRCL.*: 1 → 2", text)


def test_only_new_refuses_a_touched_row_and_allows_a_new_one(
    board: Path, make: Maker, tmp_path: Path
) -> None:
    before = Path(shutil.copytree(board, tmp_path / "before"))
    add(make(tmp_path / "new", method="Better", difficulty=1.0), board)
    assert "New rows (1)" in diff(before, board, published=False, only_new=True)
    remove_seed(next((board / "results/digits/crcl").glob("*caption-60*.yaml")), 1)
    with pytest.raises(SubmissionError, match="1 rows that stood already are touched, the first is CRCL"):
        diff(before, board, published=False, only_new=True)


def test_a_built_table_is_a_base_too(board: Path, make: Maker, tmp_path: Path) -> None:
    table = Path(shutil.copy(board / "site/data/leaderboard.csv", tmp_path))
    assert diff(table, board, published=False) == "No row of the leaderboard moved.\n"
    add(make(tmp_path / "new", method="Better", difficulty=1.0), board)
    assert "New rows (1)" in diff(table, board, published=False)


def test_a_base_that_is_no_leaderboard_is_refused(board: Path, tmp_path: Path) -> None:
    with pytest.raises(SubmissionError, match="is no leaderboard"):
        diff(tmp_path / "nowhere", board)
