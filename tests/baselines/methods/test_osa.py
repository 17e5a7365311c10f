"""OSA against the published code's numbers, and what it does where that code divides by zero."""

from typing import Any

import numpy as np
import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.parity import PRECISIONS, SUFFIX, Arrays, Golden, names_between, tensor
from support.rounding import assert_near
from support.towers import (
    assert_parts,
    assert_rates,
    fine_tuned,
    network_of,
    options_of,
    pairs_of,
    some_pairs,
)
from torch import Tensor

from baselines.kit.batches import Batch
from baselines.methods.osa import (
    OSA,
    batch_weight,
    mismatched_shift,
    overall_shift,
    pair_weight,
    paired_shift,
)
from ncl_bench.errors import TrainingError


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_weights_and_losses_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("W_osa_losses"), SUFFIX[dtype]
    value, slope = (1e-9, 1e-9) if suffix else (2e-6, 1e-5)
    target = tensor(stored["target_scores"], dtype)
    for case in names_between(stored, "scores."):
        similarity = tensor(stored[f"scores.{case}"], dtype).diagonal()
        weight = batch_weight(similarity, float(stored[f"{case}.threshold"]))
        if case == "none_above":  # where the code is NaN
            assert np.isnan(stored[f"{case}.weight{suffix}"]).all()
            assert weight.tolist() == [0] * len(weight)
            continue
        assert_near(weight, stored[f"{case}.weight{suffix}"], value, scale=0.25, name=case)
        method = fine_tuned(OSA, FixedSimilarities(target), len(target), temperature=1.0, faults="published")
        method.similarity.values = similarity
        method.shift = torch.tensor(float(stored[f"{case}.threshold"]), dtype=dtype)
        step = Steps(method)
        method.train_step(some_pairs(len(target)), 1.0, StoredBatches(bare_batch(1)), step)
        both = float(stored[f"{case}.loss_image{suffix}"]) + float(stored[f"{case}.loss_text{suffix}"])
        assert_near(step.losses, [both / 2], value, name=case)
        assert_near(step.gradients["weight"], stored[f"{case}.grad{suffix}"], slope, name=case)


def test_the_weight_of_the_paper_matches(golden: Golden) -> None:
    stored = golden("W_osa_losses")
    similarity = tensor(stored["paper.similarity"])
    for shift, wanted in zip(stored["paper.shift"].tolist(), stored["paper.weight"], strict=True):
        assert_near(pair_weight(similarity, shift), wanted, 1e-12)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_shift_of_random_inputs_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("W_osa_step"), SUFFIX[dtype]
    near = 1e-9 if suffix else 1e-5
    network = network_of(stored, dtype).eval()
    random = pairs_of(stored[f"random.pooled_images{suffix}"], stored["random.texts"].astype(np.int64), dtype)
    method = fine_tuned(OSA, network, 1)
    with torch.no_grad():
        logits = method.logits(network, network(random).similarities)
    assert_near(logits, stored[f"random.logits{suffix}"], near)
    assert_near(overall_shift(logits), stored[f"random.threshold{suffix}"], near, scale=1)
    assert paired_shift(logits) == logits.diagonal().mean()


