"""CREAM against the published code's numbers, and what it does where that code stops."""

import re

import pytest
import torch
from support.doubles import OwnPairs, Steps, StoredBatches, bare_batch
from support.parity import network_batches, tensor
from support.rounding import assert_near
from support.two_networks import (
    SetsInTurn,
    mixtures_of,
    near_trajectory,
    on_both_networks,
    stored_batches,
)
from torch import nn

import baselines.methods.cream as cream
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


def test_losses_and_their_gradients_match_the_published_code(precise):
    stored, compared = precise("S_cream_losses"), 0
    for name in stored.results("", ".value"):
        if name == "one_hot":  # labels ignored: the warm-up
            stored.near(2 * info_nce(stored("scores.random"), TAU).mean(), "one_hot.value", 1e-5)
            continue
        matrix, mode, *rest = name.split(".", 3)
        scores = stored.leaf(f"scores.{matrix}")
        labels = stored(f"labels.{rest[0]}")[:, 0] if rest else None
        if mode == "train":
            targets = mined_targets(scores, labels, float(rest[1].removeprefix("filter")))
            loss = cream_loss(scores, targets, TAU).mean()
            if stored.double and stored.has(f"{name}.weight_row"):
                stored.near(targets.captions, f"{name}.weight_row", double=1e-9)
                stored.near(targets.images, f"{name}.weight_col", double=1e-9)
        elif mode == "smooth":
            loss = cream_loss(scores, even_targets(labels), TAU).mean()
        else:
            loss = 2 * info_nce(scores, TAU)
            loss = loss.mean() if mode == "warmup" else loss
        loss.sum().backward()
        stored.near(loss, f"{name}.value", 1e-5, 1e-9, scale=0.2)
        stored.near(scores.grad, f"{name}.grad", 2e-4, scale=0.01)
        compared += 1
    assert compared == len(stored.results("", ".grad"))
    for matrix in stored.results("", ".predict.p"):
        found = matching_probability(stored(f"scores.{matrix}"), TAU)
        stored.near(found, f"{matrix}.predict.p", 1e-5, 1e-9)


def test_mined_weights_are_differentiated_through(double):
    stored, ending, differences = double("S_cream_losses"), ".train.mixed.filter0.grad_weights_constant", []
    for matrix in stored.results("", ending):
        scores = stored.leaf(f"scores.{matrix}")
        targets = mined_targets(scores.detach(), stored("labels.mixed")[:, 0], 0.0)
        cream_loss(scores, targets, TAU).mean().backward()
        stored.near(scores.grad, matrix + ending)
        whole = tensor(stored[f"{matrix}.train.mixed.filter0.grad__f64"])
        differences.append(((scores.grad - whole).abs().max() / whole.abs().max()).item())
    assert max(differences) > 0.1


def test_mixtures_and_divisions_match_the_published_code(single):
    stored = single("S_cream_division")
    given = mixtures_of(stored)
    for case in stored.names("direct.", ".prob_A"):
        given[f"direct.{case}"] = [tensor(stored[f"direct.{case}.prob_{network}"]) for network in "AB"]
    for case, both in given.items():
        for name, found in zip(SET_NAMES, three_sets(both, 0.5), strict=True):
            stored.equal(found, f"{case}.{name}")


class Recorded(CREAM):
    """CREAM with stored predictions, a given division, and what reaches the loss in place of steps."""

    def __init__(self, predictions, division, **options):
        super().__init__(CREAMConfig(**options), Setting(len(predictions[0]), 1, 1, OwnPairs))
        self.stored = dict(zip(self.networks, predictions, strict=True))
        self.division = division
        self.steps = []

    def divide(self, batches):
        return self.division

    def predict(self, network, batch):
        return self.stored[network][batch.pair_ids]

    def train_step(self, network, batch, labels, smallest, step):
        if len(batch) > 1:  # the code takes no step on one pair; our batches never hold one
            self.steps.append((batch.pair_ids.tolist(), labels, float(smallest)))


