"""The table of a paper, with the user's row in it."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.board_rows import row
from support.command import invoke
from support.refusals import refused

import leaderboard
from leaderboard.board import board_of, boards, read_content
from leaderboard.exports import cited, latex_text, markdown_text, paper_csv, paper_tables
from leaderboard.paper_boards import boards_for, chosen_boards, only_mine, with_mine
from leaderboard.results_frame import FRAME, frame_text
from leaderboard.significance import SignificanceTest
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation import metrics
from ncl_bench.papers import read_papers

PAPERS = read_papers()
RECALLS = (50, 60, 70, 40, 50, 60)


def entry(method, *recalls, **fields):
    return row(recalls, **{"method": method, "source": "ncr2021"} | fields)


def tables_of(*entries):
    (board,) = boards(board_of(entries, SignificanceTest({}, ())))
    return paper_tables(board)


def markdown(*entries):
    return markdown_text(tables_of(*entries), PAPERS)


def test_the_best_ranked_number_of_each_column_is_bold():
    text = markdown(
        entry("A", 50.04, 70, 80, 40, 60, 70, printed_r_sum=371.0),
        entry("B", 50.01, 60, 70, 30, 50, 61),
        entry("C", 90, 91, 92, 93, 94, 95, selection="test"),
        entry("D", 90, 91, 92, 93, 94, 95, doubts=("odd",)),
    )
    rows = {re.sub(r"\W", "", line.split("|")[2]): line for line in text.splitlines() if line.startswith("|")}
    assert rows["A"].startswith(
        "| 1 | A‡ |  | **50.0** | **70.0** | **80.0** | **40.0** | **60.0** | **70.0** | **370.0** |"
    )
    assert rows["B"].startswith("| 2 | B |  | **50.0** | 60.0 | 70.0 |"), "prints the same as the best"
    assert rows["C"].startswith("|  | C† |  | 90.0 |")
    assert rows["D"].startswith("|  | D? |  | 90.0 |")
    assert text.endswith(
        "\n† chosen on test, so not ranked; ? doubtful number, so not ranked; "
        "‡ the paper prints another rSum; this is the sum of its recalls\n"
    )


def test_ties_of_rank_are_marked():
    text = markdown(entry("A", *RECALLS), entry("B", *RECALLS, source="crcl2023"), entry("C", *([10] * 6)))
    rows = [line[:11] for line in text.splitlines() if "| [" in line]
    assert rows == ["| 1= | A | ", "| 1= | B | ", "| 3 | C |  "]
    assert "= shares its rank" in text


def test_a_missing_recall_is_a_dash():
    whole = entry("A", *([1] * 6))
    recalls = whole.recalls.model_copy(update={"i2t_r5": None})
    sum_alone = whole.model_copy(update={"recalls": recalls, "printed_r_sum": 400.0})
    assert "| **1.0** | – | **1.0** |" in markdown(sum_alone)
    assert r"& \textbf{1.0} & -- & \textbf{1.0} &" in latex_text(tables_of(sum_alone))


def test_rows_that_cannot_be_compared_stand_in_tables_of_their_own():
    """Single networks, averages, and each pre-trained encoder."""
    entries = [entry("A", *RECALLS), entry("B", *RECALLS, networks="ensemble")]
    entries += [entry(name, *RECALLS, features="pretrained", encoder=name) for name in ("E", "F")]
    methods = [[line.method for line in table.lines] for table in tables_of(*entries)]
    assert methods == [["A"], ["B"], ["E"], ["F"]]


def test_a_row_of_several_papers_cites_all_of_them():
    tables = tables_of(entry("A", *RECALLS, own=True), entry("A", *RECALLS, source="crcl2023"))
    assert r"\cite{ncr2021,crcl2023} \\" in latex_text(tables)
    assert "[NCR, NeurIPS 2021](" in markdown_text(tables, PAPERS)
    assert next(csv.DictReader(io.StringIO(paper_csv(tables))))["source"] == "ncr2021 crcl2023"
    assert set(cited(tables, PAPERS)) == {"ncr2021", "crcl2023"}


def test_latex_tables_have_equal_columns_and_no_bare_specials(printed):
    for board in boards(printed.rows):
        for text in latex_text(paper_tables(board)).split("\n\n"):
            body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
            assert len(body) > 1
            ranked = r"\begin{tabular}{rllrrrrrrrl}" in text
            assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {9 + ranked}
            code = re.sub(r"\\cite\{.*?\}|^%.*", "", text, flags=re.MULTILINE)
            assert not re.search(r"(?<!\\)[%#_∞±†‡–]", code)


def beside_mine(root, mine, published=False):
    """Tables of the board of the digits with my submissions."""
    content, files = with_mine(read_content(root, published=published), mine, root)
    (board,) = only_mine(boards_for(content.rows, "digits", "caption-40"), files, content.rows)
    return paper_tables(board, files)


@pytest.mark.parametrize("seeds", [(3, 4, 5), (3, 4), (3,)])
def test_my_row_stands_among_those_it_is_compared_with(ranked_board, make, tmp_path, seeds):
    """With three seeds it takes a rank; with fewer it stands below worse rows, with an interval of its rSum."""
    folders = [make(tmp_path / f"mine{seed}", method="Mine", difficulty=1.2, seed=seed) for seed in seeds]
    (table,) = beside_mine(ranked_board, folders, published=True)
    ranked = len(seeds) == 3
    above = [("1", "Mine", "ours")] if ranked else []
    below = [] if ranked else [("", "Mine§", "ours")]
    best = len(above) + 1
    others = [
        (str(best), "CRCL", "submitted"),
        (str(best + 1), "Triplet (hardest)", "submitted"),
    ]
    assert [(line.rank, line.method, line.origin) for line in table.lines] == [
        *above,
        *others,
        *below,
    ]
    (mine,) = (line for line in table.lines if line.origin == "ours")
    spread = r" ± \d+\.\d" * (len(seeds) > 1) + r" \(\d+\.\d–\d+\.\d\)" * (not ranked)
    assert re.fullmatch(r"\d+\.\d" + spread, mine.values["r_sum"]), "seeds make one row"
    assert not any(line.values[name].endswith(")") for line in table.lines for name in metrics.RECALLS)
    assert ("preliminary: fewer than 3 training seeds" in "".join(table.notes)) == (not ranked)
    assert (r"Mine$^{\S}$ &" in latex_text([table])) == (not ranked)
    assert len(list((ranked_board / "results").rglob("*.yaml"))) == 4, "nothing is added"


def test_the_rows_of_one_dataset_are_those_among_all(whole_board):
    root, name = Path(leaderboard.__file__).parent, "pictograms-web"
    alone = read_content(root, published=True, dataset=name)
    assert {row.condition.dataset for row in alone.rows if row.status != "reported"} == {name}
    both = (
        [row.model_copy(update={"number": 0}) for row in content.rows if row.condition.dataset == name]
        for content in (alone, whole_board)
    )
    assert next(both) == next(both)


def test_a_submission_on_the_board_of_another_dataset_is_told(small_board):
    standing = small_board.parent / "submitted" / "0-0"
    with refused(SubmissionError):
        chosen_boards("flickr30k", "caption-40", [standing], small_board)


def test_a_row_that_the_test_cannot_tell_from_mine_shares_its_rank(ranked_board, make, tmp_path):
    mine = [make(tmp_path / str(seed), method="Mine", seed=seed) for seed in (7, 8, 11)]
    (table,) = beside_mine(ranked_board, mine)
    assert [line.rank for line in table.lines] == ["1=", "1=", "3"]


def test_a_submission_on_the_board_is_its_row_there(small_board):
    (table,) = beside_mine(small_board, [small_board.parent / "submitted" / "0-0"])
    origins = {line.method: line.origin for line in table.lines}
    assert origins == {"CRCL§": "ours", "Triplet (hardest)§": "submitted"}, "two seeds are preliminary"


def test_what_is_not_on_the_board_is_told(small_board, make, tmp_path):
    content = read_content(small_board, published=False)
    for asked in (
        ("digit", "caption-40"),
        ("digits", "caption40"),
        ("digits", "caption-40", "5k"),
        ("flickr30k", "caption-40"),
    ):
        with refused():
            boards_for(content.rows, *asked)
    content, files = with_mine(content, [make(tmp_path / "mine", ratio=0.6, seed=9)], small_board)
    with refused(SubmissionError):
        only_mine(boards_for(content.rows, "digits", "caption-40"), files, content.rows)


def test_two_submissions_of_one_seed_are_refused(small_board, make, tmp_path):
    mine = [make(tmp_path / str(difficulty), method="Mine", difficulty=difficulty) for difficulty in (1, 2)]
    with refused(SubmissionError):
        with_mine(read_content(small_board, published=False), mine, small_board)


def test_the_command_prints_every_format(small_board, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begins = {"markdown": "**Digits", "latex": "% Digits", "csv": "table,rank,", "bibtex": ""}
    for form, begin in begins.items():
        options = ["--dataset", "digits", "--noise", "caption-40", "--format", form]
        done = invoke("leaderboard", "table", "--root", small_board, *options)
        assert done.stdout.startswith(begin)
        assert not any(tmp_path.iterdir())


def test_an_installed_package_has_the_measured_rows(whole_board, make, tmp_path, monkeypatch):
    """It said that "the leaderboard has no row of digits"."""
    from leaderboard import calls, cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "ROOT", Path("leaderboard"))
    (tmp_path / "package").mkdir()
    monkeypatch.setattr(cli, "HERE", tmp_path / "package")
    monkeypatch.setattr(calls, "__file__", str(tmp_path / "package" / "calls.py"))
    text = frame_text(whole_board.seeds, whole_board.rows, "0")
    (tmp_path / "package" / FRAME).write_text(text, "utf-8")
    words = ["leaderboard", "table", "--dataset", "digits", "--noise", "caption-40", "--format", "csv"]
    words += ["--root", "leaderboard"]
    lines = list(csv.DictReader(io.StringIO(invoke(*words).stdout)))
    shown = {board.condition.slug: paper_tables(board) for board in boards(whole_board.rows)}
    assert list(csv.DictReader(io.StringIO(paper_csv(shown["digits-200-caption-40"])))) == lines
    assert len(lines) > 20
    frame = leaderboard.load_results()
    assert frame["r_sum"].tolist() == [
        entry.r_sum or pytest.approx(np.nan, nan_ok=True) for entry in whole_board.seeds
    ]
    mine = [make(tmp_path / "mine", method="Mine", difficulty=1.0)]
    shown_with_mine = invoke(*words, "--mine", str(*mine))
    told = "your rows take no rank here: it needs the ranks of every query of the others"
    assert told in shown_with_mine.stderr
    own = {line["method"]: line["rank"] for line in csv.DictReader(io.StringIO(shown_with_mine.stdout))}
    others = {line["method"]: line["rank"] for line in lines if line["table"] == lines[0]["table"]}
    assert own == others | {"Mine§": ""}


def test_a_matrix_stands_beside_the_papers(tmp_path):
    path = tmp_path / "mine.npy"
    scores = np.random.default_rng(0).standard_normal((1000, 5000), np.float32)
    np.save(path, scores)
    frame = leaderboard.table("flickr30k", "caption-40", mine=path)
    (own,) = frame[frame["mine"]].itertuples()
    assert own.method == "mine"
    assert own.rank is pd.NA
    assert own.r_sum < 10
    assert set(frame["table"]) == {"Region features, single network"}


def test_every_noise_of_a_dataset_has_a_table(small_board, tmp_path):
    shown = invoke("leaderboard", "table", "--dataset", "digits", "--root", small_board)
    assert shown.stdout.count("**Digits, 200 test images, ") == 2
    (tmp_path / "mine.npy").write_bytes(b"")
    with refused(SubmissionError):
        leaderboard.table("digits", mine=tmp_path / "mine.npy", root=small_board)


def test_own_rows_may_have_a_label_and_no_other_row(small_board):
    standing = small_board.parent / "submitted" / "0-0"
    frame = leaderboard.table("digits", "caption-40", mine=standing, label="Ours", root=small_board)
    assert sorted(zip(frame["mine"], frame["method"], strict=True)) == [
        (False, "Triplet (hardest)"),
        (True, "Ours"),
    ]
    command = "leaderboard table --dataset digits --noise caption-40 --format latex --label Ours --root"
    shown = invoke(*command.split(), small_board, "--mine", standing)
    assert r"Ours$^{\S}$ &" in shown.stdout, "with the mark of a preliminary row"
    with refused(SubmissionError):
        leaderboard.table("digits", "caption-40", root=small_board / "nowhere")


def test_all_networks_in_one_table():
    frame = leaderboard.table("flickr30k", "caption-40", every=True)
    merged = frame[frame["table"].str.startswith("Single networks and ensembles")]
    assert merged["r_sum"].is_monotonic_decreasing
    assert merged["rank"].isna().all()
    assert merged["method"].str.endswith("(ensemble)").any()
    assert not merged["method"].str.endswith("(ensemble)").all()


def test_json_and_no_ranks():
    options = ["leaderboard", "table", "--dataset", "flickr30k", "--noise", "caption-40"]
    rows = json.loads(invoke(*options, "--json").stdout)
    assert rows[0]["rank"] == 1
    latex = invoke(*options, "--format", "latex", "--no-ranks").stdout
    assert re.search(r"^CRCL-SGR & SGR &", latex, re.MULTILINE)
    assert r"\begin{tabular}{llrrrrrrrl}" in latex
