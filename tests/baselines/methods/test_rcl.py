"""RCL against the published code's numbers, its schedules, and its random negatives."""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.parity import (
    Arrays,
    Golden,
    assert_gradients,
    assert_trajectory,
    batch_of,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near, assert_stored
from torch import Tensor, nn

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
DTYPES = {"": torch.float32, "__f64": torch.float64}
PENALTY = r"(?P<penalty>log|tan|abs|exp|gce|infoNCE)(?:_q(?P<q>[\d.]+))?(?:_tau(?P<tau>[\d.]+))?"
PRECISION = "(?P<precision>|__f64)"
ARRAYS = {
    "scores": r"scores\.(?P<matrix>\w+)",
    "probabilities": rf"(?P<matrix>\w+)\.p_(?P<direction>i2t|t2i){PRECISION}",
    "losses": rf"(?P<matrix>(?!ratio|sgr)\w+)\.{PENALTY}\.(?P<of>value|grad){PRECISION}",
    "masks": r"ratio(?P<ratio>[\d.]+)\.(?:mask|n)",
    "ratios": rf"ratio(?P<ratio>[\d.]+)\.{PENALTY}\.(?P<of>value|grad){PRECISION}",
    "network": rf"sgr\.(?:sims|{PENALTY}\.(?:loss|grad_norm|grad\.(?P<parameter>.*?))){PRECISION}",
    "steps": rf"sgr\.{PENALTY}\.losses_\d+_steps_lr(?P<rate>[\de.-]+){PRECISION}",
    "inference": r"inference\.sims",
    "schedules": r"schedule\.(?P<name>\w+)\.lr",
}


def arrays_of(stored: Arrays, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of the stored arrays of a kind, and what their parts say; at least one."""
    found = [(name, match.groupdict()) for name in stored if (match := re.fullmatch(ARRAYS[kind], name))]
    assert found, kind
    return iter(found)


def config_of(parts: dict[str, Any]) -> RCLConfig:
    penalty = {"infoNCE": "info_nce"}.get(parts["penalty"], parts["penalty"])
    return RCLConfig(penalty=penalty, q=parts["q"] or 0.2, temperature=parts["tau"] or 0.05)


def every_negative(n_pairs: int) -> Tensor:
    return ~torch.eye(n_pairs, dtype=torch.bool)


def test_probabilities_match_the_published_code(golden: Golden) -> None:
    stored = golden(FILE)
    for name, parts in arrays_of(stored, "probabilities"):
        scores = tensor(stored[f"scores.{parts['matrix']}"], DTYPES[parts["precision"]])
        given = scores if parts["direction"] == "i2t" else scores.T
        relative = 1e-12 if parts["precision"] else 1e-5
        assert_stored(matching_probabilities(given, 0.05), stored, name, relative)


def test_losses_and_their_gradients_match_the_published_code(golden: Golden) -> None:
    stored = golden(FILE)
    for name, parts in arrays_of(stored, "losses"):
        single = not parts["precision"]
        if single and parts["matrix"] == "extreme" and parts["penalty"] in ("log", "gce"):
            continue  # p rounds to 1: undefined in float32
        scores = tensor(stored[f"scores.{parts['matrix']}"], DTYPES[parts["precision"]]).requires_grad_()
        loss = complementary_contrastive(scores, every_negative(len(scores)), config_of(parts)).mean()
        if parts["of"] == "value":
            if single:  # the stored float32 run may itself be 1e-6 from the float64 run
                assert_near(loss, stored[f"{name}__f64"], 1e-4, scale=0.01, name=name)
            assert_stored(loss, stored, name, 1e-4 if single else 1e-9, scale=0.02 * single)
            continue
        loss.backward()
        double = 1e-9 if parts["tau"] else 1e-8
        assert_stored(scores.grad, stored, name, 1e-3 if single else double, scale=1e-3 * single)


def test_losses_on_some_negatives_match_the_published_code(golden: Golden) -> None:
    stored = golden(FILE)
    for name, parts in arrays_of(stored, "ratios"):
        scores = tensor(stored["scores.random"], DTYPES[parts["precision"]]).requires_grad_()
        negatives = tensor(stored[f"ratio{parts['ratio']}.mask"], torch.float32) > 0
        loss = complementary_contrastive(scores, negatives, config_of(parts)).mean()
        loss.backward()
        found = loss.detach() if parts["of"] == "value" else scores.grad
        assert_stored(found, stored, name, 1e-9)


def test_random_negatives_are_as_many_as_in_the_published_code(golden: Golden) -> None:
    stored = golden(FILE)
    for _, parts in arrays_of(stored, "masks"):
        mask, n = (stored[f"ratio{parts['ratio']}.{key}"] for key in ("mask", "n"))
        ratio = float(parts["ratio"])
        ours = random_negatives(len(mask), ratio if 0 < ratio < 1 else 1.0, seed=0)
        assert ours.shape == mask.shape
        for negatives in (ours.numpy(), mask > 0):
            assert (negatives.sum(axis=1) == n).all()
            assert not negatives.diagonal().any()


def method_on(weights: Arrays, config: RCLConfig, dtype: torch.dtype) -> RCL:
    state = state_of(weights, "", dtype)
    return RCL(config, Setting(len(weights["in.images"]), 36, 50, lambda: network_of("sgr", state)))


PLAN = EpochPlan(0, 0, "train", 1.0)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_network_matches_the_published_code(mode: str, precision: str, golden: Golden) -> None:
    weights, dtype = golden(NETWORK), DTYPES[precision]
    network = network_of("sgr", state_of(weights, "", dtype)).train(mode == "train")
    similarities = network(batch_of(weights, "in.", dtype)).similarities.detach()
    expected = weights[f"{mode}.logits{precision}"]
    assert_near(torch.logit(similarities.double()), expected, 1e-9 if precision else 2e-5, scale=1, name=mode)
    if mode == "train":
        expected = golden(FILE)[f"sgr.sims{precision}"]
        assert_near(similarities, expected, 1e-9 if precision else 1e-4, name="sgr.sims")
    else:
        assert_near(similarities, golden(FILE)["inference.sims"], 1e-5, scale=1, name="inference.sims")


@pytest.mark.parametrize("precision", DTYPES)
def test_one_network_step_matches_the_published_code(precision: str, golden: Golden) -> None:
    stored, weights, dtype = golden(FILE), golden(NETWORK), DTYPES[precision]
    names = list(arrays_of(stored, "network"))
    for penalty in {parts["penalty"] for _, parts in names} - {None}:
        method = method_on(weights, RCLConfig(penalty=penalty), dtype)
        step, relative = Steps(method), 1e-9 if precision else 1e-4
        method.train_epoch(PLAN, StoredBatches(batch_of(weights, "in.", dtype)), step)
        for found, of in ((step.losses[0], "loss"), (step.norms[0], "grad_norm")):
            assert_near(found, stored[f"sgr.{penalty}.{of}{precision}"], relative, name=of)
        gradients = {
            parts["parameter"]: tensor(stored[name], dtype)
            for name, parts in names
            if (parts["penalty"], parts["precision"]) == (penalty, precision) and parts["parameter"]
        }
        assert gradients or (penalty, precision) == ("tan", "")  # tan's are stored in float64 alone
        if gradients:
            near, least = (1e-7, 1e-9) if precision else (1e-3, 1e-4)
            base = state_of(weights, "", dtype)
            assert_gradients(method.networks[0], "sgr", base, gradients, relative=near, absolute=least)


def test_several_steps_match_the_published_code(golden: Golden) -> None:
    stored, weights = golden(FILE), golden(NETWORK)
    for name, parts in arrays_of(stored, "steps"):
        dtype, expected = DTYPES[parts["precision"]], stored[name]
        method, batches = (
            method_on(weights, config_of(parts), dtype),
            StoredBatches(batch_of(weights, "in.", dtype)),
        )
        step = Steps(method, float(parts["rate"]))
        for _ in expected:
            method.train_epoch(PLAN, batches, step)
        assert_trajectory(step.losses, expected, *((1e-6, 1e-6) if parts["precision"] else (1e-4, 1e-2)))


def rates_of(config: RCLConfig) -> list[float]:
    return [epoch.learning_rate for epoch in RCL(config, Setting(4, 1, 5, nn.Identity)).plan()]


RECIPES = {
    "flickr30k_script": ("rcl/flickr30k_sgr", "rcl/flickr30k_saf"),
    "coco_script": ("rcl/coco_sgr", "rcl/coco_saf"),
}


def test_schedules_match_the_published_scripts(golden: Golden) -> None:
    stored = golden(FILE)
    for name, parts in arrays_of(stored, "schedules"):
        rates = stored[name].tolist()
        configs = [Recipe.load(recipe).method_config for recipe in RECIPES.get(parts["name"], ())]
        if parts["name"] not in RECIPES:  # of the README; no recipe has it
            first_decay = rates.index(next(rate for rate in rates if rate != rates[0]))
            configs = [RCLConfig(epochs=len(rates), learning_rate=rates[0], lr_update=first_decay)]
        assert all(rates_of(config) == rates for config in configs), name


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
def test_the_loss_equals_the_loop(
    size: int, seed: int, temperature: float, ratio: float, penalty: str
) -> None:
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


def test_probabilities_of_sums_of_cosines_are_finite() -> None:
    similarities = torch.tensor([[6.0, -6.0, 5.9], [0.0, 6.0, 3.0], [-1.0, 5.0, 4.9]], requires_grad=True)
    found = matching_probabilities(similarities, 0.05)
    assert_near(found, (similarities / 0.05).softmax(dim=1))
    found.square().sum().backward()
    assert similarities.grad.isfinite().all()


SIMILARITIES = torch.from_numpy(np.random.default_rng(0).random((9, 9)))


def losses_of(seed: int, epoch: int, n_steps: int = 2, **options: Any) -> list[float]:
    """Losses of the same batch, step by step, in one epoch."""
    method = RCL(RCLConfig(**options), Setting(9, 1, 5, lambda: FixedSimilarities(SIMILARITIES)))
    step, batches = Steps(method), StoredBatches(*[bare_batch(9)] * n_steps)
    batches.seed = seed
    method.train_epoch(EpochPlan(0, epoch, "train", 1.0), batches, step)
    return step.losses


def test_negatives_are_a_function_of_seed_epoch_and_step() -> None:
    first = losses_of(3, 1, negative_ratio=0.5)
    torch.manual_seed(7)
    assert losses_of(3, 1, negative_ratio=0.5) == first
    assert losses_of(3, 1, n_steps=5, negative_ratio=0.5)[:2] == first
    others = [losses_of(4, 1, negative_ratio=0.5), losses_of(3, 2, negative_ratio=0.5)]
    assert len({*first, *others[0], *others[1]}) == 6


def test_a_batch_without_any_negative_costs_nothing() -> None:
    assert not random_negatives(3, 0.25, seed=0).any()
    assert losses_of(0, 0, negative_ratio=0.1) == [0.0, 0.0]
