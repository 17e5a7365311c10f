"""NPC against the published code's numbers, and what it does where that code stops or errs."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import RandomState
from support.doubles import FixedSimilarities, StandIn, Steps, StoredBatches, bare_batch
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
from torch.nn import functional

from baselines.kit.backbone import Encoded
from baselines.kit.batches import Batch
from baselines.kit.fine_tuning import FineTuning
from baselines.kit.losses import info_nce
from baselines.methods.dcl import DCL
from baselines.methods.npc import NPC, clean_posterior, confidence, nearest, ratio, surely_clean
from baselines.methods.osa import OSA

MEMORIES = ("image_before", "text_before", "image_after", "text_after")
DECIDED = 3e-6
"""Ratios that are nearer to 1 in float32 are rounding, which decides between weights of 0.76 and 1."""
ZERO_LOSSES = ("zero_loss", "becomes_zero")


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_losses_and_their_gradients_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("V_npc_losses"), SUFFIX[dtype]
    value, slope = (2e-6, 1e-5) if not suffix else (1e-9, 1e-9)
    for case in names_between(stored, "scores."):
        scores = tensor(stored[f"scores.{case}"], dtype).requires_grad_()
        losses = info_nce(scores, 1.0)
        assert_near(losses, stored[f"{case}.mbank{suffix}"], value, scale=1, name=case)
        (losses * torch.arange(1, len(losses) + 1)).sum().backward()
        assert_near(scores.grad, stored[f"{case}.mbank_grad{suffix}"], slope, scale=1, name=case)
        scores.grad = None
        (2 * info_nce(scores, 1.0).mean()).backward()
        assert_near(scores.grad, stored[f"{case}.batch_grad{suffix}"], slope, scale=1, name=case)
        both = float(stored[f"{case}.i2t{suffix}"]) + float(stored[f"{case}.t2i{suffix}"])
        assert_near(2 * losses.mean(), both, value, scale=1, name=case)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_weights_and_what_they_make_of_a_batch_match_the_published_code(
    dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("V_npc_losses"), SUFFIX[dtype]
    value, slope = (2e-6, 1e-5) if not suffix else (1e-9, 1e-9)
    for case in names_between(stored, "impact.", ".image_before"):
        start = f"impact.{case}."
        losses = [info_nce(tensor(stored[start + name], dtype), 1.0) for name in MEMORIES]
        for name, found in zip(MEMORIES, losses, strict=True):
            assert_near(found, stored[f"{start}loss_{name}{suffix}"], value, scale=1, name=case)
        # the library's own losses, so that rounding moves no ratio across 1
        before, after = (
            [tensor(stored[f"{start}loss_{name}{suffix}"], dtype) for name in names]
            for names in (MEMORIES[:2], MEMORIES[2:])
        )
        ratios = [ratio(*each) for each in zip(before, after, strict=True)]
        weight = confidence(ratios)
        if case in ZERO_LOSSES:
            assert ((weight >= 0) & (weight <= 1)).all()
            continue
        assert_near(torch.stack(ratios).mean(dim=0), stored[f"{start}ratio{suffix}"], value, name=case)
        assert_near(weight, stored[f"{start}weight{suffix}"], value, scale=1, name=case)
        network = FixedSimilarities(tensor(stored["impact.scores"], dtype))
        method = fine_tuned(NPC, network, len(weight), temperature=1.0, faults="published")
        batch, step = some_pairs(len(weight)), Steps(method)
        method.weighted_step(batch, [], weight, before, 1.0, step)
        assert_near(step.terms["weighted"], stored[f"{start}batch_loss{suffix}"], value, scale=1, name=case)
        assert_near(step.losses, stored[f"{start}final_loss{suffix}"][None], value, scale=1, name=case)
        assert_near(step.gradients["weight"], stored[f"{start}grad{suffix}"], slope, name=case)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_gradient_of_the_copy_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("V_npc_losses"), SUFFIX[dtype]
    scores = tensor(stored["impact.scores"], dtype)
    method = fine_tuned(NPC, FixedSimilarities(scores), len(scores), temperature=1.0)
    step = Steps(method)
    method.try_out(some_pairs(len(scores)), [], 1.0, step)
    for case in names_between(stored, "impact.", ".image_before"):
        near = 1e-9 if suffix else 1e-5
        assert_near(step.gradients["weight"], stored[f"impact.{case}.siamese_grad{suffix}"], near, name=case)


def test_the_papers_form_weighs_every_pair_and_trains_on_the_entries(golden: Golden) -> None:
    stored = golden("V_npc_losses")
    for case in names_between(stored, "impact.", ".image_before"):
        if case in ZERO_LOSSES:
            continue
        weight = tensor(stored[f"impact.{case}.weight__f64"])
        scores = tensor(stored["impact.scores"], torch.float64).requires_grad_()
        memory = 2 * info_nce(scores, 1.0).mean()  # both entries have the scores of the batch here
        memory.backward()
        method = fine_tuned(NPC, FixedSimilarities(scores.detach()), len(scores), temperature=1.0)
        batch, step = some_pairs(len(scores)), Steps(method)
        method.weighted_step(batch, [batch, batch], weight, [], 1.0, step)
        assert_near(step.terms["weighted"], stored[f"impact.{case}.per_pair_loss__f64"], 1e-9, name=case)
        assert step.terms["memory"] == pytest.approx(memory.item(), rel=1e-9)
        of_pairs = step.gradients["weight"] - scores.grad
        assert_near(of_pairs, stored[f"impact.{case}.per_pair_grad__f64"], 1e-9, scale=1, name=case)


def unit(vectors: np.ndarray) -> Tensor:
    return functional.normalize(tensor(vectors), dim=1)


class GivenVectors(StandIn):
    """A network whose vectors are stored, and whose own scale is that of the stored losses."""

    def __init__(self, images: Tensor, captions: Tensor, scale: float) -> None:
        super().__init__()
        self.sides, self.reads_images = (images, captions), False
        self.scale = torch.nn.Parameter(torch.tensor(scale))

    def encode(self, batch: Batch) -> tuple[Any, Any]:
        images, captions = (Encoded(side[batch.pair_ids], batch.image_lengths) for side in self.sides)
        return images, captions

    def compare(self, images: Encoded, captions: Encoded) -> Tensor:
        return self.scale * images.vectors @ captions.vectors.T


def test_the_memory_bank_matches_the_published_code(golden: Golden) -> None:
    stored = golden("V_npc_bank")
    for case in names_between(stored, "", ".image_features"):
        images, captions = stored[f"{case}.image_features"], stored[f"{case}.text_features"]
        order, each = tensor(stored[f"{case}.order"]), int(stored[f"{case}.captions_per_image"])
        network = GivenVectors(unit(images), unit(captions), float(stored[f"{case}.scale"]))
        batches = StoredBatches(*(bare_batch(ids) for ids in order.split(int(stored[f"{case}.batch_size"]))))
        method = fine_tuned(NPC, network, len(order), temperature=1.0)
        method.prepare(batches)
        with torch.no_grad():
            losses = [method.pair_losses(network, network(batch).similarities) for batch in batches.batches]
        assert_near(torch.cat(losses), stored[f"{case}.loss"], 1e-5, name=case)
        posterior = clean_posterior(
            tensor(stored[f"{case}.loss"]), RandomState(int(stored[f"{case}.np_seed"]))
        )
        assert_near(posterior, stored[f"{case}.clean_probability"], 1e-4, scale=1, name=case)
        clean = tensor(stored[f"{case}.clean_pairs"])
        probability = tensor(stored[f"{case}.clean_probability"])
        np.testing.assert_array_equal(order[surely_clean(probability, 0.9)], clean)
        if not np.array_equal(method.clean_probability.values[clean] > 0.9, np.ones(len(clean))):
            continue
        own_image = unit(images) @ unit(images).T
        found = method.image_entry.read(torch.arange(0, len(order), each))
        wanted = tensor(stored[f"{case}.memory_of_image_cosine"])
        rows = torch.arange(0, len(order), each)
        assert_near(own_image[rows, found], own_image[rows, wanted], 1e-6)
        np.testing.assert_array_equal(method.caption_entry.values, stored[f"{case}.memory_of_text_cosine"])
        if case != "shuffled":  # there the code looks vectors up at wrong positions
            entries = clean[nearest(unit(captions), tensor(captions)[clean])]
            np.testing.assert_array_equal(entries, stored[f"{case}.memory_of_text"])
            entries = clean[nearest(unit(images)[rows], tensor(images)[clean])]
            reached = unit(images)[rows] @ tensor(images).T
            wanted = tensor(stored[f"{case}.memory_of_image"])
            of_row = torch.arange(len(rows))
            assert_near(reached[of_row, entries], reached[of_row, wanted], 1e-6)


class Bank(StoredBatches):
    """Stored batches, and the stored entries of their pairs."""

    def __init__(self, stored: Arrays, dtype: torch.dtype, n_pairs: int) -> None:
        names = sorted(names_between(stored, "batch", ".images"))
        names = [name for name in names if name.isdigit()]
        size = len(stored["batch0.images"])
        self.entries = {}
        own = []
        for number, name in enumerate(names):
            first = number * size
            own.append(pairs_of(stored[f"batch{name}.images"], stored[f"batch{name}.texts"], dtype, first))
            for turn, side in enumerate(("image", "text"), start=1):
                arrays = (stored[f"batch{name}.memory_{side}.{of}"] for of in ("images", "texts"))
                entry = pairs_of(*arrays, dtype, first + turn * n_pairs)
                self.entries[first + turn * n_pairs] = entry
        super().__init__(*own, n_pairs=n_pairs)

    def read(self, *pairs: Tensor) -> Batch:
        return self.entries[int(pairs[0][0])]


class Watched(NPC):
    """NPC that keeps what it measures."""

    def try_out(self, batch: Batch, entries: Sequence[Batch], rate: float, step: Any) -> Any:
        self.rate_of_step = rate
        self.tried = super().try_out(batch, entries, rate, step)
        self.siamese_gradients = step.gradients
        self.siamese_after = {name: x.detach().clone() for name, x in self.siamese.named_parameters()}
        return self.tried

    def logits(self, network: Any, cosines: Tensor) -> Tensor:
        found = super().logits(network, cosines)
        if network is self.networks[0]:
            self.seen = found.detach()
        return found


CASES = [("V_npc_step", "published"), ("V_npc_step", "amplified"), ("V_npc_clip", "")]


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("file", "rates"), CASES, ids=["published", "amplified", "clip"])
def test_steps_match_the_published_code(file: str, rates: str, dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden(file), SUFFIX[dtype]
    start = f"{rates}." if rates else ""
    setting = stored[f"{start}setting" if rates else "step_setting"]
    n_pairs, clip = int(setting[3]), float(setting[-1])
    network, batches = network_of(stored, dtype), Bank(stored, dtype, n_pairs)
    method = fine_tuned(Watched, network, n_pairs, **options_of(setting))
    method.prepared.fill_(True)
    method.image_entry.values.copy_(n_pairs + torch.arange(n_pairs))
    method.caption_entry.values.copy_(2 * n_pairs + torch.arange(n_pairs))
    step, number = Steps(method, 1.0, clip), 0
    train_step = method.train_step

    def compared(*arguments: Any) -> None:
        nonlocal number
        train_step(*arguments)
        assert_step(
            stored, f"{start}step{number}.", suffix, method, step, first=number < 2, of_clip=not rates
        )
        number += 1

    method.train_step = compared
    for plan in method.plan():
        method.train_epoch(plan, batches, step)
    assert number == len(names_between(stored, f"{start}step", ".lr"))


def assert_step(
    stored: Arrays, start: str, suffix: str, method: Watched, step: Steps, *, first: bool, of_clip: bool
) -> None:
    """Compare all that is stored of a step which was just taken."""
    value = (1e-8 if of_clip else 1e-9) if suffix else (5e-5 if of_clip else 1e-5) if first else 3e-4
    assert method.rate_of_step == pytest.approx(float(stored[f"{start}lr"]), rel=1e-12)
    batch = step.calls[-1][1]
    losses = [*method.tried[0], *method.tried[1]]
    for name, found in zip(MEMORIES, losses, strict=True):
        assert_near(found, stored[f"{start}loss_{name}{suffix}"], value, scale=1, name=f"{start}{name}")
    wanted = stored[f"{start}ratio{suffix}"]
    ratios = torch.stack([ratio(*each) for each in zip(*method.tried, strict=True)]).mean(dim=0)
    assert_near(ratios, wanted, value, name=f"{start}ratio")
    decided = np.abs(stored[f"{start}ratio"] - 1) > DECIDED
    weight = method.weight.read(batch.pair_ids)
    rows = np.ones_like(decided) if suffix else decided
    assert_near(weight[rows], stored[f"{start}weight{suffix}"][rows], 1e-6 if suffix else 3e-4, scale=1)
    assert_near(method.seen, stored[f"{start}logits{suffix}"], value, name=f"{start}logits")
    both = float(stored[f"{start}batch_i2t{suffix}"]) + float(stored[f"{start}batch_t2i{suffix}"])
    assert_near(2 * info_nce(method.seen, 1.0).mean(), both, value, name=f"{start}batch")
    if suffix or decided.all():
        assert_near(step.losses[-1:], stored[f"{start}final_loss{suffix}"][None], value, name=f"{start}loss")
        norm = float(stored[f"{start}grad_norm{suffix}"])
        assert step.norms[-1] == pytest.approx(norm, rel=1e-8 if suffix else 1e-3)
    network = method.networks[0]
    parts = {"grad": step.gradients, "after": dict(network.named_parameters())}
    parts |= {"siamese_grad": method.siamese_gradients, "siamese_after": method.siamese_after}
    assert_parts(stored, start, suffix, network, parts)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_encoders_of_clip_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("V_npc_clip"), SUFFIX[dtype]
    network = network_of(stored, dtype).eval()
    batch = pairs_of(stored["batch0.images"], stored["batch0.texts"], dtype)
    near = 1e-9 if suffix else 1e-5
    with torch.no_grad():
        assert_near(
            network.towers.encode_image(batch.image_features), stored[f"encoded.images{suffix}"], near
        )
        assert_near(network.towers.encode_text(batch.caption_tokens), stored[f"encoded.texts{suffix}"], near)
        method = fine_tuned(NPC, network, 1)
        assert_near(
            method.logits(network, network(batch).similarities), stored[f"encoded.logits{suffix}"], near
        )


def test_schedules_match_the_published_code(golden: Golden) -> None:
    assert_rates(golden("V_npc_losses"), NPC)


@pytest.mark.parametrize("kind", [NPC, OSA, DCL])
def test_the_rate_follows_a_cosine_over_steps(kind: type[FineTuning]) -> None:
    """The published one is nearly constant within an epoch."""
    batches: Any = SimpleNamespace(pair_ids=range(1000), batch_size=100)
    rates = {}
    for faults in ("repaired", "published"):
        method = fine_tuned(kind, StandIn(), 1, epochs=2, rising_steps=4, learning_rate=1.0, faults=faults)
        rates[faults] = [method.rate(plan, k, batches) for plan in method.plan() for k in range(10)]
    assert rates["repaired"][:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates["repaired"][4:] == sorted(rates["repaired"][4:], reverse=True)
    assert rates["repaired"][12] == pytest.approx(0.5)
    assert rates["published"][9] > 0.99


@pytest.mark.parametrize("probability", [[0.5] * 4, [0.95, 0.1, 0.1, 0.1]])
def test_every_pair_may_be_an_entry_where_fewer_than_two_are_surely_clean(probability: list[float]) -> None:
    assert surely_clean(torch.tensor(probability), 0.9).all()


def test_batches_of_one_and_losses_of_zero_move_nothing() -> None:
    zero, some = torch.zeros(2), torch.tensor([0.0, 0.5])
    assert ratio(some, zero).tolist() == ratio(zero, some).tolist() == [1, 1]
    assert ratio(-zero, zero).tolist() == [1, 1]
    method = fine_tuned(NPC, FixedSimilarities(torch.rand(1, 1)), 1)
    method.image_entry.values.zero_()
    method.caption_entry.values.zero_()
    step = Steps(method)
    method.train_step(bare_batch(1), 1.0, StoredBatches(bare_batch(1)), step)
    assert method.weight.values.tolist() == [1]
    assert step.losses == [0, 0]
    assert step.gradients["weight"].tolist() == [[0]]
