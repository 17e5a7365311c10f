"""NCR against the published code's numbers, and its schedule."""

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.method_parity import (
    BACKBONE_FILES,
    Golden,
    GradientStep,
    OptimizerStep,
    assert_gradients_match,
    assert_trajectory_matches,
    batches_of,
    gradient_norm,
    only,
    published_batch,
    published_network,
    published_setting,
)
from support.rounding import assert_near
from support.stand_ins import StandIn
from torch import Tensor, nn

import baselines.methods.ncr
from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.ncr import NCR, NCRConfig, matching_prediction, ncr_triplet, soft_margin

MATRICES = (
    "random",
    "mostly_clean",
    "some_noisy",
    "all_equal",
    "ties",
    "near_0_and_1",
    "all_noisy",
    "hinge_at_zero",
    "clean_margin_met",
)
CURVES = ("exponential", "linear", "sin")
BACKBONES = ("sgr", "saf")


def tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))


@pytest.mark.parametrize("matrix", MATRICES)
def test_losses_and_their_gradients_match_the_published_code(matrix: str, golden: Golden) -> None:
    stored = golden("C_ncr_losses")
    column, square = tensor(stored["labels_column"])[:, 0], tensor(stored["labels_matrix"])
    modes = {
        "warmup": lambda s: mean_triplet(s, 0.2).sum(),
        "train_mean": lambda s: mean_triplet(s, 0.2).sum(),
        "train_hard": lambda s: hardest_triplet(s, 0.2).sum(),
        "eval_loss": lambda s: mean_triplet(s, 0.2),
    }
    for curve in CURVES:
        config = NCRConfig(curve=curve)
        modes[f"train_hard.column.{curve}"] = lambda s, c=config: ncr_triplet(s, column, c).sum()
        modes[f"train_hard.matrix.{curve}"] = lambda s, c=config: ncr_triplet(s, square, c).sum()
    for mode, loss_of in modes.items():
        similarities = tensor(stored[f"scores.{matrix}"]).requires_grad_()
        loss = loss_of(similarities)
        assert_near(loss.detach(), stored[f"{matrix}.{mode}.value"], 2e-6, name=mode)
        loss.sum().backward()
        expected = stored[f"{matrix}.{mode}.grad"]
        assert_near(similarities.grad, expected, 2e-4, scale=1e-3, name=mode)


@pytest.mark.parametrize("matrix", MATRICES)
def test_predictions_match_the_published_code(matrix: str, golden: Golden) -> None:
    stored = golden("C_ncr_losses")
    prediction = matching_prediction(tensor(stored[f"scores.{matrix}"]), 0.2)
    expected = np.nan_to_num(stored[f"{matrix}.predict.clamped"], nan=0.0)  # no pair has an advantage: 0 / 0
    assert_near(prediction, expected, 5e-6, scale=1)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_predictions_and_losses_of_a_network_match_the_published_code(backbone: str, golden: Golden) -> None:
    stored = golden("C_ncr_network")
    method, batch = method_on(backbone, golden), batch_of(backbone, golden)
    prediction = method.predict(method.networks[0], batch)
    assert_near(prediction, stored[f"{backbone}.predict_eval"], 5e-5, scale=1)
    losses = mean_triplet(method.networks[0](batch), 0.2).detach()
    assert_near(losses, stored[f"{backbone}.eval_loss_eval"], 5e-6, scale=1)


def batch_of(backbone: str, golden: Golden) -> Batch:
    stored = golden(BACKBONE_FILES[backbone])
    n = len(stored["in.lengths"])
    return published_batch(stored, np.arange(n), torch.arange(n))


def method_on(backbone: str, golden: Golden, **options: Any) -> NCR:
    n_pairs = len(batch_of(backbone, golden))
    return NCR(NCRConfig(**options), published_setting(backbone, golden, n_pairs))


def train_once(method: NCR, batch: Batch, mode: str, golden: Golden, step: Any) -> None:
    """One optimiser step of network 0: a warm-up step of the method, or a step on stored labels."""
    if mode == "warmup":
        one = SimpleNamespace(shuffled=lambda purpose, k: iter([batch] if k == 0 else []))
        method.train_epoch(EpochPlan(0, 0, "warmup", 1.0), one, step)
        return
    labels = tensor(golden("C_ncr_network")["labels_column" if mode == "soft_column" else "labels_matrix"])
    labels = labels[:, 0] if mode == "soft_column" else labels
    network = method.networks[0].train()
    step(network, ncr_triplet(network(batch), labels, method.config).sum(), batch)


