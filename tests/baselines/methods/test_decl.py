"""DECL against the published code's numbers, and what it does where that code stops."""

import pytest
import torch
from oracles import evidential as oracle
from support.doubles import StandIn, Steps, StoredBatches, bare_batch
from support.parity import assert_trajectory
from support.refusals import refused
from support.rounding import assert_near
from torch import nn

from baselines.kit.method import EpochPlan, Setting
from baselines.methods.decl import (
    DECL,
    DECLConfig,
    evidence,
    evidential_loss,
    hardest_mean_triplet,
    misleading_evidence,
    negatives_at,
    predicted_clean,
    squared_error,
    squashed,
    uncertainty,
    variance,
)
from ncl_bench.errors import TrainingError

CONFIG = DECLConfig()
STEPS = {"early": 1, "late": 10**6}
TRAIN, WARMUP = EpochPlan(0, 0, "train", 1.0), EpochPlan(0, 0, "warmup", 1.0)


def signed(raw):
    """tanh(r) by way of the similarity that a network hands out."""
    return squashed(raw.sigmoid(), Given.similarity_range)


def evidence_of(raw):
    return evidence(signed(raw), CONFIG.temperature)


class Given(StandIn):
    """Stands for a network: the stored similarities of a batch, found by its first pair."""

    similarity_range = (0.0, 1.0)

    def __init__(self, *raw):
        super().__init__()
        self.raw = nn.ParameterList(raw)
        self.firsts = [0]

    def given(self, batch):
        return self.raw[self.firsts.index(int(batch.pair_ids[0]))].sigmoid()


def method_on(network, n_pairs, **options):
    return DECL(DECLConfig(**options), Setting(n_pairs, 1, 1, lambda: network, n_pairs))


def test_evidence_and_its_parts_match_the_published_code(precise):
    stored = precise("J_decl")
    for matrix in stored.names("raw."):
        raw = stored(f"raw.{matrix}")
        found = evidence_of(raw)
        stored.near(found, f"{matrix}.evidence", 1e-5, 1e-12)
        for side, alpha in (("i2t", found + 1), ("t2i", found.T + 1)):
            labels, start = torch.eye(len(raw), dtype=raw.dtype), f"{matrix}.{side}"
            stored.near(squared_error(alpha, labels), f"{start}.A", 1e-5, 1e-9)
            stored.near(variance(alpha), f"{start}.B", 1e-5, 1e-9)
            scale = 1 / 30 if matrix == "low_evidence" else 0  # what is left after large numbers cancel
            stored.near(misleading_evidence(alpha, labels), f"{start}.kl", 3e-3, 1e-9, scale=scale)
        if not stored.double:
            both = found + found.T
            whole = {
                "sims": raw.sigmoid(),
                "sims_tanh": signed(raw),
                "norm_e": both / both.sum(1, keepdim=True),
            }
            for name, each in whole.items():
                stored.near(each, f"{matrix}.{name}", 1e-5)
            for time in STEPS:
                start = f"{matrix}.warmup.{time}"
                hinges = hardest_mean_triplet(signed(raw), CONFIG.margin, int(stored[f"{start}.n_negatives"]))
                stored.near(hinges, f"{start}.rdh", 1e-5)


def test_a_cosine_takes_the_place_of_what_comes_before_the_sigmoid():
    cosines = torch.linspace(-1, 1, 5)
    assert_near(squashed(cosines, (-1.0, 1.0)), cosines.tanh())


@pytest.mark.parametrize("time", STEPS)
@pytest.mark.parametrize("labels", ["warmup", "train.mixed", "train.all_clean", "train.all_noisy"])
def test_losses_and_their_gradients_match_the_published_code(labels, time, precise):
    stored = precise("J_decl")
    for matrix in stored.names("raw."):
        raw, start = stored(f"raw.{matrix}"), f"{matrix}.{labels}.{time}"
        clean = torch.ones(len(raw))
        if labels != "warmup":
            clean = stored("preds." + labels.removeprefix("train."))
        method = method_on(Given(raw), len(raw))
        step = Steps(method)
        negatives = negatives_at(STEPS[time], len(raw), len(raw), CONFIG)
        method.train_step(bare_batch(len(raw)), clean.bool(), negatives, step)
        stored.equal(negatives, f"{start}.n_negatives")
        terms = {"loss_edl": step.terms["evidential"]}
        stored.near_step(step, f"{start}.", single=1e-3, terms=terms)
        assert_near(step.terms["hinge"], stored[f"{start}.loss_rdh"], 1e-5, scale=0.1, name=start)
        if matrix in ("all_equal", "ties", "extreme") and clean.any():
            continue
        grad = method.networks[0].raw[0].grad
        assert_near(grad, stored[f"{start}.grad__f64"], 1e-8 if stored.double else 1e-4, name=start)


def test_numbers_of_negatives_match_the_published_code(golden):
    for batch_size, pairs, step, negatives in golden("J_decl")["n_negatives.table"].tolist():
        assert negatives_at(step, batch_size, pairs, CONFIG) == negatives


def test_predicted_correspondence_matches_the_published_code(single):
    stored = single("J_decl")
    starts = [f"correspondence.batch{k}." for k in range(int(stored["correspondence.n_batches"]))]
    ids, raw = ([stored(start + name) for start in starts] for name in ("ids", "raw"))
    network = Given(*raw)
    network.firsts = [int(own[0]) for own in ids]
    method = method_on(network, len(stored["correspondence.preds"]))
    method.predict(StoredBatches(*map(bare_batch, ids)))
    stored.equal(method.clean.values, "correspondence.preds")
    shares, doubts = torch.zeros(2, len(method.clean.values))
    for own, matrix in zip(ids, raw, strict=True):
        found = evidence_of(matrix)
        both = found + found.T
        shares[own] = both.diagonal() / both.sum(dim=1)
        doubts[own] = uncertainty(found + 1) + uncertainty(found.T + 1)
    stored.near(shares, "correspondence.norm_e_diag", 1e-5)
    stored.near(doubts, "correspondence.uncertainty", 1e-5)
    assert_near(method.certainty.values, 1 - doubts / 2, 1e-6, scale=1)


