import csv
import re
from collections import defaultdict

import pytest

from leaderboard.board import board_of
from leaderboard.read_entries import read_published
from leaderboard.significance import SignificanceTest
from ncl_bench.data import DATASETS
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.papers import (
    PUBLISHED,
    PrintedLine,
    family_of,
    read_families,
    read_papers,
    read_printed,
    read_rows,
    read_rules,
)


@pytest.fixture(scope="module")
def entries():
    return read_published(read_families())


def ranked_rows(entries):
    return board_of(entries, SignificanceTest({}, ()))


def facts():
    with (PUBLISHED / "results.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_line_of_the_table_becomes_a_row_with_its_printed_numbers(entries):
    assert len(entries) == len(facts()) == 1133
    for line, entry in zip(facts(), entries, strict=True):
        assert [line[name] for name in RECALLS] == [
            "" if value is None else f"{value:.1f}" for value in entry.recalls.values.values()
        ]
        assert entry.status == "reported"
        assert entry.r_sum is not None or any(entry.recalls.values.values())
        condition, spec = entry.condition, DATASETS[entry.condition.dataset]
        assert condition.protocol in spec.protocols
        assert (
            (condition.noise_unit == "natural")
            == (spec.noise == "natural")
            == (condition.noise_ratio is None)
        )
        assert (condition.noise_unit == "none") == (condition.noise_ratio == 0)


def test_a_printed_sum_that_disagrees_is_told_with_both_numbers_and_the_recalls_decide_the_rank(
    entries,
):
    disagreeing = [entry for entry in entries if entry.printed_gap is not None]
    assert len(disagreeing) == 19
    for entry in disagreeing:
        told = f" prints rSum {entry.printed_r_sum:.1f}; its recalls add up to {entry.recalls.r_sum:.1f} ("
        assert told in entry.notes[0]
        assert entry.r_sum == entry.recalls.r_sum
        known = entry.kind == "method" and entry.condition.noise_unit != "unknown"
        assert entry.ranked == (known and not entry.doubts)
    assert any(entry.ranked for entry in disagreeing)


def test_methods_whose_published_evaluation_averages_two_networks_stand_among_the_ensembles(entries):
    assert {e.networks for e in entries if e.family in ("in2r", "sps")} == {"ensemble"}


def test_an_impossible_row_is_kept_and_marked(entries):
    impossible = [entry for entry in entries if entry.recalls.falling]
    assert [(entry.source, entry.method) for entry in impossible] == [("rcl2023", "IMRAM")]
    assert any("impossible" in doubt for doubt in impossible[0].doubts)


def test_numbers_in_remarks_stand_in_the_table(entries):
    known = {
        f"{value:.1f}"
        for entry in entries
        for value in (*entry.recalls.values.values(), entry.r_sum)
        if value is not None
    }
    text = (PUBLISHED / "notes.yaml").read_text("utf-8")
    quoted = set(re.findall(r"\b\d{2,3}\.\d\b", text))
    assert quoted
    assert quoted <= known


def test_no_row_of_unknown_unit_takes_a_rank(entries):
    unknown = [row.rank for row in ranked_rows(entries) if row.condition.noise_unit == "unknown"]
    assert len(unknown) == 134
    assert set(unknown) == {None}


def test_rows_that_were_chosen_on_test_say_so_and_take_no_rank(entries):
    chosen = [entry for entry in entries if entry.selection == "test"]
    assert {entry.family for entry in chosen} == {"pc2", "in2r"}
    assert all(
        entry in chosen for entry in entries if entry.family == "pc2" or entry.source == "in2r2026_repo"
    )
    assert all("on the test split" in " ".join(entry.notes) for entry in chosen)
    assert not any(entry.ranked for entry in chosen)
    assert {row.rank for row in ranked_rows(entries) if row.selection == "test"} == {None}


def test_rows_under_image_noise_name_the_published_files(entries):
    assert {entry.noise for entry in entries if entry.condition.noise_unit == "image"} == {
        "published image files"
    }
    assert {entry.noise for entry in entries if entry.condition.noise_unit != "image"} == {""}
    l2rm = [entry for entry in entries if entry.family == "l2rm" and entry.condition.noise_unit == "unknown"]
    assert l2rm
    assert all("published image files" in " ".join(entry.notes) for entry in l2rm)


def test_every_method_and_source_has_its_entry(entries):
    families, papers = read_families(), read_papers()
    assert {entry.family for entry in entries} <= set(families)
    assert {entry.source for entry in entries} == set(papers)
    assert all(family.summary.endswith((".", ").")) for family in families.values())
    assert {source.method for source in papers.values()} <= set(families)


def test_names_find_their_family_in_any_case():
    families = read_families()
    assert family_of("crcl", families) == family_of("CRCL-SGR (active loss only + SCC)", families) == "crcl"
    assert family_of("SGR*", families) == "sgraf"
    assert family_of("my own", families) == ""


def test_every_remark_fits_a_row_and_rows_that_repeat_another_state_its_unit():
    printed, rules = read_printed(read_families()), read_rules()
    assert {str(rule) for each in printed for rule in each.rules} == {str(rule) for rule in rules}
    assert {name for rule in rules for name in rule.where} <= {*PrintedLine.model_fields}
    recalls = {}
    for row in (each.row for each in printed):
        place = (row.source, row.table, row.method, row.dataset, row.protocol, row.noise_ratio)
        recalls.setdefault(place, set()).add(row.noise_unit)
    for each in printed:
        for same in filter(None, (rule.same_as for rule in each.rules)):
            row = each.row
            place = (same.source, same.table, same.method, row.dataset, row.protocol, row.noise_ratio)
            assert row.noise_unit in recalls[place], each.where


def test_what_looks_like_a_formula_is_read_as_it_was(tmp_path):
    lines = (PUBLISHED / "results.csv").read_text("utf-8").splitlines()
    table = next(csv.DictReader(lines))["table"]
    (tmp_path / "results.csv").write_text(
        "\n".join([lines[0], lines[1].replace(table, "'=1+1", 1)]) + "\n", encoding="utf-8"
    )
    (row,) = read_rows(tmp_path).values()
    assert row.table == "=1+1"


def test_papers_that_print_other_numbers_for_a_row_are_named_at_it(entries):
    disagreeing, printed = 0, defaultdict(set)
    for entry in entries:
        if entry.r_sum is not None:
            printed[entry.quoted_as].add(f"{entry.r_sum:.1f}")
    for entry in entries:
        sums = printed[entry.quoted_as] - {f"{entry.r_sum or 0:.1f}"}
        remarks = [note for note in entry.notes if note.startswith("Other papers print another rSum: ")]
        assert len(remarks) == (entry.r_sum is not None and bool(sums))
        if remarks:
            disagreeing += 1
            assert any(value in remarks[0] for value in sums)
    assert disagreeing > 10
