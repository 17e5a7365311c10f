"""Rows out of order: blocks and whole files that moved are named and repaired; disorder raises no alarm."""

import numpy as np
import pytest

from baselines.audit.cca import cross_fitted
from baselines.audit.judge import judge_embeddings
from baselines.audit.lists import repaired
from baselines.audit.order import FARTHEST, OrderFault, find_order_faults, segments

N = 400


def sides():
    """Vectors of images and of their captions, which share eight directions."""
    random = np.random.default_rng(0)
    shared = random.standard_normal((N, 8))
    return (
        shared @ random.standard_normal((8, 12)) + random.standard_normal((N, 12)) / 2,
        shared @ random.standard_normal((8, 10)) + random.standard_normal((N, 10)) / 2,
    )


def faults_of(source):
    """Faults of a file whose row i carries the caption of row ``source[i]``."""
    images, captions = sides()
    image_of = np.arange(N)

    def fitted(offset):
        return cross_fitted(images, image_of, captions[source], offset=offset, n_folds=3)

    return find_order_faults(fitted, image_of, seed=0)


def shifted(first, last, by):
    source = np.arange(N)
    source[first : last + 1] = np.roll(source[first : last + 1], by)
    return source


@pytest.mark.parametrize("by", [1, -2])
def test_a_block_is_named_and_repaired(by):
    source = shifted(100, 139, by)
    (fault,) = faults_of(source)
    assert fault.offset == -by
    assert abs(fault.first - 100) <= 3
    assert abs(fault.last - 139) <= 3
    captions = list(map(str, source))
    mended = [*map(repaired(captions, np.arange(N), [fault]).get, range(N), captions)]
    assert sum(caption != str(row) for row, caption in enumerate(mended)) <= 8


@pytest.mark.parametrize("by", [1, -3])
def test_a_whole_file_is_named(by):
    (fault,) = faults_of(np.roll(np.arange(N), by))
    assert fault.offset == -by
    assert fault.last - fault.first >= N - 4


def test_a_missing_row_moves_all_that_follow():
    source = np.arange(N)
    source[150:-1] = source[151:]
    (fault,) = faults_of(source)
    assert fault.offset == 1
    assert abs(fault.first - 150) <= 3
    assert fault.last >= N - 3


@pytest.mark.parametrize("kind", ["clean", "some", "a block", "all"])
def test_disorder_is_no_fault_of_order(kind):
    random = np.random.default_rng(1)
    source = np.arange(N)
    rows = {
        "clean": [],
        "some": random.permutation(N)[:60],
        "a block": np.arange(90, 140),
        "all": np.arange(N),
    }
    moved = np.array(rows[kind], int)
    source[moved] = random.permutation(moved)
    assert faults_of(source) == ()


def test_captions_of_one_picture_that_resembles_the_next_are_no_block():
    fits = np.random.default_rng(0).normal(size=(2 * FARTHEST + 1, N)).astype(np.float32)
    fits[FARTHEST] += 3
    five = np.arange(100, 105)
    fits[FARTHEST, five], fits[FARTHEST + 5, five] = -1, 3
    (fault,) = segments(fits, 0, np.arange(N), np.random.default_rng(0))
    assert (fault.first, fault.last) == (100, 104)
    assert segments(fits, 0, np.arange(N) // 5, np.random.default_rng(0)) == ()


def test_embeddings_are_scanned_too():
    random = np.random.default_rng(0)
    images = random.standard_normal((N, 16))
    captions = (images + random.standard_normal((N, 16)) / 2)[shifted(50, 89, 1)]
    found = judge_embeddings(images, captions, np.arange(N))
    (fault,) = found.order_faults
    assert fault.offset == -1
    assert (found.table["reason"] == "order").sum() == fault.last - fault.first + 1


def test_repair_joins_what_a_turn_pushed_out():
    new = repaired([*"01523467"], np.arange(8), [OrderFault(3, 5, -1)])
    assert new == {2: "2", 3: "3", 4: "4", 5: "5"}
