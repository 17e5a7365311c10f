"""Fixtures of the baselines."""

import numpy as np
import pytest


def reader(golden, end):
    """Read golden files in one precision."""
    from support.parity import Stored

    return lambda name: Stored(golden(name), end)


@pytest.fixture(params=["", "__f64"], ids=["single", "double"])
def precise(request, golden):
    """Read golden files in either precision."""
    return reader(golden, request.param)


@pytest.fixture
def single(golden):
    """Read golden files in float32."""
    return reader(golden, "")


@pytest.fixture
def double(golden):
    """Read golden files in float64."""
    return reader(golden, "__f64")


@pytest.fixture(scope="module")
def few_pairs():
    """Runs of this module train on a thousand pairs of their dataset."""
    from support.few_digits import load_few  # composes the digits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("baselines.training.job.load_dataset", load_few)
        yield


@pytest.fixture
def unscored(monkeypatch):
    """Runs on digits do not compare dev, which takes long by attention; their scores are drawn."""
    from baselines.training.train import Trainer
    from ncl_bench.data import dataset_spec
    from ncl_bench.evaluation.protocol import selection_images

    n = selection_images(dataset_spec("digits"))
    noise = np.random.default_rng(0).random((n, 5 * n), np.float32)
    monkeypatch.setattr(Trainer, "_score_dev", lambda trainer: noise)
