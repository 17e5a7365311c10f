"""L2RM against the published code's numbers, and what it does where that code stops."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.doubles import Steps, StoredBatches, rows_of
from support.parity import (
    PRECISIONS,
    SUFFIX,
    Arrays,
    Golden,
    assert_gradients,
    assert_matrix_losses,
    batch_of,
    names_between,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near, assert_stored
from torch import Tensor, nn

from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, info_nce, matching_log_probabilities, mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.kit.mixture import by_moments, fitted
from baselines.kit.transport import partial_transport
from baselines.methods.l2rm import (
    L2RM,
    CostFunction,
    L2RMConfig,
    clean_component,
    clean_posterior,
    loss_mixture,
    normalised_losses,
    rectified_labels,
    rematching_loss,
    symmetric_cross_entropy,
)
from ncl_bench.errors import TrainingError

WARMUP, TRAIN = EpochPlan(0, 0, "warmup", 1.0), EpochPlan(0, 0, "train", 1.0)
TIED = ("ties", "all_equal", "extreme", "saturated")
STATES = ("initial", "later")
TAU, MARGIN = L2RMConfig().temperature, L2RMConfig().margin


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_losses_of_a_matrix_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("L_l2rm"), SUFFIX[dtype]
    value, slope = {"": (1e-4, 1e-3), "__f64": (1e-9, 1e-8)}[suffix]
    losses = {
        "rce": lambda s: symmetric_cross_entropy(s, TAU).mean(),
        "triplet_max": lambda s: hardest_triplet(s, MARGIN).sum(),
        "infonce": lambda s: 2 * info_nce(s, TAU).mean(),
    }
    square = {name: x for name, x in stored.items() if name != "scores.rect"}
    tied = {f"{matrix}.triplet_max" for matrix in TIED}
    assert_matrix_losses(square, losses, dtype, value=(value, 0.01), slope=(slope, 1e-3), tied=tied)
    for matrix in names_between(square, "scores.") if not suffix else ():
        found = mean_triplet(tensor(stored[f"scores.{matrix}"]), MARGIN)
        assert_near(found, stored[f"{matrix}.eval_loss.value"], 1e-5, scale=0.1, name=matrix)


def cost_function(stored: Arrays, state: str, dtype: torch.dtype) -> CostFunction:
    """The cost function at the start, or with the stored weights."""
    function = CostFunction(len(stored["cost_function.bias"])).to(dtype)
    if state == "later":
        with torch.no_grad():
            function.map.weight.copy_(tensor(stored["cost_function.weight"]))
            function.map.bias.copy_(tensor(stored["cost_function.bias"]))
    return function


def settings_of(stored: Arrays) -> dict[str, tuple[float, float, bool]]:
    """Regularisation, mass and whether a pair may be matched with itself, by the setting's letter."""
    return {
        letter: (regularisation, mass, ratio == 0)
        for letter, (regularisation, mass, ratio) in zip("abcd", stored["ot.settings"].tolist(), strict=True)
    }


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("state", STATES)
def test_transport_and_its_loss_match_the_published_code(
    state: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix, double = golden("L_l2rm"), SUFFIX[dtype], dtype == torch.float64
    function = cost_function(stored, state, dtype)
    compared = 0
    for matrix in names_between(stored, "scores."):
        for letter, (regularisation, mass, own) in settings_of(stored).items():
            start = f"{matrix}.{state}.{letter}"
            if f"{start}.plan" not in stored:
                continue
            compared += 1
            scores = tensor(stored[f"scores.{matrix}"], dtype).requires_grad_()
            n_queued, n_captions = scores.shape
            config = L2RMConfig(regularisation=regularisation, transported_mass=mass, match_own_image=own)
            method = L2RM(config, Setting(n_captions, 1, 1, nn.Identity, n_captions))
            method.cost_function = function
            plan = method.rematched(scores.detach())
            costs = function(scores).clamp(min=1e-10).detach()
            forbidden = None if own else torch.eye(n_queued, n_captions, dtype=torch.bool)
            found = partial_transport(costs, mass, regularisation, forbidden)
            assert found.rounds == stored[f"{start}.n_iter{suffix}"]
            np.testing.assert_array_equal(plan, found.plan[:-1, :-1].float())
            if double:
                assert_stored(found.plan[:-1, :-1], stored, f"{start}.plan__f64", 1e-8)
            else:
                assert_stored(plan, stored, f"{start}.plan", 1e-4)
                assert_stored(costs, stored, f"{matrix}.{state}.cost", 1e-6)
                assert found.change == pytest.approx(float(stored[f"{start}.err"]), rel=1e-3)
            loss = rematching_loss(scores, plan, TAU)
            loss.backward()
            assert_near(
                loss, stored[f"{start}.loss{suffix}"], 1e-6 if double else 1e-4, scale=0.1, name=start
            )
            # labels and their logarithms are float32 in the float64 run too
            near, rounding = 1e-7 if double else 1e-3, 2**-24 / (TAU * n_captions)
            key = f"{start}.grad{suffix}"
            assert_stored(scores.grad, stored, key, near, scale=rounding / near)
            if f"{start}.u" in stored and not double:
                assert_stored(found.plan, stored, f"{start}.plan_full", 1e-4)
                assert_stored(found.rows, stored, f"{start}.u", 1e-5)
                assert_stored(found.columns, stored, f"{start}.v", 1e-5)
                assert_stored(costs.max(), stored, f"{start}.A", 1e-6)
                assert_stored(100 * costs.max(), stored, f"{start}.xi", 1e-6)
            if f"{start}.labels_i2t" in stored and not double:
                for labels, side in zip(rectified_labels(plan), ("i2t", "t2i"), strict=True):
                    assert_stored(labels, stored, f"{start}.labels_{side}", 1e-4)
    assert compared >= len(names_between(stored, "scores."))


def loop_batches(stored: Arrays, queue: str) -> StoredBatches:
    """The stored training loop: images are numbered by their rows."""
    whole, start = batch_of(stored, "train."), f"train.{queue}."

    def rows(images: Tensor, captions: Tensor) -> Batch:
        return replace(rows_of(whole, captions), image_features=whole.image_features[images], pair_ids=images)

    drawn = (
        tensor(stored[start + name]) for name in ("clean_rows", "noisy_image_rows", "noisy_caption_rows")
    )
    clean, *noisy = (list(x) for x in drawn)
    batches = StoredBatches(
        n_pairs=len(whole),
        batch_size=len(clean[0]),
        clean=[rows(ids, ids) for ids in clean],
        noisy=[rows(*ids) for ids in zip(*noisy, strict=True)],
    )
    batches.read = lambda ids: rows(ids, ids)  # type: ignore[method-assign]
    return batches


class Loop(L2RM):
    """L2RM with the stored division and random picks; it keeps what the transport and the cost function saw."""

    def divide(self, batches: Any) -> None:
        clean = torch.arange(len(batches.pair_ids)) < len(batches.pair_ids) // 2
        self.clean_probability.write(batches.pair_ids, clean)

    def sides(self, pair_ids: Tensor) -> tuple[Tensor, Tensor]:
        return pair_ids, pair_ids

    def known_pairs(self, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        return next(self.picks)

    def cost_step(self, clean: Batch, queued: Batch, places: Tensor, rows: Tensor, step: Any) -> None:
        ids = queued.pair_ids.clone()
        ids[places] = clean.pair_ids[rows]
        self.seen.append({"key_queue_rows": ids})
        hook = self.cost_function.register_forward_pre_hook(lambda _, x: self.seen[-1].update(key_sims=x[0]))
        super().cost_step(clean, queued, places, rows, step)
        hook.remove()
        weights = {
            "cost_weight_after": self.cost_function.map.weight,
            "cost_bias_after": self.cost_function.map.bias,
        }
        self.seen[-1].update({name: weight.detach().clone() for name, weight in weights.items()})

    def rematched(self, similarities: Tensor) -> Tensor:
        plan = super().rematched(similarities)
        self.seen[-1].update(sims_noisy=similarities, plan=plan, queue_rows=self.queue)
        return plan


def sgr_network(golden: Golden, dtype: torch.dtype) -> nn.Module:
    return network_of("sgr", state_of(golden("J_backbone_sgr"), "", dtype))


@pytest.mark.parametrize("queue", ["queue_B", "queue_2B"])
def test_training_loop_matches_the_published_code(queue: str, golden: Golden) -> None:
    stored, start = golden("L_l2rm"), f"train.{queue}."
    batches, network = loop_batches(stored, queue), sgr_network(golden, torch.float32)
    n_queued = len(stored[start + "queue_start"])
    regularisation, mass, own = settings_of(stored)["b"]
    config = L2RMConfig(
        regularisation=regularisation, transported_mass=mass, match_own_image=own, queue_size=n_queued
    )
    batch_size = int(stored["train.batch_size"])
    method = Loop(config, Setting(len(batches.pair_ids), 1, 1, lambda: network, batch_size))
    method.queue.copy_(tensor(stored[start + "queue_start"]))
    steps = [f"{start}step{k}." for k in range(len(stored[start + "clean_rows"]))]
    picks = ([tensor(stored[f"{s}key_{of}_positions"]) for of in ("queue", "batch")] for s in steps)
    method.seen, method.picks = [], picks
    step = Steps(method, [2e-3, 1e-2])
    method.train_epoch(TRAIN, batches, step)
    np.testing.assert_array_equal(method.queue, stored[start + "queue_end"])
    for k, (s, seen) in enumerate(zip(steps, method.seen, strict=True)):
        for name in ("key_queue_rows", "queue_rows"):
            np.testing.assert_array_equal(seen[name], stored[s + name])
        cost, losses = (step.calls[2 * k + of][2] for of in (0, 1))
        first = k == 0
        assert_stored(seen["key_sims"], stored, s + "key_sims", 1e-4 if first else 5e-3)
        near = 1e-4 if first else 2e-2
        assert cost["known_cost"] == pytest.approx(float(stored[s + "key_cost_sum"]), rel=near)
        for name in ("cost_weight_after", "cost_bias_after"):
            assert_stored(seen[name], stored, s + name, 1e-3)
        for name, found in (("loss_clean", losses["triplet"]), ("loss_noisy", losses["rematching"])):
            assert found == pytest.approx(float(stored[s + name]), rel=1e-4 if first else 1e-2), s + name
        assert_stored(seen["sims_noisy"], stored, s + "sims_noisy", 1e-4 if first else 1e-2)
        assert_stored(seen["plan"], stored, s + "plan", 1e-3 if first else 5e-2)
        costs = CostFunction(batch_size)
        with torch.no_grad():
            costs.map.weight.copy_(seen["cost_weight_after"])
            costs.map.bias.copy_(seen["cost_bias_after"])
            matrix = costs(seen["sims_noisy"]).clamp(min=1e-10)
        forbidden = torch.eye(*matrix.shape, dtype=torch.bool)
        assert partial_transport(matrix, mass, regularisation, forbidden).rounds == stored[s + "n_iter"]


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_warm_up_of_a_network_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("L_l2rm"), SUFFIX[dtype]
    value, slope, least = {"": (1e-4, 1e-3, 1e-4), "__f64": (1e-9, 1e-7, 1e-9)}[suffix]
    network, batch = sgr_network(golden, dtype), batch_of(golden("J_backbone_sgr"), "in.", dtype)
    method = L2RM(L2RMConfig(), Setting(len(batch), 1, 1, lambda: network, len(batch)))
    with torch.no_grad():
        assert_near(network.eval()(batch).similarities, stored["inference.sims"], 1e-5, scale=1)
        if dtype == torch.float32:
            losses = mean_triplet(network(batch).similarities, MARGIN)
            assert_stored(losses, stored, "sgr.eval_loss", 1e-4)
        state = {name: x.clone() for name, x in network.state_dict().items()}
        similarities = network.train()(batch).similarities
        network.load_state_dict(state)
    assert_near(similarities, stored[f"sgr.warmup.sims{suffix}"], 1e-9 if suffix else 1e-5, scale=1)
    step = Steps(method)
    method.train_epoch(WARMUP, StoredBatches(batch), step)
    assert step.losses == pytest.approx([float(stored[f"sgr.warmup.loss{suffix}"])], rel=value)
    gradients = state_of(stored, "sgr.warmup.grad.", dtype, suffix)
    base = state_of(golden("J_backbone_sgr"))
    assert_gradients(network, "sgr", base, gradients, some=True, relative=slope, absolute=least)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_one_training_step_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("L_l2rm"), SUFFIX[dtype]
    value, slope, least = {"": (1e-4, 1e-3, 1e-4), "__f64": (1e-6, 1e-6, 1e-9)}[suffix]
    batches, network = loop_batches(stored, "queue_2B"), sgr_network(golden, dtype)
    clean, noisy = (next(batches.endless(side)) for side in ("clean", "noisy"))
    clean, noisy = (replace(b, image_features=b.image_features.to(dtype)) for b in (clean, noisy))
    regularisation, mass, own = settings_of(stored)["b"]
    config = L2RMConfig(regularisation=regularisation, transported_mass=mass, match_own_image=own)
    method = Loop(config, Setting(len(batches.pair_ids), 1, 1, lambda: network, len(clean)))
    method.cost_function.to(dtype)
    method.seen, step = [{}], Steps(method)
    method.train_step(clean, noisy, noisy, step)
    terms = step.terms
    for name, found in (("loss_clean", terms["triplet"]), ("loss_noisy", terms["rematching"])):
        assert found == pytest.approx(float(stored[f"sgr.train.{name}{suffix}"]), rel=value)
    if suffix:
        assert_stored(method.seen[0]["plan"], stored, "sgr.train.plan__f64", 1e-6)
    gradients = state_of(stored, "sgr.train.grad.", dtype, suffix)
    base = state_of(golden("J_backbone_sgr"))
    assert_gradients(network, "sgr", base, gradients, some=True, relative=slope, absolute=least)


def test_other_divergences_of_the_published_code_come_from_the_same_terms(golden: Golden) -> None:
    stored = golden("L_l2rm")
    for name in names_between(stored, "alternatives.", ".value__f64"):
        scores = tensor(stored["scores.random"], torch.float64).requires_grad_()
        plan = tensor(stored["random.initial.b.plan"])
        total = torch.zeros((), dtype=torch.float64)
        for matrix, labels in zip((scores, scores.T), rectified_labels(plan), strict=True):
            log_p, y = matching_log_probabilities(matrix, TAU), labels.double()
            if name == "soft_infonce":
                terms = -y * log_p
            elif name == "kldiv":
                terms = y * (y.log() - log_p)
            else:
                middle = (log_p.exp() + y) / 2
                terms = middle * (2 * middle.log() - log_p - y.log()) / 2
            total = total + terms.sum() / len(matrix)
        total.backward()
        assert_stored(total, stored, f"alternatives.{name}.value__f64", 1e-6)
        assert_stored(scores.grad, stored, f"alternatives.{name}.grad__f64", 1e-6)


def test_mixtures_match_the_published_code(golden: Golden) -> None:
    stored = golden("L_l2rm_bmm")
    for case in names_between(stored, "", ".loss"):
        normalised = normalised_losses(tensor(stored[f"{case}.loss"]))
        assert_near(normalised, stored[f"{case}.normalised"], 1e-6, scale=1)
        groups = tensor(stored[f"{case}.initial_assignment"])
        start = by_moments(normalised, nn.functional.one_hot(groups, 2))
        first, updates = fitted(normalised, start, most_updates=10, least_gain=0.01)
        second, more_updates = fitted(normalised, first, least_gain=0.1)
        assert updates == stored[f"{case}.first_fit.n_epochs"]
        assert more_updates == stored[f"{case}.second_fit.n_epochs"]
        for mixture, name in ((first, "first_fit."), (second, ""), (loss_mixture(normalised, groups), "")):
            numbers = torch.stack([mixture.alpha, mixture.beta], dim=1)
            assert_near(numbers, stored[f"{case}.{name}alpha_beta"], 1e-6)
            assert_near(mixture.weights, stored[f"{case}.{name}weights"], 1e-6)
        component = clean_component(second)
        means = second.alpha / (second.alpha + second.beta)
        assert component == stored[f"{case}.clean_component"]
        assert (means[component] == means.min()).item() == stored[f"{case}.is_smaller_mean"]
        probability = second.posterior(normalised)[:, component]
        assert_near(probability, stored[f"{case}.prob"], 1e-6, scale=1)
        np.testing.assert_array_equal(probability > 0.5, stored[f"{case}.pred"])


@pytest.mark.parametrize(
    "losses", [[0.3] * 6, [0.1, 0.1, 0.1, 0.9], [0.0, 1.0], [0.2, 0.2, 0.2, 0.2, 0.2, 0.21]]
)
def test_losses_in_no_two_groups_leave_every_pair_clean(losses: list[float]) -> None:
    np.testing.assert_array_equal(clean_posterior(torch.tensor(losses)), np.ones(len(losses)))


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        ("flickr30k", {}),
        ("coco", {"warmup_epochs": 10, "epochs": 20, "lr_update": 10}),
        ("cc152k", {"warmup_epochs": 10, "epochs": 40, "lr_update": 20}),
    ],
)
def test_schedule_matches_the_published_code(dataset: str, options: dict[str, Any], golden: Golden) -> None:
    stored = golden("L_l2rm")
    method = L2RM(L2RMConfig(**options), Setting(4, 1, 1, nn.Identity, 4))
    plan = method.plan()
    warmup, training = ([e for e in plan if e.phase == phase] for phase in ("warmup", "train"))
    assert len(warmup) == stored[f"schedule.{dataset}.warmup_epochs"]
    assert all(epoch.select for epoch in plan)
    for module, name in zip(method.trained_modules(), ("lr", "lr_cost"), strict=True):
        rates = [method.learning_rate(module, epoch) for epoch in training]
        assert_near(rates, stored[f"schedule.{dataset}.{name}"], 1e-12)
        assert {method.learning_rate(module, epoch) for epoch in warmup} == {rates[0]}


