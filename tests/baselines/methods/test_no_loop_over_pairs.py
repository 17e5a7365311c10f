"""Transport and mixtures are computed for all pairs at once: what Python executes does not grow with the pairs."""

import sys

import pytest
import torch

from baselines.kit.mixture import BetaMixture, fitted, fitted_for, two_means
from baselines.kit.transport import sinkhorn
from baselines.methods import bicro, l2rm

LEFT_OUT = ("/torch/", "/importlib", "<frozen")
"""Below torch's own Python nothing is ours."""


def executed_lines(function):
    """Lines of this project that a call executes; a loop counts its lines once in every turn."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        if any(part in frame.f_code.co_filename for part in LEFT_OUT):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def losses(n):
    """Of two groups, in (0, 1)."""
    generator = torch.Generator().manual_seed(n)
    low, high = (torch.rand(n // 2, generator=generator) for _ in range(2))
    return torch.cat([0.05 + 0.3 * low, 0.6 + 0.35 * high])


MIXTURE = BetaMixture(*(torch.tensor(x, dtype=torch.float64) for x in ((2.0, 6.0), (6.0, 2.0), (0.5, 0.5))))


def transported(n):
    costs = torch.rand(n, n, generator=torch.Generator().manual_seed(n))
    mass = torch.full((n,), 1 / n)
    found = sinkhorn(costs, mass, mass, 0.05, torch.eye(n, dtype=torch.bool), tolerance=0.0, most_rounds=5)
    assert found.rounds == 5


def rematched(n):
    labels = l2rm.rectified_labels(torch.rand(n, n))[0]
    l2rm.symmetric_divergence(torch.rand(n, n).log_softmax(dim=1), labels)


@pytest.mark.parametrize(
    "work",
    [
        transported,
        rematched,
        lambda n: two_means(losses(n)),
        lambda n: fitted(losses(n), MIXTURE, most_updates=4, least_gain=-torch.inf),
        lambda n: fitted_for(losses(n), MIXTURE, 4, 1e-12),
        lambda n: bicro.beta_posterior(losses(n)),
        lambda n: bicro.consistency(*(bicro.cosines(torch.rand(n, 8), torch.rand(4, 8)) for _ in range(2))),
        lambda n: bicro.anchors_first(torch.rand(n, n), 0.2),
    ],
    ids=["transport", "rematching", "two means", "l2rm", "bicro", "bicro whole", "consistency", "anchors"],
)
def test_python_executes_no_more_for_more_pairs(work):
    few, many = (executed_lines(lambda n=n: work(n)) for n in (20, 320))
    assert 0 < many == few
