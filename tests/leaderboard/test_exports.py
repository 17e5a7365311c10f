"""Downloads of the site."""

import csv
import io
import re
import shutil
from pathlib import Path

import pytest
from support.board_rows import rows_on

from leaderboard.board import read_content
from leaderboard.exports import bibtex_text, csv_text, latex, tables
from leaderboard.site import site_files
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.papers import read_papers


def test_the_csv_holds_every_row(small_board):
    rows = read_content(small_board, published=True).rows
    lines = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert len(lines) == 1133 + 4
    for line in lines:
        recalls = [line[name] for name in RECALLS]
        if "" not in recalls:
            assert float(line["r_sum"]) == pytest.approx(sum(map(float, recalls)), abs=0.051)
    measured = [line for line in lines if line["source"] == "submission"]
    assert {line["seeds"] for line in measured} == {"0 1"}
    assert all(float(line["r_sum_std"]) > 0 for line in measured)


def test_papers_that_print_a_part_of_a_line_are_its_sources(printed):
    lines = [line.split(" | ") for line in tables(printed).splitlines() if line.startswith("| BiCro")]
    flickr = [line for line in lines if "504.7" in line]
    assert [(line[0], line[-1]) for line in flickr] == [
        (
            "| BiCro",
            "CRCL, NeurIPS 2023; UCPM, TIP 2025; GSC, CVPR 2024; IN2R, ICML 2026; UGNCL, SIGIR 2024 |",
        )
    ]


def test_lines_with_another_number_are_not_merged(printed):
    text = tables(printed)
    body = text[text.index("### MS-COCO, mean of five 1K folds, caption noise") :].split("###")[1]
    lines = [line for line in body.splitlines() if line.startswith("| NCR | SGR")]
    assert [re.findall(r"51[68]\.\d", line) for line in lines] == [["516.6"], ["518.5"]]


def test_a_preliminary_row_is_marked_wherever_rows_are_written(ranked_board, put, tmp_path):
    """One seed of a better method: below the ranked rows in the tables, marked in the file and on the page."""
    board = Path(shutil.copytree(ranked_board, tmp_path / "board"))
    put(board, method="Lone", difficulty=1.0)
    content = read_content(board, published=False)
    lines = list(csv.DictReader(io.StringIO(csv_text(content.rows))))
    (lone,) = (line for line in lines if line["preliminary"])
    assert (lone["method"], lone["rank"], lone["preliminary"]) == ("Lone", "", "yes")
    assert float(lone["r_sum_low"]) < float(lone["r_sum"]) < float(lone["r_sum_high"])
    assert {line["r_sum_low"] for line in lines if line["method"] != "Lone"} == {""}
    rows = [line.split(" | ") for line in tables(content).splitlines() if "submitted" in line]
    assert [(row[0], row[-2]) for row in rows] == [
        ("| CRCL", "submitted"),
        ("| Triplet (hardest)", "submitted"),
        ("| Lone", "submitted, preliminary"),
    ]
    page = site_files(content, {}, tmp_path)["index.html"]
    (row,) = re.findall(r"<tr[^>]*data-preliminary>.*?</tr>", page, re.S)
    assert '<span class="badge">preliminary</span>' in row
    low, high = (f"{float(lone[name]):.1f}" for name in ("r_sum_low", "r_sum_high"))
    assert f"<small>{low}–{high}</small>" in row


def test_a_spreadsheet_computes_no_cell(put, tmp_path):
    """``=HYPERLINK(...)`` stood in the file as it was submitted."""
    put(tmp_path / "board", extra_clean_data="+1+1", notes='=HYPERLINK("https://example.org")')
    (line,) = csv.DictReader(io.StringIO(csv_text(rows_on(tmp_path / "board"))))
    assert line["notes"].startswith("'\u2060=HYPERLINK")
    assert line["extra"] == "'\u2060+1+1"
    assert not any(str(value).startswith(("=", "+", "-", "@")) for value in line.values())


def test_a_text_runs_nothing_in_latex():
    assert latex("\\input{/etc/passwd} ^^M ~ 5 % _a") == (
        r"\textbackslash{}input\{/etc/passwd\} \textasciicircum{}\textasciicircum{}M \textasciitilde{} 5 \% \_a"
    )
    assert latex("a\nb\rc") == "a b c"
    paper = next(iter(read_papers().values()))
    text = bibtex_text({"a": paper.model_copy(update={"title": "}},\n\\input{x}", "authors": "\\write"})})
    assert "\\input" not in text
    assert "\\write" not in text


def test_bibtex_has_one_entry_per_source():
    papers = read_papers()
    text = bibtex_text(papers)
    assert re.findall(r"@misc\{(\w+),", text) == sorted(papers)
    assert text.count("{") == text.count("}")
