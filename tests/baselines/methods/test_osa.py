"""OSA against the published code's numbers, and what it does where that code divides by zero."""

import numpy as np
import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.refusals import refused
from support.rounding import assert_near
from support.towers import assert_parts, fine_tuned, network_of, options_of, pairs_of

from baselines.methods.osa import (
    OSA,
    batch_weight,
    mismatched_shift,
    overall_shift,
    pair_weight,
    paired_shift,
)
from ncl_bench.errors import TrainingError


def test_weights_and_losses_match_the_published_code(precise):
    stored = precise("W_osa_losses")
    target = stored("target_scores")
    for case in stored.names("scores."):
        similarity = stored(f"scores.{case}").diagonal()
        shift = stored(f"{case}.threshold")
        weight = batch_weight(similarity, float(shift))
        if case == "none_above":  # where the code is NaN
            assert np.isnan(stored[f"{case}.weight{stored.end}"]).all()
            assert weight.tolist() == [0] * len(weight)
            continue
        stored.near(weight, f"{case}.weight", 2e-6, 1e-9, scale=0.25)
        method = fine_tuned(OSA, FixedSimilarities(target), len(target), temperature=1.0, faults="published")
        method.similarity.values, method.shift = similarity, shift
        step = Steps(method)
        method.train_step(bare_batch(len(target)), 1.0, StoredBatches(bare_batch(1)), step)
        both = sum(float(stored[f"{case}.loss_{side}{stored.end}"]) for side in ("image", "text"))
        assert_near(step.losses, [both / 2], 1e-9 if stored.double else 2e-6, name=case)
        stored.near(step.gradients["weight"], f"{case}.grad", 1e-5, 1e-9)
    if stored.double:
        similarity = torch.tensor(stored["paper.similarity"])
        for shift, wanted in zip(stored["paper.shift"].tolist(), stored["paper.weight"], strict=True):
            assert_near(pair_weight(similarity, shift), wanted, 1e-12)


def test_the_shift_of_random_inputs_matches_the_published_code(precise):
    stored = precise("W_osa_step")
    network = network_of(stored).eval()
    random = pairs_of(stored(f"random.pooled_images{stored.end}"), stored("random.texts").long())
    method = fine_tuned(OSA, network, 1)
    with torch.no_grad():
        logits = method.logits(network, network(random).similarities)
    stored.near(logits, "random.logits", 1e-5, 1e-9)
    stored.near(overall_shift(logits), "random.threshold", 1e-5, 1e-9)
    assert paired_shift(logits) == logits.diagonal().mean()


def method_of(stored, setting):
    """OSA with the stored shift, and the training pairs in the order of their number."""
    size, n_pairs = int(setting[4]), len(stored["train.images"])
    sides = (stored(f"train.{side}").split(size) for side in ("images", "texts"))
    batches = StoredBatches(
        *(pairs_of(*each, first) for first, *each in zip(range(0, n_pairs, size), *sides, strict=True))
    )
    network = network_of(stored)
    method = fine_tuned(OSA, network, n_pairs, **options_of(setting))
    method.similarity.values = method.similarity.values.to(stored.dtype)
    method.prepare(batches)
    method.shift = (stored(f"random.threshold{stored.end}") / network.logit_scale.exp()).detach()
    method.prepared.fill_(True)
    return method, batches


@pytest.mark.parametrize("rates", ["published", "amplified"])
def test_steps_match_the_published_code(rates, precise):
    stored = precise("W_osa_step")
    method, batches = method_of(stored, stored[f"{rates}.setting"])
    names = (f"{rates}.step{k}.estimator_logits{stored.end}" for k in range(len(batches.batches)))
    estimated = torch.cat([stored(name).diagonal() for name in names])
    scale = method.networks[0].logit_scale.exp().item()
    assert_near(method.similarity.values * scale, estimated, 1e-9 if stored.double else 1e-5)
    step, number, seen = Steps(method, 1.0, torch.inf), 0, []
    train_step, logits = method.train_step, method.logits

    def watched(*sides):
        seen.append(logits(*sides))
        return seen[-1]

    def compared(batch, rate, *others):
        nonlocal number
        train_step(batch, rate, *others)
        start = f"{rates}.step{number}."
        assert rate == pytest.approx(float(stored[f"{start}lr"]), rel=1e-12)
        weight = batch_weight(method.similarity.read(batch.pair_ids), method.shift)
        for name, found in (("weight", weight), ("logits", seen[-1]), ("loss", step.losses[-1])):
            stored.near(found, start + name, 1e-5 if number < 2 else 3e-4)
        network = method.networks[0]
        parts = {"grad": step.gradients, "after": dict(network.named_parameters())}
        assert_parts(stored, start, network, parts)
        number += 1

    method.train_step, method.logits = compared, watched
    for plan in method.plan():
        method.train_epoch(plan, batches, step)
    assert number == len(stored.names(f"{rates}.step", ".lr"))


@pytest.mark.parametrize("similarity", [0.2, 0.5])
def test_a_network_that_tells_nothing_apart_is_one_sentence(similarity):
    method = fine_tuned(OSA, without_images(torch.full((6, 6), similarity)), 6)
    with refused(TrainingError):
        method.prepare(StoredBatches(bare_batch(6)))


def without_images(similarities):
    network = FixedSimilarities(similarities)
    network.reads_images = False
    return network


def test_unrelated_inputs_are_mismatched_pairs_where_no_image_is_read():
    similarities = torch.tensor([[0.9, 0.1, 0.2], [0.1, 0.7, 0.3], [0.3, 0.2, 0.6]])
    method = fine_tuned(OSA, without_images(similarities), 3)
    method.prepare(StoredBatches(bare_batch(3)))
    assert method.shift.item() == pytest.approx(0.2)
    assert_near(method.similarity.values, torch.tensor([0.9, 0.7, 0.6]))
    assert mismatched_shift(torch.ones(1, 1)) == 0


@pytest.mark.parametrize("weigh", [batch_weight, pair_weight])
def test_a_batch_of_one_and_pairs_that_are_all_alike_have_finite_weights(weigh):
    for similarity in (torch.tensor([0.3]), torch.full((4,), 0.3), torch.full((4,), -0.3)):
        assert weigh(similarity, 0.1).isfinite().all()
    assert weigh(torch.full((4,), -0.3), 0.1).tolist() == [0] * 4
