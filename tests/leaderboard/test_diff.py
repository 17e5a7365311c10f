"""What moved between two leaderboards."""

import csv
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderboard.add import add
from leaderboard.board import Content
from leaderboard.build import build, built
from leaderboard.exports import ROWS, csv_text
from leaderboard.gate import Moves, in_markdown, moves, read_site, refuse_other_folder, rows_by_place
from ncl_bench.errors import SubmissionError

Maker = Callable[..., Path]


def moved(base: Path, root: Path, site: Path | None = None) -> Moves:
    """What moves between two leaderboards; the second is read from a built site, if one is given."""
    after = read_site(site) if site else built(root, published=False).texts
    return moves(built(base, published=False).texts, after, site or root)


def cell_file(board: Path, words: str) -> Path:
    (path,) = (path for path in board.glob("results/*/*/*.yaml") if re.search(words, path.as_posix()))
    return path


def test_every_row_has_a_key_of_its_own(whole_board: Content) -> None:
    """Rows were keyed without link, paper, recipe and steps: 98 of 1,287 stood for others, and were not compared."""
    keys = list(rows_by_place(csv_text(whole_board.rows), Path("board")))
    assert len(keys) == len(whole_board.rows) > 1200
    assert {again for *_, again in keys} == {"1"}


def test_rows_of_one_place_do_not_hide_each_other() -> None:
    line = "ncr2021,Table 1,SCAN,{}\n"
    text = "source,table,method,r_sum\n" + line.format("430.1") + line.format("480.1")
    assert [row["r_sum"] for row in rows_by_place(text, Path("board")).values()] == ["430.1", "480.1"]


def test_nothing_moved_is_said(board: Path, small_board: Path) -> None:
    assert moved(small_board, board).markdown() == "No row of the leaderboard moved.\n"


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
    text = moved(ranked_board, board).markdown()
    assert re.search(
        r"### New rows \(2\)\n\n- Better, `VSE∞`, `digits 200 caption 0\.4`, `digits/better/\S+`: "
        r"rank 1; r_sum [\d.]+; seeds 0 1 2; status submitted; selection dev; extra none; encoder none; notes none; "
        r"doubts none\n- Lone, .*: rank none; r_sum [\d.]+; seeds 7;",
        text,
    )
    assert "### Removed rows (1)\n\n- `Triplet (hardest)`, `VSE∞`, `digits 200 caption 0.6`" in text
    assert re.search(
        r"### Changed rows \(1\)\n\n- CRCL, .*r_sum [\d.]+ → [\d.]+; .*seeds 0 1 2 → 0 1 2 3\n", text
    )
    assert re.search(r"### Ranks that moved \(2\)\n\n- CRCL.*: rank 1 → 2", text)


def test_a_row_of_another_paper_and_code_is_not_hidden_by_one_of_the_same_name(
    board: Path, small_board: Path, make: Maker, tmp_path: Path
) -> None:
    """It had the key of the standing row, which it could pass on the board without a line in the difference."""
    add(make(tmp_path / "new", difficulty=1.0, seed=7, code="https://example.org/mine"), board)
    text = moved(small_board, board).markdown()
    assert "### New rows (1)\n\n- CRCL, `VSE∞`" in text
    assert "Changed rows" not in text


def test_an_edited_remark_is_shown_in_one_line(board: Path, small_board: Path) -> None:
    path = cell_file(board, "crcl.*caption-40")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("  noise:", '  notes: "*a* ### b"\n  noise:', 1), encoding="utf-8")
    assert "notes nothing → `*a* ### b`\n" in moved(small_board, board).markdown()


