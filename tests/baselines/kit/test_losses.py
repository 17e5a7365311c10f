"""Shared loss terms against loops written from their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rounding import assert_near

from baselines.kit.losses import hardest_triplet, hinge_costs, info_nce, mean_triplet

SIZES = st.integers(2, 9)
SEEDS = st.integers(0, 10_000)


def similarities_of(size, seed):
    return torch.from_numpy(np.random.default_rng(seed).random((size, size)))


def costs_by_loop(similarities, margin, caption_margin, floor):
    """Costs of every negative: image i against caption j, and caption j against image i."""
    n = len(similarities)
    captions, images = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                captions[i, j] = max(floor, margin[i, j] + similarities[i, j] - similarities[i, i])
                images[i, j] = max(floor, caption_margin[i, j] + similarities[i, j] - similarities[j, j])
    return captions, images


@given(SIZES, SEEDS, st.sampled_from([0.0, 1e-8, 0.05]))
@settings(max_examples=30)
def test_costs_and_their_means_and_maxima_equal_the_loop(size, seed, floor):
    similarities = similarities_of(size, seed)
    margin, caption_margin = 0.3 * similarities_of(size, seed + 1), 0.3 * similarities_of(size, seed + 2)
    captions, images = costs_by_loop(similarities, margin, caption_margin, floor)
    for got, expected in zip(
        hinge_costs(similarities, margin, caption_margin, floor=floor), (captions, images), strict=True
    ):
        assert_near(got, expected, 1e-12, scale=1)
    hardest = hardest_triplet(similarities, margin, caption_margin, floor=floor)
    assert_near(hardest, captions.max(axis=1) + images.max(axis=0), 1e-12, scale=1)
    captions, images = costs_by_loop(similarities, margin, margin, floor)
    mean = mean_triplet(similarities, margin, floor=floor)
    assert_near(mean, (captions.sum(axis=1) + images.sum(axis=0)) / size, 1e-12, scale=1)


@given(SIZES, SEEDS, st.floats(0.02, 2))
@settings(max_examples=30)
def test_info_nce_equals_the_loop(size, seed, temperature):
    similarities = similarities_of(size, seed)
    logits = (similarities / temperature).tolist()
    for i, loss in enumerate(info_nce(similarities, temperature).tolist()):
        row = logits[i][i] - math.log(math.fsum(math.exp(x) for x in logits[i]))
        column = logits[i][i] - math.log(math.fsum(math.exp(logits[k][i]) for k in range(size)))
        assert loss == pytest.approx(-(row + column) / 2, rel=1e-9, abs=1e-12)
