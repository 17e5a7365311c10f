"""CRCL against the published code's numbers, and the life of its labels over rounds."""

from typing import Any

import numpy as np
import pytest
import torch
from support.method_parity import (
    BACKBONE_FILES,
    Arrays,
    Golden,
    GradientStep,
    OptimizerStep,
    assert_gradients_match,
    assert_trajectory_matches,
    batches_of,
    gradient_norm,
    published_batch,
    published_network,
    published_setting,
)
from support.rounding import assert_near
from support.stand_ins import StandIn
from torch import Tensor, nn

from baselines.backbones import BACKBONES as registered
from baselines.kit.batches import Batch
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.crcl import BLANK, CRCL, CRCLConfig, complementary_loss, matching_log_probabilities

BACKBONES = (("sgr", "sgr"), ("saf", "saf"), ("vse", "vse_infinity"))
OPTIONS = {
    "": {},
    "warm1": {"freeze_epochs": 1},
    "confident_off": {"confidence_threshold": 0.0},
    "mc_off": {"momentum": 0.0, "confidence_threshold": 0.0},
}


class FixedSimilarities(StandIn):
    """A network whose only weights are the similarities; it keeps the batch it was given."""

    def __init__(self, similarities: np.ndarray, *, fixed_regions: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(similarities.copy()))
        self.fixed_regions = fixed_regions

    def forward(self, batch: Batch) -> Tensor:
        self.batch = batch
        return self.weight


def method_on(setting: Setting, labels: np.ndarray, **options: Any) -> CRCL:
    method = CRCL(CRCLConfig(word_change=0.0, region_change=0.0, **options), setting)
    method.labels.values.copy_(torch.from_numpy(labels))
    return method


def of_similarities(similarities: np.ndarray, n_pairs: int) -> Setting:
    return Setting(n_pairs, 36, 51, lambda: FixedSimilarities(similarities))


def blank_batch(pair_ids: Tensor) -> Batch:
    n = len(pair_ids)
    tokens = torch.ones(n, 20, dtype=torch.long)
    return Batch(torch.ones(n, 36, 2), torch.full((n,), 36), tokens, torch.full((n,), 20), pair_ids)


def plan(epoch: int, round: int = 0) -> EpochPlan:
    return EpochPlan(round, epoch, "", 5e-4)


def test_one_step_matches_the_published_code(golden: Golden) -> None:
    stored = golden("D_crcl_losses")
    pair_ids = torch.from_numpy(stored["text_ids"])
    cases = [name.removesuffix(".y") for name in stored if name.endswith(".y")]
    assert {case.split(".")[0] for case in cases} == {name[5:] for name in stored if name.startswith("sims.")}
    for case in cases:
        matrix, store, epoch, schedule, *tag = case.split(".")
        options = OPTIONS["".join(tag)]
        similarities = stored[f"sims.{matrix}"]
        labels = stored[f"move_gt_before.{store}"]
        method = method_on(of_similarities(similarities, len(labels)), labels, **options)
        step = GradientStep()
        method.train_epoch(plan(int(epoch[5:]), int(schedule[8:])), batches_of(blank_batch(pair_ids)), step)
        assert_case_matches(method, step, stored, case, matrix)


def assert_case_matches(method: CRCL, step: GradientStep, stored: Arrays, case: str, matrix: str) -> None:
    similarities = torch.from_numpy(stored[f"sims.{matrix}"])
    for given, name in ((similarities, "p1"), (similarities.T, "p2")):
        probability = matching_log_probabilities(given, 0.05).exp().numpy()
        assert_near(probability, stored[f"{case}.{name}"], 5e-6, scale=1)
    assert_near(method.labels.values, stored[f"{case}.move_gt_after"], 5e-6, scale=1)
    for value, name in (
        (step.loss, "loss"),
        (step.terms["active"], "loss1"),
        (step.terms["complementary"], "loss2"),
    ):
        assert value == pytest.approx(float(stored[f"{case}.{name}"]), rel=1e-5, abs=1e-6)
    if matrix != "saturated":
        expected = stored[f"{case}.grad_sims"]
        gradient = method.networks[0].weight.grad.numpy()
        assert_near(gradient, expected, 2e-4, scale=1e-3)


