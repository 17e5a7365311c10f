"""Partial transport against iterations entry by entry, and the masses of its plan."""

import pytest
import torch
from oracles import transport as oracle
from support.rounding import assert_near

from baselines.kit.transport import partial_transport, sinkhorn


@pytest.mark.parametrize("regularisation", [0.01, 0.07, 1.0])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 5)])
@pytest.mark.parametrize("own", [True, False])
def test_plan_and_rounds_are_those_of_the_description(
    regularisation: float, shape: tuple[int, int], own: bool
) -> None:
    costs = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    forbidden = None if own else torch.eye(*shape, dtype=torch.bool)
    entries = set() if own else {(k, k) for k in range(min(shape))}
    plan, rounds = oracle.partial_transport(costs.tolist(), 0.3, regularisation, entries)
    found = partial_transport(costs, 0.3, regularisation, forbidden)
    assert found.rounds == rounds
    assert_near(found.plan, torch.tensor(plan, dtype=torch.float64), 1e-8)
    assert found.change < 1e-3


def test_converged_plan_keeps_all_masses_and_forbidden_entries_carry_nothing() -> None:
    costs = torch.rand(5, 5, generator=torch.Generator().manual_seed(1))
    masses, forbidden = torch.full((5,), 0.2), torch.eye(5, dtype=torch.bool)
    found = sinkhorn(costs, masses, masses, 0.1, forbidden, tolerance=1e-12)
    for dim in (0, 1):
        assert_near(found.plan.sum(dim=dim), masses.double(), 1e-6)
    assert (found.plan.diagonal() == 0).all()


def test_the_moved_mass_is_about_what_was_asked_and_prefers_small_costs() -> None:
    costs = 1 - 0.9 * torch.eye(8)
    plan = partial_transport(costs, 0.5, 0.05).plan[:-1, :-1]
    assert plan.sum().item() == pytest.approx(0.5, abs=0.02)
    assert plan.diagonal().sum() > 0.99 * plan.sum()


def test_rounds_are_bounded() -> None:
    found = sinkhorn(
        torch.rand(3, 3), torch.ones(3) / 3, torch.ones(3) / 3, 0.001, tolerance=0.0, most_rounds=7
    )
    assert found.rounds == 7
