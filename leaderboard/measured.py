"""Tables of what this project trained: at equal steps (docs/measured-tables.md), and the papers' ablations.

A measured table holds one dataset, backbone and number of steps. It quotes one number from papers: the share of its
clean score that a method loses under noise. An ablation table holds what a method loses without each of its parts,
here and in print.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard.board import Content, grouped, mean, ranked, with_rank_intervals
from leaderboard.entries import SEEDS_FOR_A_RANK, UNITS, Row
from leaderboard.results import CLEAN_PAIRS, MEAN_OF_TWO, shipped_ablations
from ncl_bench.data import DATASETS
from ncl_bench.data.spec import protocol_title
from ncl_bench.evaluation.submission import DetectedPairs, TrainingCurve
from ncl_bench.papers import Family, Paper


@dataclass(frozen=True)
class DivisionCurve:
    """The division of a run after each epoch, by step; all shares are empty if the run did not record them."""

    steps: tuple[int, ...]
    noise_left: tuple[float, ...]
    precision: tuple[float, ...]
    recall: tuple[float, ...]


REFERENCE = ("caption", 0.6)
"""Unit and ratio of the noise that orders the lines and defines the drop from the clean score."""
WARM_UP = "(warm-up"
"""In the name of a control that begins with another loss."""
FALLEN = 0.9
"""Share of its best rSum on dev below which a control has collapsed."""
PRECISION_AT = (50, 200, 1_000)
"""Numbers of most suspicious pairs on the page Detection."""


def measured_tables(content: Content) -> list[Row]:
    """All measured tables, photographs first; empty if nothing was trained at equal steps.

    A table has ``slug``, ``title``, ``conditions`` (the noises, in order), ``lines`` (a method each, sorted by rSum
    under the reference noise, best first, preliminary ones last), and by the slug of a condition: ``places``, its rows
    with the rank within the table, best first, ``groups``, first and last index of runs of ``places`` in which no two
    rows differ significantly, and ``powers``, what the test finds (:meth:`SignificanceTest.power`). A row has its
    ``interval`` over seeds and images, its ``detection``, and whether it has ``collapsed``; ``detected`` are the
    conditions with any detection; ``found`` holds the lines whose runs recorded the wrong pairs they found, ``gains``
    those of methods with a base loss, see :func:`gains`.
    """
    rows = [
        row
        for row in sorted(content.rows, key=itemgetter("number"))
        if row["budget"] and row["status"] != "reported" and row["kind"] != "ablation"
    ]
    groups = grouped(_joined(rows), "dataset", "protocol", "text", "beside", "budget")

    def order(key: tuple[Any, ...]) -> tuple[bool, str]:
        return DATASETS[key[0]].embedded, str(key)  # what ships with the package is drawn or clip art

    return [_table(groups[key], content) for key in sorted(groups, key=order)]


def _joined(rows: Sequence[Row]) -> list[Row]:
    """Rows with ``beside``, the backbone of their table: a closed form joins the table of every backbone.

    A backbone's table must have the same data, budget and noise; a closed form without one has a table of its own.
    """
    same = ("dataset", "protocol", "text", "budget", "condition")
    tables = grouped([row for row in rows if not row["closed_form"]], *same)
    joined = []
    for row in rows:
        others = tables.get(tuple(row[name] for name in same), ()) if row["closed_form"] else ()
        beside = dict.fromkeys(other["backbone"] for other in others) or [row["backbone"]]
        joined += [row | {"beside": backbone} for backbone in beside]
    return joined


def _table(rows: Sequence[Row], content: Content) -> Row:
    first, conditions = rows[0], sorted({row["condition"] for row in rows}, key=attrgetter("order"))
    places: dict[str, list[Row]] = {}
    groups = {}
    for condition in conditions:
        members = [row for row in rows if row["condition"] == condition]
        placed = with_rank_intervals(
            ranked(members, content.significantly_different), content.significantly_different
        )
        places[condition.slug] = [
            row
            | {
                "line": title_of(row),
                "interval": content.significantly_different.interval(row),
                "detection": detection(row),
                "collapsed": collapsed(row),
            }
            for row in placed
        ]
        groups[condition.slug] = alike(
            content.significantly_different([row for row in placed if not row["preliminary"]])
        )
    slugs = {(condition.noise_unit, condition.noise_ratio): condition.slug for condition in conditions}
    lines = [_line(title, places, slugs) for title in dict.fromkeys(map(title_of, rows))]
    reference = slugs.get(REFERENCE, conditions[-1].slug)

    def order(line: Row) -> tuple[bool, float, str]:
        row = line["rows"].get(reference)
        return row is None or row["preliminary"], -(row["r_sum"] or 0.0 if row else -1.0), line["title"]

    lines.sort(key=order)
    name = (first["dataset"], first["protocol"], first["text"], first["beside"], str(first["budget"]))
    where = f"{DATASETS[first['dataset']].title}, {protocol_title(first['protocol'])}, {first['beside']}"
    return {
        "slug": "-".join(filter(None, name)).lower().replace("∞", "-infinity").replace(" ", "-"),
        "title": f"{where}, {first['budget']:,} steps per network",
        "conditions": conditions,
        "lines": lines,
        "places": places,
        "groups": groups,
        "drops": drops(lines, content),
        "gains": gains(lines, content),
        "powers": {
            slug: content.significantly_different.power(placed, SEEDS_FOR_A_RANK)
            for slug, placed in places.items()
        },
        "detected": [
            condition for condition in conditions if any(row["detection"] for row in places[condition.slug])
        ],
        "found": {condition.slug: _found(lines, condition.slug) for condition in conditions},
    }


def _found(lines: Sequence[Row], slug: str) -> list[tuple[Row, list[float | None]]]:
    return [
        (line, found_pairs(line["rows"][slug])) for line in lines if line["rows"].get(slug, {}).get("found")
    ]


def _line(
    title: str, places: Mapping[str, Sequence[Row]], slugs: Mapping[tuple[str, float | None], str]
) -> Row:
    """One method of a table: its row under every noise, and what it loses under the reference noise, in percent."""
    rows = {slug: row for slug, placed in places.items() for row in placed if row["line"] == title}
    first, numbers = next(iter(rows.values())), sorted({row["n_seeds"] for row in rows.values()})
    clean, noisy = (rows.get(slugs.get(noise, "")) for noise in (("none", 0.0), REFERENCE))
    return {
        "title": title,
        "method": title_of(first, tuned=False),
        "first": first,
        "rows": rows,
        "seeds": "–".join(map(str, numbers[:1] + numbers[1:][-1:])),
        "pairs_seen": mean([row["pairs_seen"] for row in rows.values()]),
        "cost": mean([row["cost"] for row in rows.values()]),
        "drop": drop(clean, noisy) if clean and noisy else None,
    }


def title_of(row: Row, *, tuned: bool = True) -> str:
    """A line's name: the method, “tuned” if its recipe was tuned, and other changed settings."""
    kept = [
        difference
        for difference in row["differs"]
        if not difference.endswith(" steps") and (tuned or difference != row["recipe"])
    ]
    return f"{row['method']} ({', '.join(kept)})" if kept else row["method"]


