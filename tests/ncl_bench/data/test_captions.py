"""Text files of the published layouts: what comes in comes out, whatever the line ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.damaged import assert_damage_is_refused, was_read

from ncl_bench.data.captions import read_lines, read_table, read_token_ids, unique_ids
from ncl_bench.errors import DataError

WORDS = st.text(st.characters(exclude_characters="\n\r\t\ufeff", exclude_categories=["Cs"]), min_size=1)
LINES = st.lists(WORDS.map(str.strip).filter(bool), min_size=1)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(0, 3))
def test_lines_come_back_as_they_were(lines, end, marked, n_blank):
    content = ("\ufeff" if marked else "") + "".join(line + end for line in lines) + end * n_blank
    assert read_lines(content.encode(), "x") == lines


@given(st.lists(st.tuples(WORDS.map(str.strip).filter(bool), WORDS.map(str.strip).filter(bool)), min_size=1))
def test_tables_come_back_as_they_were(rows):
    content = "".join(f"{own}\t{caption}\textra\n" for own, caption in rows)
    ids, captions = read_table(content.encode(), "x")
    assert list(zip(ids, captions, strict=True)) == rows


@given(st.lists(st.lists(st.integers(0, 99)), min_size=1))
def test_token_ids_come_back_between_start_and_end(captions):
    content = "".join(",".join(map(str, ids)) + ("," if ids else "") + "\n" for ids in captions)
    table = read_token_ids(content.encode(), "x", start=1, end=2, size=100, at_least=len(captions))
    assert len(table) == len(captions)
    for c, ids in enumerate(captions):
        assert table.ids[table.offsets[c] : table.offsets[c + 1]].tolist() == [1, *ids, 2]


@given(st.lists(WORDS, min_size=1, unique=True), st.integers(1, 5))
def test_ids_may_be_repeated_in_a_row(ids, repeat):
    assert unique_ids([own for own in ids for _ in range(repeat)], len(ids), repeat, "x") == ids
    assert unique_ids(ids, len(ids), repeat, "x") == ids


@given(st.permutations(["a", "a", "b", "b", "c", "c"]))
def test_ids_repeated_out_of_order_are_refused(ids):
    whole = all(ids[i] == ids[i + 1] for i in (0, 2, 4))
    if whole:
        assert sorted(unique_ids(ids, 3, 2, "x")) == ["a", "b", "c"]
    else:
        with pytest.raises(DataError, match=r"^x line \d: id "):
            unique_ids(ids, 3, 2, "x")


def test_damaged_text_files_are_read_or_refused():
    readers = (
        lambda content: read_lines(content, "lines"),
        lambda content: read_table(content, "table"),
        lambda content: read_token_ids(content, "ids", start=1, end=2, size=20).take(np.arange(1)),
        lambda content: unique_ids(read_lines(content, "ids"), 2, 2, "ids"),
    )
    rows = [b"a dog\nruns\n", b"0001_1\ta dog\n0002_4\truns\n", b"4,5,6,\n7,8\n", b"7\n7\n9\n9\n"]
    tokens = (b"\xef\xbb\xbf", b"\x85", "\u2028".encode(), b",", b"_", "٣".encode())
    seeds = [*rows, "狗\r\n\r\n".encode()]
    assert_damage_is_refused(seeds, lambda content: [was_read(read, content) for read in readers], tokens)
