"""Which rows of the board are significantly different."""

import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from leaderboard.board import boards, compared
from leaderboard.entries import Recalls
from leaderboard.read_entries import read_measured
from leaderboard.significance import (
    SignificanceTest,
    largest_differences,
    simulated_power,
    surely_better,
)
from ncl_bench.evaluation.difference import FIXED, OfOneRun, difference_interval, pair_variances
from ncl_bench.evaluation.metrics import RECALLS, resamples
from ncl_bench.papers import read_families


def test_close_rows_share_a_rank_and_distant_ones_do_not(small_board):
    entries, hits, _ = read_measured(small_board, read_families())
    rows, significantly_different = compared(entries, hits)
    crcl, triplet = (row for row in rows if row.condition.noise_ratio == 0.4)
    assert significantly_different([crcl, triplet]).tolist() == [[False, True], [True, False]]
    # alone, a run is told apart only if other rows of its method say how much it varies
    one, other = (next(entry for entry in entries if entry.file == row.file) for row in (crcl, triplet))
    assert not SignificanceTest(hits, [one, other])([one, other]).any()
    assert SignificanceTest(hits, [one, other]).difference(one, other) is None
    assert SignificanceTest(hits, [one, other, *rows])([one, other])[0, 1]
    # a closed form does not vary
    fixed = [row.model_copy(update={"closed_form": True}) for row in (one, other)]
    assert SignificanceTest(hits, fixed)(fixed)[0, 1]
    crcl = [row for row in entries if row.method == "CRCL" and row.condition.noise_ratio == 0.4]
    assert SignificanceTest({}, ())(crcl[:2]).all(), "without evidence rSum alone decides"


def test_the_rows_of_the_pages_simulation_vary_over_seeds_as_those_of_the_board(whole_board):
    """docs/protocol.md states the standard deviation and simulates with its parts."""
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
    stated = re.search(r"deviation of about (\d+) over the seeds", page)
    wanted = ("pictograms-1k-caption-40", "method", "VSE∞")
    rows = [
        row
        for row in whole_board.rows
        if (row.condition.slug, row.kind, row.backbone) == wanted and row.n_seeds >= 3
    ]
    found = math.sqrt(statistics.fmean(row.spread["r_sum"] ** 2 for row in rows))
    assert f"{found:.0f}" == stated[1]
    assert f"{math.hypot(4.0, 32 / math.sqrt(100)):.0f}" == stated[1], (
        "of the seed, and of seed and image together"
    )


def test_no_measured_row_stands_below_rows_whose_seeds_overlap_with_its_own(whole_board):
    overlapping = 0
    for board in boards(whole_board.rows):
        for division in board.categories:
            placed = [row for row in division.rows if row.rank is not None]
            best_of_next = 1
            for at, one in enumerate(placed):
                beyond = sum(not seeds_overlap(above, one) for above in placed[:at])
                overlapping += at - beyond
                best_of_next = max(best_of_next, 1 + beyond)
                assert one.rank <= best_of_next, (one.condition.slug, one.method)
    assert overlapping


def seeds_overlap(above, below):
    """Whether two rows differ by less than either one's seeds do; one seed alone does not differ."""
    spreads = (row.spread.get("r_sum", 0) for row in (above, below))
    return bool(above.r_sum - below.r_sum < min(spreads))


def models(random, level, n_seeds, hard, *, of_seed=8.0):
    """Contributions of each image to the rSum of models of one method, ``(n_seeds, n_images)``."""
    own = 30 * random.standard_normal(len(hard))
    each = of_seed * random.standard_normal((n_seeds, 1)) + 45 * random.standard_normal((n_seeds, len(hard)))
    return np.asarray(level + hard + own + each)


def test_the_largest_difference_of_a_draw_equals_a_loop_over_pairs():
    random = np.random.default_rng(1)
    hard, draws, fold = 60 * random.standard_normal(40), 100, 20
    groups = [models(random, 400, n, hard) for n in (3, 1, 2, 1)]
    known = [FIXED, FIXED, FIXED, OfOneRun(30.0)]
    found = largest_differences(groups, fold, draws, 5, pair_variances(groups, fold, known))
    pool = np.concatenate(
        [math.sqrt(len(g) / (len(g) - 1)) * (g.mean(axis=1) - g.mean()) for g in groups if len(g) > 1]
    )
    stream = np.random.default_rng(5)
    deviations = [pool[stream.integers(len(pool), size=(draws, len(g)))] for g in groups]
    counts = np.concatenate(resamples(40, fold, draws), axis=1)

    def of_pair(draw, i, j):
        first, second = groups[i], groups[j]
        apart = first.mean(axis=0) - second.mean(axis=0)
        over = statistics.fmean(part.var(ddof=1) for part in apart.reshape(-1, fold)) / 40
        several = [g for g in (first, second) if len(g) > 1]
        rests = (g - g.mean(axis=1, keepdims=True) - g.mean(axis=0) + g.mean() for g in several)
        images = max(over - sum((rest**2).sum() / ((len(rest) - 1) * 39) / rest.size for rest in rests), 0.0)
        moved = math.sqrt(images / over) * ((counts[draw] - 1) * apart).mean()
        mine, theirs = deviations[i][draw], deviations[j][draw]
        sides = [(mine, known[i].variance), (theirs, known[j].variance)]
        # a closed form, of one result and no variance, does not deviate
        means = [each.mean() if len(each) > 1 or stated else 0.0 for each, stated in sides]
        moved += means[0] - means[1]
        variance = sum(each.var(ddof=1) / len(each) if len(each) > 1 else stated for each, stated in sides)
        return float(abs(moved) / math.sqrt(variance + images))

    pairs = [(i, j) for i in range(4) for j in range(i)]
    for draw in range(0, draws, 9):
        assert found[draw] == pytest.approx(max(of_pair(draw, i, j) for i, j in pairs))


