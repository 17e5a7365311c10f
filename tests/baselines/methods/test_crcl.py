"""CRCL against the published code's numbers, and the life of its labels over rounds."""

from typing import Any

import numpy as np
import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches
from support.parity import (
    FILES,
    Arrays,
    Golden,
    assert_gradients,
    assert_trajectory,
    batch_of,
    names_between,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near
from torch import Tensor

from baselines.kit.augmentation import BLANK
from baselines.kit.batches import Batch
from baselines.kit.losses import matching_log_probabilities
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.crcl import CRCL, CRCLConfig

BACKBONES = (("sgr", "sgr"), ("saf", "saf"), ("vse", "vse_infinity"))
OPTIONS = {
    "": {},
    "warm1": {"freeze_epochs": 1},
    "confident_off": {"confidence_threshold": 0.0},
    "mc_off": {"momentum": 0.0, "confidence_threshold": 0.0},
}
TERMS = {"active": "loss1", "complementary": "loss2"}


def method_on(make_network: Any, labels: np.ndarray, **options: Any) -> CRCL:
    config = CRCLConfig(word_change=0.0, region_change=0.0, **options)
    method = CRCL(config, Setting(len(labels), 36, 51, make_network))
    method.labels.values.copy_(tensor(labels))
    return method


def blank_batch(pair_ids: Tensor) -> Batch:
    n = len(pair_ids)
    tokens = torch.ones(n, 20, dtype=torch.long)
    return Batch(torch.ones(n, 36, 2), torch.full((n,), 36), tokens, torch.full((n,), 20), pair_ids)


def plan(epoch: int, round: int = 0) -> EpochPlan:
    return EpochPlan(round, epoch, "", 5e-4)


def test_one_step_matches_the_published_code(golden: Golden) -> None:
    stored = golden("D_crcl_losses")
    cases = names_between(stored, "", ".y")
    assert {case.split(".")[0] for case in cases} == set(names_between(stored, "sims."))
    for case in cases:
        matrix, store, epoch, schedule, *tag = case.split(".")
        similarities = tensor(stored[f"sims.{matrix}"])
        labels = stored[f"move_gt_before.{store}"]
        method = method_on(lambda s=similarities: FixedSimilarities(s), labels, **OPTIONS["".join(tag)])
        step, batches = Steps(method), StoredBatches(blank_batch(tensor(stored["text_ids"])))
        method.train_epoch(plan(int(epoch[5:]), int(schedule[8:])), batches, step)
        for given, name in ((similarities, "p1"), (similarities.T, "p2")):
            probability = matching_log_probabilities(given, 0.05).exp()
            assert_near(probability, stored[f"{case}.{name}"], 1e-5, scale=1)
        assert_near(method.labels.values, stored[f"{case}.move_gt_after"], 1e-5, scale=1)
        assert_losses(step, stored, case, rel=1e-5, abs=1e-6)
        if matrix != "saturated":
            assert_near(method.networks[0].weight.grad, stored[f"{case}.grad_sims"], 2e-4, scale=1e-3)


def assert_losses(step: Steps, stored: Arrays, case: str, **near: float) -> None:
    assert step.losses == pytest.approx([float(stored[f"{case}.loss"])], **near)
    for ours, theirs in TERMS.items():
        assert step.terms[ours] == pytest.approx(float(stored[f"{case}.{theirs}"]), **near)


def on_network(tag: str, backbone: str, labels: np.ndarray, golden: Golden) -> tuple[CRCL, Batch]:
    """CRCL on a stored network, and the stored batch."""
    stored, weights = golden("D_crcl_network"), golden(FILES[backbone])
    regions = "_var" if backbone == "vse_infinity" else ""
    ids, order = tensor(stored["text_ids"]), stored[f"{tag}.batch_order"]
    batch = batch_of(weights, regions=regions, ids=ids, order=order)
    return method_on(lambda: network_of(backbone, state_of(weights)), labels), batch


@pytest.mark.parametrize(("tag", "backbone"), BACKBONES)
def test_one_network_step_matches_the_published_code(tag: str, backbone: str, golden: Golden) -> None:
    stored, case = golden("D_crcl_network"), f"{tag}.epoch2"
    method, batch = on_network(tag, backbone, stored["move_gt_before.mixed"], golden)
    step = Steps(method)
    method.train_epoch(plan(2), StoredBatches(batch), step)
    assert_near(method.labels.read(batch.pair_ids), stored[f"{case}.y"], 2e-5, scale=1)
    assert_losses(step, stored, case, rel=1e-4)
    assert step.norms == pytest.approx([float(stored[f"{case}.grad_norm"])], rel=2e-4)
    base, wanted = state_of(golden(FILES[backbone])), state_of(stored, f"{case}.grad.")
    assert_gradients(method.networks[0], backbone, base, wanted, relative=2e-4, noise=1e-4)


@pytest.mark.parametrize(("tag", "backbone"), BACKBONES)
def test_trajectory_matches_the_published_code(tag: str, backbone: str, golden: Golden) -> None:
    stored = golden("D_crcl_network")
    method, batch = on_network(tag, backbone, np.ones(len(stored["move_gt_before.mixed"])), golden)
    step = Steps(method, 5e-4)
    epochs, history = stored[f"{tag}.trajectory.epochs"], stored[f"{tag}.trajectory.move_gt"]
    for epoch, labels in zip(epochs, history, strict=True):
        method.train_epoch(plan(int(epoch)), StoredBatches(batch), step)
        assert_near(method.labels.read(batch.pair_ids), labels, 1e-3, scale=1)
    assert_trajectory(step.losses, stored[f"{tag}.trajectory.loss"])


def test_cold_temperatures_stay_finite() -> None:
    similarities = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    log_probability = matching_log_probabilities(similarities, 0.005).diagonal()
    log_probability.sum().backward()
    assert log_probability.isfinite().all()
    assert similarities.grad.isfinite().all()


def test_without_scc_the_label_is_the_present_prediction_in_one_long_round() -> None:
    config = CRCLConfig(
        rounds=(2, 1), self_refining=False, freeze_epochs=1, word_change=0.0, region_change=0.0
    )
    method = CRCL(config, Setting(12, 36, 51, lambda: FixedSimilarities(0.1 * torch.rand(12, 12))))
    plan = method.plan()
    assert [(each.round, each.epoch, each.new_networks) for each in plan] == [(0, k, False) for k in range(3)]
    similarities = method.networks[0].weight.detach().double() / 0.05
    p = (similarities.softmax(1).diagonal() + similarities.softmax(0).diagonal()) / 2
    for epoch, label in zip(plan, (torch.ones(12), p, p), strict=True):
        method.train_epoch(epoch, StoredBatches(blank_batch(torch.arange(12))), Steps(method))
        assert_near(method.labels.values, label.numpy(), 1e-5, scale=1)
    assert (p < config.confidence_threshold).any()


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_each_part_of_the_loss_can_be_left_out_and_its_exponent_fixed(q: float) -> None:
    config = CRCLConfig(active_weight=0.0, exponent=q, word_change=0.0, region_change=0.0)
    method = CRCL(config, Setting(5, 36, 51, lambda: FixedSimilarities(torch.rand(5, 5))))
    method.labels.values.fill_(0.3)
    step = Steps(method)
    method.train_epoch(method.plan()[0], StoredBatches(blank_batch(torch.arange(5))), step)
    s = method.networks[0].weight.detach().double() / 0.05
    tangents = [way.softmax(1).tan() for way in (s, s.T)]
    expected = sum(((t.sum(1) - t.diagonal()) / t.sum(1) ** q).mean() for t in tangents)
    assert step.losses == pytest.approx([5 * expected.item()], rel=1e-4)
    assert step.terms["active"] == 0


def test_optimiser_is_adamw_with_default_decay() -> None:
    method = method_on(lambda: FixedSimilarities(torch.eye(2)), np.ones(2))
    optimizer = method.make_optimizer(method.networks[0], 3e-4)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.param_groups[0]["weight_decay"] == 0.01
    assert optimizer.param_groups[0]["lr"] == 3e-4


@pytest.mark.parametrize("fixed_regions", [True, False])
def test_training_pairs_are_augmented_as_the_backbone_allows(fixed_regions: bool) -> None:
    torch.manual_seed(0)
    config = CRCLConfig(word_change=0.5, region_change=0.5)
    network = FixedSimilarities(torch.rand(12, 12), fixed_regions=fixed_regions)
    method = CRCL(config, Setting(12, 36, 51, lambda: network))
    batch = blank_batch(torch.arange(12))
    method.train_epoch(plan(0), StoredBatches(batch), Steps(method))
    seen = method.networks[0].batch
    assert (seen.caption_tokens == 50).any()  # the mask is the row that CRCL adds to the vocabulary
    assert seen.caption_lengths.float().mean() < 19
    blank = bool((seen.image_features == torch.tensor(BLANK)).any())
    shorter = bool((seen.image_lengths < 36).any())
    assert (blank, shorter) == ((True, False) if fixed_regions else (False, True))
    assert torch.equal(batch.image_features, torch.ones(12, 36, 2))