def method_of(stored: Arrays, rates: str, dtype: torch.dtype) -> tuple[Any, StoredBatches]:
    """OSA with the stored shift, and the training pairs in the order of their number."""
    setting = stored[f"{rates}.setting"]
    size, n_pairs = int(setting[4]), len(stored["train.images"])
    batches = [
        pairs_of(stored["train.images"][rows], stored["train.texts"][rows], dtype, rows.start)
        for rows in (slice(first, first + size) for first in range(0, n_pairs, size))
    ]
    network = network_of(stored, dtype)
    method = fine_tuned(OSA, network, n_pairs, **options_of(setting))
    method.similarity.values = method.similarity.values.to(dtype)
    batches_in_order = StoredBatches(*batches)
    method.prepare(batches_in_order)
    shift = tensor(stored[f"random.threshold{SUFFIX[dtype]}"], dtype)
    method.shift = (shift / network.logit_scale.exp()).detach()
    method.prepared.fill_(True)
    return method, batches_in_order


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("rates", ["published", "amplified"])
def test_steps_match_the_published_code(rates: str, dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("W_osa_step"), SUFFIX[dtype]
    method, batches = method_of(stored, rates, dtype)
    names = (f"{rates}.step{k}.estimator_logits{suffix}" for k in range(len(batches.batches)))
    estimated = torch.cat([tensor(stored[name]).diagonal() for name in names])
    scale = method.networks[0].logit_scale.exp().item()
    assert_near(method.similarity.values * scale, estimated, 1e-9 if suffix else 1e-5)
    step, number, seen = Steps(method, 1.0, torch.inf), 0, []
    train_step, logits = method.train_step, method.logits

    def watched(*sides: Any) -> Tensor:
        seen.append(logits(*sides).detach())
        return logits(*sides)

    def compared(batch: Batch, rate: float, *others: Any) -> None:
        nonlocal number
        train_step(batch, rate, *others)
        start, value = f"{rates}.step{number}.", 1e-9 if suffix else 1e-5 if number < 2 else 3e-4
        assert rate == pytest.approx(float(stored[f"{start}lr"]), rel=1e-12)
        weight = batch_weight(method.similarity.read(batch.pair_ids), method.shift)
        assert_near(weight, stored[f"{start}weight{suffix}"], value, name=start)
        assert_near(seen[-1], stored[f"{start}logits{suffix}"], value, name=start)
        assert_near(step.losses[-1:], stored[f"{start}loss{suffix}"][None], value, name=start)
        network = method.networks[0]
        parts = {"grad": step.gradients, "after": dict(network.named_parameters())}
        assert_parts(stored, start, suffix, network, parts)
        number += 1

    method.train_step, method.logits = compared, watched
    for plan in method.plan():
        method.train_epoch(plan, batches, step)
    assert number == len(names_between(stored, f"{rates}.step", ".lr"))


def test_schedules_match_the_published_code(golden: Golden) -> None:
    assert_rates(golden("W_osa_losses"), OSA)


@pytest.mark.parametrize("similarity", [0.2, 0.5])
def test_a_network_that_tells_nothing_apart_is_one_sentence(similarity: float) -> None:
    method = fine_tuned(OSA, without_images(torch.full((6, 6), similarity)), 6)
    with pytest.raises(
        TrainingError, match=r"OSA trusts none; start from pre-trained weights, or set method.warmup"
    ):
        method.prepare(StoredBatches(bare_batch(6)))


def without_images(similarities: Tensor) -> FixedSimilarities:
    network = FixedSimilarities(similarities)
    network.reads_images = False
    return network


def test_unrelated_inputs_are_mismatched_pairs_where_no_image_is_read() -> None:
    similarities = torch.tensor([[0.9, 0.1, 0.2], [0.1, 0.7, 0.3], [0.3, 0.2, 0.6]])
    method = fine_tuned(OSA, without_images(similarities), 3)
    method.prepare(StoredBatches(bare_batch(3)))
    assert method.shift.item() == pytest.approx(0.2)
    assert_near(method.similarity.values, torch.tensor([0.9, 0.7, 0.6]))
    assert mismatched_shift(torch.ones(1, 1)) == 0


@pytest.mark.parametrize("weigh", [batch_weight, pair_weight])
def test_a_batch_of_one_and_pairs_that_are_all_alike_have_finite_weights(weigh: Any) -> None:
    for similarity in (torch.tensor([0.3]), torch.full((4,), 0.3), torch.full((4,), -0.3)):
        assert weigh(similarity, 0.1).isfinite().all()
    assert weigh(torch.full((4,), -0.3), 0.1).tolist() == [0] * 4