def in_sets(batches, clean_share):
    """The pairs of the stored sets, and a share that the published function was told."""
    told = type("Told", (ThreeSets,), {"clean_share": clean_share})
    return told(*batches.sets)


def test_labels_filters_and_the_order_of_steps_match_the_published_code(single):
    stored = single("S_cream_train")
    ids = {name: stored_batches(stored, name) for name in SET_NAMES}
    batches = SetsInTurn(*ids.values())
    kinds = {i: kind for kind, name in enumerate(SET_NAMES) for b in ids[name] for i in b.pair_ids.tolist()}
    for case in stored.names("", ".kind"):
        letter, epoch, share = re.fullmatch(r"([AB])\.epoch(\d+)\.ratio([\d.]+)", case).groups()
        predictions = [stored(f"p_{network}") for network in "AB"]
        method = Recorded(predictions, in_sets(batches, float(share)), faults="published")
        for memory, network in zip(method.clean_probability, "AB", strict=True):
            memory.write(torch.arange(len(predictions[0])), stored(f"w_{network}"))
        method.train_network("AB".index(letter), EpochPlan(0, int(epoch), "train", 1.0), batches, None)
        stored.equal([kinds[pairs[0]] for pairs, _, _ in method.steps], f"{case}.kind")
        stored.near([smallest for _, _, smallest in method.steps], f"{case}.filter", 1e-6)
        for number, (pairs, labels, _) in enumerate(method.steps):
            stored.equal(pairs, f"{case}.step{number}.ids")
            stored.near(labels[:, None], f"{case}.step{number}.labels", 1e-6)


def test_a_network_in_either_mode_matches_the_published_code(precise):
    stored = precise("S_cream_network")
    method, batch = on_both_networks(CREAM, stored), network_batches(stored, "chn")["c"][0]
    for network, letter in zip(method.networks, "AB", strict=True):
        with torch.no_grad():
            similarities = network.eval()(batch).similarities
        stored.near(similarities, f"{letter}.eval.sims", 1e-5, 1e-9)
        stored.near(method.predict(network, batch), f"{letter}.eval.p", double=1e-9)
        stored.near(method.pair_losses(similarities), f"{letter}.eval.loss")
    found = method.networks[0].train()(batch).similarities
    stored.near(found, "A.train.sims", 1e-5, 1e-9)


@pytest.mark.parametrize("mode", ["warmup", "filter0", "filter0.1", "filter1"])
def test_one_step_on_a_network_matches_the_published_code(mode, precise):
    stored = precise("S_cream_network")
    method, batch = on_both_networks(CREAM, stored), network_batches(stored, "chn")["c"][0]
    step = Steps(method)
    if mode == "warmup":
        method.warmup_step(0, batch, step)
    else:
        labels, smallest = stored("labels")[:, 0], float(mode.removeprefix("filter"))
        method.train_step(method.networks[0], batch, labels, smallest, step)
    stored.near_step(step, f"A.{mode}.", stored.state("A."), single=1e-3)


@pytest.mark.parametrize("case", ["clean_only", "hard", "noisy", "mined"])
def test_trajectory_matches_the_published_code(case, precise, monkeypatch):
    stored, start = precise("S_cream_network"), f"trajectory.{case}."
    method = on_both_networks(CREAM, stored, faults="published")
    sets = network_batches(stored, "chn")
    batches = SetsInTurn(*sets.values())
    for memory, network in zip(method.clean_probability, "AB", strict=True):
        memory.values = memory.values.to(stored.dtype)
        for letter in "ch":
            for number, batch in enumerate(sets[letter]):
                memory.write(batch.pair_ids, stored(f"batch.{letter}{number}.w_{network}"))
    monkeypatch.setattr(method, "divide", lambda _: in_sets(batches, float(stored[f"{start}ratio"])))
    monkeypatch.setattr(method, "co_divide", lambda *_: None)
    seen = []

    def recording(similarities, labels, smallest):
        seen.append((labels, float(smallest)))
        return mined_targets(similarities, labels, smallest)

    monkeypatch.setattr(cream, "mined_targets", recording)
    step = Steps(method, 2e-3)
    method.train_epoch(EpochPlan(0, int(stored[f"{start}epoch"]), "train", 1.0), batches, step)
    labels = [given for given, _ in seen]
    near_trajectory(method, step, step.losses, labels, sets["c"][0], stored, start)
    stored.near([smallest for _, smallest in seen], f"{start}filter", 1e-3, 1e-6)


