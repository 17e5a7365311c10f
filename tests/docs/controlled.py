"""Tables and numbers of the documents on controls, made from the board."""

from math import log
from operator import attrgetter

import numpy as np

from leaderboard.entries import title_of
from leaderboard.measured_tables import by_similarity
from leaderboard.orders import kendall_tau
from ncl_bench.evaluation.difference import FIXED, OfOneRun, difference_interval

BUDGET = 1_600
MEAN = " (mean of two seeds)"
CONTROLLED = {
    "flickr8k-1k-none-0": "Flickr8K, none",
    "flickr8k-1k-similar-40": "Flickr8K, similar 40 %",
    "flickr8k-1k-caption-40": "Flickr8K, 40 %",
    "flickr8k-1k-caption-60": "Flickr8K, 60 %",
    "pictograms-1k-none-0": "pictograms, none",
    "pictograms-1k-caption-40": "pictograms, 40 %",
    "pictograms-1k-caption-60": "pictograms, 60 %",
    "pictograms-1k-similar-40": "pictograms, similar 40 %",
    "pictograms-1k-similar-60": "pictograms, similar 60 %",
    "pictograms-web-400-natural": "pictograms-web",
    "digits-200-none-0": "digits, none",
    "digits-200-caption-40": "digits, 40 %",
    "digits-200-caption-60": "digits, 60 %",
    "digits-200-image-40": "digits, by image 40 %",
}
"""Slug of a condition to its name in the table of controls."""
HUBS_ELSEWHERE = (
    "flickr8k-1k-none-0",
    "flickr8k-1k-caption-60",
    "pictograms-1k-caption-40",
    "digits-200-caption-40",
)


def of_condition(content, slug):
    """Rows without a correction for hubs."""
    return [row for row in content.rows if row.condition.slug == slug and not row.correction]


def controlled(content, slug):
    """Rows of a table that its controls are compared with, all of as many steps."""
    rows = [row for row in of_condition(content, slug) if row.kind in ("method", "clean")]
    return [row for row in rows if row.budget == BUDGET] if slug.startswith("flickr8k") else rows


def is_control(row):
    return bool(row.closed_form) or "mean of two seeds" in row.method or row.kind != "method"


def difference(content, first, second):
    """Difference of two mean rSums, and half the width of its 95 % interval; infinite if it is unknown."""
    interval = content.significantly_different.difference(first, second)
    if interval is None:
        return first.r_sum - second.r_sum, np.inf
    return sum(interval) / 2, (interval[1] - interval[0]) / 2


def shown_gap(value, margin):
    return f"{value:+.1f} ({value - margin:.1f} to {value + margin:.1f})" if margin < np.inf else "unknown"


def gap(content, first, second):
    """Difference of two mean rSums with its 95 % interval, as the pages write it."""
    return shown_gap(*difference(content, first, second))


def is_level(content, first, second):
    value, margin = difference(content, first, second)
    return abs(value) < margin


def best_method(rows):
    return max((row for row in rows if not is_control(row)), key=attrgetter("r_sum"))


def controls_of(content, slug):
    """CCA, filtered CCA, the best method, and the best mean of two seeds."""
    rows = controlled(content, slug)
    plain, filtered = sorted((row for row in rows if row.closed_form), key=attrgetter("method"))
    means = [row for row in rows if row.method.endswith(MEAN) and "clean" not in row.method]
    return plain, filtered, best_method(rows), max(means, key=attrgetter("r_sum"))