@pytest.fixture(scope="module")
def built_site(small_board: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("built_site")
    build(small_board, place, published=False)
    return read_site(place)


def site_of(files: dict[str, str], folder: Path) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder


def with_five_points_more(text: str, method: str) -> str:
    """The table of all rows as a change of code writes it that adds 5 to the rSum of a method."""
    rows = list(csv.DictReader(io.StringIO(text)))
    for row in rows:
        if row["method"] == method:
            row["r_sum"] = f"{float(row['r_sum']) + 5:g}"
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def test_a_row_that_the_code_of_the_change_moves_is_shown_with_the_code(
    small_board: Path, built_site: dict[str, str], tmp_path: Path
) -> None:
    """Both sides were evaluated by the base's code: five points more for a method were "No row moved"."""
    files = {**built_site, ROWS: with_five_points_more(built_site[ROWS], "CRCL"), "README.md": ""}
    found = moved(small_board, small_board, site_of(files, tmp_path))
    assert [(row["method"], list(facts)) for row, facts in found.changed] == [("CRCL", ["r_sum"])] * 2
    text = found.markdown(["leaderboard/significance.py"])
    assert text.startswith(
        "Rows moved, and the change touches code: `leaderboard/significance.py`.\n\n### Changed"
    )
    (old, new) = re.findall(r"- CRCL, .*caption 0\.4.*: r_sum ([\d.]+) → ([\d.]+)\n", text)[0]
    assert float(new) - float(old) == pytest.approx(5, abs=1e-3)


def test_pages_that_the_code_of_the_change_writes_otherwise_are_named(
    small_board: Path, built_site: dict[str, str], tmp_path: Path
) -> None:
    """A number can be changed in a template alone; then no row moves."""
    files = {**built_site, "index.html": built_site["index.html"].replace("CRCL", "GSC"), "extra.js": "0"}
    text = moved(small_board, small_board, site_of(files, tmp_path)).markdown()
    assert text.startswith(
        "No row of the leaderboard moved.\n\n### Other files of the site that differ (3)\n"
    )
    assert re.findall("- `(.*)`", text) == ["README.md", "extra.js", "index.html"]


def test_a_column_that_the_code_of_the_change_drops_moves_every_row(
    small_board: Path, built_site: dict[str, str], tmp_path: Path
) -> None:
    files = {**built_site, ROWS: built_site[ROWS].replace("r_sum,", "sum,", 1)}
    found = moved(small_board, small_board, site_of(files, tmp_path))
    assert [sorted(facts) for _, facts in found.changed] == [["r_sum", "sum"]] * 4


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("CRCL 2", "CRCL 2"),
        ("@team, see #1", "`@team, see #1`"),
        ("https://example.org", "`https://example.org`"),
        ("<img src=x>", "`<img src=x>`"),
        ("a `b` c", "``a `b` c``"),
        ("`", "`` ` ``"),
        ("a\u202eb\x1b[1m", "`a\ufffdb\ufffd[1m`"),
        ("-\n# a", "`- # a`"),
        ("x" * 400, "`" + "x" * 300 + "…`"),
    ],
)
def test_a_text_of_a_stranger_links_calls_and_renders_nothing(text: str, markdown: str) -> None:
    assert in_markdown(text) == markdown


def test_a_long_list_is_cut(small_board: Path, built_site: dict[str, str], tmp_path: Path) -> None:
    lines = "".join(f"m{n},submission,c{n}\n" for n in range(1000))
    files = {**built_site, ROWS: f"method,source,file\n{lines}"}
    text = moved(small_board, small_board, site_of(files, tmp_path)).markdown()
    assert "### New rows (1,000)\n" in text
    assert "- and 800 more\n" in text
    assert text.count("\n- m") == 200


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (ROWS, None, r"holds no data/leaderboard\.csv; build the site with"),
        (ROWS, "a\n" + '"' + "b" * 2_000_000, r"leaderboard\.csv is no table \(field larger than"),
        ("index.html", "x" * 50_000_001, r"index\.html has 50,000,001 bytes, expected at most"),
    ],
)
def test_a_site_that_is_none_is_refused(
    small_board: Path,
    built_site: dict[str, str],
    tmp_path: Path,
    name: str,
    content: str | None,
    message: str,
) -> None:
    files = {name: text for name, text in {**built_site, name: content}.items() if text is not None}
    with pytest.raises(SubmissionError, match=message):
        moved(small_board, small_board, site_of(files, tmp_path))


def test_a_folder_that_is_no_leaderboard_is_refused(board: Path, tmp_path: Path) -> None:
    refuse_other_folder(board)
    with pytest.raises(SubmissionError, match="nowhere is no leaderboard; give a folder that holds results/"):
        refuse_other_folder(tmp_path / "nowhere")