def small_method(probability: list[float], batch_size: int) -> L2RM:
    method = L2RM(L2RMConfig(), Setting(len(probability), 1, 1, nn.Identity, batch_size))
    method.clean_probability.write(torch.arange(len(probability)), torch.tensor(probability))
    return method


def test_fewer_clean_pairs_than_a_batch_become_a_batch() -> None:
    clean, noisy = small_method([0.1, 0.4, 0.9, 0.2, 0.3], 3).sides(torch.arange(5))
    assert (clean.tolist(), noisy.tolist()) == ([1, 2, 4], [0, 3])


def test_fewer_noisy_pairs_than_a_batch_leave_clean_ones_to_train_on(golden: Golden) -> None:
    stored = golden("L_l2rm")
    batches, network = loop_batches(stored, "queue_B"), sgr_network(golden, torch.float32)
    method = Loop(L2RMConfig(), Setting(len(batches.pair_ids), 1, 1, lambda: network, batches.batch_size))
    method.sides = lambda ids: (ids, ids[: batches.batch_size - 1])  # type: ignore[method-assign]
    step = Steps(method, [1e-4, 1e-6])
    method.train_epoch(TRAIN, batches, step)
    assert [modules for modules, _, _ in step.calls] == [[network]] * len(batches.own["clean"])


