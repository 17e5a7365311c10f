"""Ranks of a cell's seeds in one file: the same bytes each time, and nothing read that was not checked."""

import hashlib
import io
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from support.damaged import npy

from leaderboard.evidence import read_pairs, read_ranks, write_ranks
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.ranks import Counted, Ranks

DIGITS, COCO = dataset_spec("digits"), dataset_spec("coco")


def ranks(spec="digits", *, seed=0, known=True, worst=None):
    facts, random = dataset_spec(spec), np.random.RandomState(seed)
    i2t, t2i = (
        random.randint(2, worst or facts.images["test"], n)
        for n in (facts.images["test"], facts.n_captions("test"))
    )
    return Ranks(i2t, t2i, i2t - 1, t2i) if known else Ranks(i2t, t2i)


def same(first, second):
    names = ("i2t", "t2i", "i2t_optimistic", "t2i_optimistic")
    return all(np.array_equal(getattr(first, name, None), getattr(second, name, None)) for name in names)


@pytest.mark.parametrize("known", [True, False])
def test_ranks_come_back_with_their_ties(tmp_path, known):
    written = {str(seed): Counted(ranks(seed=seed, known=known), None, None, "") for seed in (0, 3)}
    write_ranks(tmp_path / "a.npz", written)
    found = read_ranks(tmp_path / "a.npz", ["0", "3"], DIGITS)
    assert all(same(found[seed].whole, written[seed].whole) for seed in written)
    write_ranks(tmp_path / "b.npz", found)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_folds_are_kept_where_the_dataset_has_some(tmp_path):
    written = Counted(ranks("coco"), ranks("coco", worst=1000, known=False), None, "")
    write_ranks(tmp_path / "a.npz", {"0": written})
    found = read_ranks(tmp_path / "a.npz", ["0"], COCO)["0"]
    assert same(found.whole, written.whole)
    assert same(found.folds, written.folds)
    write_ranks(tmp_path / "a.npz", {"0": Counted(written.whole, None, None, "")})
    with pytest.raises(SubmissionError, match="no item named 's0_folds_i2t"):
        read_ranks(tmp_path / "a.npz", ["0"], COCO)


SAID = np.array([0, 0b010101, 128 | 0b010101, 0b111111], np.uint8)
SORTED = hashlib.sha256(bytes([0, 0b010101, 0b010101, 0b111111])).hexdigest()


def test_what_people_say_comes_back_in_the_order_of_the_scores(tmp_path):
    spec = replace(DIGITS, judged={"expert": (4, SORTED)})
    write_ranks(tmp_path / "a.npz", {"0": Counted(ranks(), None, None, "", judged={"expert": SAID})})
    found = read_ranks(tmp_path / "a.npz", ["0"], spec)["0"].judged
    np.testing.assert_array_equal(found["expert"], SAID)
    assert found["expert"].dtype == np.uint8
    write_ranks(tmp_path / "a.npz", {"0": Counted(ranks(), None, None, "")})  # added without the dataset
    assert read_ranks(tmp_path / "a.npz", ["0"], spec)["0"].judged == {}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            SAID ^ np.array([1, 0, 0, 0], np.uint8),
            "s0_judged_expert is no order of what people say of digits's pairs",
        ),
        (SAID[:3], "s0_judged_expert holds uint8 of shape"),
        (SAID.astype(np.int64), "s0_judged_expert holds"),
    ],
)
def test_what_nobody_said_is_refused(tmp_path, said, message):
    spec = replace(DIGITS, judged={"expert": (4, SORTED)})
    write_ranks(tmp_path / "a.npz", {"0": Counted(ranks(), None, None, "", judged={"expert": said})})
    with pytest.raises(SubmissionError, match=message):
        read_ranks(tmp_path / "a.npz", ["0"], spec)


def influences(n):
    drawn = np.random.default_rng(0).normal(size=n)
    return (drawn - drawn.mean()).astype(np.float32)


CROSSED = {
    "pairs": np.array([3, 0, 1, 2], np.uint16),
    "images": influences(200),
    "captions": influences(1_000),
}


def with_crossed(**changed):
    return Counted(ranks(), None, None, "", judged={"expert": SAID}, crossed=CROSSED | changed)


