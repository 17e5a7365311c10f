"""The computed numbers beside their evidence: read as they stand, never for other evidence, recomputed by the check."""

import json
import re
import shutil
from pathlib import Path

import pytest
from support.refusals import refused

import leaderboard
from leaderboard.build import build, check
from leaderboard.results_frame import FRAME, frame_text, read_frame, rows_of
from ncl_bench.errors import SubmissionError
from ncl_bench.papers import PUBLISHED


@pytest.fixture
def built(board, tmp_path):
    """A small board with few printed rows, built."""
    place = Path(shutil.copytree(PUBLISHED, board / "published"))
    lines = (place / "results.csv").read_text("utf-8").splitlines(keepends=True)
    (place / "results.csv").write_text("".join(lines[:3]), "utf-8")
    (place / "notes.yaml").write_text("rules: []\n", "utf-8")
    build(board, tmp_path / "site")
    return board


def test_rows_and_results_of_the_frame_are_those_that_were_computed(whole_board, tmp_path):
    (tmp_path / FRAME).write_text(frame_text(whole_board.seeds, whole_board.rows, "0"), "utf-8")
    lines = read_frame(tmp_path)
    assert lines is not None
    fields = whole_board.seeds[0].model_fields_set | set(type(whole_board.seeds[0]).model_fields)
    for line, entry in zip(lines, whole_board.seeds, strict=True):
        assert all(getattr(line, name) == getattr(entry, name) for name in fields)
    for row, computed in zip(rows_of(lines), whole_board.rows, strict=True):
        assert dict(row) == dict(computed)
    digits = read_frame(tmp_path, "digits") or []
    assert {line.condition.dataset for line in digits} == {"digits"}
    assert len(digits) == sum(entry.condition.dataset == "digits" for entry in whole_board.seeds)


def edited(path):
    text = path.read_text("utf-8")
    line = next(line for line in text.splitlines() if '"method": "CRCL"' in line)
    content = json.loads(line)
    content["recalls"]["i2t_r1"] = 99.5
    path.write_text(text.replace(line, json.dumps(content, ensure_ascii=False)), "utf-8")


def test_the_table_reads_the_frame_and_the_check_recomputes_it(built):
    check(built)
    edited(built / FRAME)
    shown = leaderboard.table("digits", "caption-40", root=built)
    assert shown["i2t_r1"].max() > 60  # mean of 99.5 and another seed
    with refused(SubmissionError):
        check(built)


def test_a_frame_of_other_evidence_is_neither_read_nor_compared(built, put):
    edited(built / FRAME)
    put(built, method="Mine", difficulty=1.2)
    assert read_frame(built) is None
    shown = leaderboard.table("digits", "caption-40", root=built)
    assert "Mine" in set(shown["method"])
    assert shown["i2t_r1"].max() < 99
    check(built)


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        ('"noise_ratio": 0.4', '"noise_ratio": 4'),
        ("{", "["),
        ('{"evidence"', ""),
        ("\n{", "\n"),
        (r"[^\n]*\n$", ""),  # cut at a line end
        (r"\n[^\n]*\n$", ""),
        (', "lines"', ', "rows"'),
    ],
)
def test_a_damaged_frame_is_told(built, pattern, new):
    path = built / FRAME
    path.write_text(re.sub(pattern, new, path.read_text("utf-8")), "utf-8")
    with refused(SubmissionError):
        read_frame(built)
    if path.read_text("utf-8").startswith('{"evidence"'):
        with refused(SubmissionError):
            check(built)
