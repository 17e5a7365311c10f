"""NCR against the published code's numbers, and its schedule."""

import numpy as np
import pytest
import torch
from support.doubles import OwnPairs, Steps, StoredBatches, bare_batch
from support.parity import (
    FILES,
    Golden,
    assert_gradients,
    assert_matrix_losses,
    assert_trajectory,
    batch_of,
    names_between,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near
from torch import Tensor, nn

import baselines.methods.ncr
from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, matching_prediction, mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.ncr import NCR, NCRConfig, ncr_triplet

BACKBONES = ("sgr", "saf")


def test_losses_and_their_gradients_match_the_published_code(golden: Golden) -> None:
    stored = golden("C_ncr_losses")
    column, square = tensor(stored["labels_column"])[:, 0], tensor(stored["labels_matrix"])
    losses = {
        "warmup": lambda s: mean_triplet(s, 0.2).sum(),
        "train_mean": lambda s: mean_triplet(s, 0.2).sum(),
        "train_hard": lambda s: hardest_triplet(s, 0.2).sum(),
        "eval_loss": lambda s: mean_triplet(s, 0.2),
    }
    for curve in ("exponential", "linear", "sin"):
        config = NCRConfig(curve=curve)
        losses[f"train_hard.column.{curve}"] = lambda s, c=config: ncr_triplet(s, column, c).sum()
        losses[f"train_hard.matrix.{curve}"] = lambda s, c=config: ncr_triplet(s, square, c).sum()
    assert_matrix_losses(stored, losses)
    for matrix in names_between(stored, "scores."):
        prediction = matching_prediction(tensor(stored[f"scores.{matrix}"]), 0.2)
        expected = np.nan_to_num(stored[f"{matrix}.predict.clamped"])  # no pair has an advantage: 0 / 0
        assert_near(prediction, expected, 1e-5, scale=1)


def method_and_batch(backbone: str, golden: Golden) -> tuple[NCR, Batch]:
    stored = golden(FILES[backbone])
    batch = batch_of(stored)
    setting = Setting(len(batch), 36, 50, lambda: network_of(backbone, state_of(stored)))
    return NCR(NCRConfig(), setting), batch


@pytest.mark.parametrize("backbone", BACKBONES)
def test_predictions_and_losses_of_a_network_match_the_published_code(backbone: str, golden: Golden) -> None:
    stored = golden("C_ncr_network")
    method, batch = method_and_batch(backbone, golden)
    prediction = method.predict(method.networks[0], batch)
    assert_near(prediction, stored[f"{backbone}.predict_eval"], 5e-5, scale=1)
    losses = mean_triplet(method.networks[0](batch).similarities, 0.2).detach()
    assert_near(losses, stored[f"{backbone}.eval_loss_eval"], 1e-5, scale=1)


def train_once(method: NCR, batch: Batch, mode: str, golden: Golden, step: Steps) -> None:
    """One step of network 0: a warm-up step of the method, or a step on stored labels."""
    if mode == "warmup":
        method.train_epoch(EpochPlan(0, 0, "warmup", 1.0), StoredBatches(batch, warmup_1=[]), step)
        return
    labels = tensor(golden("C_ncr_network")["labels_column" if mode == "soft_column" else "labels_matrix"])
    labels = labels[:, 0] if mode == "soft_column" else labels
    network = method.networks[0].train()
    step(network, ncr_triplet(network(batch).similarities, labels, method.config).sum(), batch)


@pytest.mark.parametrize("mode", ["warmup", "soft_column", "soft_matrix"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_steps_match_the_published_code(backbone: str, mode: str, golden: Golden) -> None:
    stored, name = golden("C_ncr_network"), f"{backbone}.{mode}"
    method, batch = method_and_batch(backbone, golden)
    step = Steps(method)
    train_once(method, batch, mode, golden, step)
    assert step.losses == pytest.approx([float(stored[f"{name}.loss"])], rel=1e-4)
    assert step.norms == pytest.approx([float(stored[f"{name}.grad_norm"])], rel=2e-4)
    if mode != "soft_column":
        base, wanted = state_of(golden(FILES[backbone])), state_of(stored, f"{name}.grad.")
        assert_gradients(method.networks[0], backbone, base, wanted, relative=2e-4, noise=1e-4)
    method, _ = method_and_batch(backbone, golden)
    (length,) = names_between(stored, f"{name}.losses_")
    want, step = stored[f"{name}.losses_{length}"], Steps(method, 2e-3)
    for _ in want:
        train_once(method, batch, mode, golden, step)
    assert_trajectory(step.losses, want)


class Recorded(NCR):
    """NCR with stored predictions in place of networks."""

    def __init__(self, predictions: list[np.ndarray], epochs: int) -> None:
        super().__init__(NCRConfig(epochs=epochs), Setting(len(predictions[0]), 1, 1, OwnPairs))
        self.stored = dict(zip(self.networks, (tensor(p) for p in predictions), strict=True))

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        return self.stored[network][batch.pair_ids]


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The labels that reach the loss."""
    found: list[Tensor] = []

    def recording(similarities: Tensor, label: Tensor, config: NCRConfig) -> Tensor:
        found.append(label)
        return similarities.sum()[None]

    monkeypatch.setattr(baselines.methods.ncr, "ncr_triplet", recording)
    return found


@pytest.mark.parametrize(("half", "epoch"), [("first_half", 3), ("second_half", 20)])
def test_labels_match_the_published_code(half: str, epoch: int, labels: list[Tensor], golden: Golden) -> None:
    stored = golden("C_ncr_refine")
    kinds = stored[f"{half}.is_labelled"].tolist()
    numbers = range(int(stored[f"{half}.n_train_calls"]))
    calls = [bare_batch(tensor(stored[f"{half}.call{k}.ids"])) for k in numbers]
    method = Recorded([stored["p_net"], stored["p_other"]], epochs=40)
    n_labelled, probability = int(stored["n_labelled"]), torch.zeros(len(stored["p_net"]))
    probability[:n_labelled] = tensor(stored["w"])
    method.clean_probability[1].write(torch.arange(len(probability)), probability)
    method.is_clean = lambda p: torch.arange(len(p)) < n_labelled  # type: ignore[method-assign]
    sides = {
        side: [batch for batch, kind in zip(calls, kinds, strict=True) if kind == labelled]
        for side, labelled in (("clean", True), ("noisy", False))
    }
    step = Steps(method)
    batches = StoredBatches(n_pairs=len(probability), **sides)
    method.train_network(0, EpochPlan(0, epoch, "train", 1.0), batches, step)
    assert [batch.pair_ids.tolist() for _, batch, _ in step.calls] == [b.pair_ids.tolist() for b in calls]
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


def test_clean_and_noisy_labels_are_predicted_before_either_step(
    labels: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = Counting(NCRConfig(epochs=1), Setting(8, 1, 1, OwnPairs))
    method.clean_probability[1].write(torch.arange(8), torch.tensor([1.0] * 4 + [0.0] * 4))
    monkeypatch.setattr(baselines.methods.ncr, "rectified_clean_label", lambda w, p, shape: p)
    batches = StoredBatches(*(bare_batch(ids) for ids in torch.arange(8).split(2)))
    method.train_network(0, EpochPlan(0, 0, "train", 1.0), batches, method.count)
    assert [label.max().item() for label in labels] == [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("co_rectify", [([0, 1], 1), ([2, 3], 1)]),
        ("co_divide", [([0, 1], 0), ([2, 3], 1), ([4, 5], 2), ([6, 7], 3)]),
    ],
)
def test_without_a_part_pairs_have_the_labels_of_table_4(
    option: str, expected: list[tuple[list[int], int]], labels: list[Tensor]
) -> None:
    """Clean pairs alone, each with label 1; or all pairs, each with what both networks predict before the step."""
    method = Counting(NCRConfig(epochs=1, **{option: False}), Setting(8, 1, 1, OwnPairs))
    method.clean_probability[1].write(torch.arange(8), torch.tensor([1.0] * 4 + [0.0] * 4))
    seen: list[list[int]] = []

    def step(network: nn.Module, loss: Tensor, batch: Batch) -> None:
        seen.append(batch.pair_ids.tolist())
        method.count(network, loss, batch)

    batches = StoredBatches(*(bare_batch(ids) for ids in torch.arange(8).split(2)))
    method.train_network(0, EpochPlan(0, 0, "train", 1.0), batches, step)
    assert seen == [ids for ids, _ in expected]
    assert [label.tolist() for label in labels] == [[value] * 2 for _, value in expected]