def controls_table(content):
    lines = []
    for slug, name in CONTROLLED.items():
        plain, filtered, *leaders = controls_of(content, slug)
        cells = [name, f"{plain.r_sum:.1f}", f"{filtered.r_sum:.1f}"]
        for row in leaders:
            few = "" if row.n_seeds > 2 else f", {row.n_seeds} result{'s' * (row.n_seeds > 1)}"
            cells += [
                f"{row.r_sum:.1f} ({row.method.removesuffix(MEAN)}{few})",
                *(gap(content, row, control) for control in (plain, filtered)),
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def with_and_without_hubs(content, slug):
    """Rows that were also corrected for hubs with options that dev chose, and both results of the seeds in common."""
    found = []
    for row in controlled(content, slug):
        off = {one.runs[0]: one for one in content.seeds if one.file == f"{row.file}-csls"}
        on = {one.runs[0]: one for one in content.seeds if one.file == row.file}
        shared = sorted(off.keys() & on.keys())
        if shared:
            found.append((row, [on[run] for run in shared], [off[run] for run in shared]))
    return sorted(found, key=lambda each: -mean(each[2]))


def corrected(content, slug="flickr8k-1k-caption-40"):
    """Rows whose correction for hubs dev chose, by method."""
    rows = [row for row in content.rows if row.condition.slug == slug and row.correction == "CSLS"]
    return {row.method: row for row in rows if row.closed_form or row.budget == BUDGET}


def mean(entries):
    return float(np.mean([entry.r_sum for entry in entries]))


def tau_c(entries):
    return float(np.mean([entry.people["expert_tau_c"] for entry in entries]))


def hubs_table(content, slug="flickr8k-1k-caption-40"):
    return [
        f"| {row.method} | {networks(row)} | {len(on)} | {mean(on):.1f} | {mean(off):.1f} "
        f"| {mean(off) - mean(on):+.1f} | {tau_c(on):.1f} | {tau_c(off):.1f} |"
        for row, on, off in with_and_without_hubs(content, slug)
    ]


def hubs_elsewhere(content):
    return [
        f"| {CONTROLLED[slug]} | {title_of(row)} | {networks(row)} | {len(on)} | {mean(on):.1f} | {mean(off):.1f} "
        f"| {mean(off) - mean(on):+.1f} |"
        for slug in HUBS_ELSEWHERE
        for row, on, off in with_and_without_hubs(content, slug)
    ]


def ordered_by_hubs(content, slug="flickr8k-1k-caption-40"):
    """The same without controls that know which pairs are wrong."""
    return [each for each in with_and_without_hubs(content, slug) if each[0].kind == "method"]


def leaders_of_hubs(content):
    """First row without the correction and with it, among rows that have both."""
    found = ordered_by_hubs(content)
    return [
        f"{row.method} ({mean(each):.1f})"
        for side in (1, 2)
        for row, each in [max(((one[0], one[side]) for one in found), key=lambda one: mean(one[1]))]
    ]


def weights_table(content, slug="flickr8k-1k-caption-40"):
    """CCA by the weight of its correction for hubs."""
    rows = {row.correction: row for row in content.rows if row.condition.slug == slug and row.method == "CCA"}
    shown = {"0": rows[""]} | {w: rows[f"CSLS, weight {w}"] for w in ("0.5", "1", "1.5")}
    return [f"| {w} | {row.r_sum:.1f} | {row.people['expert_tau_c']:.1f} |" for w, row in shown.items()]


def pairs_table(content, slug="flickr8k-1k-caption-40"):
    """Wrong pairs found by the method's clean probability and by its networks' similarity, one row per method."""
    rows = {}
    for row in sorted(content.rows, key=lambda row: bool(row.correction)):
        if row.condition.slug == slug and row.separated and row.kind != "draws":
            rows.setdefault(row.method, (row, by_similarity(row)))
    lines = []
    for row, found in sorted(rows.values(), key=lambda each: -each[1]["auroc"]):
        both = row.detection, found
        cells = [
            f"{100 * one[measure]:.1f}" if one else "–"
            for one in both
            for measure in ("auroc", "average_precision")
        ]
        lines.append(f"| {row.method} | {len(row.separated)} | {' | '.join(cells)} |")
    return lines


def tau_of_hubs(content):
    """Number of rows with and without hubs, and Kendall's tau of their orders."""
    found = ordered_by_hubs(content)
    sums = (np.array([mean(each[side]) for each in found]) for side in (1, 2))
    return len(found), kendall_tau(*sums)


def trained_anew(content, slug="flickr8k-1k-caption-40"):
    """Methods whose run with the correction is not the one without it: their dev curves differ."""
    return sorted(
        row.method
        for row, on, off in with_and_without_hubs(content, slug)
        if [one.curves for one in on] != [one.curves for one in off]
    )


def networks(row):
    return "linear" if row.closed_form else "2" if row.networks == "ensemble" else "1"


def readme_table(content):
    """Best single network, best two networks, and both forms of CCA at 40 % caption noise on Flickr8K."""
    slug = "flickr8k-1k-caption-40"
    rows = controlled(content, slug)
    plain, filtered, _, average = controls_of(content, slug)
    methods = [row for row in rows if not is_control(row)]
    leaders = [
        max((row for row in methods if row.networks == kind), key=attrgetter("r_sum"))
        for kind in ("single", "ensemble")
    ]
    corrected = {row.file: off for row, _, off in with_and_without_hubs(content, slug)}
    lines = []
    for row in (*leaders, average, plain, filtered):
        off = corrected.get(row.file)
        spread = f" ± {row.spread['r_sum']:.1f}" if row.spread else ""
        hubs = f"{mean(off):.1f} ({len(off)})" if off else "–"
        cost = "–" if row.closed_form else f"{row.cost:.1f}"
        lines.append(
            f"| {row.method} | {networks(row)} | {cost} | {row.r_sum:.1f}{spread} ({row.n_seeds}) | {hubs} "
            f"| {row.people['expert_tau_c']:.1f} |"
        )
    return lines


def at_equal_cost(content, row, few, more):
    """Compare a row with another method at its cost.

    The other method's rSum is interpolated over the logarithm of the cost between two numbers of steps.

    Returns:
        The interpolated rSum, the row's difference from it, and half the width of the 95 % interval.
    """
    test = content.significantly_different
    costs = [log(one.plain_steps) for one in (row, few, more)]
    share = (costs[0] - costs[1]) / (costs[2] - costs[1])
    sides = [test._parts(one) for one in (row, few, more)]
    between = (1 - share) * sides[1].mean(axis=0) + share * sides[2].mean(axis=0)
    variances = [
        side.mean(axis=1).var(ddof=1) / len(side) if len(side) > 1 else test._of_one(one).variance
        for side, one in zip(sides[1:], (few, more), strict=True)
    ]
    variance = (1 - share) ** 2 * variances[0] + share**2 * variances[1]
    low, high = difference_interval(sides[0], between[None], 1_000, (FIXED, OfOneRun(variance, 2)))
    return float(between.mean()), (low + high) / 2, (high - low) / 2
