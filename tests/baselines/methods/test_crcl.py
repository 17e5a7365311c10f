"""CRCL against the published code's numbers, and the life of its labels over rounds."""

import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches
from support.parity import FILES, assert_trajectory
from support.rounding import assert_near

from baselines.kit.augmentation import BLANK
from baselines.kit.batches import Batch
from baselines.kit.losses import matching_log_probabilities
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.crcl import CRCL, CRCLConfig

BACKBONES = pytest.mark.parametrize(
    ("tag", "backbone"), [("sgr", "sgr"), ("saf", "saf"), ("vse", "vse_infinity")]
)
OPTIONS = {
    "": {},
    "warm1": {"freeze_epochs": 1},
    "confident_off": {"confidence_threshold": 0.0},
    "mc_off": {"momentum": 0.0, "confidence_threshold": 0.0},
}


def method_on(make_network, n_pairs, **options):
    """Without augmentation, unless the options say so."""
    config = CRCLConfig(**{"word_change": 0.0, "region_change": 0.0, **options})
    return CRCL(config, Setting(n_pairs, 36, 51, make_network))


def blank_batch(pair_ids):
    n = len(pair_ids)
    tokens = torch.ones(n, 20, dtype=torch.long)
    return Batch(torch.ones(n, 36, 2), torch.full((n,), 36), tokens, torch.full((n,), 20), pair_ids)


def plan(epoch, round=0):
    return EpochPlan(round, epoch, "", 5e-4)


def terms_of(step):
    return {"loss1": step.terms["active"], "loss2": step.terms["complementary"]}


def test_one_step_matches_the_published_code(single):
    stored = single("D_crcl_losses")
    cases = stored.names("", ".y")
    assert {case.split(".")[0] for case in cases} == set(stored.names("sims."))
    for case in cases:
        matrix, store, epoch, schedule, *tag = case.split(".")
        similarities, labels = stored(f"sims.{matrix}"), stored(f"move_gt_before.{store}")
        network = FixedSimilarities(similarities)
        method = method_on(lambda made=network: made, len(labels), **OPTIONS["".join(tag)])
        method.labels.values.copy_(labels)
        step, batches = Steps(method), StoredBatches(blank_batch(stored("text_ids")))
        method.train_epoch(plan(int(epoch[5:]), int(schedule[8:])), batches, step)
        for given, name in ((similarities, "p1"), (similarities.T, "p2")):
            stored.near(matching_log_probabilities(given, 0.05).exp(), f"{case}.{name}", 1e-5)
        stored.near(method.labels.values, f"{case}.move_gt_after", 1e-5)
        for name, found in (terms_of(step) | {"loss": step.losses[0]}).items():
            stored.near(found, f"{case}.{name}", 1e-5, scale=0.1)
        if matrix != "saturated":
            stored.near(network.weight.grad, f"{case}.grad_sims", 2e-4, scale=1e-3)


def on_network(stored, tag, weights, backbone):
    """CRCL on a stored network, and the stored batch."""
    regions = "_var" if backbone == "vse_infinity" else ""
    batch = weights.batch(regions=regions, ids=stored("text_ids"), order=stored[f"{tag}.batch_order"])
    return method_on(lambda: weights.network(backbone), len(stored["move_gt_before.mixed"])), batch


@BACKBONES
def test_one_network_step_matches_the_published_code(tag, backbone, single):
    stored, weights, case = single("D_crcl_network"), single(FILES[backbone]), f"{tag}.epoch2."
    method, batch = on_network(stored, tag, weights, backbone)
    method.labels.values.copy_(stored("move_gt_before.mixed"))
    step = Steps(method)
    method.train_epoch(plan(2), StoredBatches(batch), step)
    stored.near(method.labels.read(batch.pair_ids), f"{case}y", 2e-5)
    near = {"absolute": 0, "noise": 1e-4, "some": False}
    stored.near_step(
        step, case, weights.state(), backbone, single=2e-4, slope=2e-4, terms=terms_of(step), **near
    )


