"""DECL against the published code's numbers, and what it does where that code stops."""

from typing import Any

import numpy as np
import pytest
import torch
from oracles import evidential as oracle
from support.doubles import StandIn, Steps, StoredBatches, bare_batch
from support.parity import (
    PRECISIONS,
    SUFFIX,
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
from torch import Tensor, nn

from baselines.kit.batches import Batch
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
SIGMOID = (0.0, 1.0)
TIED = ("all_equal", "ties", "extreme")
TRAIN, WARMUP = EpochPlan(0, 0, "train", 1.0), EpochPlan(0, 0, "warmup", 1.0)


def matrices(stored: Arrays) -> list[str]:
    return names_between(stored, "raw.")


def signed(raw: Tensor) -> Tensor:
    """tanh(r) by way of the similarity that a network hands out."""
    return squashed(raw.sigmoid(), SIGMOID)


class Given(StandIn):
    """Stands for a network: the stored similarities of a batch, found by its first pair."""

    similarity_range = SIGMOID

    def __init__(self, *raw: Tensor) -> None:
        super().__init__()
        self.raw = nn.ParameterList(raw)
        self.firsts: list[int] = [0]

    def given(self, batch: Batch) -> Tensor:
        return self.raw[self.firsts.index(int(batch.pair_ids[0]))].sigmoid()


def method_on(network: nn.Module, n_pairs: int, **options: Any) -> DECL:
    return DECL(DECLConfig(**options), Setting(n_pairs, 1, 1, lambda: network, n_pairs))


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_evidence_and_its_parts_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("J_decl"), SUFFIX[dtype]
    tolerance = {"": 1e-5, "__f64": 1e-12}[suffix]
    part = {"": 1e-5, "__f64": 1e-9}[suffix]
    for matrix in matrices(stored):
        raw = tensor(stored[f"raw.{matrix}"], dtype)
        found = evidence(signed(raw), CONFIG.temperature)
        assert_near(found, stored[f"{matrix}.evidence{suffix}"], tolerance, name=matrix)
        for side, alpha in (("i2t", found + 1), ("t2i", found.T + 1)):
            labels, start = torch.eye(len(raw), dtype=dtype), f"{matrix}.{side}"
            for name, value in (("A", squared_error(alpha, labels)), ("B", variance(alpha))):
                want = stored[f"{start}.{name}{suffix}"]
                assert_near(value, want, part, name=start)
            near, size = (3e-3, 1 / 30) if dtype == torch.float32 else (1e-9, 1e-5)
            scale = size if matrix == "low_evidence" else 0  # what is left after large numbers cancel
            divergence = misleading_evidence(alpha, labels)
            assert_near(divergence, stored[f"{start}.kl{suffix}"], near, scale=scale, name=start)


def test_squashed_similarities_match_the_published_code(golden: Golden) -> None:
    stored = golden("J_decl")
    for matrix in matrices(stored):
        raw = tensor(stored[f"raw.{matrix}"])
        assert_near(raw.sigmoid(), stored[f"{matrix}.sims"], 1e-6, scale=1)
        assert_near(signed(raw), stored[f"{matrix}.sims_tanh"], 1e-6, scale=1)
        found = evidence(signed(raw), CONFIG.temperature)
        both = found + found.T
        assert_near(both / both.sum(dim=1, keepdim=True), stored[f"{matrix}.norm_e"], 1e-5, scale=1)


def test_a_cosine_takes_the_place_of_what_comes_before_the_sigmoid() -> None:
    cosines = torch.linspace(-1, 1, 5)
    assert_near(squashed(cosines, (-1.0, 1.0)), cosines.tanh())


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("time", STEPS)
@pytest.mark.parametrize("labels", ["warmup", "train.mixed", "train.all_clean", "train.all_noisy"])
def test_losses_and_their_gradients_match_the_published_code(
    labels: str, time: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("J_decl"), SUFFIX[dtype]
    value = {"": 1e-3, "__f64": 1e-10}[suffix]
    for matrix in matrices(stored):
        raw = tensor(stored[f"raw.{matrix}"], dtype)
        clean = torch.ones(len(raw))
        if labels != "warmup":
            clean = tensor(stored["preds." + labels.removeprefix("train.")])
        method = method_on(Given(raw), len(raw))
        step, start = Steps(method), f"{matrix}.{labels}.{time}"
        negatives = negatives_at(STEPS[time], len(raw), len(raw), CONFIG)
        method.train_step(bare_batch(len(raw)), clean.bool(), negatives, step)
        terms = step.terms
        assert negatives == stored[f"{start}.n_negatives"]
        for name, found in (("loss", step.losses[0]), ("loss_edl", terms["evidential"])):
            assert found == pytest.approx(float(stored[f"{start}.{name}{suffix}"]), rel=value), start
        assert terms["hinge"] == pytest.approx(float(stored[f"{start}.loss_rdh"]), rel=1e-5, abs=1e-6), start
        if matrix in TIED and clean.any():
            continue
        grad = method.networks[0].raw[0].grad
        exact = stored[f"{start}.grad__f64"]
        tolerance = 1e-8 if dtype == torch.float64 else 1e-4
        assert_near(grad, exact, tolerance, name=start)
        if matrix != "extreme":  # where the published float32 is itself 2.3e-3 from its float64
            want = stored[f"{start}.grad"]
            assert_near(grad, want, 2e-3, name=start)


@pytest.mark.parametrize("time", STEPS)
def test_triplet_loss_of_every_pair_matches_the_published_code(time: str, golden: Golden) -> None:
    stored = golden("J_decl")
    for matrix in matrices(stored):
        raw, start = tensor(stored[f"raw.{matrix}"]), f"{matrix}.warmup.{time}"
        found = hardest_mean_triplet(signed(raw), CONFIG.margin, int(stored[f"{start}.n_negatives"]))
        assert_near(found, stored[f"{start}.rdh"], 1e-5, name=matrix)


def test_numbers_of_negatives_match_the_published_code(golden: Golden) -> None:
    for batch_size, pairs, step, negatives in golden("J_decl")["n_negatives.table"].tolist():
        assert negatives_at(step, batch_size, pairs, CONFIG) == negatives


def test_predicted_correspondence_matches_the_published_code(golden: Golden) -> None:
    stored = golden("J_decl")
    starts = [f"correspondence.batch{k}." for k in range(int(stored["correspondence.n_batches"]))]
    ids, raw = ([tensor(stored[start + name]) for start in starts] for name in ("ids", "raw"))
    network = Given(*raw)
    network.firsts = [int(own[0]) for own in ids]
    method = method_on(network, len(stored["correspondence.preds"]))
    method.predict(StoredBatches(*map(bare_batch, ids)))
    np.testing.assert_array_equal(method.clean.values, stored["correspondence.preds"])
    shares, doubts = torch.zeros(2, len(method.clean.values))
    for own, matrix in zip(ids, raw, strict=True):
        found = evidence(signed(matrix), CONFIG.temperature)
        both = found + found.T
        shares[own] = both.diagonal() / both.sum(dim=1)
        doubts[own] = uncertainty(found + 1) + uncertainty(found.T + 1)
    assert_near(shares, stored["correspondence.norm_e_diag"], 1e-5, scale=1)
    assert_near(doubts, stored["correspondence.uncertainty"], 1e-5, scale=1)
    assert_near(method.certainty.values, 1 - doubts / 2, 1e-6, scale=1)


def sgr_method(golden: Golden, dtype: torch.dtype, **options: Any) -> tuple[DECL, Batch]:
    weights = golden("J_backbone_sgr")
    batch = batch_of(weights, "in.", dtype)
    return method_on(network_of("sgr", state_of(weights, "", dtype)), len(batch), **options), batch


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("case", ["warmup_early", "train_late"])
def test_one_step_on_a_network_matches_the_published_code(
    case: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("J_decl"), SUFFIX[dtype]
    value, slope, least = {"": (1e-3, 2e-2, 1e-4), "__f64": (1e-9, 1e-7, 1e-9)}[suffix]
    method, batch = sgr_method(golden, dtype)
    clean = tensor(stored["preds.mixed"]) if case == "train_late" else torch.ones(len(batch))
    negatives = negatives_at(STEPS[case.split("_")[1]], len(batch), len(batch), method.config)
    step = Steps(method)
    method.train_step(batch, clean.bool(), negatives, step)
    found = {
        "loss": step.losses[0],
        "loss_edl": step.terms["evidential"],
        "loss_rdh": step.terms["hinge"],
        "grad_norm": step.norms[0],
    }
    for name, number in found.items():
        assert number == pytest.approx(float(stored[f"sgr.{case}.{name}{suffix}"]), rel=value), name
    gradients = state_of(stored, f"sgr.{case}.grad.", dtype, suffix)
    base = state_of(golden("J_backbone_sgr"), "")
    assert_gradients(method.networks[0], "sgr", base, gradients, relative=slope, some=True, absolute=least)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_trajectory_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("J_decl"), SUFFIX[dtype]
    want = stored[f"sgr.trajectory.loss{suffix}"]
    method, batch = sgr_method(golden, dtype)
    step, batches = Steps(method, 2e-3), StoredBatches(batch)
    method.predict = lambda _: method.clean.write(batch.pair_ids, tensor(stored["preds.mixed"]))  # type: ignore[method-assign]
    for k in range(len(want)):
        method.train_epoch(WARMUP if 2 * k < len(want) else TRAIN, batches, step)
    first, later = {"": (1e-3, 5e-2), "__f64": (1e-6, 1e-6)}[suffix]
    assert_trajectory(step.losses, want, first, later)


def test_correspondence_and_ranking_of_a_network_match_the_published_code(golden: Golden) -> None:
    stored = golden("J_decl")
    method, batch = sgr_method(golden, torch.float32)
    method.predict(StoredBatches(batch))
    network = method.networks[0].eval()
    with torch.no_grad():
        similarities = network(batch).similarities
    scores = method.ranking_scores(network, similarities)
    both = scores + scores.T
    np.testing.assert_array_equal(method.clean.values, stored["sgr.correspondence.preds"])
    assert_near(both.diagonal() / both.sum(dim=1), stored["sgr.correspondence.norm_e_diag"], 1e-4, scale=1)
    assert_near(2 * (1 - method.certainty.values), stored["sgr.correspondence.uncertainty"], 1e-4, scale=1)
    assert_near(similarities, stored["inference.sims"], 1e-5, scale=1)
    assert_near(scores, stored["inference.evidence"], 2e-4)
    second = method.ranking_scores(network, tensor(stored["inference.raw_second_model"]).sigmoid())
    assert_near((scores + second) / 2, stored["inference.evidence_two_models"], 2e-4)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        ("flickr30k", {}),
        ("coco", {"epochs": 20, "lr_update": 10, "learning_rate": 5e-4, "warmup_epochs": 2}),
        ("cc152k", {}),
    ],
)
def test_schedule_matches_the_published_code(dataset: str, options: dict[str, Any], golden: Golden) -> None:
    plan = method_on(nn.Identity(), 4, **options).plan()
    rates = [epoch.learning_rate for epoch in plan if epoch.phase == "train"]
    assert_near(rates, golden("J_decl")[f"schedule.{dataset}.lr"], 1e-12)
    warmup = [epoch for epoch in plan if epoch.phase == "warmup"]
    assert {epoch.learning_rate for epoch in warmup} == {rates[0]}
    assert not any(epoch.select for epoch in warmup)


def test_of_equal_evidence_the_first_candidate_counts() -> None:
    assert predicted_clean(torch.ones(4, 4)).tolist() == [True, False, False, False]


def test_a_training_batch_of_mu_pairs_is_left_out() -> None:
    sizes = (6, 5)
    network = Given(*(torch.randn(n, n) for n in sizes))
    network.firsts = [0, 6]
    batches = StoredBatches(bare_batch(6), bare_batch(torch.arange(6, 11)))
    method = method_on(network, 11)
    step = Steps(method)
    method.train_epoch(TRAIN, batches, step)
    assert [len(batch) for _, batch, _ in step.calls] == [6]
    method.train_epoch(WARMUP, batches, step)
    assert [len(batch) for _, batch, _ in step.calls] == [6, 6, 5]
    assert method.state_dict()["steps"] == 3


def test_batches_that_would_all_be_left_out_are_refused() -> None:
    method = method_on(Given(torch.randn(5, 5)), 5)
    with pytest.raises(TrainingError, match="set batch_size to 6 or more"):
        method.train_epoch(TRAIN, StoredBatches(bare_batch(5)), Steps(method))


@pytest.mark.parametrize("largest", [0.0, 1.0, 10.0])
def test_loss_is_that_of_the_definition(largest: float) -> None:
    generator = torch.Generator().manual_seed(0)
    alpha = 1 + torch.exp(largest * torch.randn(5, 7, generator=generator, dtype=torch.float64).clamp(-1, 1))
    labels = torch.eye(5, 7, dtype=torch.float64)
    labels[2] = 0
    expected = oracle.evidential_loss(alpha.tolist(), labels.tolist(), 0.1)
    assert_near(evidential_loss(alpha, labels, 0.1), torch.tensor(expected, dtype=torch.float64), 1e-10)


def test_single_precision_does_not_cancel() -> None:
    alpha = torch.tensor([[20000.0, 1.5, 22027.0, 3.0]])
    labels = torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    expected = oracle.misleading_evidence(alpha[0].tolist(), labels[0].tolist())
    assert misleading_evidence(alpha, labels).item() == pytest.approx(expected, rel=1e-6)
