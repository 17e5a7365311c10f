"""Partial transport against iterations entry by entry, and the masses of its plan."""

import pytest
import torch
from oracles import transport as oracle
from support.rounding import assert_near

from baselines.kit.transport import partial_transport, sinkhorn


@pytest.mark.parametrize("regularisation", [0.01, 0.07, 1.0])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 5)])
@pytest.mark.parametrize("own", [True, False])
def test_plan_and_rounds_are_those_of_the_description(regularisation, shape, own):
    costs = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    forbidden = None if own else torch.eye(*shape, dtype=torch.bool)
    entries = set() if own else {(k, k) for k in range(min(shape))}
    plan, rounds = oracle.partial_transport(costs.tolist(), 0.3, regularisation, entries)
    found = partial_transport(costs, 0.3, regularisation, forbidden)
    assert found.rounds == rounds
    assert_near(found.plan, torch.tensor(plan, dtype=torch.float64), 1e-8)
    assert found.change < 1e-3


def test_rounds_are_bounded():
    found = sinkhorn(
        torch.rand(3, 3), torch.ones(3) / 3, torch.ones(3) / 3, 0.001, tolerance=0.0, most_rounds=7
    )
    assert found.rounds == 7