@BACKBONES
def test_trajectory_matches_the_published_code(tag, backbone, single):
    stored = single("D_crcl_network")
    method, batch = on_network(stored, tag, single(FILES[backbone]), backbone)
    step = Steps(method, 5e-4)
    epochs, history = stored[f"{tag}.trajectory.epochs"], stored[f"{tag}.trajectory.move_gt"]
    for epoch, labels in zip(epochs, history, strict=True):
        method.train_epoch(plan(int(epoch)), StoredBatches(batch), step)
        assert_near(method.labels.read(batch.pair_ids), labels, 1e-3, scale=1)
    assert_trajectory(step.losses, stored[f"{tag}.trajectory.loss"])


def test_cold_temperatures_stay_finite():
    similarities = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    log_probability = matching_log_probabilities(similarities, 0.005).diagonal()
    log_probability.sum().backward()
    assert log_probability.isfinite().all()
    assert similarities.grad.isfinite().all()


def test_without_scc_the_label_is_the_present_prediction_in_one_long_round():
    options = {"rounds": (2, 1), "self_refining": False, "freeze_epochs": 1}
    method = method_on(lambda: FixedSimilarities(0.1 * torch.rand(12, 12)), 12, **options)
    plan = method.plan()
    assert [(each.round, each.epoch, each.new_networks) for each in plan] == [(0, k, False) for k in range(3)]
    similarities = method.networks[0].weight.detach().double() / 0.05
    p = (similarities.softmax(1).diagonal() + similarities.softmax(0).diagonal()) / 2
    for epoch, label in zip(plan, (torch.ones(12), p, p), strict=True):
        method.train_epoch(epoch, StoredBatches(blank_batch(torch.arange(12))), Steps(method))
        assert_near(method.labels.values, label.numpy(), 1e-5, scale=1)
    assert (p < method.config.confidence_threshold).any()


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_each_part_of_the_loss_can_be_left_out_and_its_exponent_fixed(q):
    method = method_on(lambda: FixedSimilarities(torch.rand(5, 5)), 5, active_weight=0.0, exponent=q)
    method.labels.values.fill_(0.3)
    step = Steps(method)
    method.train_epoch(method.plan()[0], StoredBatches(blank_batch(torch.arange(5))), step)
    s = method.networks[0].weight.detach().double() / 0.05
    tangents = [way.softmax(1).tan() for way in (s, s.T)]
    expected = sum(((t.sum(1) - t.diagonal()) / t.sum(1) ** q).mean() for t in tangents)
    assert step.losses == pytest.approx([5 * expected.item()], rel=1e-4)
    assert step.terms["active"] == 0


def test_optimiser_is_adamw_with_default_decay():
    method = method_on(lambda: FixedSimilarities(torch.eye(2)), 2)
    optimizer = method.make_optimizer(method.networks[0], 3e-4)
    assert type(optimizer) is torch.optim.AdamW
    assert [optimizer.param_groups[0][name] for name in ("weight_decay", "lr")] == [0.01, 3e-4]


@pytest.mark.parametrize("fixed_regions", [True, False])
def test_training_pairs_are_augmented_as_the_backbone_allows(fixed_regions):
    torch.manual_seed(0)
    network = FixedSimilarities(torch.rand(12, 12), fixed_regions=fixed_regions)
    method = method_on(lambda: network, 12, word_change=0.5, region_change=0.5)
    batch = blank_batch(torch.arange(12))
    method.train_epoch(plan(0), StoredBatches(batch), Steps(method))
    seen = method.networks[0].batch
    assert (seen.caption_tokens == 50).any()  # the mask is the row that CRCL adds to the vocabulary
    assert seen.caption_lengths.float().mean() < 19
    blank = bool((seen.image_features == torch.tensor(BLANK)).any())
    shorter = bool((seen.image_lengths < 36).any())
    assert (blank, shorter) == ((True, False) if fixed_regions else (False, True))
    assert torch.equal(batch.image_features, torch.ones(12, 36, 2))