@pytest.mark.parametrize("mode", ["warmup", "soft_column", "soft_matrix"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_one_step_matches_the_published_code(backbone: str, mode: str, golden: Golden) -> None:
    stored = golden("C_ncr_network")
    method, step = method_on(backbone, golden), GradientStep()
    train_once(method, batch_of(backbone, golden), mode, golden, step)
    assert step.loss == pytest.approx(float(stored[f"{backbone}.{mode}.loss"]), rel=1e-4)
    assert gradient_norm(method.networks[0]) == pytest.approx(
        float(stored[f"{backbone}.{mode}.grad_norm"]), rel=2e-4
    )
    if mode != "soft_column":
        assert_gradients_match(
            method.networks[0], published_network(backbone, golden, f"{backbone}.{mode}.grad.", stored)
        )


@pytest.mark.parametrize("mode", ["warmup", "soft_column", "soft_matrix"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_trajectory_matches_the_published_code(backbone: str, mode: str, golden: Golden) -> None:
    stored = only(golden("C_ncr_network"), f"{backbone}.{mode}.losses_")
    method, batch = method_on(backbone, golden), batch_of(backbone, golden)
    step = OptimizerStep(method, 2e-3)
    for _ in stored:
        train_once(method, batch, mode, golden, step)
    assert_trajectory_matches(step.losses, stored)


class Recorded(NCR):
    """NCR with stored predictions in place of networks; it keeps the labels that reach the loss."""

    def __init__(self, predictions: list[np.ndarray], epochs: int) -> None:
        super().__init__(NCRConfig(epochs=epochs), Setting(len(predictions[0]), 1, 1, Identity))
        self.stored = dict(zip(self.networks, (tensor(p) for p in predictions), strict=True))

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        return self.stored[network][batch.pair_ids]


class Identity(StandIn):
    """Similarities that only say which pairs they belong to."""

    def forward(self, batch: Batch) -> Tensor:
        return batch.pair_ids.float().repeat(len(batch), 1).requires_grad_()


class StoredOrder:
    """Batches in the order of the published run."""

    def __init__(self, calls: list[tuple[bool, Tensor]], n_pairs: int) -> None:
        self.calls, self.pair_ids = calls, torch.arange(n_pairs)

    def _batches(self, labelled: bool) -> Iterator[Batch]:
        empty = torch.empty(0)
        return (Batch(empty, empty, empty, empty, ids) for kind, ids in self.calls if kind == labelled)

    def shuffled(self, *purpose: object, pair_ids: Tensor) -> Iterator[Batch]:
        return self._batches(labelled=True)

    def endless(self, *purpose: object, pair_ids: Tensor) -> Iterator[Batch]:
        return self._batches(labelled=False)


@pytest.mark.parametrize(("half", "epoch"), [("first_half", 3), ("second_half", 20)])
def test_labels_match_the_published_code(
    half: str, epoch: int, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = golden("C_ncr_refine")
    n_calls, n_labelled = int(stored[f"{half}.n_train_calls"]), int(stored["n_labelled"])
    kinds = stored[f"{half}.is_labelled"].tolist()
    ids = [tensor(stored[f"{half}.call{k}.ids"]) for k in range(n_calls)]
    method = Recorded([stored["p_net"], stored["p_other"]], epochs=40)
    probability = torch.zeros(len(stored["p_net"]))
    probability[:n_labelled] = tensor(stored["w"])
    method.clean_probability[1].write(torch.arange(len(probability)), probability)
    labels: list[Tensor] = []

    def recording(similarities: Tensor, label: Tensor, config: NCRConfig) -> Tensor:
        labels.append(label)
        return similarities.sum()[None]

    monkeypatch.setattr(baselines.methods.ncr, "ncr_triplet", recording)
    monkeypatch.setattr(method, "is_clean", lambda p: torch.arange(len(p)) < n_labelled)
    steps: list[Tensor] = []
    order = StoredOrder(list(zip(kinds, ids, strict=True)), len(probability))
    method.train_network(
        0, EpochPlan(0, epoch, "train", 1.0), order, lambda network, loss, batch: steps.append(batch.pair_ids)
    )
    assert [s.tolist() for s in steps] == [i.tolist() for i in ids]
    for k, (labelled, label) in enumerate(zip(kinds, labels, strict=True)):
        expected = stored[f"{half}.call{k}.labels"]
        assert_near(label, expected if labelled else expected[:, 0], 1e-6, scale=1)


class Counting(NCR):
    """NCR whose prediction is the number of steps that came before it."""

    steps = 0

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        return torch.full((len(batch),), float(self.steps))

    def count(self, network: nn.Module, loss: Tensor, batch: Batch) -> None:
        self.steps += 1


def test_clean_and_noisy_labels_are_predicted_before_either_step(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Counting(NCRConfig(epochs=1), Setting(8, 1, 1, Identity))
    method.clean_probability[1].write(torch.arange(8), torch.tensor([1.0] * 4 + [0.0] * 4))
    labels: list[float] = []

    def recording(similarities: Tensor, label: Tensor, config: NCRConfig) -> Tensor:
        labels.append(label.max().item())
        return similarities.sum()[None]

    monkeypatch.setattr(baselines.methods.ncr, "ncr_triplet", recording)
    monkeypatch.setattr(baselines.methods.ncr, "rectified_clean_label", lambda w, p, shape: p)
    turns = [(kind, torch.arange(2) + 2 * k + 4 * (not kind)) for k in range(2) for kind in (True, False)]
    method.train_network(0, EpochPlan(0, 0, "train", 1.0), StoredOrder(turns, 8), method.count)
    assert labels == [0, 0, 2, 2]


def test_paper_labels_give_each_pair_its_own_margin_in_both_directions() -> None:
    random = torch.Generator().manual_seed(0)
    similarities = torch.rand(5, 5, generator=random, dtype=torch.float64)
    labels = torch.rand(5, generator=random, dtype=torch.float64)
    config = NCRConfig(label_shape="paper")
    margin = soft_margin(labels, 0.2)
    for i, loss in enumerate(ncr_triplet(similarities, labels, config)):
        others = [j for j in range(5) if j != i]
        caption_cost = max(max(margin[i] - similarities[i, i] + similarities[i, j], 0) for j in others)
        image_cost = max(max(margin[i] - similarities[i, i] + similarities[j, i], 0) for j in others)
        assert loss.item() == pytest.approx(float(caption_cost + image_cost), abs=1e-6)


@pytest.mark.parametrize("curve", CURVES)
def test_margins_rise_from_zero_to_alpha(curve: str) -> None:
    margins = soft_margin(torch.linspace(0, 1, 11), 0.2, curve)
    assert margins[0].item() == pytest.approx(0, abs=1e-7)
    assert margins[-1].item() == pytest.approx(0.2)
    assert (margins.diff() > 0).all()


def test_warm_up_keeps_the_rate_and_the_optimisers_go_on() -> None:
    plan = NCR(
        NCRConfig(warmup_epochs=2, epochs=5, lr_update=3, learning_rate=1.0), Setting(4, 1, 5, nn.Identity)
    ).plan()
    assert [(e.phase, e.epoch) for e in plan] == [
        ("warmup", 0),
        ("warmup", 1),
        *(("train", k) for k in range(5)),
    ]
    assert [e.learning_rate for e in plan] == pytest.approx([1, 1, 1, 1, 1, 0.1, 0.1])
    assert not any(e.new_networks or e.new_optimizers or e.forget_best for e in plan)


def test_each_network_learns_from_its_peer_and_remembers_probabilities_by_pair(golden: Golden) -> None:
    """The division reads every pair once per network and writes under the pair's own number."""
    batch = batch_of("sgr", golden)
    shifted = dataclasses.replace(batch, pair_ids=batch.pair_ids + 5)
    method = NCR(NCRConfig(), published_setting("sgr", golden, 5 + len(batch) + 3))
    batches = batches_of(shifted)
    del batches.shuffled  # both networks are divided in one pass, which leaves no pair out
    method.co_divide(EpochPlan(0, 0, "train", 1.0), batches)
    values = method.clean_probability[0].values
    assert (values[:5] == 1).all()
    assert (values[-3:] == 1).all()
    assert not (values[5:-3] == 1).all()
    assert torch.equal(
        method.estimates()["clean_probability"], (values + method.clean_probability[1].values) / 2
    )