def sgr_method(weights):
    batch = weights.batch()
    return method_on(weights.network("sgr"), len(batch)), batch


@pytest.mark.parametrize("case", ["warmup_early", "train_late"])
def test_one_step_on_a_network_matches_the_published_code(case, precise):
    stored, weights = precise("J_decl"), precise("J_backbone_sgr")
    method, batch = sgr_method(weights)
    clean = stored("preds.mixed") if case == "train_late" else torch.ones(len(batch))
    negatives = negatives_at(STEPS[case.split("_")[1]], len(batch), len(batch), CONFIG)
    step = Steps(method)
    method.train_step(batch, clean.bool(), negatives, step)
    terms = {"loss_edl": step.terms["evidential"], "loss_rdh": step.terms["hinge"]}
    stored.near_step(step, f"sgr.{case}.", weights.state(), single=1e-3, slope=2e-2, terms=terms)


def test_trajectory_matches_the_published_code(precise):
    stored = precise("J_decl")
    want = stored[f"sgr.trajectory.loss{stored.end}"]
    method, batch = sgr_method(precise("J_backbone_sgr"))
    step, batches = Steps(method, 2e-3), StoredBatches(batch)
    method.predict = lambda _: method.clean.write(batch.pair_ids, stored("preds.mixed"))
    for k in range(len(want)):
        method.train_epoch(WARMUP if 2 * k < len(want) else TRAIN, batches, step)
    assert_trajectory(step.losses, want, *((1e-6, 1e-6) if stored.double else (1e-3, 5e-2)))


def test_correspondence_and_ranking_of_a_network_match_the_published_code(single):
    stored = single("J_decl")
    method, batch = sgr_method(single("J_backbone_sgr"))
    method.predict(StoredBatches(batch))
    network = method.networks[0].eval()
    with torch.no_grad():
        similarities = network(batch).similarities
    scores = method.ranking_scores(network, similarities)
    both = scores + scores.T
    stored.equal(method.clean.values, "sgr.correspondence.preds")
    stored.near(both.diagonal() / both.sum(dim=1), "sgr.correspondence.norm_e_diag")
    stored.near(2 * (1 - method.certainty.values), "sgr.correspondence.uncertainty")
    stored.near(similarities, "inference.sims", 1e-5)
    stored.near(scores, "inference.evidence", 2e-4)
    second = method.ranking_scores(network, torch.tensor(stored["inference.raw_second_model"]).sigmoid())
    stored.near((scores + second) / 2, "inference.evidence_two_models", 2e-4)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        ("flickr30k", {}),
        ("coco", {"epochs": 20, "lr_update": 10, "learning_rate": 5e-4, "warmup_epochs": 2}),
        ("cc152k", {}),
    ],
)
def test_schedule_matches_the_published_code(dataset, options, single):
    plan = method_on(nn.Identity(), 4, **options).plan()
    rates = [epoch.learning_rate for epoch in plan if epoch.phase == "train"]
    single("J_decl").near(rates, f"schedule.{dataset}.lr", 1e-12)
    warmup = [epoch for epoch in plan if epoch.phase == "warmup"]
    assert {(epoch.learning_rate, epoch.select) for epoch in warmup} == {(rates[0], False)}


def test_of_equal_evidence_the_first_candidate_counts():
    assert predicted_clean(torch.ones(4, 4)).tolist() == [True, False, False, False]


def test_a_training_batch_of_mu_pairs_is_left_out():
    network = Given(torch.randn(6, 6), torch.randn(5, 5))
    network.firsts = [0, 6]
    batches = StoredBatches(bare_batch(6), bare_batch(torch.arange(6, 11)))
    method = method_on(network, 11)
    step = Steps(method)
    for plan in (TRAIN, WARMUP):
        method.train_epoch(plan, batches, step)
    assert [len(batch) for _, batch, _ in step.calls] == [6, 6, 5]
    assert method.state_dict()["steps"] == 3


def test_batches_that_would_all_be_left_out_are_refused():
    method = method_on(Given(torch.randn(5, 5)), 5)
    with refused(TrainingError):
        method.train_epoch(TRAIN, StoredBatches(bare_batch(5)), Steps(method))


@pytest.mark.parametrize("largest", [0.0, 1.0, 10.0])
def test_loss_is_that_of_the_definition(largest):
    generator = torch.Generator().manual_seed(0)
    alpha = 1 + torch.exp(largest * torch.randn(5, 7, generator=generator, dtype=torch.float64).clamp(-1, 1))
    labels = torch.eye(5, 7, dtype=torch.float64)
    labels[2] = 0
    expected = oracle.evidential_loss(alpha.tolist(), labels.tolist(), 0.1)
    assert_near(evidential_loss(alpha, labels, 0.1), expected, 1e-10)


def test_single_precision_does_not_cancel():
    alpha = torch.tensor([[20000.0, 1.5, 22027.0, 3.0]])
    labels = torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    expected = oracle.misleading_evidence(alpha[0].tolist(), labels[0].tolist())
    assert misleading_evidence(alpha, labels).item() == pytest.approx(expected, rel=1e-6)
