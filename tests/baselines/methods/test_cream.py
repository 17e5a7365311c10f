"""CREAM against the published code's numbers, and what it does where that code stops."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.doubles import OwnPairs, Steps, StoredBatches, bare_batch
from support.parity import (
    PRECISIONS,
    SUFFIX,
    Arrays,
    Golden,
    assert_gradients,
    assert_weights_after_a_step,
    column,
    gradients_near,
    names_between,
    network_batches,
    state_of,
    tensor,
)
from support.rounding import assert_near
from support.two_networks import (
    SetsInTurn,
    assert_mixtures,
    assert_similarities,
    assert_turns,
    on_both_networks,
    stored_batches,
)
from torch import Tensor, nn

import baselines.methods.cream as cream
from baselines.kit.batches import Batch
from baselines.kit.losses import info_nce, matching_probability
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.cream import (
    CREAM,
    CREAMConfig,
    ThreeSets,
    cream_loss,
    even_targets,
    mined_targets,
    three_sets,
)

TAU = CREAMConfig().temperature
SET_NAMES = ("clean", "hard", "noisy")


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_losses_and_their_gradients_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("S_cream_losses"), SUFFIX[dtype]
    value, grad, noise = {"": (1e-5, 2e-4, 2e-6), "__f64": (1e-9, 1e-8, 1e-9)}[suffix]
    compared = 0
    for name in names_between(stored, "", f".value{suffix}"):
        if name == "one_hot":  # labels ignored: the warm-up
            assert_near(2 * info_nce(tensor(stored["scores.random"]), TAU).mean(), stored["one_hot.value"])
            continue
        matrix, mode, *rest = name.split(".", 3)
        scores = tensor(stored[f"scores.{matrix}"], dtype).requires_grad_()
        if mode == "train":
            labels, smallest = (
                column(stored[f"labels.{rest[0]}"], dtype),
                float(rest[1].removeprefix("filter")),
            )
            targets = mined_targets(scores, labels, smallest)
            loss = cream_loss(scores, targets, TAU).mean()
            if f"{name}.weight_row__f64" in stored and suffix:
                assert_near(targets.captions, stored[f"{name}.weight_row__f64"], 1e-9, name=name)
                assert_near(targets.images, stored[f"{name}.weight_col__f64"], 1e-9, name=name)
        elif mode == "smooth":
            labels = column(stored[f"labels.{rest[0]}"], dtype)
            loss = cream_loss(scores, even_targets(labels), TAU).mean()
        else:
            loss = 2 * info_nce(scores, TAU)
            loss = loss.mean() if mode == "warmup" else loss
        loss.sum().backward()
        want = stored[f"{name}.value{suffix}"]
        assert_near(loss, want, value, scale=noise / value, name=name)
        assert_near(scores.grad, stored[f"{name}.grad{suffix}"], grad, scale=noise / grad, name=name)
        compared += 1
    assert compared == len(names_between(stored, "", f".grad{suffix}"))
    for matrix in names_between(stored, "", f".predict.p{suffix}"):
        found = matching_probability(tensor(stored[f"scores.{matrix}"], dtype), TAU)
        assert_near(found, stored[f"{matrix}.predict.p{suffix}"], value, scale=1, name=matrix)


def test_mined_weights_are_differentiated_through(golden: Golden) -> None:
    stored = golden("S_cream_losses")
    ending = ".train.mixed.filter0.grad_weights_constant__f64"
    differences = []
    for matrix in names_between(stored, "", ending):
        scores = tensor(stored[f"scores.{matrix}"], torch.float64).requires_grad_()
        targets = mined_targets(scores.detach(), column(stored["labels.mixed"], torch.float64), 0.0)
        cream_loss(scores, targets, TAU).mean().backward()
        assert_near(scores.grad, stored[f"{matrix}{ending}"], 1e-8, name=matrix)
        whole = tensor(stored[f"{matrix}.train.mixed.filter0.grad__f64"])
        differences.append(((scores.grad - whole).abs().max() / whole.abs().max()).item())
    assert max(differences) > 0.1


def test_mixtures_and_divisions_match_the_published_code(golden: Golden) -> None:
    stored = golden("S_cream_division")
    for case in names_between(stored, "", ".np_seed"):
        assert_divided(stored, case, assert_mixtures(stored, case))
    for case in names_between(stored, "direct.", ".prob_A"):
        both = [tensor(stored[f"direct.{case}.prob_{network}"]) for network in "AB"]
        assert_divided(stored, f"direct.{case}", both)


def assert_divided(stored: Arrays, case: str, both: list[Tensor]) -> None:
    for name, found in zip(SET_NAMES, three_sets(both, 0.5), strict=True):
        np.testing.assert_array_equal(found, stored[f"{case}.{name}"], err_msg=f"{case}.{name}")


class Recorded(CREAM):
    """CREAM with stored predictions, a given division, and what reaches the loss in place of steps."""

    def __init__(self, predictions: list[Tensor], division: ThreeSets, **options: Any) -> None:
        super().__init__(CREAMConfig(**options), Setting(len(predictions[0]), 1, 1, OwnPairs))
        self.stored = dict(zip(self.networks, predictions, strict=True))
        self.division = division
        self.steps: list[tuple[list[int], Tensor, float]] = []

    def divide(self, batches: Any) -> ThreeSets:
        return self.division

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        return self.stored[network][batch.pair_ids]

    def train_step(
        self, network: nn.Module, batch: Batch, labels: Tensor, smallest: Tensor | float, step: Any
    ) -> None:
        if len(batch) > 1:  # the code takes no step on one pair; our batches never hold one
            self.steps.append((batch.pair_ids.tolist(), labels, float(smallest)))


def in_sets(batches: SetsInTurn, clean_share: float) -> ThreeSets:
    """The pairs of the stored sets, and a share that the published function was told."""

    class Told(ThreeSets):
        @property
        def clean_share(self) -> float:
            return told

    told = clean_share
    return Told(*batches.sets)


def test_labels_filters_and_the_order_of_steps_match_the_published_code(golden: Golden) -> None:
    stored = golden("S_cream_train")
    ids = {name: stored_batches(stored, name) for name in SET_NAMES}
    batches = SetsInTurn(*ids.values())
    kinds = {i: kind for kind, name in enumerate(SET_NAMES) for b in ids[name] for i in b.pair_ids.tolist()}
    for case in names_between(stored, "", ".kind"):
        letter, epoch, share = re.fullmatch(r"([AB])\.epoch(\d+)\.ratio([\d.]+)", case).groups()
        predictions = [tensor(stored[f"p_{network}"]) for network in "AB"]
        method = Recorded(predictions, in_sets(batches, float(share)), faults="published")
        for memory, network in zip(method.clean_probability, "AB", strict=True):
            memory.write(torch.arange(len(predictions[0])), tensor(stored[f"w_{network}"]))
        method.train_network("AB".index(letter), EpochPlan(0, int(epoch), "train", 1.0), batches, None)
        assert [kinds[ids[0]] for ids, _, _ in method.steps] == stored[f"{case}.kind"].tolist(), case
        assert_near([x for _, _, x in method.steps], stored[f"{case}.filter"], 1e-6, name=case)
        for number, (pairs, labels, _) in enumerate(method.steps):
            assert pairs == stored[f"{case}.step{number}.ids"].tolist()
            assert_near(labels, column(stored[f"{case}.step{number}.labels"]), 1e-6, scale=1)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_network_in_either_mode_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("S_cream_network"), SUFFIX[dtype]
    method, batch = on_both_networks(CREAM, stored, dtype), network_batches(stored, dtype, "chn")["c"][0]
    similarities = []
    for network, letter in zip(method.networks, "AB", strict=True):
        with torch.no_grad():
            similarities.append(network.eval()(batch).similarities)
        near = 1e-9 if suffix else 1e-5
        assert_near(similarities[-1], stored[f"{letter}.eval.sims{suffix}"], near, scale=1)
        near = 1e-9 if suffix else 1e-4
        assert_near(method.predict(network, batch), stored[f"{letter}.eval.p{suffix}"], near, scale=1)
        assert_near(method.pair_losses(similarities[-1]), stored[f"{letter}.eval.loss{suffix}"], near)
    if suffix:
        assert_near(sum(similarities) / 2, stored["inference.sims"], 1e-5, scale=1)
    found = method.networks[0].train()(batch).similarities.detach()
    assert_near(found, stored[f"A.train.sims{suffix}"], 1e-9 if suffix else 1e-5, scale=1)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("mode", ["warmup", "filter0", "filter0.1", "filter1"])
def test_one_step_on_a_network_matches_the_published_code(
    mode: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("S_cream_network"), SUFFIX[dtype]
    method, batch = on_both_networks(CREAM, stored, dtype), network_batches(stored, dtype, "chn")["c"][0]
    step = Steps(method)
    if mode == "warmup":
        method.warmup_step(0, batch, step)
    else:
        labels, smallest = column(stored["labels"], dtype), float(mode.removeprefix("filter"))
        method.train_step(method.networks[0], batch, labels, smallest, step)
    value, norm = (1e-9, 1e-8) if suffix else (1e-4, 1e-3)
    assert step.losses[0] == pytest.approx(float(stored[f"A.{mode}.loss{suffix}"]), rel=value)
    assert step.norms[0] == pytest.approx(float(stored[f"A.{mode}.grad_norm{suffix}"]), rel=norm)
    if mode in ("warmup", "filter0"):
        gradients = state_of(stored, f"A.{mode}.grad.", dtype, suffix)
        base, near = state_of(stored, "A."), gradients_near(dtype, 1e-3, 1e-7)
        assert_gradients(method.networks[0], "sgr", base, gradients, some=True, **near)
        if mode == "filter0" and suffix:
            assert_weights_after_a_step(method, base, state_of(stored, "A.filter0.after.", dtype, suffix))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("case", ["clean_only", "hard", "noisy", "mined"])
def test_trajectory_matches_the_published_code(
    case: str, dtype: torch.dtype, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, suffix, name = golden("S_cream_network"), SUFFIX[dtype], f"trajectory.{case}"
    method = on_both_networks(CREAM, stored, dtype, faults="published")
    sets = network_batches(stored, dtype, "chn")
    batches = SetsInTurn(*sets.values())
    for letter in "ch":
        for number, batch in enumerate(sets[letter]):
            for memory, network in zip(method.clean_probability, "AB", strict=True):
                memory.values = memory.values.to(dtype)
                memory.write(batch.pair_ids, tensor(stored[f"batch.{letter}{number}.w_{network}"], dtype))
    division = in_sets(batches, float(stored[f"{name}.ratio"]))
    monkeypatch.setattr(method, "divide", lambda _: division)
    monkeypatch.setattr(method, "co_divide", lambda *_: None)
    step, seen = Steps(method, 2e-3), []

    def recording(similarities: Tensor, labels: Tensor, smallest: Tensor | float) -> Any:
        seen.append((labels, float(smallest)))
        return mined_targets(similarities, labels, smallest)

    monkeypatch.setattr(cream, "mined_targets", recording)
    method.train_epoch(EpochPlan(0, int(stored[f"{name}.epoch"]), "train", 1.0), batches, step)
    assert_turns(method, step, stored, name)
    loss, filters, norm, label = (1e-5, 1e-6, 1e-5, 1e-6) if suffix else (1e-2, 1e-3, 3e-2, 5e-3)
    assert_near(step.losses, stored[f"{name}.loss{suffix}"], loss)
    assert_near([smallest for _, smallest in seen], stored[f"{name}.filter{suffix}"], filters)
    assert_near(step.norms, stored[f"{name}.grad_norm{suffix}"], norm)
    for number, (labels, _) in enumerate(seen):
        assert_near(labels, column(stored[f"{name}.labels{number}{suffix}"]), label, scale=1)
    if suffix:
        assert_similarities(method, sets["c"][0], stored, name)


def rest_of_an_epoch(faults: str) -> list[tuple[list[int], Tensor, float]]:
    """Three clean batches and one hard batch, whose prediction changes after the first iteration."""
    clean, hard = (
        [bare_batch(torch.arange(start, start + 2)) for start in starts] for starts in ((0, 2, 4), (6,))
    )
    batches = SetsInTurn(clean, hard, [bare_batch(torch.arange(8, 10))])
    method = Recorded([torch.full((10,), 0.5)] * 2, in_sets(batches, 0.6), faults=faults)
    for memory in method.clean_probability:
        memory.values.fill_(0.0)
    take = method.train_step

    def step(*arguments: Any) -> None:
        take(*arguments)
        method.stored = {network: torch.ones(10) for network in method.networks}

    method.train_step = step
    method.train_network(0, EpochPlan(0, 10, "train", 1.0), batches, None)
    return method.steps


def test_a_spent_hard_set_keeps_its_last_mean_in_the_filter() -> None:
    for faults, later in (("repaired", (6 * 1 + 2 * 0.5 + 2 * 1) / 10), ("published", 1.0)):
        filters = [smallest for _, _, smallest in rest_of_an_epoch(faults)]
        assert filters == pytest.approx([0.5, 0.5, later, later]), faults


def iterations(sets: tuple[Tensor, Tensor, Tensor], epoch: int) -> Iterator[tuple[list[int], Tensor, float]]:
    """Steps on batches of two pairs, of sets that may be empty."""
    batches = SetsInTurn(*([bare_batch(ids) for ids in each.split(2) if len(ids) > 1] for each in sets))
    method = Recorded([torch.full((20,), 0.4)] * 2, ThreeSets(*sets))
    for memory in method.clean_probability:
        memory.values.fill_(0.5)
    method.train_network(0, EpochPlan(0, epoch, "train", 1.0), batches, None)
    return iter(method.steps)


@pytest.mark.parametrize("empty", ["hard", "noisy"])
def test_an_empty_set_takes_no_step_and_has_no_part_in_the_filter(empty: str) -> None:
    none, some = torch.arange(0), torch.arange(12, 16)
    sets = (torch.arange(8), none if empty == "hard" else some, none if empty == "noisy" else some)
    steps = list(iterations(sets, 15))
    assert len(steps) == 4 + (2 if empty == "noisy" else 4)
    label = {"hard": (8 * 0.7 + 4 * 0.4) / 12, "noisy": 0.7}[empty]
    assert steps[0][2] == pytest.approx(label)
    assert all(labels.isfinite().all() for _, labels, _ in steps)


@pytest.mark.parametrize(
    "both",
    [
        [torch.zeros(6), torch.zeros(6)],
        [torch.full((6,), 0.7), torch.full((6,), 0.7)],  # the forced hundredth takes all that are equal
        [torch.tensor([0.9, 0, 0, 0, 0, 0]), torch.tensor([0.9, 0.9, 0, 0, 0, 0])],
    ],
)
def test_every_pair_is_clean_where_fewer_than_two_would_be(both: list[Tensor]) -> None:
    method = CREAM(CREAMConfig(), Setting(6, 1, 1, nn.Identity))
    for memory, probability in zip(method.clean_probability, both, strict=True):
        memory.values.copy_(probability)
    sets = method.divide(StoredBatches(bare_batch(6)))
    assert [len(ids) for ids in (sets.clean, sets.hard, sets.noisy)] == [6, 0, 0]
    assert sets.clean_share == 1


@pytest.mark.parametrize("pairs", [1, 4])
def test_similarities_below_zero_mine_nothing_and_stay_finite(pairs: int) -> None:
    scores = torch.full((pairs, pairs), -0.5).requires_grad_()
    labels = torch.zeros(pairs)
    targets = mined_targets(scores, labels, 0.0)
    assert (targets.captions == 0).all()
    assert (targets.images == 0).all()
    for each in (targets, even_targets(labels)):
        cream_loss(scores, each, TAU).mean().backward()
    assert scores.grad.isfinite().all()