@pytest.mark.parametrize(
    ("faults", "later"), [("repaired", (6 * 1 + 2 * 0.5 + 2 * 1) / 10), ("published", 1)]
)
def test_a_spent_hard_set_keeps_its_last_mean_in_the_filter(faults, later):
    """Three clean batches and one hard batch, whose prediction changes after the first iteration."""
    clean, hard, noisy = (
        [bare_batch(torch.arange(start, start + 2)) for start in starts] for starts in ((0, 2, 4), (6,), (8,))
    )
    batches = SetsInTurn(clean, hard, noisy)
    method = Recorded([torch.full((10,), 0.5)] * 2, in_sets(batches, 0.6), faults=faults)
    for memory in method.clean_probability:
        memory.values.fill_(0.0)
    take = method.train_step

    def step(*arguments):
        take(*arguments)
        method.stored = {network: torch.ones(10) for network in method.networks}

    method.train_step = step
    method.train_network(0, EpochPlan(0, 10, "train", 1.0), batches, None)
    assert [smallest for _, _, smallest in method.steps] == pytest.approx([0.5, 0.5, later, later])


@pytest.mark.parametrize(
    ("empty", "n_steps", "smallest"), [("hard", 8, (8 * 0.7 + 4 * 0.4) / 12), ("noisy", 6, 0.7)]
)
def test_an_empty_set_takes_no_step_and_has_no_part_in_the_filter(empty, n_steps, smallest):
    some = {"clean": torch.arange(8), "hard": torch.arange(12, 16), "noisy": torch.arange(12, 16)}
    sets = (some | {empty: torch.arange(0)}).values()
    batches = SetsInTurn(*([bare_batch(ids) for ids in each.split(2) if len(ids)] for each in sets))
    method = Recorded([torch.full((20,), 0.4)] * 2, ThreeSets(*sets))
    for memory in method.clean_probability:
        memory.values.fill_(0.5)
    method.train_network(0, EpochPlan(0, 15, "train", 1.0), batches, None)
    assert len(method.steps) == n_steps
    assert method.steps[0][2] == pytest.approx(smallest)
    assert all(labels.isfinite().all() for _, labels, _ in method.steps)


@pytest.mark.parametrize(
    "both",
    [
        torch.zeros(2, 6),
        torch.full((2, 6), 0.7),  # the forced hundredth takes all that are equal
        torch.tensor([[0.9, 0, 0, 0, 0, 0], [0.9, 0.9, 0, 0, 0, 0]]),
    ],
)
def test_every_pair_is_clean_where_fewer_than_two_would_be(both):
    method = CREAM(CREAMConfig(), Setting(6, 1, 1, nn.Identity))
    for memory, probability in zip(method.clean_probability, both, strict=True):
        memory.values.copy_(probability)
    sets = method.divide(StoredBatches(bare_batch(6)))
    assert [len(ids) for ids in (sets.clean, sets.hard, sets.noisy)] == [6, 0, 0]
    assert sets.clean_share == 1


@pytest.mark.parametrize("pairs", [1, 4])
def test_similarities_below_zero_mine_nothing_and_stay_finite(pairs):
    scores, labels = torch.full((pairs, pairs), -0.5).requires_grad_(), torch.zeros(pairs)
    targets = mined_targets(scores, labels, 0.0)
    for each in (targets.captions, targets.images):
        assert_near(each, torch.zeros_like(each), 0)
    for each in (targets, even_targets(labels)):
        cream_loss(scores, each, TAU).mean().backward()
    assert scores.grad.isfinite().all()
