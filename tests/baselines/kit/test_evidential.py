"""The evidential loss against a slow version written from its definition."""

import pytest
import torch
from oracles import evidential as oracle
from support.rounding import assert_near

from baselines.kit.evidential import evidential_loss, misleading_evidence, uncertainty


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


def test_no_evidence_costs_no_divergence_and_leaves_all_uncertain() -> None:
    alpha = torch.ones(3, 4)
    assert_near(misleading_evidence(alpha, torch.zeros(3, 4)), torch.zeros(3))
    assert_near(uncertainty(alpha), torch.ones(3))
