"""NCR against the published code's numbers, and its schedule."""

import numpy as np
import pytest
import torch
from support.doubles import OwnPairs, Steps, StoredBatches, bare_batch
from support.parity import FILES, assert_matrix_losses, assert_trajectory
from support.rounding import assert_near

import baselines.methods.ncr
from baselines.kit.losses import hardest_triplet, matching_prediction, mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.ncr import NCR, NCRConfig, ncr_triplet

BACKBONES = pytest.mark.parametrize("backbone", ["sgr", "saf"])


def test_losses_and_their_gradients_match_the_published_code(single):
    stored = single("C_ncr_losses")
    column, square = stored("labels_column")[:, 0], stored("labels_matrix")
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
    for matrix in stored.names("scores."):
        prediction = matching_prediction(stored(f"scores.{matrix}"), 0.2)
        expected = np.nan_to_num(stored[f"{matrix}.predict.clamped"])  # no pair has an advantage: 0 / 0
        assert_near(prediction, expected, 1e-5, scale=1)


def method_and_batch(backbone, weights):
    batch = weights.batch()
    return NCR(NCRConfig(), Setting(len(batch), 36, 50, lambda: weights.network(backbone))), batch


@BACKBONES
def test_predictions_and_losses_of_a_network_match_the_published_code(backbone, single):
    stored = single("C_ncr_network")
    method, batch = method_and_batch(backbone, single(FILES[backbone]))
    stored.near(method.predict(method.networks[0], batch), f"{backbone}.predict_eval", 5e-5)
    losses = mean_triplet(method.networks[0](batch).similarities, 0.2)
    stored.near(losses, f"{backbone}.eval_loss_eval", 1e-5)


@pytest.mark.parametrize("mode", ["warmup", "soft_column", "soft_matrix"])
@BACKBONES
def test_steps_match_the_published_code(backbone, mode, single):
    """A warm-up step of network 0, or a step on stored labels."""
    stored, weights, start = single("C_ncr_network"), single(FILES[backbone]), f"{backbone}.{mode}."

    def train_once(method, step):
        if mode == "warmup":
            method.train_epoch(EpochPlan(0, 0, "warmup", 1.0), StoredBatches(batch, warmup_1=[]), step)
            return
        labels = stored("labels_matrix") if mode == "soft_matrix" else stored("labels_column")[:, 0]
        network = method.networks[0].train()
        step(network, ncr_triplet(network(batch).similarities, labels, method.config).sum(), batch)

    method, batch = method_and_batch(backbone, weights)
    train_once(method, step := Steps(method))
    near = {"absolute": 0, "noise": 1e-4, "some": False}
    stored.near_step(step, start, weights.state(), backbone, single=2e-4, slope=2e-4, **near)
    method, _ = method_and_batch(backbone, weights)
    (length,) = stored.names(f"{start}losses_")
    want, step = stored[f"{start}losses_{length}"], Steps(method, 2e-3)
    for _ in want:
        train_once(method, step)
    assert_trajectory(step.losses, want)


class Recorded(NCR):
    """NCR with stored predictions in place of networks."""

    def __init__(self, predictions, epochs):
        super().__init__(NCRConfig(epochs=epochs), Setting(len(predictions[0]), 1, 1, OwnPairs))
        self.stored = dict(zip(self.networks, predictions, strict=True))

    def predict(self, network, batch):
        return self.stored[network][batch.pair_ids]


@pytest.fixture
def labels(monkeypatch):
    """The labels that reach the loss."""
    found = []

    def recording(similarities, label, config):
        found.append(label)
        return similarities.sum()[None]

    monkeypatch.setattr(baselines.methods.ncr, "ncr_triplet", recording)
    return found


@pytest.mark.parametrize(("half", "epoch"), [("first_half", 3), ("second_half", 20)])
def test_labels_match_the_published_code(half, epoch, labels, single):
    stored = single("C_ncr_refine")
    kinds = stored[f"{half}.is_labelled"].tolist()
    numbers = range(int(stored[f"{half}.n_train_calls"]))
    calls = [bare_batch(stored(f"{half}.call{k}.ids")) for k in numbers]
    method = Recorded([stored("p_net"), stored("p_other")], epochs=40)
    n_labelled, probability = int(stored["n_labelled"]), torch.zeros(len(stored["p_net"]))
    probability[:n_labelled] = stored("w")
    method.clean_probability[1].write(torch.arange(len(probability)), probability)
    method.is_clean = lambda p: torch.arange(len(p)) < n_labelled
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

    def predict(self, network, batch):
        return torch.full((len(batch),), float(len(self.seen)))

    def count(self, network, loss, batch):
        self.seen.append(batch.pair_ids.tolist())


PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("options", "seen", "expected"),
    [
        ({}, [PAIRS[0], PAIRS[2], PAIRS[1], PAIRS[3]], [0, 0, 2, 2]),
        ({"co_rectify": False}, PAIRS[:2], [1, 1]),
        ({"co_divide": False}, PAIRS, [0, 1, 2, 3]),
    ],
)
def test_clean_and_noisy_labels_are_predicted_before_either_step_and_parts_can_be_left_out(
    options, seen, expected, labels, monkeypatch
):
    """As in table 4: clean pairs alone, each with label 1; or all, each with what both predict before the step."""
    method = Counting(NCRConfig(epochs=1, **options), Setting(8, 1, 1, OwnPairs))
    method.seen = []
    method.clean_probability[1].write(torch.arange(8), torch.tensor([1.0] * 4 + [0.0] * 4))
    if not options:
        monkeypatch.setattr(baselines.methods.ncr, "rectified_clean_label", lambda w, p, shape: p)
    batches = StoredBatches(*(bare_batch(ids) for ids in torch.arange(8).split(2)))
    method.train_network(0, EpochPlan(0, 0, "train", 1.0), batches, method.count)
    assert method.seen == seen
    assert [label.max().item() for label in labels] == expected
