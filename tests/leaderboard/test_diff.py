"""What moved between two leaderboards."""

import csv
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.refusals import refused

from leaderboard.build import build, built
from leaderboard.diff import (
    Moves,
    additions,
    additions_text,
    changed_seeds,
    in_markdown,
    moves,
    read_site,
    refuse_moved,
    rows_by_place,
)
from leaderboard.exports import ROWS, csv_text
from ncl_bench.errors import SubmissionError


def moved(base, root, site=None):
    """What moves between two leaderboards; the second is read from a built site, if one is given."""
    after = read_site(site) if site else built(root, published=False).texts
    return moves(built(base, published=False).texts, after, site or root)


def cell_file(board, words):
    (path,) = (path for path in board.glob("results/*/*/*.yaml") if re.search(words, path.as_posix()))
    return path


def test_every_row_has_a_key_of_its_own(whole_board):
    """Rows were keyed without link, paper, recipe and steps: 98 of 1,287 stood for others, and were not compared."""
    keys = list(rows_by_place(csv_text(whole_board.rows), Path("board")))
    assert len(keys) == len(whole_board.rows) > 1200
    assert {again for *_, again in keys} == {"1"}


def test_rows_of_one_place_do_not_hide_each_other():
    line = "ncr2021,Table 1,SCAN,{}\n"
    text = "source,table,method,r_sum\n" + line.format("430.1") + line.format("480.1")
    assert [row["r_sum"] for row in rows_by_place(text, Path("board")).values()] == ["430.1", "480.1"]


def test_new_changed_and_removed_rows_and_moved_ranks_are_named(ranked_board, put, tmp_path):
    board = Path(shutil.copytree(ranked_board, tmp_path / "board"))
    for seed in (0, 1, 2):
        put(board, method="Better", difficulty=1.0, seed=seed)
    put(board, method="Lone", difficulty=0.9, seed=7)
    put(board, ratio=0.6, difficulty=1.7, seed=3)
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


def test_an_edited_remark_is_shown_in_one_line(board, small_board):
    path = cell_file(board, "crcl.*caption-40")
    text = path.read_text("utf-8")
    path.write_text(text.replace("  noise:", '  notes: "*a* ### b"\n  noise:', 1), "utf-8")
    assert "notes nothing → `*a* ### b`\n" in moved(small_board, board).markdown()


@pytest.fixture(scope="module")
def built_site(small_board, tmp_path_factory):
    place = tmp_path_factory.mktemp("built_site")
    build(small_board, place, published=False)
    return read_site(place)


def site_of(files, folder):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder


def with_five_points_more(text, method):
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


def test_a_row_that_the_code_of_the_change_moves_is_shown_with_the_code(small_board, built_site, tmp_path):
    """Both sides were evaluated by the base's code: five points more for a method were "No row moved"."""
    files = {**built_site, ROWS: with_five_points_more(built_site[ROWS], "CRCL"), "README.md": ""}
    found = moved(small_board, small_board, site_of(files, tmp_path))
    assert [(row["method"], list(facts)) for row, facts in found.changed] == [("CRCL", ["r_sum"])] * 2
    text = found.markdown()
    with refused(SubmissionError):
        refuse_moved(found, [])
    (old, new) = re.findall(r"- CRCL, .*caption 0\.4.*: r_sum ([\d.]+) → ([\d.]+)\n", text)[0]
    assert float(new) - float(old) == pytest.approx(5, abs=1e-3)


def test_pages_that_the_code_of_the_change_writes_otherwise_are_named(small_board, built_site, tmp_path):
    """A number can be changed in a template alone; then no row moves."""
    files = {**built_site, "index.html": built_site["index.html"].replace("CRCL", "GSC"), "extra.js": "0"}
    text = moved(small_board, small_board, site_of(files, tmp_path)).markdown()
    assert text.startswith(
        "No row of the leaderboard moved.\n\n### Other files of the site that differ (3)\n"
    )
    assert re.findall("- `(.*)`", text) == ["README.md", "extra.js", "index.html"]


def test_a_column_that_the_code_of_the_change_drops_moves_every_row(small_board, built_site, tmp_path):
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
def test_a_text_of_a_stranger_links_calls_and_renders_nothing(text, markdown):
    assert in_markdown(text) == markdown


def test_a_site_that_is_none_is_refused(small_board, tmp_path):
    table = {ROWS: "a\n" + '"' + "b" * 2_000_000}
    for number, files in enumerate(({}, table)):
        with refused(SubmissionError):
            moved(small_board, small_board, site_of(files, tmp_path / str(number)))
    (tmp_path / "1" / "index.html").symlink_to("/etc/passwd")
    with refused(SubmissionError):
        read_site(tmp_path / "1")


