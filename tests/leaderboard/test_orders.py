"""Kendall's tau between the orders of two measured conditions, and its interval."""

import numpy as np
import pytest
from scipy.stats import kendalltau
from support.command import invoke
from support.refusals import refused
from test_measured_tables import training

from leaderboard.orders import kendall_tau, tau_interval

METHODS = ("NCR", "CRCL", "GSC", "SPS", "DECL")


@pytest.mark.parametrize("size", [5, 9, 30])
def test_tau_is_that_of_scipy_with_ties_too(size):
    random = np.random.RandomState(size)
    for distinct in (3, 1000):
        first, second = random.randint(distinct, size=(2, size)).astype(float)
        assert kendall_tau(first, second) == pytest.approx(kendalltau(first, second).statistic, abs=1e-12)
    assert kendall_tau(np.ones(4), np.arange(4.0)) == 0


def test_the_interval_is_wide_for_few_methods():
    # one of 24 orders of four has tau 1: independence is not excluded; one of 120 of five is rarer than 2.5 %
    assert tau_interval(1.0, 4)[0] < 0 < tau_interval(1.0, 5)[0]
    for n, tau in ((5, 1.0), (7, 0.5), (20, -0.3)):
        low, high = tau_interval(tau, n)
        assert low < tau <= high
        assert np.allclose(tau_interval(-tau, n), (-high, -low), atol=0.05)  # draws differ
    assert np.diff(tau_interval(0.5, 20)) < np.diff(tau_interval(0.5, 7))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "population"), [(5, 0.5), (7, 0.8), (9, 0.9), (20, 0.3)])
def test_the_interval_holds_the_tau_of_the_population(n, population):
    random = np.random.default_rng(1)
    correlation = np.sin(np.pi / 2 * population)
    known = {}
    inside = []
    for _ in range(400):
        x, y = random.standard_normal((2, n))
        tau = round(kendall_tau(x, correlation * x + np.sqrt(1 - correlation**2) * y), 9)
        low, high = known.setdefault(tau, tau_interval(tau, n))
        inside.append(low - 0.01 <= population <= high + 0.01)
    assert np.mean(inside) > 0.92


def test_the_command_compares_what_both_tables_have(put, tmp_path):
    board = tmp_path / "board"
    for ratio in (0.4, 0.6):
        for place, method in enumerate(METHODS):
            # NCR and CRCL change places; DECL has no row at 60 %
            swapped = {0: 1, 1: 0}.get(place, place) if ratio == 0.6 else place
            if ratio == 0.4 or method != "DECL":
                facts = {"ratio": ratio, "difficulty": 1 + 0.4 * swapped, "seed": int(10 * ratio) + place}
                record = training(
                    place, ratio, **({"settings": {"dataset": "digits"}} if ratio == 0.6 else {})
                )
                put(board, method=method, training=record, **facts)
    table = "digits-200-vse-infinity-30"
    command = ["leaderboard", "orders", "--root", str(board), f"{table}:caption-40"]
    done = invoke(*command, f"{table}:caption-60")
    *rows, last = done.output.splitlines()
    assert [row.split()[0] for row in rows] == ["NCR", "CRCL", "GSC", "SPS"]
    assert last.startswith("Kendall's tau of 4 methods: 0.67 (95 % interval -")
    for other in (f"{table}:image-40", "x"):
        with refused():
            invoke(*command, other)
