"""Embeddings that an audit is given: sides from which nothing follows are refused."""

from collections.abc import Callable

import numpy as np
import pytest

from baselines.audit.embeddings import read_embeddings
from ncl_bench.errors import DataError

X, Y = np.random.RandomState(0).standard_normal((2, 60, 8)).astype(np.float32)
Side = Callable[[np.ndarray], np.ndarray]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "captions",
    [
        lambda x: x,
        lambda x: -x,
        lambda x: 3 * x,
        lambda x: x * np.where(np.arange(len(x)) % 2, 1, -2)[:, None],
    ],
)
def test_captions_along_their_images_are_refused(captions: Side, dtype: type) -> None:
    with pytest.raises(DataError, match="every caption embedding lies along the embedding of its image"):
        read_embeddings(X.astype(dtype), captions(X).astype(dtype))


@pytest.mark.parametrize("side", ["image", "caption"])
@pytest.mark.parametrize("factor", [np.ones((60, 1)), np.arange(1, 61)[:, None], -np.arange(1, 61)[:, None]])
def test_a_side_of_one_direction_is_refused(side: str, factor: np.ndarray) -> None:
    flat = (X[:1] * factor).astype(np.float32)
    with pytest.raises(DataError, match=f"all {side} embeddings have one direction"):
        read_embeddings(*((flat, Y) if side == "image" else (X, flat)))


def test_other_embeddings_pass() -> None:
    nearly = X.copy()
    nearly[7] = Y[7]  # one pair is enough to say something
    for captions in (Y, nearly):
        images, texts = read_embeddings(X, captions)
        assert np.array_equal(images, X)
        assert np.array_equal(texts, captions)
