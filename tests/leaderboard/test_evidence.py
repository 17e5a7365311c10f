"""Ranks of a cell's seeds in one file: the same bytes each time, and nothing read that was not checked."""

import hashlib
import io
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from support.damaged import npy
from support.refusals import refused

from leaderboard.rank_files import read_pairs, read_ranks, write_ranks
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


def counted(spec="digits", **changed):
    return replace(Counted(ranks(spec), None, None, ""), **changed)


def back(folder, written, spec=DIGITS, keys=("0",)):
    """What is read of the results of some seeds after they were written."""
    write_ranks(folder / "a.npz", written if isinstance(written, dict) else {"0": written})
    found = read_ranks(folder / "a.npz", keys, spec)
    return found if isinstance(written, dict) else found["0"]


@pytest.mark.parametrize("known", [True, False])
def test_ranks_come_back_with_their_ties(tmp_path, known):
    written = {str(seed): counted(whole=ranks(seed=seed, known=known)) for seed in (0, 3)}
    found = back(tmp_path, written, keys=["0", "3"])
    assert all(same(found[seed].whole, written[seed].whole) for seed in written)
    write_ranks(tmp_path / "b.npz", found)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_folds_are_kept_where_the_dataset_has_some(tmp_path):
    written = counted("coco", folds=ranks("coco", worst=1000, known=False))
    found = back(tmp_path, written, COCO)
    assert same(found.whole, written.whole)
    assert same(found.folds, written.folds)


SAID = np.array([0, 0b010101, 128 | 0b010101, 0b111111], np.uint8)
SORTED = hashlib.sha256(bytes([0, 0b010101, 0b010101, 0b111111])).hexdigest()
JUDGED = replace(DIGITS, judged={"expert": (4, SORTED)})


def influences(n):
    drawn = np.random.default_rng(0).normal(size=n)
    return (drawn - drawn.mean()).astype(np.float32)


CROSSED = {
    "pairs": np.array([3, 0, 1, 2], np.uint16),
    "images": influences(200),
    "captions": influences(1_000),
}


def test_what_people_say_comes_back_in_the_order_of_the_scores(tmp_path):
    """And so does what a test over images and captions needs."""
    found = back(tmp_path, counted(judged={"expert": SAID}, crossed=CROSSED), JUDGED)
    for read, written in ((found.judged, {"expert": SAID}), (found.crossed, CROSSED)):
        assert read.keys() == written.keys()
        for name, one in written.items():
            np.testing.assert_array_equal(read[name], one)
            assert read[name].dtype == one.dtype
    assert back(tmp_path, counted(), JUDGED).judged == {}  # added without the dataset


def with_rank(rank):
    made = ranks(known=False)
    made.t2i[7] = rank
    return {"whole": made}


WRONG = [
    *(
        {"judged": {"expert": said}}
        for said in (SAID ^ np.array([1, 0, 0, 0], np.uint8), SAID[:3], SAID.astype(np.int64))
    ),
    *(
        {"judged": {"expert": SAID}, "crossed": CROSSED | changed}
        for changed in (
            {"pairs": np.array([3, 0, 1, 1], np.uint16)},
            {"images": influences(200) + np.float32(0.1)},
            {"captions": np.full(1_000, np.nan, np.float32)},
            {"images": np.array([np.inf, -np.inf] * 100, np.float32)},
            {"captions": influences(999)},
            {"images": influences(200).astype(np.float64)},
        )
    ),
    with_rank(0),
    with_rank(201),
]


@pytest.mark.parametrize("changed", WRONG)
def test_what_no_scores_and_no_judgements_give_is_refused(tmp_path, changed):
    with refused(SubmissionError):
        back(tmp_path, counted(**changed), JUDGED)


@pytest.mark.parametrize(
    ("written", "spec", "keys", "item"),
    [
        (counted("coco"), COCO, ["0"], "s0_folds_i2t"),
        ({"0": counted(), "1": counted()}, DIGITS, ["0", "1", "2"], "s2_whole_i2t"),
    ],
)
def test_what_is_missing_is_named(tmp_path, written, spec, keys, item):
    with refused(SubmissionError, f"no item named '{item}"):
        back(tmp_path, written, spec, keys)


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
    with refused(SubmissionError):
        read_ranks(tmp_path / "a.npz", ["0"], DIGITS)


def test_a_zip_that_declares_terabytes_is_refused_unread(tmp_path):
    path = tmp_path / "a.npz"
    write_ranks(path, {"0": counted()})
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(content)
    with refused(SubmissionError):
        read_ranks(path, ["0"], DIGITS)


def test_arrays_of_another_seed_are_not_read(tmp_path):
    written = {str(seed): counted(whole=ranks(seed=seed)) for seed in (0, 1)}
    found = back(tmp_path, written)
    assert list(found) == ["0"]
    assert same(found["0"].whole, ranks(seed=0))


@pytest.mark.parametrize("names", [("similarity",), ("similarity", "clean_probability")])
def test_what_networks_say_of_training_pairs_comes_back(names, tmp_path):
    said = np.random.default_rng(0).random((len(names), 10_000)).astype(np.float16)
    pairs = dict(zip(names, said, strict=True))
    np.savez(tmp_path / "pairs.npz", **pairs)
    for found in (back(tmp_path, counted(pairs=pairs)).pairs, read_pairs(tmp_path, DIGITS)):
        assert found.keys() == pairs.keys()
        assert all(np.array_equal(found[name], pairs[name]) for name in names)


@pytest.mark.parametrize(
    "values", [np.zeros(9_999, np.float16), np.zeros(10_000), np.full(10_000, np.nan, np.float16)]
)
def test_what_is_not_said_of_every_pair_is_refused(values, tmp_path):
    np.savez(tmp_path / "pairs.npz", similarity=values)
    with refused(SubmissionError):
        read_pairs(tmp_path, DIGITS)
