"""L2RM against the published code's numbers, and what it does where that code stops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.doubles import Steps, StoredBatches, rows_of
from support.parity import assert_matrix_losses, tensor
from support.refusals import refused
from torch import nn

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
TAU, MARGIN = L2RMConfig().temperature, L2RMConfig().margin


def test_losses_of_a_matrix_match_the_published_code(precise):
    stored = precise("L_l2rm")
    losses = {
        "rce": lambda s: symmetric_cross_entropy(s, TAU).mean(),
        "triplet_max": lambda s: hardest_triplet(s, MARGIN).sum(),
        "infonce": lambda s: 2 * info_nce(s, TAU).mean(),
        "eval_loss": lambda s: mean_triplet(s, MARGIN),
    }
    tied = {f"{matrix}.triplet_max" for matrix in ("ties", "all_equal", "extreme", "saturated")}
    tied |= {f"{matrix}.eval_loss" for matrix in stored.names("scores.")}  # without gradients
    assert_matrix_losses(stored, losses, value=1e-4, slope=1e-3, scale=0.01, tied=tied)


def cost_function(stored, later):
    """The cost function at the start, or with the stored weights."""
    function = CostFunction(len(stored["cost_function.bias"])).to(stored.dtype)
    if later:
        function.map.load_state_dict({name: stored(f"cost_function.{name}") for name in ("weight", "bias")})
    return function


def config_of(stored, letter, **options):
    """The stored regularisation, mass, and whether a pair may be matched with itself."""
    regularisation, mass, ratio = stored["ot.settings"]["abcd".index(letter)].tolist()
    names = {"regularisation": regularisation, "transported_mass": mass, "match_own_image": ratio == 0}
    return L2RMConfig(**names, **options)


@pytest.mark.parametrize("state", ["initial", "later"])
def test_transport_and_its_loss_match_the_published_code(state, precise):
    stored = precise("L_l2rm")
    function, compared = cost_function(stored, state == "later"), set()
    for start in stored.names("", ".plan"):
        matrix, of, letter = (*start.split("."), "")[:3]
        if of != state or f"scores.{matrix}" not in stored:
            continue
        compared.add(matrix)
        scores, config = stored.leaf(f"scores.{matrix}"), config_of(stored, letter)
        n_queued, n_captions = scores.shape
        method = L2RM(config, Setting(n_captions, 1, 1, nn.Identity, n_captions))
        method.cost_function = function
        plan = method.rematched(scores.detach())
        costs = function(scores).clamp(min=1e-10).detach()
        forbidden = None if config.match_own_image else torch.eye(n_queued, n_captions, dtype=torch.bool)
        found = partial_transport(costs, config.transported_mass, config.regularisation, forbidden)
        stored.equal(found.rounds, f"{start}.n_iter{stored.end}")
        np.testing.assert_array_equal(plan, found.plan[:-1, :-1].float())
        stored.near(found.plan[:-1, :-1], f"{start}.plan")
        loss = rematching_loss(scores, plan, TAU)
        loss.backward()
        stored.near(loss, f"{start}.loss", double=1e-6, scale=0.1)
        # labels and their logarithms are float32 in the float64 run too
        near, rounding = 1e-7 if stored.double else 1e-3, 2**-24 / (TAU * n_captions)
        stored.near(scores.grad, f"{start}.grad", near, near, scale=rounding / near)
        if stored.double:
            continue
        stored.near(costs, f"{matrix}.{state}.cost", 1e-6)
        stored.near(found.change, f"{start}.err", 1e-3, scale=0)
        if f"{start}.u" in stored:
            named = {"plan_full": found.plan, "u": found.rows, "v": found.columns}
            for name, each in (named | {"A": costs.max(), "xi": 100 * costs.max()}).items():
                stored.near(each, f"{start}.{name}")
        if f"{start}.labels_i2t" in stored:
            for labels, side in zip(rectified_labels(plan), ("i2t", "t2i"), strict=True):
                stored.near(labels, f"{start}.labels_{side}")
    assert compared == set(stored.names("scores."))


def loop_batches(stored, queue):
    """The stored training loop: images are numbered by their rows."""
    whole, start = stored.batch("train."), f"train.{queue}."

    def rows(images, captions):
        return replace(rows_of(whole, captions), image_features=whole.image_features[images], pair_ids=images)

    clean, *noisy = (
        list(stored(start + name)) for name in ("clean_rows", "noisy_image_rows", "noisy_caption_rows")
    )
    batches = StoredBatches(
        n_pairs=len(whole),
        batch_size=len(clean[0]),
        clean=[rows(ids, ids) for ids in clean],
        noisy=[rows(*ids) for ids in zip(*noisy, strict=True)],
    )
    batches.read = lambda ids: rows(ids, ids)
    return batches


class Loop(L2RM):
    """L2RM with the stored division and random picks; it keeps what the transport and the cost function saw."""

    def divide(self, batches):
        clean = torch.arange(len(batches.pair_ids)) < len(batches.pair_ids) // 2
        self.clean_probability.write(batches.pair_ids, clean)

    def sides(self, pair_ids):
        return pair_ids, pair_ids

    def known_pairs(self, random):
        return next(self.picks)

    def cost_step(self, clean, queued, places, rows, step):
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

    def rematched(self, similarities):
        plan = super().rematched(similarities)
        self.seen[-1].update(sims_noisy=similarities, plan=plan, queue_rows=self.queue)
        return plan


def loop(config, batches, network):
    method = Loop(config, Setting(len(batches.pair_ids), 1, 1, lambda: network, batches.batch_size))
    method.seen = [{}]
    return method


@pytest.mark.parametrize("queue", ["queue_B", "queue_2B"])
def test_training_loop_matches_the_published_code(queue, single):
    stored, start = single("L_l2rm"), f"train.{queue}."
    batches = loop_batches(stored, queue)
    config = config_of(stored, "b", queue_size=len(stored[f"{start}queue_start"]))
    method = loop(config, batches, single("J_backbone_sgr").network("sgr"))
    method.queue.copy_(stored(f"{start}queue_start"))
    steps = [f"{start}step{k}." for k in range(len(stored[f"{start}clean_rows"]))]
    method.seen = []
    method.picks = ([stored(f"{s}key_{of}_positions") for of in ("queue", "batch")] for s in steps)
    step = Steps(method, [2e-3, 1e-2])
    method.train_epoch(TRAIN, batches, step)
    stored.equal(method.queue, f"{start}queue_end")
    for k, (s, seen) in enumerate(zip(steps, method.seen, strict=True)):
        cost, losses = (step.calls[2 * k + of][2] for of in (0, 1))
        seen |= {"key_cost_sum": cost["known_cost"]}
        seen |= {"loss_clean": losses["triplet"], "loss_noisy": losses["rematching"]}
        for name, found in seen.items():
            if name.endswith("queue_rows"):
                stored.equal(found, s + name)
            else:
                later = 5e-2 if name == "plan" else 2e-2
                stored.near(found, s + name, 1e-3 if k == 0 or name.endswith("_after") else later)


def test_warm_up_of_a_network_matches_the_published_code(precise):
    stored, of_network = precise("L_l2rm"), precise("J_backbone_sgr")
    network, batch = of_network.network("sgr"), of_network.batch()
    method = L2RM(L2RMConfig(), Setting(len(batch), 1, 1, lambda: network, len(batch)))
    if not stored.double:
        with torch.no_grad():
            similarities = network(batch).similarities
        stored.near(similarities, "inference.sims", 1e-5)
        stored.near(mean_triplet(similarities, MARGIN), "sgr.eval_loss")
    step = Steps(method)
    method.train_epoch(WARMUP, StoredBatches(batch), step)
    stored.near_step(step, "sgr.warmup.", of_network.state())


def test_one_training_step_matches_the_published_code(precise):
    stored, of_network = precise("L_l2rm"), precise("J_backbone_sgr")
    batches, network = loop_batches(stored, "queue_2B"), of_network.network("sgr")
    clean, noisy = (next(batches.endless(side)) for side in ("clean", "noisy"))
    method = loop(config_of(stored, "b"), batches, network)
    method.cost_function.to(stored.dtype)
    step = Steps(method)
    method.train_step(clean, noisy, noisy, step)
    terms = {"loss_clean": step.terms["triplet"], "loss_noisy": step.terms["rematching"]}
    near = {"relative": 1e-6, "absolute": 1e-9} if stored.double else {}
    stored.near_step(step, "sgr.train.", of_network.state(), double=1e-6, terms=terms, **near)


def test_other_divergences_of_the_published_code_come_from_the_same_terms(double):
    stored = double("L_l2rm")
    for name in stored.results("alternatives.", ".value"):
        scores = stored.leaf("scores.random")
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
        stored.near(total, f"alternatives.{name}.value", double=1e-6)
        stored.near(scores.grad, f"alternatives.{name}.grad", double=1e-6)


def test_mixtures_match_the_published_code(single):
    stored = single("L_l2rm_bmm")
    for case in stored.names("", ".loss"):
        normalised = normalised_losses(stored(f"{case}.loss"))
        stored.near(normalised, f"{case}.normalised", 1e-6)
        groups = stored(f"{case}.initial_assignment")
        start = by_moments(normalised, nn.functional.one_hot(groups, 2))
        first, updates = fitted(normalised, start, most_updates=10, least_gain=0.01)
        second, more_updates = fitted(normalised, first, least_gain=0.1)
        assert updates == stored[f"{case}.first_fit.n_epochs"]
        assert more_updates == stored[f"{case}.second_fit.n_epochs"]
        for mixture, name in ((first, "first_fit."), (second, ""), (loss_mixture(normalised, groups), "")):
            numbers = torch.stack([mixture.alpha, mixture.beta], dim=1)
            stored.near(numbers, f"{case}.{name}alpha_beta", 1e-6)
            stored.near(mixture.weights, f"{case}.{name}weights", 1e-6)
        component = clean_component(second)
        means = second.alpha / (second.alpha + second.beta)
        assert component == stored[f"{case}.clean_component"]
        assert (means[component] == means.min()).item() == stored[f"{case}.is_smaller_mean"]
        probability = second.posterior(normalised)[:, component]
        stored.near(probability, f"{case}.prob", 1e-6)
        stored.equal(probability > 0.5, f"{case}.pred")


@pytest.mark.parametrize(
    "losses", [[0.3] * 6, [0.1, 0.1, 0.1, 0.9], [0.0, 1.0], [0.2, 0.2, 0.2, 0.2, 0.2, 0.21]]
)
def test_losses_in_no_two_groups_leave_every_pair_clean(losses):
    np.testing.assert_array_equal(clean_posterior(torch.tensor(losses)), np.ones(len(losses)))


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        ("flickr30k", {}),
        ("coco", {"warmup_epochs": 10, "epochs": 20, "lr_update": 10}),
        ("cc152k", {"warmup_epochs": 10, "epochs": 40, "lr_update": 20}),
    ],
)
def test_schedule_matches_the_published_code(dataset, options, single):
    stored = single("L_l2rm")
    method = L2RM(L2RMConfig(**options), Setting(4, 1, 1, nn.Identity, 4))
    plan = method.plan()
    warmup, training = ([e for e in plan if e.phase == phase] for phase in ("warmup", "train"))
    assert len(warmup) == stored[f"schedule.{dataset}.warmup_epochs"]
    assert all(epoch.select for epoch in plan)
    for module, name in zip(method.trained_modules(), ("lr", "lr_cost"), strict=True):
        rates = [method.learning_rate(module, epoch) for epoch in training]
        stored.near(rates, f"schedule.{dataset}.{name}", 1e-12)
        assert {method.learning_rate(module, epoch) for epoch in warmup} == {rates[0]}


def small_method(probability, batch_size):
    method = L2RM(L2RMConfig(), Setting(len(probability), 1, 1, nn.Identity, batch_size))
    method.clean_probability.write(torch.arange(len(probability)), torch.tensor(probability))
    return method


def test_fewer_clean_pairs_than_a_batch_become_a_batch():
    clean, noisy = small_method([0.1, 0.4, 0.9, 0.2, 0.3], 3).sides(torch.arange(5))
    assert (clean.tolist(), noisy.tolist()) == ([1, 2, 4], [0, 3])


def test_fewer_noisy_pairs_than_a_batch_leave_clean_ones_to_train_on(single):
    batches, network = loop_batches(single("L_l2rm"), "queue_B"), single("J_backbone_sgr").network("sgr")
    method = loop(L2RMConfig(), batches, network)
    method.sides = lambda ids: (ids, ids[: batches.batch_size - 1])
    step = Steps(method, [1e-4, 1e-6])
    method.train_epoch(TRAIN, batches, step)
    assert [modules for modules, _, _ in step.calls] == [[network]] * len(batches.own["clean"])


def test_incomplete_batches_are_left_out_of_training_alone(single):
    stored = single("J_backbone_sgr")
    batch, network = stored.batch(), stored.network("sgr")
    short = replace(batch, **{name: x[:-1] for name, x in vars(batch).items()})
    method = L2RM(L2RMConfig(), Setting(len(batch), 1, 1, lambda: network, len(batch)))
    method.sides = lambda ids: (ids, ids[:0])
    step, batches = Steps(method, [1e-4, 1e-6]), StoredBatches(batch, short)
    batches.read = lambda ids: batch
    method.train_epoch(WARMUP, batches, step)
    assert len(step.calls) == 2
    method.train_epoch(TRAIN, batches, step)
    assert [len(used) for _, used, _ in step.calls[2:]] == [len(batch)]


def test_a_training_split_smaller_than_a_batch_is_refused():
    with refused(TrainingError):
        small_method([1.0] * 3, 4)


def test_known_pairs_are_at_least_one_and_at_most_the_share():
    method, random = small_method([1.0] * 60, 40), np.random.default_rng(0)
    sizes = {len(places) for places, _ in (method.known_pairs(random) for _ in range(60))}
    assert sizes == {1, 2, 3, 4}
    assert len(small_method([1.0] * 4, 4).known_pairs(random)[1]) == 1
