"""Which groups of models are significantly different, and how often groups of one distribution are."""

import numpy as np
import pytest

from ncl_bench.evaluation.difference import (
    FIXED,
    UNKNOWN,
    Hits,
    OfOneRun,
    difference_interval,
    significant_pairs,
    significantly_different,
)

N_IMAGES = 100


def draw(random, n_seeds, images, *, seed, both):
    """A row of ``n_seeds`` models whose rSum deviates by ``seed``, each image also by ``both``, around 400."""
    own = 400 + 30 * random.randn(N_IMAGES) + images
    return own + seed * random.randn(n_seeds, 1) + both * random.randn(n_seeds, N_IMAGES)


def false_alarms(test, counts, trials, **spread):
    """Share of pairs of rows of one distribution that a test tells apart."""
    random = np.random.RandomState(1)
    found = 0
    for _ in range(trials):
        images = 40 * random.randn(N_IMAGES)
        found += test(*(draw(random, n, images, **spread) for n in counts))
    return found / trials


@pytest.mark.parametrize("counts", [(3, 3), (2, 2), (1, 3)])
@pytest.mark.parametrize("spread", [{"seed": 20.0, "both": 60.0}, {"seed": 0.0, "both": 60.0}])
def test_rows_of_one_distribution_are_told_apart_in_about_one_case_of_twenty(counts, spread):
    # what a group of one model cannot show, it is told
    known = OfOneRun(spread["seed"] ** 2 + spread["both"] ** 2 / N_IMAGES, 1000)
    rate = false_alarms(
        lambda a, b: significantly_different(a, b, N_IMAGES, (known, known)), counts, 1000, **spread
    )
    assert 0.01 < rate < 0.08


@pytest.mark.parametrize(("difference", "apart"), [(9.0, False), (120.0, True)])
def test_only_differences_beyond_the_spread_over_seeds_are_told_apart(difference, apart):
    images = np.zeros(N_IMAGES)
    first = draw(np.random.RandomState(1), 3, images, seed=20.0, both=20.0)
    assert (
        significantly_different(first, first[::-1] + np.array([[-3.0], [0.0], [3.0]]) - difference, N_IMAGES)
        == apart
    )


def test_with_one_seed_each_only_the_images_count():
    random = np.random.RandomState(0)
    images = 400 + 40 * random.randn(1, N_IMAGES)
    assert significantly_different(images, images + 1.0 + 0.1 * random.randn(1, N_IMAGES), N_IMAGES)
    three = images + np.array([[-20.0], [0.0], [20.0]])
    assert not significantly_different(three, images + 1.0, N_IMAGES)


def test_no_group_lends_its_variance_over_seeds():
    """Beside one network, CCA seemed as unsteady as the network, and a single network as steady as CCA."""
    random = np.random.RandomState(0)
    images = np.zeros(N_IMAGES)
    three, one = (draw(random, n, images, seed=20.0, both=5.0) for n in (3, 1))
    low, high = difference_interval(three, one, N_IMAGES)
    assert (low, high) == pytest.approx(difference_interval(three, np.repeat(one, 2, axis=0), N_IMAGES))
    borrowed = difference_interval(three, one, N_IMAGES, (FIXED, OfOneRun(4000.0, 2)))
    assert borrowed[0] < low
    assert borrowed[1] > high
    assert difference_interval(three, one, N_IMAGES, (UNKNOWN, UNKNOWN)) == (-np.inf, np.inf)
    assert not significantly_different(three, one + 1e6, N_IMAGES, (FIXED, UNKNOWN))


def test_images_vary_within_their_fold():
    folds = np.repeat([300.0, 500.0], N_IMAGES // 2)[None]
    noise = np.random.RandomState(0).randn(1, N_IMAGES)
    assert not significantly_different(500 - 0.2 * folds, 420 + noise, N_IMAGES)
    assert significantly_different(
        500 - 0.2 * folds + 2, 420 + 0.2 * (400 - folds) + 0 * noise, N_IMAGES // 2
    )
    assert significantly_different(folds + 2 + noise, np.full_like(folds, 400.0), N_IMAGES // 2)
    assert not significantly_different(folds + 2 + noise, np.full_like(folds, 400.0), N_IMAGES)


def test_what_images_add_is_the_rsum():
    hits = Hits(np.array([[1, 1, 1, 2, 4, 5], [0, 1, 1, 0, 0, 5]]), 5, 2)
    assert hits.parts().tolist() == pytest.approx([520.0, 300.0])


@pytest.mark.parametrize("counts", [(1, 1), (3, 3), (1, 4)])
def test_the_interval_surrounds_the_difference_and_turns_with_the_sides(counts):
    random = np.random.RandomState(0)
    first, second = (draw(random, n, np.zeros(N_IMAGES), seed=20.0, both=20.0) for n in counts)
    low, high = difference_interval(first, second, N_IMAGES)
    assert (low + high) / 2 == pytest.approx(first.mean() - second.mean())
    assert difference_interval(second, first, N_IMAGES) == pytest.approx((-high, -low))
    low, high = difference_interval(first, first, N_IMAGES)
    assert low <= 0 <= high


def test_one_model_each_has_the_interval_of_paired_images():
    from scipy.stats import ttest_rel

    random = np.random.RandomState(3)
    first, second = (draw(random, 1, np.zeros(N_IMAGES), seed=5.0, both=20.0) for _ in range(2))
    expected = ttest_rel(first[0], second[0]).confidence_interval(0.95)
    assert difference_interval(first, second, N_IMAGES) == pytest.approx(tuple(expected), rel=1e-9)


@pytest.mark.parametrize(("n_images", "fold"), [(40, 40), (200, 40)])
def test_all_pairs_at_once_are_told_apart_as_one_by_one(n_images, fold):
    random = np.random.RandomState(0)
    base = 100 * random.randn(n_images)
    groups = [
        base
        + 5 * random.randn()
        + 3 * random.rand() * random.randn(n, 1)
        + 60 * random.rand() * random.randn(n, n_images)
        for n in random.randint(1, 5, 60)
    ]
    groups += [groups[0].copy(), groups[1][:1], np.zeros((1, n_images)), np.full((3, n_images), 5.0)]
    known = [(FIXED, UNKNOWN, OfOneRun(9.0, 2))[n % 3] for n in range(len(groups))]
    found = significant_pairs(groups, fold, known)
    one_by_one = [
        [
            a is not b and significantly_different(a, b, fold, (mine, theirs))
            for b, theirs in zip(groups, known, strict=True)
        ]
        for a, mine in zip(groups, known, strict=True)
    ]
    assert 0.02 < found.mean() < 0.98
    np.testing.assert_array_equal(found, one_by_one)