def test_what_a_test_over_images_and_captions_needs_comes_back(tmp_path):
    spec = replace(DIGITS, judged={"expert": (4, SORTED)})
    write_ranks(tmp_path / "a.npz", {"0": with_crossed()})
    found = read_ranks(tmp_path / "a.npz", ["0"], spec)["0"].crossed
    assert found.keys() == CROSSED.keys()
    assert all(
        np.array_equal(found[name], one) and found[name].dtype == one.dtype for name, one in CROSSED.items()
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pairs": np.array([3, 0, 1, 1], np.uint16)}, "s0_crossed_pairs is no order of the judged pairs"),
        ({"images": influences(200) + np.float32(0.1)}, "s0_crossed_images add up to 20, influences add up"),
        ({"captions": np.full(1_000, np.nan, np.float32)}, "s0_crossed_captions add up to nan"),
        ({"images": np.array([np.inf, -np.inf] * 100, np.float32)}, "s0_crossed_images add up to nan"),
        ({"captions": influences(999)}, "s0_crossed_captions holds float32 of shape"),
        ({"images": influences(200).astype(np.float64)}, "s0_crossed_images holds float64"),
    ],
)
def test_influences_that_no_order_has_are_refused(tmp_path, changed, message):
    spec = replace(DIGITS, judged={"expert": (4, SORTED)})
    write_ranks(tmp_path / "a.npz", {"0": with_crossed(**changed)})
    with pytest.raises(SubmissionError, match=message):
        read_ranks(tmp_path / "a.npz", ["0"], spec)


@pytest.mark.parametrize(
    ("rank", "message"),
    [(0, "s0_whole_t2i is 0 for query 7, expected 1 to 200"), (201, "is 201 for query 7, expected 1 to 200")],
)
def test_ranks_that_no_scores_give_are_refused(tmp_path, rank, message):
    made = ranks(known=False)
    made.t2i[7] = rank
    write_ranks(tmp_path / "a.npz", {"0": Counted(made, None, None, "")})
    with pytest.raises(SubmissionError, match=message):
        read_ranks(tmp_path / "a.npz", ["0"], DIGITS)


def declaring(shape):
    """The header of an array of this shape, without its numbers."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<u2", "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        npy(np.ones(199, "<u2")),
        npy(-np.ones(200, "<i2")),
        npy(np.ones(200, ">u2")),
        npy(np.ones(200)),
        declaring((2**50,)),
        bytes(10**6),
        b"no array",
    ],
)
def test_arrays_that_are_no_ranks_are_refused(tmp_path, content):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("s0_whole_i2t.npy", content, zipfile.ZIP_DEFLATED)
    with pytest.raises(SubmissionError, match=r"s0_whole_i2t|cannot be read"):
        read_ranks(tmp_path / "a.npz", ["0"], DIGITS)


def test_a_zip_that_declares_terabytes_is_refused_unread(tmp_path):
    path = tmp_path / "a.npz"
    write_ranks(path, {"0": Counted(ranks(known=False), None, None, "")})
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(content)
    with pytest.raises(SubmissionError, match="declares 4,294,967,294 bytes"):
        read_ranks(path, ["0"], DIGITS)


def test_arrays_of_another_seed_are_not_read(tmp_path):
    write_ranks(tmp_path / "a.npz", {str(seed): Counted(ranks(seed=seed), None, None, "") for seed in (0, 1)})
    (only,) = read_ranks(tmp_path / "a.npz", ["0"], DIGITS).items()
    assert only[0] == "0"
    np.testing.assert_array_equal(only[1].whole.i2t, ranks(seed=0).i2t)
    with pytest.raises(SubmissionError, match="no item named 's2_whole_i2t"):
        read_ranks(tmp_path / "a.npz", ["0", "1", "2"], DIGITS)


@pytest.mark.parametrize("names", [("similarity",), ("similarity", "clean_probability")])
def test_what_networks_say_of_training_pairs_comes_back(names, tmp_path):
    said = np.random.default_rng(0).random((len(names), 10_000)).astype(np.float16)
    pairs = dict(zip(names, said, strict=True))
    write_ranks(tmp_path / "a.npz", {"0": Counted(ranks(), None, None, "", pairs=pairs)})
    np.savez(tmp_path / "pairs.npz", **pairs)
    for found in (read_ranks(tmp_path / "a.npz", ["0"], DIGITS)["0"].pairs, read_pairs(tmp_path, DIGITS)):
        assert found.keys() == pairs.keys()
        assert all(np.array_equal(found[name], pairs[name]) for name in names)


@pytest.mark.parametrize(
    "values", [np.zeros(9_999, np.float16), np.zeros(10_000), np.full(10_000, np.nan, np.float16)]
)
def test_what_is_not_said_of_every_pair_is_refused(values, tmp_path):
    np.savez(tmp_path / "pairs.npz", similarity=values)
    with pytest.raises(SubmissionError, match=r"pairs\.npz"):
        read_pairs(tmp_path, DIGITS)