@pytest.mark.parametrize(("tag", "backbone"), BACKBONES)
def test_one_network_step_matches_the_published_code(tag: str, backbone: str, golden: Golden) -> None:
    stored = golden("D_crcl_network")
    pair_ids = torch.from_numpy(stored["text_ids"])
    batch = published_batch(golden(BACKBONE_FILES[backbone]), stored[f"{tag}.batch_order"], pair_ids)
    labels = stored["move_gt_before.mixed"]
    method = method_on(published_setting(backbone, golden, len(labels)), labels)
    step = GradientStep()
    method.train_epoch(plan(2), batches_of(batch), step)
    assert_near(method.labels.read(pair_ids), stored[f"{tag}.epoch2.y"], 2e-5, scale=1)
    for value, name in (
        (step.loss, "loss"),
        (step.terms["active"], "loss1"),
        (step.terms["complementary"], "loss2"),
    ):
        assert value == pytest.approx(float(stored[f"{tag}.epoch2.{name}"]), rel=1e-4)
    network = method.networks[0]
    assert gradient_norm(network) == pytest.approx(float(stored[f"{tag}.epoch2.grad_norm"]), rel=2e-4)
    expected = published_network(backbone, golden, f"{tag}.epoch2.grad.", stored)
    assert_gradients_match(network, expected)


@pytest.mark.parametrize(("tag", "backbone"), BACKBONES)
def test_trajectory_matches_the_published_code(tag: str, backbone: str, golden: Golden) -> None:
    stored = golden("D_crcl_network")
    pair_ids = torch.from_numpy(stored["text_ids"])
    batch = published_batch(golden(BACKBONE_FILES[backbone]), stored[f"{tag}.batch_order"], pair_ids)
    start = np.ones(len(stored["move_gt_before.mixed"]))
    method = method_on(published_setting(backbone, golden, len(start)), start)
    step = OptimizerStep(method, 5e-4)
    epochs, history = stored[f"{tag}.trajectory.epochs"], stored[f"{tag}.trajectory.move_gt"]
    for epoch, labels in zip(epochs, history, strict=True):
        method.train_epoch(plan(int(epoch)), batches_of(batch), step)
        assert_near(method.labels.read(pair_ids), labels, 1e-3, scale=1)
    assert_trajectory_matches(step.losses, stored[f"{tag}.trajectory.loss"])


def complementary_by_loop(probabilities: np.ndarray, labels: np.ndarray) -> list[float]:
    """Eq. 6 of one direction, term by term."""
    losses = []
    for i, (row, y) in enumerate(zip(probabilities, labels, strict=True)):
        negatives = sum(np.tan(p) for j, p in enumerate(row) if j != i)
        losses.append(negatives / sum(np.tan(p) for p in row) ** (1 - y))
    return losses


def test_complementary_loss_equals_the_loop() -> None:
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(9), size=9)
    labels = np.append(random.random(7), [0.0, 1.0])
    result = complementary_loss(torch.from_numpy(probabilities).log(), torch.from_numpy(labels))
    assert_near(result, complementary_by_loop(probabilities, labels), 1e-12)


def test_cold_temperatures_stay_finite() -> None:
    similarities = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    log_probability = matching_log_probabilities(similarities, 0.005)
    assert log_probability.diagonal().isfinite().all()
    log_probability.diagonal().sum().backward()
    assert similarities.grad is not None
    assert similarities.grad.isfinite().all()