def test_surely_better_means_that_no_pair_is_wrong_and_needs_more_than_one_pair_alone():
    random = np.random.default_rng(2)
    hard = 60 * random.standard_normal(200)
    levels = (400.0, 400.0, 440.0, 520.0)
    groups = [models(random, level, 3, hard) for level in levels]
    better = surely_better(groups, 200)
    assert better[3, :3].all()
    assert not np.triu(better).any()
    for i, j in np.argwhere(better).tolist():
        assert difference_interval(groups[i], groups[j], 200)[0] > 0


def test_twelve_equal_methods_rarely_have_a_rank_interval_without_rank_1():
    """At 5 %, 6 of 120 tables are expected, and more than 10 in one case of 25. Pairs alone give about 70 %."""
    random = np.random.default_rng(3)
    tables = 0
    for seed in range(120):
        hard = 60 * random.standard_normal(100)
        groups = [models(random, 400, 3, hard) for _ in range(12)]
        tables += bool(surely_better(groups, 100, draws=200, seed=seed).any())
    assert tables <= 10


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("n_seeds", "n_rows", "n_images"),
    [
        ((3,), 12, 100),
        ((3,), 12, 1_000),
        ((3,), 4, 100),
        ((3,), 20, 200),
        ((5,), 12, 200),
        ((3, 5), 12, 100),
        ((1, 3), 12, 200),
    ],
)
def test_the_level_of_rank_intervals_is_at_most_five_percent(n_seeds, n_rows, n_images):
    """Also with few rows, many rows, few images, and closed forms of one result among rows of three seeds."""
    random = np.random.default_rng(1)
    tables = 0
    for seed in range(400):
        hard = 60 * random.standard_normal(n_images)
        runs = [n_seeds[row % len(n_seeds)] for row in range(n_rows)]
        # a single run that takes a rank is a closed form, which has no seeds
        groups = [models(random, 400, n, hard, of_seed=8.0 if n > 1 else 0.0) for n in runs]
        tables += bool(surely_better(groups, n_images, draws=1_000, seed=seed).any())
    assert tables / 400 <= 0.05


def test_a_rank_interval_counts_rows_that_are_surely_better_or_worse(ranked_board):
    entries, hits, _ = read_measured(ranked_board, read_families())
    rows, significance = compared(entries, hits)
    for condition in {row.condition.slug for row in rows}:
        best, worst = (row for row in rows if row.condition.slug == condition)
        assert (best.rank_interval, worst.rank_interval) == ((1, 1), (2, 2))
    best = Recalls(**dict.fromkeys(RECALLS, 100.0))
    printed = rows[0].model_copy(update={"file": "", "runs": (), "recalls": best})
    assert significance.rank_intervals([printed, rows[0]]) == [None, (2, 2)]


def power(points, of_images):
    """Of two methods with a standard deviation of 8 over three seeds."""
    return simulated_power([points], np.full((2, 1), 64.0), np.array([of_images]), 3, 1000)[0]


def test_the_power_is_that_of_the_test_itself():
    assert power(0.0, 4.0) == pytest.approx(0.05, abs=0.015)
    shares = [power(points, 4.0) for points in (5.0, 10.0, 20.0)]
    assert shares == sorted(shares)
    random = np.random.default_rng(4)
    found = 0
    for _ in range(400):
        y = random.normal([[0.0], [20.0]], 8.0, (2, 3))
        found += difference_interval(*(row[:, None] + np.array([-1e-6, 1e-6]) for row in y), 2)[1] < 0
    assert power(20.0, 1e-12) == pytest.approx(found / 400, abs=0.07)


def test_rows_without_variance_differ_if_their_levels_do():
    assert simulated_power([0.0, 5.0], np.zeros((2, 1)), np.zeros(1), 3, 1000) == [0.0, 1.0]
