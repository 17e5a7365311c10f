"""The unit ``similar`` against its definition, and its refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncl_bench.errors import NoiseError
from ncl_bench.noise.similar import exchange_similar, words
from tests.oracles import similar_noise

WORDS = ["red", "apple", "fruit", "Pear", "a_b", "水果", "苹", "x1", "dog", "cat"]


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[str], int, list[int]]:
    """Captions, captions per image, and the order of the draw."""
    each = draw(st.integers(1, 3))
    n_images = draw(st.integers(1, 12))
    caption = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
    captions = draw(st.lists(caption, min_size=each * n_images, max_size=each * n_images))
    order = draw(st.permutations(range(len(captions))))
    return captions, each, order[: draw(st.integers(0, len(captions)))]


@given(splits())
def test_it_equals_the_definition(given: tuple[list[str], int, list[int]]) -> None:
    captions, each, order = given
    expected = similar_noise.exchange(order, captions, each)
    clean = np.arange(len(captions)) // each
    if isinstance(expected, int):
        with pytest.raises(NoiseError, match=f"^{expected} of {len(order)} drawn captions find no other image"):
            exchange_similar(np.array(order, np.int64), captions, clean)
    else:
        found = exchange_similar(np.array(order, np.int64), captions, clean)
        assert found.tolist() == expected
        assert (found[order] != clean[order]).all()


def test_more_than_fifty_candidates_and_a_block_end() -> None:
    random = np.random.RandomState(0)
    captions = [" ".join(random.choice(["a", "b", "c", "d", *map(str, range(60))], 5)) for _ in range(400)]
    order = random.permutation(400)
    found = exchange_similar(order, captions, np.arange(400) // 2)
    assert found.tolist() == similar_noise.exchange(order.tolist(), captions, 2)


@pytest.mark.parametrize("caption", ["A red-hot Äpfel_kuchen 3x", "两个红苹果 and 3苹", "", "__"])
def test_words(caption: str) -> None:
    assert words(caption) == similar_noise.words(caption)
