"""RCL against the published code's numbers, its schedules, and its random negatives."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.parity import assert_trajectory
from support.rounding import assert_near
from torch import nn

from baselines.kit.method import EpochPlan, Setting
from baselines.methods.rcl import (
    RCL,
    RCLConfig,
    complementary_contrastive,
    matching_probabilities,
    random_negatives,
)
from baselines.training.recipe import Recipe

FILE, NETWORK = "K_rcl", "J_backbone_sgr"
PLAN = EpochPlan(0, 0, "train", 1.0)
PENALTY = r"(?P<penalty>log|tan|abs|exp|gce|infoNCE)(?:_q(?P<q>[\d.]+))?(?:_tau(?P<tau>[\d.]+))?"


def arrays_of(stored, pattern):
    """Names of the results of a kind, and what their parts say; at least one."""
    names = (name.removesuffix(stored.end) for name in stored if name.endswith(stored.end))
    found = [(name, match.groupdict()) for name in names if (match := re.fullmatch(pattern, name))]
    assert found, pattern
    return iter(found)


def config_of(parts):
    penalty = {"infoNCE": "info_nce"}.get(parts["penalty"], parts["penalty"])
    return RCLConfig(penalty=penalty, q=parts["q"] or 0.2, temperature=parts["tau"] or 0.05)


def test_probabilities_match_the_published_code(precise):
    stored = precise(FILE)
    for name, parts in arrays_of(stored, r"(?P<matrix>\w+)\.p_(?P<direction>i2t|t2i)"):
        scores = stored(f"scores.{parts['matrix']}")
        given = scores if parts["direction"] == "i2t" else scores.T
        stored.near(matching_probabilities(given, 0.05), name, 1e-5, 1e-12)


def test_losses_and_their_gradients_match_the_published_code(precise):
    """On every negative, and on those of the stored masks."""
    stored = precise(FILE)
    for name, parts in arrays_of(stored, rf"(?P<matrix>(?!sgr)[\w.]+?)\.{PENALTY}\.(?P<of>value|grad)"):
        matrix, ratio = parts["matrix"], parts["matrix"].startswith("ratio")
        if matrix == "extreme" and parts["penalty"] in ("log", "gce") and not stored.double:
            continue  # p rounds to 1: undefined in float32
        scores = stored.leaf("scores.random" if ratio else f"scores.{matrix}")
        negatives = stored(f"{matrix}.mask") > 0 if ratio else ~torch.eye(len(scores), dtype=torch.bool)
        loss = complementary_contrastive(scores, negatives, config_of(parts)).mean()
        loss.backward()
        found = loss if parts["of"] == "value" else scores.grad
        stored.near(found, name, 1e-3, scale=0.01 * (not stored.double))


def test_random_negatives_are_as_many_as_in_the_published_code(golden):
    stored = golden(FILE)
    for name in [name for name in stored if name.endswith(".mask")]:
        mask, n = stored[name], stored[name.replace(".mask", ".n")]
        ratio = float(name.removeprefix("ratio").removesuffix(".mask"))
        ours = random_negatives(len(mask), ratio if 0 < ratio < 1 else 1.0, seed=0)
        assert ours.shape == mask.shape
        for negatives in (ours.numpy(), mask > 0):
            assert (negatives.sum(axis=1) == n).all()
            assert not negatives.diagonal().any()


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_network_matches_the_published_code(mode, precise):
    stored, weights = precise(FILE), precise(NETWORK)
    network = weights.network("sgr").train(mode == "train")
    similarities = network(weights.batch()).similarities.detach()
    weights.near(torch.logit(similarities.double()), f"{mode}.logits", 2e-5, 1e-9)
    if mode == "train":
        stored.near(similarities, "sgr.sims", double=1e-9)
    elif not stored.double:
        stored.near(similarities, "inference.sims", 1e-5)


def method_on(weights, config):
    return RCL(config, Setting(len(weights["in.images"]), 36, 50, lambda: weights.network("sgr")))


def test_one_network_step_matches_the_published_code(precise):
    stored, weights = precise(FILE), precise(NETWORK)
    for name, parts in arrays_of(stored, rf"sgr\.{PENALTY}\.loss"):
        method = method_on(weights, config_of(parts))
        step = Steps(method)
        method.train_epoch(PLAN, StoredBatches(weights.batch()), step)
        stored.near_step(step, name.removesuffix("loss"), weights.state())


def test_several_steps_match_the_published_code(precise):
    stored, weights = precise(FILE), precise(NETWORK)
    for name, parts in arrays_of(stored, rf"sgr\.{PENALTY}\.losses_\d+_steps_lr(?P<rate>[\de.-]+)"):
        want, method = stored[name + stored.end], method_on(weights, config_of(parts))
        step = Steps(method, float(parts["rate"]))
        for _ in want:
            method.train_epoch(PLAN, StoredBatches(weights.batch()), step)
        assert_trajectory(step.losses, want, *((1e-6, 1e-6) if stored.double else ()))


RECIPES = {
    "flickr30k_script": ("rcl/flickr30k_sgr", "rcl/flickr30k_saf"),
    "coco_script": ("rcl/coco_sgr", "rcl/coco_saf"),
}


def test_schedules_match_the_published_scripts(single):
    stored = single(FILE)
    for name in stored.names("schedule.", ".lr"):
        rates = stored[f"schedule.{name}.lr"].tolist()
        configs = [Recipe.load(recipe).method_config for recipe in RECIPES.get(name, ())]
        if name not in RECIPES:  # of the README; no recipe has it
            first_decay = rates.index(next(rate for rate in rates if rate != rates[0]))
            configs = [RCLConfig(epochs=len(rates), learning_rate=rates[0], lr_update=first_decay)]
        for config in configs:
            plan = RCL(config, Setting(4, 1, 5, nn.Identity)).plan()
            assert [epoch.learning_rate for epoch in plan] == rates, name


PENALTIES = {
    "log": lambda p: -math.log(1 - p + 1e-10),
    "tan": math.tan,
    "abs": lambda p: p,
    "exp": lambda p: math.exp(p - 1),
    "gce": lambda p: (1 - (1 - p + 1e-10) ** 0.2) / 0.2,
}


@given(
    st.integers(2, 8),
    st.integers(0, 1000),
    st.floats(0.03, 1.0),
    st.floats(0.2, 1.0),
    st.sampled_from(sorted(PENALTIES)),
)
@settings(max_examples=40)
def test_the_loss_equals_the_loop(size, seed, temperature, ratio, penalty):
    similarities = torch.from_numpy(np.random.default_rng(seed).random((size, size)))
    negatives = random_negatives(size, ratio, seed)
    powers = (similarities / temperature).exp().tolist()
    config = RCLConfig(temperature=temperature, penalty=penalty)
    for i, loss in enumerate(complementary_contrastive(similarities, negatives, config).tolist()):
        expected = 0.0
        column = math.fsum(row[i] for row in powers)
        for j in (j for j in range(size) if negatives[i, j]):
            expected += PENALTIES[penalty](powers[i][j] / (math.fsum(powers[i]) + 1e-10))
            expected += PENALTIES[penalty](powers[j][i] / (column + 1e-10))
        assert loss == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_probabilities_of_sums_of_cosines_are_finite():
    similarities = torch.tensor([[6.0, -6.0, 5.9], [0.0, 6.0, 3.0], [-1.0, 5.0, 4.9]], requires_grad=True)
    found = matching_probabilities(similarities, 0.05)
    assert_near(found, (similarities / 0.05).softmax(dim=1))
    found.square().sum().backward()
    assert similarities.grad.isfinite().all()


SIMILARITIES = torch.from_numpy(np.random.default_rng(0).random((9, 9)))


def losses_of(seed, epoch, n_steps=2, **options):
    """Losses of the same batch, step by step, in one epoch."""
    method = RCL(RCLConfig(**options), Setting(9, 1, 5, lambda: FixedSimilarities(SIMILARITIES)))
    step, batches = Steps(method), StoredBatches(*[bare_batch(9)] * n_steps)
    batches.seed = seed
    method.train_epoch(EpochPlan(0, epoch, "train", 1.0), batches, step)
    return step.losses


def test_negatives_are_a_function_of_seed_epoch_and_step():
    first = losses_of(3, 1, negative_ratio=0.5)
    torch.manual_seed(7)
    assert losses_of(3, 1, negative_ratio=0.5) == first
    assert losses_of(3, 1, n_steps=5, negative_ratio=0.5)[:2] == first
    others = [losses_of(4, 1, negative_ratio=0.5), losses_of(3, 2, negative_ratio=0.5)]
    assert len({*first, *others[0], *others[1]}) == 6


def test_a_batch_without_any_negative_costs_nothing():
    assert not random_negatives(3, 0.25, seed=0).any()
    assert losses_of(0, 0, negative_ratio=0.1) == [0.0, 0.0]
