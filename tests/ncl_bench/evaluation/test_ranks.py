"""Counted ranks equal the definition, whatever the block, the threads, the type or the layout."""

import mmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles.ranks import ranks_by_definition
from support.refusals import refused

from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.ranks import Ranks, count_ranks
from ncl_bench.evaluation.scores import ArrayRows

NAMES = ("i2t", "t2i", "i2t_optimistic", "t2i_optimistic")


def count(matrix, each, fold=None, **options):
    return count_ranks(ArrayRows(matrix), captions_per_image=each, images_per_fold=fold, **options)


def assert_equal(found, expected):
    assert (found is None) == (expected is None)
    for name in NAMES if found is not None else ():
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def by_definition(matrix, each, fold=None):
    values = matrix.astype(float).tolist()
    found = [ranks_by_definition(values, each, fold, optimistic=optimistic) for optimistic in (False, True)]
    return Ranks(*(np.array(found[tie][side]) for tie in (0, 1) for side in (0, 1)))


@st.composite
def matrices(draw):
    """Similarities with few distinct values, so that ties abound; captions per image; images per fold."""
    each, fold, folds = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    n_images = fold * folds
    levels = draw(st.integers(1, 8))
    values = st.integers(-levels, levels).map(lambda k: np.float32(k / 4))
    return draw(arrays(np.float32, (n_images, n_images * each), elements=values)), each, fold


@given(matrices())
@settings(max_examples=60)
def test_ranks_equal_the_definition(case):
    matrix, each, fold = case
    found = count(matrix, each, fold)
    assert_equal(found.whole, by_definition(matrix, each))
    assert_equal(found.folds, by_definition(matrix, each, fold))
    assert found.range == (matrix.min(), matrix.max())


@given(matrices(), st.sampled_from([1, 2, 7, 10_000]), st.integers(1, 3))
@settings(max_examples=40)
def test_blocks_and_threads_change_nothing(case, block, threads):
    matrix, each, fold = case
    found, expected = count(matrix, each, fold, block=block, threads=threads), count(matrix, each, fold)
    assert_equal(found.whole, expected.whole)
    assert_equal(found.folds, expected.folds)


@given(matrices())
@settings(max_examples=40)
def test_upcast_layout_and_byte_order_change_nothing(case):
    matrix, each, fold = case
    expected = count(matrix, each, fold)
    for same in (
        matrix.astype(np.float16),
        matrix.astype(np.float64),
        matrix.astype(">f4"),
        np.asfortranarray(matrix),
        np.repeat(matrix, 2, axis=1)[:, ::2],
    ):
        found = count(same, each, fold)
        assert_equal(found.whole, expected.whole)
        assert_equal(found.folds, expected.folds)


def test_more_rows_than_a_byte_counts():
    matrix = np.zeros((600, 600), np.float32)
    assert count(matrix, 1, block=10_000).whole.t2i.tolist() == [600] * 600


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (3, 7), (9, 19)])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_number_that_is_not_finite_is_named(bad, place, threads):
    matrix = np.zeros((10, 20), np.float32)
    matrix[place] = matrix[9, 19] = bad
    with refused(ScoresError):
        count(matrix, 2, block=2, threads=threads)


def test_large_finite_numbers_pass():
    matrix = np.full((4, 4), np.finfo(np.float32).max)
    assert count(matrix, 1).range == (matrix[0, 0], matrix[0, 0])


def test_a_mapped_file_gives_its_pages_back(tmp_path):
    random = np.random.default_rng(0)
    matrix = random.normal(size=(300, 1500)).astype(np.float32)
    np.save(tmp_path / "s.npy", matrix)
    mapped = np.load(tmp_path / "s.npy", mmap_mode="r")
    assert isinstance(mapped.base, mmap.mmap)
    assert_equal(count(mapped, 5, 100).folds, count(matrix, 5, 100).folds)
    np.testing.assert_array_equal(mapped, matrix)
    transposed = np.lib.format.open_memmap(tmp_path / "t.npy", "w+", np.float32, (1500, 300))
    transposed[:] = matrix.T
    assert_equal(count(transposed.T, 5, 100).folds, count(matrix, 5, 100).folds)
    assert_equal(count(mapped[100:200, 500:1000], 5).whole, count(matrix[100:200, 500:1000].copy(), 5).whole)
