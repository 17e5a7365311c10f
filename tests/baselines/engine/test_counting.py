"""Counting where the scores are gives the integers that numpy gives."""

import numpy as np
import pytest
import torch

import ncl_bench.evaluation.protocol
import ncl_bench.evaluation.ranks
from baselines.engine.counting import count_ranks, evaluate
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.scores import ArrayRows

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("n_images", "fold", "each", "block"), [(30, 10, 5, 7), (24, 24, 1, 250), (12, 4, 2, 1)]
)
def test_integers_are_equal(
    device: str, dtype: torch.dtype, n_images: int, fold: int, each: int, block: int
) -> None:
    random = np.random.default_rng(n_images)
    scores = torch.from_numpy(random.normal(size=(n_images, n_images * each)).round(1)).to(device, dtype)
    found = count_ranks(scores, captions_per_image=each, images_per_fold=fold, block=block)
    expected = ncl_bench.evaluation.ranks.count_ranks(
        ArrayRows(scores.cpu().numpy()), captions_per_image=each, images_per_fold=fold
    )
    assert found.range == expected.range
    assert found.dtype == expected.dtype
    assert found.folds is not None
    assert expected.folds is not None
    for one, other in ((found.whole, expected.whole), (found.folds, expected.folds)):
        for name in ("i2t", "t2i", "i2t_optimistic", "t2i_optimistic"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_the_result_is_the_same() -> None:
    scores = torch.randn(200, 1000, generator=torch.Generator().manual_seed(0))
    assert evaluate(scores, dataset="digits") == ncl_bench.evaluation.protocol.evaluate(
        scores.numpy(), dataset="digits"
    )


def test_what_numpy_refuses_is_refused() -> None:
    scores = torch.zeros(200, 1000)
    scores[3, 4] = torch.nan
    with pytest.raises(ScoresError, match=r"hold 1 numbers .* row 3, column 4"):
        evaluate(scores, dataset="digits")
    with pytest.raises(ScoresError, match="transposed"):
        evaluate(torch.zeros(1000, 200), dataset="digits")
    with pytest.raises(ScoresError, match="dtype"):
        evaluate(torch.zeros(200, 1000, dtype=torch.int64), dataset="digits")