def alike(apart: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last index of the longest runs of at least two rows in which no two differ significantly.

    Args:
        apart: which pairs differ significantly, bool ``(n, n)``.
    """
    runs: list[tuple[int, int]] = []
    first = 0
    for last in range(len(apart)):
        before = np.flatnonzero(apart[first:last, last])
        # start after the nearest row that differs significantly
        begin = first + int(before[-1]) + 1 if len(before) else first
        if begin > first and last - 1 > first:
            runs.append((first, last - 1))
        first = begin
    return [*runs, (first, len(apart) - 1)] if len(apart) - 1 > first else runs


def drop(clean: Row, noisy: Row) -> float:
    """Share of the clean rSum lost under noise, in percent."""
    return float(100 * (clean["r_sum"] - noisy["r_sum"]) / clean["r_sum"])


def drops(lines: Sequence[Row], content: Content) -> list[Row]:
    """What methods lose of the clean rSum under the reference noise, in percent: default, tuned, and as printed."""
    found: dict[str, dict[bool, Row]] = {}
    for line in lines:
        if line["drop"] is not None:
            found.setdefault(line["method"], {})[line["first"]["tuned"]] = line
    return [
        {
            "title": title,
            "here": of[False]["drop"] if False in of else None,
            "tuned": of[True]["drop"] if True in of else None,
            "printed": printed_drops(next(iter(of.values()))["first"], content.rows, content.papers),
        }
        for title, of in found.items()
    ]


def gains(lines: Sequence[Row], content: Content) -> list[Row]:
    """What each method adds to its own base loss, which was trained for as many steps on the same backbone.

    Two averaged networks are compared with the mean of two seeds of the base loss, one network with one. A base loss on
    the clean pairs is compared with the same loss on all pairs. A tuned method is compared with the tuned base loss.

    Returns:
        Lines with ``base``, the title of the line of the base loss, ``alone``, whether two networks had to be compared
        with one, and ``gains``: by slug of a condition the difference of the mean rSums and its 95 % interval over
        seeds and images. A collapsed control adds nothing, and nothing is compared with it.
    """
    titles = {
        (line["first"]["method"], line["first"]["tuned"]): line for line in lines if line["first"]["ranked"]
    }
    found = []
    for line in lines:
        first = line["first"]
        averaged = first["networks"] == "ensemble"
        name = _base_of(first, content.families)
        base = titles.get((name + MEAN_OF_TWO, first["tuned"])) if averaged else None
        alone = averaged and base is None
        base = base or titles.get((name, first["tuned"]))
        if base is None:
            continue
        by_slug = {}
        for slug, row in line["rows"].items():
            other = base["rows"].get(slug)
            interval = other and content.significantly_different.difference(row, other)
            few = other and (row["preliminary"] or other["preliminary"] or _few_on_clean_pairs(row))
            if other and interval and not few and not (collapsed(row) or collapsed(other)):
                by_slug[slug] = (row["r_sum"] - other["r_sum"], *interval)
        if by_slug:
            found.append({"line": line, "base": base["title"], "alone": alone, "gains": by_slug})
    return found


def _few_on_clean_pairs(row: Row) -> bool:
    """Whether a control on clean pairs, which is not called preliminary, has too few seeds."""
    return bool(row["kind"] == "clean" and row["n_seeds"] < SEEDS_FOR_A_RANK)


def _base_of(row: Row, families: Mapping[str, Family]) -> str:
    """Name of the base loss of a row; empty without one."""
    if row["kind"] == "clean":
        return str(row["method"]).replace(CLEAN_PAIRS, "").removesuffix(MEAN_OF_TWO)
    family = families.get(row["family"])
    return family.base if family else ""


def collapsed(row: Row) -> bool:
    """Whether a control ends more than a tenth below its best rSum on dev, once its warm-up is over.

    A control without a warm-up has one loss throughout: where it falls, it memorises wrong pairs, which is what it
    shows.
    """
    ends = [curve.dev[-1] / max(curve.dev) for curve in row["curves"] if any(curve.dev)]
    return WARM_UP in row["method"] and bool(ends) and statistics.fmean(ends) < FALLEN


def printed_drops(ours: Row, rows: Iterable[Row], papers: Mapping[str, Paper]) -> list[tuple[str, float]]:
    """Drops that papers print for the method of a row at the ratio of the reference noise, without doubtful rows.

    Networks on other features lose other shares, so only rows on the same kind of features as ours are compared.

    Returns:
        Dataset, backbone, noise and sources, and the percentage. A drop that several papers print for one row is listed
        once.
    """
    usable = [
        row
        for row in sorted(rows, key=itemgetter("number"))
        if row["status"] == "reported" and row["ranked"]
        if all(row[name] == ours[name] for name in ("family", "features"))
        if row["noise_ratio"] in (0.0, REFERENCE[1])
    ]
    found: dict[tuple[str, str], list[str]] = {}
    models = grouped(usable, "source", "method", "backbone", "networks", "dataset", "protocol")
    for of_unit in ({row["noise_unit"]: row for row in group} for group in models.values()):
        clean = of_unit.pop("none", None)
        for unit, noisy in of_unit.items():
            if clean is None:
                continue
            place = f"{DATASETS[noisy['dataset']].title}, {protocol_title(noisy['protocol'])}, {noisy['backbone']}"
            said = (f"{place}, {UNITS[unit]}", f"{drop(clean, noisy):.1f}")
            found.setdefault(said, []).append(papers[noisy["source"]].short.split(",")[0])
    return [
        (f"{where} ({', '.join(dict.fromkeys(sources))})", float(percent))
        for (where, percent), sources in found.items()
    ]


def detection(row: Row) -> dict[str, float] | None:
    """AUROC and average precision of the clean probability at the epoch with the highest rSum on dev.

    ``last_auroc`` is that after the last epoch, ``best_auroc`` the highest of any epoch.

    Returns:
        Means over seeds, in [0, 1]; None if the method estimates nothing or no pair was wrong.
    """
    curves = [curve for curve in row["curves"] if curve.auroc]
    if not curves:
        return None
    return {
        "auroc": statistics.fmean(curve.auroc[curve.best] for curve in curves),
        "average_precision": statistics.fmean(curve.average_precision[curve.best] for curve in curves),
        "last_auroc": statistics.fmean(curve.auroc[-1] for curve in curves),
        "best_auroc": statistics.fmean(max(curve.auroc) for curve in curves),
    }


def found_pairs(row: Row) -> list[float | None]:
    """Wrong pairs found at the method's own threshold, mean over seeds, in the order of the page's columns."""
    names = ("accuracy", "precision", "recall", "f1", "average_precision_wrong")
    means: list[float | None] = [
        statistics.fmean(getattr(each, name) for each in row["found"]) for name in names
    ]
    left = [noise_left(each) for each in row["found"]]
    means.insert(3, None if None in left else mean(left))
    return means + [mean([each.precision_at.get(k) for each in row["found"]]) for k in PRECISION_AT]


def noise_left(found: DetectedPairs) -> float | None:
    """Share of wrong pairs among those called clean after the last epoch; None if accuracy and recall do not say it."""
    if found.noise_left:
        return found.noise_left[-1]
    if found.recall == 1:
        return 0.0
    if found.precision == 0:
        return None
    # for each wrong pair, some share of it is missed and some right pairs are called wrong: together 1 - accuracy
    called = found.recall / found.precision
    wrong = (1 - found.accuracy) / (1 - found.recall + called - found.recall)
    return wrong * (1 - found.recall) / (1 - wrong * called)


def mean_curve(curves: Sequence[TrainingCurve | DivisionCurve], of: str) -> list[tuple[float, float]]:
    """Mean over seeds at twenty steps, linear between epochs, as ``(step, value)``."""
    used = [(curve.steps, getattr(curve, of)) for curve in curves if getattr(curve, of)]
    if not used:
        return []
    end = min(steps[-1] for steps, _ in used)
    start = max(steps[0] for steps, _ in used)
    if start >= end:
        return [(float(end), statistics.fmean(values[-1] for _, values in used))]
    places = [start + (end - start) * n / 19 for n in range(20)]
    return [(x, statistics.fmean(_at(steps, values, x) for steps, values in used)) for x in places]


def at_best_epoch(
    curves: Sequence[TrainingCurve], measured: Sequence[TrainingCurve | DivisionCurve], of: str
) -> float | None:
    """Mean over seeds at the epoch that is best on dev; None where nothing was recorded.

    Args:
        curves: one per seed.
        measured: what is read, one per curve; the same or its divisions.
        of: the name of the values.
    """
    found = [
        getattr(each, of)[curve.best]
        for curve, each in zip(curves, measured, strict=bool(measured))
        if getattr(each, of)
    ]
    return statistics.fmean(found) if found else None


def division_curves(row: Row) -> list[DivisionCurve]:
    """Divisions of a row's seeds after each epoch; empty unless every seed has a curve and the pairs it found."""
    if len(row["curves"]) != len(row["found"]):
        return []
    return [
        DivisionCurve(curve.steps, found.noise_left, found.precision_by_epoch, found.recall_by_epoch)
        for curve, found in zip(row["curves"], row["found"], strict=True)
        if len(curve.steps) == len(found.noise_left)
    ]


def _at(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(zip(xs, ys, strict=True)):
        if x0 <= x <= x1 and x1 > x0:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return ys[-1]


def ablation_tables(content: Content) -> list[Row]:
    """Every table of the papers' ablations of which at least one row beside the full method was trained.

    A table has ``table`` (the paper's), ``condition``, ``title``, ``command`` and ``lines``. A line has ``row`` (the
    paper's), ``printed_drop`` in percent, ``entry`` (our row; None where it was not trained), its ``interval`` over
    seeds and images, ``drop``, what ours loses of our full method's rSum in percent, and ``drop_interval``, its 95 %
    interval. The two rows differ significantly if it excludes 0, as ``differs`` says; None where one is missing.
    """
    rows = (row | {"of": row["ablation"][0]} for row in content.rows if row["ablation"] and row["budget"])
    found = []
    for group in grouped(rows, "of", "slug", "backbone", "budget").values():
        ours = {row["ablation"][1]: row for row in sorted(group, key=itemgetter("number"))}
        if any(row["kind"] == "ablation" for row in ours.values()):
            found.append(_ablation(ours, content))
    return sorted(found, key=lambda one: (one["condition"].order, one["title"]))


def _ablation(ours: Mapping[str, Row], content: Content) -> Row:
    first = next(iter(ours.values()))
    name, condition = first["ablation"][0], first["condition"]
    table = shipped_ablations()[name]
    full, lines = ours.get(table.rows[0].title), []
    for row in table.rows:
        entry = ours.get(row.title)
        line = {"row": row, "printed_drop": table.printed_drop(row), "entry": entry}
        line |= {"interval": entry and content.significantly_different.interval(entry)}
        line |= dict.fromkeys(("drop", "drop_interval", "differs"))
        if full and entry and entry is not full and full["r_sum"]:
            line["drop"] = drop(full, entry)
            if difference := content.significantly_different.difference(full, entry):
                low, high = (100 * end / full["r_sum"] for end in difference)
                line |= {"drop_interval": (low, high), "differs": low > 0 or high < 0}
        lines.append(line)
    return {
        "table": table,
        "condition": condition,
        "title": f"{table.title}: {condition.title}, {first['backbone']}, {first['budget']:,} steps per network",
        "command": f"ncl-bench sweep --table {name} --dataset {condition.dataset} --to {name}",
        "lines": lines,
    }
