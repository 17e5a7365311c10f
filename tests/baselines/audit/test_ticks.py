"""What labels say of the other pairs: against a plain optimiser, and from the first label on."""

import numpy as np
import pytest
from scipy.optimize import minimize

from baselines.audit.labels import FEWEST_TICKS, NAMED, PRIOR_DEVIATION, Label, weigh

N = 300


def made(wrong, labels, numbers=(30.0, 20.0, 45.0), lean=0.0):
    random = np.random.default_rng(0)
    views = random.normal(-1.5 * wrong, 1), random.normal(-1.5 * wrong, 1)
    score = -(views[0] + views[1]) / 2
    return weigh(score, 1 / (1 + np.exp(2.5 - 2 * score)), views, numbers, labels, lean)


def ticked(wrong, pairs):
    return {int(pair): Label("wrong" if wrong[pair] else "matches") for pair in pairs}


def test_few_labels_are_counted_and_move_nothing_else():
    wrong = np.arange(N) % 4 == 0
    before = made(wrong, {})
    assert (before.wrong, before.low, before.high) == (30, 20, 45)
    first, last = before.order[0], before.order[-1]
    after = made(wrong, {int(first): Label("matches"), int(last): Label("wrong"), 7: Label("cannot say")})
    assert [after.order[0], after.order[-1]] == [last, first]
    assert after.order[1:-1].tolist() == before.order[1:-1].tolist()
    others = np.setdiff1d(np.arange(N), [first, last])
    np.testing.assert_array_equal(after.probability[others], before.probability[others])
    moved = 1 - before.probability[first] - before.probability[last]
    assert after.wrong == round(30 + moved)


@pytest.mark.parametrize("lean", [0.0, -0.8])
def test_more_labels_fit_the_others_as_a_plain_optimiser_does(lean):
    wrong = np.arange(N) % 4 == 0
    before = made(wrong, {}, lean=lean)
    pairs = before.order[:30]
    after = made(wrong, ticked(wrong, pairs), lean=lean)
    x = np.stack([np.ones(N), before.odds, before.aside], axis=1)
    sign = np.where(wrong[pairs], -1, 1)

    def loss(weights):
        prior = ((weights - [0, 1, lean]) / PRIOR_DEVIATION) ** 2 / 2
        return float(np.logaddexp(0, sign * (x[pairs] @ weights)).sum() + prior.sum())

    expected = 1 / (1 + np.exp(-(x @ minimize(loss, [0, 1, lean], tol=1e-12).x)))
    expected[pairs] = wrong[pairs]
    np.testing.assert_allclose(after.probability, expected, atol=1e-4)
    assert after.wrong == round(after.probability.sum())
    assert abs(after.wrong - wrong.sum()) < abs(30 - wrong.sum())
    rest = after.order[np.isin(after.order, pairs, invert=True)]
    assert (np.diff(after.probability[rest]) <= 0).all()


def test_too_few_pairs_for_a_share_get_one_from_labels():
    wrong = np.arange(N) % 4 == 0
    none = (np.nan, np.nan, np.nan)
    before = made(wrong, {}, none)
    assert (before.wrong, before.low, before.high) == (None, None, None)
    assert made(wrong, ticked(wrong, before.order[: FEWEST_TICKS - 1]), none).wrong is None
    after = made(wrong, ticked(wrong, before.order[:60]), none)
    assert after.low <= wrong.sum() <= after.high


def test_pairs_that_fit_never_raise_the_upper_end():
    wrong = np.arange(N) % 4 == 0
    before = made(wrong, {})
    fits = {int(pair): Label("matches") for pair in before.order[:30]}
    assert made(wrong, fits).high <= before.high


def test_pairs_that_are_wrong_as_estimated_never_lower_the_lower_end():
    wrong = np.arange(N) % 4 == 0
    before = made(wrong, {}, (60.0, 50.0, 90.0))
    first = before.order[: 2 * FEWEST_TICKS]
    after = made(wrong, {int(pair): Label("wrong") for pair in first}, (60.0, 50.0, 90.0))
    assert before.low <= after.low <= after.wrong
    # those that fit were counted by the lower end
    fits = {int(pair): Label("matches") for pair in first}
    assert made(wrong, fits, (60.0, 50.0, 90.0)).low < before.low


def test_what_a_rule_names_stands_first_counts_and_teaches_nothing():
    random = np.random.default_rng(0)
    score, views = random.normal(size=N), (random.normal(size=N), random.normal(size=N))
    named = np.arange(N) < 20
    given = score, 1 / (1 + np.exp(2.5 - score)), views, (40.0, 30.0, 60.0)
    plain, ticked = (
        weigh(*given, labels, named=named) for labels in ({}, {pair: Label("wrong") for pair in range(20)})
    )
    assert set(plain.order[:20].tolist()) == set(range(20))
    assert (plain.probability[:20] == NAMED).all()
    np.testing.assert_array_equal(ticked.probability[20:], plain.probability[20:])
