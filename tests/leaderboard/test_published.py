import csv
import re
import shutil
from pathlib import Path

import pytest

from leaderboard.boards import boards_of
from leaderboard.methods import family_of, read_families
from leaderboard.published import PUBLISHED, read_published, read_sources
from leaderboard.rows import RECALLS, Row
from ncl_bench.errors import SubmissionError


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read_published(read_families())


def facts() -> list[dict[str, str]]:
    with (PUBLISHED / "results.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_line_of_the_table_becomes_a_row_with_its_printed_numbers(rows: list[Row]) -> None:
    assert len(rows) == len(facts()) == 1058
    for line, row in zip(facts(), rows, strict=True):
        assert [line[name] for name in RECALLS] == [
            "" if value is None else f"{value:.1f}" for value in row.recalls.values.values()
        ]
        assert row.status == "reported"


def test_printed_sums_that_disagree_are_marked_with_both_numbers(rows: list[Row]) -> None:
    disagreeing = [row for row in rows if row.printed_gap is not None]
    assert len(disagreeing) == 18
    for row in disagreeing:
        assert any(
            f"{row.printed_r_sum:.1f}" in doubt and f"{row.recalls.r_sum:.1f}" in doubt
            for doubt in row.doubts
        )


def test_an_impossible_row_is_kept_and_marked(rows: list[Row]) -> None:
    impossible = [row for row in rows if row.recalls.falling]
    assert [(row.source, row.method) for row in impossible] == [("rcl2023", "IMRAM")]
    assert any("impossible" in doubt for doubt in impossible[0].doubts)


def test_numbers_in_remarks_stand_in_the_table(rows: list[Row]) -> None:
    known = {
        f"{value:.1f}"
        for row in rows
        for value in (*row.recalls.values.values(), row.r_sum)
        if value is not None
    }
    text = (PUBLISHED / "notes.yaml").read_text(encoding="utf-8")
    quoted = set(re.findall(r"\b\d{2,3}\.\d\b", text))
    assert quoted
    assert quoted <= known


def test_noise_of_unknown_unit_stays_unknown(rows: list[Row]) -> None:
    units = {row.cell.noise_unit for row in rows}
    assert units == {"none", "caption", "image", "unknown", "natural"}
    assert sum(row.cell.noise_unit == "unknown" for row in rows) == sum(
        f["noise_unit"] == "unknown" for f in facts()
    )


def test_pretrained_encoders_are_told_from_region_features(rows: list[Row]) -> None:
    pretrained = {row.backbone for row in rows if row.features == "pretrained"}
    assert pretrained == {"CLIP", "CLIP ViT-B/32", "CLIP ViT-L/14", "ALIGN"}


def test_rows_of_pc2_were_chosen_on_test_say_so_and_take_no_rank(rows: list[Row]) -> None:
    chosen = [row for row in rows if row.selection == "test"]
    assert {row.family for row in chosen} == {"pc2"}
    assert len(chosen) == sum(row.family == "pc2" for row in rows) == 11
    assert not any(row.ranked for row in chosen)
    for board in boards_of(rows):
        for entry in (entry for division in board.divisions for entry in division.rows):
            assert entry.rank is None or entry.row.selection != "test"


def test_rows_under_image_noise_name_the_published_files(rows: list[Row]) -> None:
    assert {row.noise for row in rows if row.cell.noise_unit == "image"} == {"published image files"}
    assert {row.noise for row in rows if row.cell.noise_unit != "image"} == {""}
    l2rm = [row for row in rows if row.family == "l2rm" and row.cell.noise_unit == "unknown"]
    assert l2rm
    assert all("published image files" in " ".join(row.notes) for row in l2rm)


def test_every_method_and_source_has_its_entry(rows: list[Row]) -> None:
    families, sources = read_families(), read_sources()
    assert {row.family for row in rows} <= set(families)
    assert {row.source for row in rows} == set(sources)
    assert all(family.summary.endswith((".", ").")) for family in families.values())
    assert {source.method for source in sources.values()} <= set(families)


def test_names_find_their_family_in_any_case() -> None:
    families = read_families()
    assert family_of("crcl", families) == family_of("CRCL-SGR (active loss only + SCC)", families) == "crcl"
    assert family_of("SGR*", families) == "sgraf"
    assert family_of("my own", families) == ""


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("results.csv", "ncr2021,Table 1,SCAN", "nobody,Table 1,SCAN", r"results.csv:\d+: source 'nobody'"),
        ("results.csv", "SCAN,SCAN,flickr30k", "NEW,SCAN,flickr30k", r"results.csv:\d+: method 'NEW'"),
        ("results.csv", "SCAN,SCAN,flickr30k", "SCAN,SCAN,flickr31k", r"results.csv:\d+: .*dataset"),
        ("results.csv", "67.4", "167.4", r"results.csv:\d+: recalls.i2t_r1"),
        ("results.csv", "67.4", "6x", "holds '6x'"),
        ("notes.yaml", "method: NCR-single", "method: NCR-double", "rule \\d+ fits no row"),
        ("notes.yaml", "kind: oracle", "kind: magic", "rule \\d+: kind"),
    ],
)
def test_a_damaged_table_is_refused_with_file_and_place(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    shutil.copytree(PUBLISHED, tmp_path / "published")
    path = tmp_path / "published" / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SubmissionError, match=message):
        read_published(read_families(), tmp_path / "published")