def test_incomplete_batches_are_left_out_of_training_alone(golden: Golden) -> None:
    batch = batch_of(golden("J_backbone_sgr"), "in.", torch.float32)
    short = replace(batch, **{name: x[:-1] for name, x in vars(batch).items()})
    network = sgr_network(golden, torch.float32)
    method = L2RM(L2RMConfig(), Setting(len(batch), 1, 1, lambda: network, len(batch)))
    method.sides = lambda ids: (ids, ids[:0])  # type: ignore[method-assign]
    step, batches = Steps(method, [1e-4, 1e-6]), StoredBatches(batch, short)
    batches.read = lambda ids: batch  # type: ignore[method-assign]
    method.train_epoch(WARMUP, batches, step)
    assert len(step.calls) == 2
    method.train_epoch(TRAIN, batches, step)
    assert [len(used) for _, used, _ in step.calls[2:]] == [len(batch)]


def test_a_training_split_smaller_than_a_batch_is_refused() -> None:
    with pytest.raises(TrainingError, match="set batch_size to 3 or less"):
        small_method([1.0] * 3, 4)


def test_known_pairs_are_at_least_one_and_at_most_the_share() -> None:
    method, random = small_method([1.0] * 60, 40), np.random.default_rng(0)
    sizes = {len(places) for places, _ in (method.known_pairs(random) for _ in range(60))}
    assert sizes == {1, 2, 3, 4}
    assert len(small_method([1.0] * 4, 4).known_pairs(random)[1]) == 1
