import csv
from pathlib import Path

import pytest

from leaderboard.published import PUBLISHED, import_published
from ncl_bench.errors import SubmissionError

HEAD = (
    "source_key,source_citation,table,method,backbone,dataset,protocol,noise_type,noise_ratio,noise_unit,tokenizer,"
    "i2t_r1,i2t_r5,i2t_r10,t2i_r1,t2i_r5,t2i_r10,rsum_reported,notes"
)
CLEAN = "s,A paper,Table 1,A,B,coco,5k,none,0,,,1.0,2.0,3.0,1.5,2.5,3.5,13.5,a remark"
NATURAL = "s,A paper,Table 1,A,B,cc152k,1k,real,,,,1.0,2.0,3.0,1.5,2.5,3.5,,"


def collected(folder: Path, *lines: str) -> Path:
    path = folder / "collected.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_facts_are_copied_and_remarks_left_out(tmp_path: Path) -> None:
    target = tmp_path / "results.csv"
    assert import_published(collected(tmp_path, HEAD, CLEAN, NATURAL), target) == 2
    rows = list(csv.DictReader(target.read_text(encoding="utf-8").splitlines()))
    assert [row["noise_unit"] for row in rows] == ["none", "natural"]
    assert rows[0]["r_sum"] == "13.5"
    assert "remark" not in target.read_text(encoding="utf-8")


def test_the_committed_table_has_the_shape_that_the_import_writes(tmp_path: Path) -> None:
    import_published(collected(tmp_path, HEAD, CLEAN), tmp_path / "results.csv")
    head = (tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()[0]
    assert (PUBLISHED / "results.csv").read_text(encoding="utf-8").startswith(head + "\n")


def test_a_repeated_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SubmissionError, match=r"collected\.csv:3 repeats line 2"):
        import_published(collected(tmp_path, HEAD, CLEAN, CLEAN), tmp_path / "results.csv")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(SubmissionError, match="no column 'rsum_reported'"):
        import_published(
            collected(tmp_path, HEAD.replace("rsum_reported", "rsum"), CLEAN), tmp_path / "results.csv"
        )
