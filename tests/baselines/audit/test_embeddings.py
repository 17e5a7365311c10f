"""Embeddings that an audit is given: sides from which nothing follows are refused."""

import numpy as np
import pytest
import torch
from support.refusals import refused

from baselines.audit.embeddings import read_embeddings

X, Y = np.random.RandomState(0).standard_normal((2, 60, 8)).astype(np.float32)
SIGNS = np.where(np.arange(60) % 2, 1, -2)[:, None]
ALONG, FLAT = "every caption embedding lies along the embedding of its image", "embeddings have one direction"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "sides",
    [
        lambda x, y: (x, x),
        lambda x, y: (x, -x),
        lambda x, y: (x, (SIGNS * x).astype(x.dtype)),
        lambda x, y: (x.repeat(60, 0)[:60], y),
        lambda x, y: (x, (SIGNS * y[:1]).astype(y.dtype)),
        lambda x, y: (x[1:], y),
        lambda x, y: (x[:30], y),
        lambda x, y: (x, np.where(np.arange(60)[:, None] == 3, np.nan, y).astype(y.dtype)),
        lambda x, y: (x, None),
        lambda x, y: (x[0], y),
        lambda x, y: (x.astype(int), y),
    ],
)
def test_embeddings_from_which_nothing_follows_are_refused(sides, dtype):
    with refused():
        read_embeddings(*sides(X.astype(dtype), Y.astype(dtype)))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_other_embeddings_pass_also_as_tensors_with_gradients(kind):
    nearly = X.copy()
    nearly[7] = Y[7]  # one pair is enough to say something
    for captions in (Y, nearly):
        given = [torch.from_numpy(side).to(kind).requires_grad_() for side in (X, captions)]
        for found, side in zip(read_embeddings(*given)[:2], given, strict=True):
            np.testing.assert_array_equal(found, side.detach().float().numpy().astype(found.dtype))