def test_new_seeds_are_described(small_board, put, tmp_path):
    """The difference named neither submitter nor selection, extra data, encoder and notes of a new seed."""
    base = Path(shutil.copytree(small_board, tmp_path / "base"))
    put(base, seed=2, submitter="Ada (@ada)")
    change = Path(shutil.copytree(base, tmp_path / "change"))
    put(change, seed=3, submitter="Ada (@ada)")
    fields = {
        "selection_split": "test",
        "extra_clean_data": "3,000 pairs",
        "pretrained_encoder": "CLIP",
        "notes": "# mine @all see https://example.org",
    }
    put(change, method="Mine", difficulty=1.2, submitter="Bo", **fields)
    text = additions_text(base, change, "ada")
    assert text.startswith("### New seeds (2)\n\n- `digits/crcl/")
    joining, new = text.splitlines()[2:]
    assert (
        ", seed 3: **joins the standing row of `Ada (@ada)`**; submitter `Ada (@ada)`; selection dev;"
        in joining
    )
    assert "brought by" not in joining
    assert "submitter Bo; **brought by ada, an account that the submitter's name does not hold**" in new
    assert "selection test; extra clean data `3,000 pairs`; encoder CLIP;" in new
    assert new.endswith("notes `# mine @all see https://example.org`")
    assert additions_text(base, base) == ""


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda ranks, path: ranks, 0),
        (
            lambda ranks, path: ranks + (ranks == ranks.max()),
            1,
        ),  # below the resolution of the printed recalls
        (
            lambda ranks, path: path.write_text(path.read_text("utf-8").replace("CPU", "abacus", 1), "utf-8"),
            1,
        ),
        (lambda ranks, path: path.unlink(), 2),
    ],
)
def test_standing_seeds_that_changed_are_named(board, small_board, change, changed):
    """Ranks, hours, costs and notes could be rewritten where no number of a page moves."""
    path = cell_file(board, "crcl.*caption-40")
    with np.load(path.with_suffix(".npz")) as archive:
        arrays = {name: archive[name] for name in archive}
    ranks = change(arrays["s0_whole_t2i"], path)
    if isinstance(ranks, np.ndarray):
        np.savez_compressed(path.with_suffix(".npz"), **arrays | {"s0_whole_t2i": ranks})
    found = changed_seeds(small_board, board)
    assert len(found) == changed
    assert all("digits/crcl/" in name for name in found)
    assert ("### Standing seeds that changed" in additions_text(small_board, board)) == bool(changed)


def test_new_rows_move_ranks_alone(ranked_board, put, tmp_path):
    board = Path(shutil.copytree(ranked_board, tmp_path / "board"))
    for seed in (0, 1, 2):
        put(board, method="Better", difficulty=1.0, seed=seed, submitter="Bo")
    found = moved(ranked_board, board)
    assert any(set(facts) & {"rank", "rank_high"} for _, facts in found.changed)
    refuse_moved(found, additions(ranked_board, board))
    with refused(SubmissionError):
        refuse_moved(Moves([], [], found.changed, []), [])  # the same ranks, moved by code


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 3},
        {"method": "Mine", "difficulty": 1.2},
    ],
)
def test_a_seed_that_moves_a_row_or_names_nobody_is_refused(board, small_board, put, fields):
    """It joined a row of the maintainers and moved its mean, or counted as theirs."""
    put(board, **fields)
    with refused(SubmissionError):
        refuse_moved(moved(small_board, board), additions(small_board, board))


def test_a_remark_that_papers_disagree_is_no_change_of_a_row():
    row = {"method": "GSC", "file": "", "source": "gsc2024"}
    said = "Kept. Other papers print another rSum: 504.7 in CRCL."
    for after, standing in ((f"{said}, 1", []), ("Another. " + said, [row]), ("Kept.", [])):
        found = Moves([row], [], [(row, {"notes": (said, after)})], [])
        assert found.standing == standing


def test_a_near_copy_is_named_in_the_description(small_board, board, put):
    path = put(board, method="Mine", difficulty=2.0, submitter="Bo").with_suffix(".npz")
    standing = cell_file(small_board, "crcl.*caption-40").with_suffix(".npz")
    with np.load(standing) as archive:
        arrays = {
            name: np.where(np.random.RandomState(1).rand(len(archive[name])) < 0.1, 1, archive[name])
            for name in archive
            if re.fullmatch("s0_whole_...", name)
        }
    np.savez_compressed(path, **arrays)
    name = standing.relative_to(small_board / "results").with_suffix("").as_posix()
    assert re.search(
        rf"\*\*(8|9)\d% of its ranks are near those of `{name}, seed 0`\*\*",
        additions_text(small_board, board),
    )