def test_rounds_renew_the_network_restart_the_rate_and_forget_the_best() -> None:
    config = CRCLConfig(rounds=(3, 5), freeze_epochs=2, learning_rate=1.0, lr_update=2)
    epochs = CRCL(config, Setting(4, 1, 5, nn.Identity)).plan()
    assert [(e.round, e.epoch) for e in epochs] == [(0, 0), (0, 1), (0, 2), *((1, i) for i in range(5))]
    assert [i for i, e in enumerate(epochs) if e.new_networks] == [3]
    assert [i for i, e in enumerate(epochs) if e.forget_best] == [3]
    assert [e.learning_rate for e in epochs] == pytest.approx([1, 1, 0.1, 1, 1, 0.1, 0.1, 0.01])


def test_labels_over_two_rounds_follow_the_rules_written_as_a_loop() -> None:
    """Frozen epochs keep the label, the first round's last one stores p; later epochs mix and filter."""
    torch.manual_seed(0)
    config = CRCLConfig(rounds=(4, 4), word_change=0.0, region_change=0.0)
    method = CRCL(config, Setting(12, 36, 51, lambda: FixedSimilarities(torch.rand(12, 12).numpy())))
    batch = blank_batch(torch.arange(12))
    label = np.ones(12)
    for epoch in method.plan():
        if epoch.new_networks:
            method.renew_networks()
        similarities = method.networks[0].weight.detach().double() / 0.05
        p = ((similarities.softmax(1).diagonal() + similarities.softmax(0).diagonal()) / 2).numpy()
        mixed = label if epoch.epoch < 2 else 0.8 * label + 0.2 * p
        used = np.where(mixed < 0.1, 0.0, mixed)
        label = p if (epoch.round, epoch.epoch) == (0, 1) else used
        step = GradientStep()
        method.train_epoch(epoch, batches_of(batch), step)
        assert_near(method.labels.values, label, 5e-6, scale=1)
        logs = -(similarities.log_softmax(1).diagonal() + similarities.log_softmax(0).diagonal()).numpy()
        assert step.terms["active"] == pytest.approx((used * logs).mean(), rel=1e-5)
    assert (label == 0).any()


def test_optimiser_is_adamw_with_default_decay() -> None:
    method = method_on(of_similarities(np.eye(2), 2), np.ones(2))
    optimizer = method.make_optimizer(method.networks[0], 3e-4)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.param_groups[0]["weight_decay"] == 0.01
    assert optimizer.param_groups[0]["lr"] == 3e-4


@pytest.mark.parametrize("fixed_regions", [True, False])
def test_training_pairs_are_augmented_as_the_backbone_allows(fixed_regions: bool) -> None:
    torch.manual_seed(0)
    config = CRCLConfig(word_change=0.5, region_change=0.5)
    similarities = torch.rand(12, 12).numpy()
    make_network = lambda: FixedSimilarities(similarities, fixed_regions=fixed_regions)  # noqa: E731
    method = CRCL(config, Setting(12, 36, 51, make_network))
    batch = blank_batch(torch.arange(12))
    method.train_epoch(plan(0), batches_of(batch), GradientStep())
    seen = method.networks[0].batch
    assert (seen.caption_tokens == 50).any()  # the mask is the row that CRCL adds to the vocabulary
    assert seen.caption_lengths.float().mean() < 19
    blank = bool((seen.image_features == torch.tensor(BLANK)).any())
    shorter = bool((seen.image_lengths < 36).any())
    assert (blank, shorter) == ((True, False) if fixed_regions else (False, True))
    assert torch.equal(batch.image_features, torch.ones(12, 36, 2))


def test_the_vocabulary_has_one_more_row_for_the_mask() -> None:
    assert CRCL.extra_words == 1


@pytest.mark.parametrize(("backbone", "fixed"), [("sgr", True), ("saf", True), ("vse_infinity", False)])
def test_backbones_say_whether_they_take_fewer_regions(backbone: str, fixed: bool) -> None:
    assert registered[backbone].fixed_regions is fixed
