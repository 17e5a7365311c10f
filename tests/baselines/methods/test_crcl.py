"""CRCL against the published code's numbers, and the life of its labels over rounds."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from baselines.augmentation import BLANK
from baselines.batches import Batch
from baselines.method import EpochPlan, Setting
from baselines.methods.crcl import (
    CRCL,
    CRCLConfig,
    complementary_loss,
    confident_label,
    matching_log_probabilities,
    momentum_label,
)

MATRICES = ("random", "clean", "some_noisy", "saturated", "all_noisy", "all_equal", "cosine")
UNCHANGED = {"word_change": 0.0, "region_change": 0.0}


class FixedSimilarities(nn.Module):
    """A network whose only weights are the similarities themselves."""

    fixed_regions = False

    def __init__(self, similarities: np.ndarray | None = None) -> None:
        super().__init__()
        values = torch.rand(12, 12) if similarities is None else torch.from_numpy(similarities)
        self.weight = nn.Parameter(values.clone())

    def forward(self, batch: Batch) -> Tensor:
        return self.weight


class RecordedStep:
    """Backward without an update; keeps what the method handed over."""

    def __call__(self, network: nn.Module, loss: Tensor, batch: Batch, **terms: Tensor) -> None:
        network.zero_grad()
        loss.backward()
        self.loss, self.terms, self.batch = loss.item(), terms, batch


def batches_of(*batches: Batch) -> Any:
    return SimpleNamespace(shuffled=lambda *purpose: iter(batches))


def blank_batch(pair_ids: Tensor, regions: int = 1) -> Batch:
    n = len(pair_ids)
    ones = torch.ones(n, dtype=torch.long)
    return Batch(torch.ones(n, regions, 1), regions * ones, ones[:, None], ones, pair_ids)


def method_on(similarities: np.ndarray, labels: np.ndarray, **options: Any) -> CRCL:
    config = CRCLConfig(**UNCHANGED, **options)
    method = CRCL(config, Setting(len(labels), 1, 50, lambda: FixedSimilarities(similarities)))
    method.labels.values.copy_(torch.from_numpy(labels))
    return method


def options_of(tag: str) -> dict[str, Any]:
    return {
        "": {},
        "warm1": {"freeze_epochs": 1},
        "confident_off": {"confidence_threshold": 0.0},
        "mc_off": {"momentum": 0.0, "confidence_threshold": 0.0},
    }[tag]


@pytest.mark.parametrize("matrix", MATRICES)
def test_one_step_matches_the_published_code(matrix: str, golden: Any) -> None:
    stored = golden("D_crcl_losses")
    pair_ids = torch.from_numpy(stored["text_ids"])
    cases = [name.removesuffix(".y") for name in stored if name.startswith(f"{matrix}.") and name.endswith(".y")]
    assert cases
    for case in cases:
        _, store, epoch, schedule, *tag = case.split(".")
        similarities = stored[f"sims.{matrix}"]
        method = method_on(similarities, stored[f"move_gt_before.{store}"], **options_of("".join(tag)))
        step, plan = RecordedStep(), EpochPlan(int(schedule[8:]), int(epoch[5:]), "", 5e-4)
        method.train_epoch(plan, batches_of(blank_batch(pair_ids)), step)

        want = {name: stored[f"{case}.{name}"] for name in ("p1", "p2", "loss", "loss1", "loss2", "grad_sims")}
        for given, name in ((similarities, "p1"), (similarities.T, "p2")):
            probability = matching_log_probabilities(torch.from_numpy(given), 0.05).exp().numpy()
            np.testing.assert_allclose(probability, want[name], rtol=2e-5, atol=5e-6)
        np.testing.assert_allclose(method.labels.values, stored[f"{case}.move_gt_after"], rtol=0, atol=5e-6)
        assert step.loss == pytest.approx(float(want["loss"]), rel=1e-5, abs=1e-6)
        assert step.terms["active"].item() == pytest.approx(float(want["loss1"]), rel=1e-5, abs=1e-6)
        assert step.terms["complementary"].item() == pytest.approx(float(want["loss2"]), rel=1e-5, abs=1e-6)
        if matrix != "saturated":
            tolerance = 2e-4 * np.abs(want["grad_sims"]).max()
            gradient = method.networks[0].weight.grad.numpy()
            np.testing.assert_allclose(gradient, want["grad_sims"], rtol=0, atol=tolerance)
