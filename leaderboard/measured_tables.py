"""Tables of what this project trained, and their pages: at equal steps (docs/make-a-table.md), papers' ablations.

A measured table holds one dataset, backbone and number of steps. It quotes one number from papers: the share of its
clean score that a method loses under noise. An ablation table holds what a method loses without each of its parts,
here and in print.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines.recipes import Ablation, AblationLine
from leaderboard.board import Content, mean, ranked
from leaderboard.entries import SEEDS_FOR_A_RANK, UNIT_TITLES, Condition, Row, Unit, grouped, title_of
from leaderboard.figures import budget_curves, epoch_curves, forest, scatter
from leaderboard.read_entries import CLEAN_SUFFIX, MEAN_OF_TWO, shipped_ablations
from ncl_bench.data import DATASETS
from ncl_bench.data.pair_labels import FEWEST, read_pair_labels
from ncl_bench.evaluation.detection import Separation
from ncl_bench.evaluation.training_record import DetectedPairs
from ncl_bench.papers import Family, Paper

CLEAN: tuple[Unit, float] = ("none", 0.0)
REFERENCE: tuple[Unit, float] = ("caption", 0.6)
"""Unit and ratio of the noise that orders the lines and defines the drop from the clean score."""
SHOWN = ("caption", 0.4)
"""Unit and ratio of the noise in the figure of rSum against cost."""
SHOWN_AT = (50, 200, 1_000)
"""Numbers of most suspicious pairs on the page Detection."""


METHODS, CONTROLS = "Methods", "Controls"
"""Groups of the lines of a measured table."""


@dataclass(frozen=True)
class Line:
    """One method of a measured table.

    Attributes:
        title: method with its changed settings.
        name: the same without what most lines of the table share.
        group: of the lines that it stands among.
        first: row under its first noise.
        rows: by slug of the condition.
        seeds: smallest and largest number of seeds.
        pairs_seen, cost: means over the rows; None if unknown.
        drop: share of the clean rSum lost under the reference noise, in percent; None if either was not trained.
    """

    title: str
    name: str
    group: str
    first: Row
    rows: dict[str, Row]
    seeds: str
    pairs_seen: float | None
    cost: float | None
    drop: float | None


@dataclass(frozen=True)
class Loss:
    """What a method loses of its clean rSum under the reference noise, in percent: default, tuned, and as printed."""

    title: str
    here: float | None
    tuned: float | None
    printed: list[tuple[str, float]]


@dataclass(frozen=True)
class Gain:
    """What a method adds to its base loss.

    Attributes:
        line: of the method.
        base: title of the line of the base loss.
        alone: whether two networks had to be compared with one.
        gains: by slug of a condition the difference of the mean rSums and its 95 % interval over seeds and images.
    """

    line: Line
    base: str
    alone: bool
    gains: dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class MeasuredTable:
    """What was trained on one dataset, backbone and number of steps.

    Attributes:
        slug, title: name in links, and in words.
        options: recipe of most lines, such as ``tuned on pictograms``; the others name theirs.
        conditions: the noises, in order.
        reference: slug of the condition that orders the lines.
        lines: sorted by rSum under the reference noise, best first, preliminary ones last.
        places: by slug of a condition its rows, best first.
        groups: likewise, first and last index of runs of rows in which no two differ significantly.
        drops: losses under the reference noise.
        gains: of the methods with a base loss.
        powers: by slug of a condition what its test finds (:meth:`SignificanceTest.power`).
        detected: conditions with any detection.
        found: by slug of a condition the lines whose runs recorded the wrong pairs they found, and these.
    """

    slug: str
    title: str
    options: str
    conditions: list[Condition]
    reference: str
    lines: list[Line]
    places: dict[str, list[Row]]
    groups: dict[str, list[tuple[int, int]]]
    drops: list[Loss]
    gains: list[Gain]
    powers: dict[str, list[tuple[float, float]] | None]
    detected: list[Condition]
    found: dict[str, list[tuple[Line, list[float | None]]]]


def measured_tables(content: Content) -> list[MeasuredTable]:
    """All measured tables; empty if nothing has equal steps."""
    return [*each_table(content)]


def each_table(content: Content) -> Iterator[MeasuredTable]:
    """The measured tables, photographs first, then the budget of most rows.

    A closed form joins the table of every backbone with the same data, noise and budget; without one it has a table of
    its own.
    """
    rows = [
        row
        for row in sorted(content.rows, key=attrgetter("number"))
        if row.budget and row.status != "reported" and row.kind not in ("ablation", "corrected")
    ]

    same = attrgetter("condition", "budget")
    trained = grouped((row for row in rows if not row.closed_form), same)
    groups: dict[tuple[str, str, str, str, int | None], list[Row]] = {}
    for row in rows:
        here, others = row.condition, trained.get(same(row), []) if row.closed_form else []
        for beside in dict.fromkeys(other.backbone for other in others) or [row.backbone]:
            key = here.dataset, here.protocol, here.text, beside, row.budget
            groups.setdefault(key, []).append(row)

    def order(key: tuple[str, str, str, str, int | None]) -> tuple[bool, str, int, int]:
        *alike, steps = key
        # what ships with the package is drawn or clip art; of several budgets, that of most rows is the main table
        return DATASETS[key[0]].embedded, str(alike), -len(groups[key]), steps or 0

    return (_table(groups[key], key[3], content) for key in sorted(groups, key=order))


@dataclass(frozen=True)
class Budgets:
    """Methods of one dataset, backbone and noise that were trained for several numbers of steps.

    Attributes:
        title: of the data, the backbone and the noise.
        steps: every number of steps, ascending.
        rows: by line, its rows by number of steps; at least two each.
        levels: closed forms, which take no steps.
        reference: cost in plain triplet steps that the column at equal cost compares at: the median of the table with
            the most lines.
        at_cost: by line the row whose cost is nearest to the reference, if it is off by at most a factor of 1.5.
    """

    title: str
    steps: list[int]
    rows: dict[str, dict[int, Row]]
    levels: list[Row]
    reference: float
    at_cost: dict[str, Row]


def budgets(tables: Sequence[MeasuredTable]) -> list[Budgets]:
    """Conditions with a method at two budgets or more, in the order of the tables."""
    compared = []
    for group in grouped(tables, lambda table: table.slug.rpartition("-")[0]).values():
        conditions = sorted({one for table in group for one in table.conditions}, key=attrgetter("order"))
        for condition in conditions:
            placed = [table.places.get(condition.slug, []) for table in group]
            trained = [row for rows in placed for row in rows if not row.closed_form]
            lines = {
                line: {row.budget or 0: row for row in sorted(rows, key=lambda row: row.budget or 0)}
                for line, rows in grouped(trained, title_of).items()
            }
            several = {line: rows for line, rows in lines.items() if len(rows) > 1}
            costs = [row.plain_steps for row in max(placed, key=len) if not row.closed_form]
            known = [cost for cost in costs if cost is not None]
            if not several or not known:
                continue
            reference, steps = (
                statistics.median(known),
                sorted({n for rows in several.values() for n in rows}),
            )
            levels = {title_of(row): row for rows in placed for row in rows if row.closed_form}
            compared.append(
                Budgets(
                    title=f"{condition.title}, {trained[0].backbone}",
                    steps=steps,
                    rows=several,
                    levels=[*levels.values()],
                    reference=reference,
                    at_cost={
                        line: row for line, rows in several.items() if (row := _nearest(rows, reference))
                    },
                )
            )
    return compared


def _nearest(rows: Mapping[int, Row], reference: float) -> Row | None:
    """The row with the nearest cost, as a ratio; None if none is within a factor of 1.5."""
    off = {
        abs(math.log(cost / reference)): row for row in rows.values() if (cost := row.plain_steps) is not None
    }
    return off[min(off)] if off and min(off) <= math.log(1.5) else None


def _table(rows: Sequence[Row], beside: str, content: Content) -> MeasuredTable:
    test = content.significantly_different
    first, conditions = rows[0], sorted({row.condition for row in rows}, key=attrgetter("order"))
    places: dict[str, list[Row]] = {}
    groups = {}
    for condition in conditions:
        members = [row for row in rows if row.condition == condition]
        placed = ranked(members, test)
        places[condition.slug] = [row.model_copy(update={"interval": test.interval(row)}) for row in placed]
        groups[condition.slug] = alike(test([row for row in placed if not row.preliminary]))
    slugs = {condition.noise: condition.slug for condition in conditions}
    # what most rows share stands once above the table
    recipes = [row.recipe for row in rows if row.recipe and not row.closed_form]
    options = max(dict.fromkeys(recipes), key=recipes.count, default="")
    lines = [_line(title, places, slugs, options) for title in dict.fromkeys(map(title_of, rows))]
    reference = slugs.get(REFERENCE, conditions[-1].slug)
    ranked_in = {slug: sum(not row.preliminary for row in placed) for slug, placed in places.items()}
    fullest = max(ranked_in, key=ranked_in.__getitem__)
    if 2 * ranked_in[reference] < ranked_in[fullest]:
        # a column that is mostly empty orders nothing
        reference = fullest

    def order(line: Line) -> tuple[bool, float, str]:
        row = line.rows.get(reference)
        return row is None or row.preliminary, -(row.r_sum_or_0 if row else -1.0), line.title

    lines.sort(key=order)
    shared = first.condition
    name = "-".join(filter(None, (shared.dataset, shared.protocol, shared.text, beside, str(first.budget))))
    return MeasuredTable(
        slug=name.lower().replace("∞", "-infinity").replace(" ", "-"),
        title=f"{shared.data}, {beside}, {first.budget:,} steps per network",
        options=options,
        conditions=conditions,
        reference=reference,
        lines=lines,
        places=places,
        groups=groups,
        drops=drops(lines, content),
        gains=gains(lines, content),
        powers={slug: test.power(placed, SEEDS_FOR_A_RANK) for slug, placed in places.items()},
        detected=[
            condition for condition in conditions if any(row.detection for row in places[condition.slug])
        ],
        found={
            slug: [
                (line, found_pairs(line.rows[slug]))
                for line in lines
                if slug in line.rows and line.rows[slug].found
            ]
            for slug in places
        },
    )


def group_of(row: Row) -> str:
    """Group of a row's line: a linear map, the mean of two runs and clean pairs are controls, not methods."""
    control = row.kind != "method" or row.closed_form or row.method.endswith(MEAN_OF_TWO)
    return CONTROLS if control else METHODS


def _line(
    title: str,
    places: Mapping[str, Sequence[Row]],
    slugs: Mapping[tuple[Unit, float | None], str],
    options: str,
) -> Line:
    rows = {slug: row for slug, placed in places.items() for row in placed if title_of(row) == title}
    first, numbers = next(iter(rows.values())), sorted({row.n_seeds for row in rows.values()})
    clean, noisy = (rows.get(slugs.get(noise, "")) for noise in (CLEAN, REFERENCE))
    other = first.recipe != options and first.recipe == "default" and not first.closed_form
    return Line(
        title=title,
        name=title_of(first, tuned=first.recipe != options) + " (default options)" * other,
        group=group_of(first),
        first=first,
        rows=rows,
        seeds="–".join(map(str, numbers[:1] + numbers[1:][-1:])),
        pairs_seen=mean([row.pairs_seen for row in rows.values()]),
        cost=mean([row.cost for row in rows.values()]),
        drop=drop(clean, noisy) if clean and noisy else None,
    )


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
    best = clean.r_sum_or_0
    return 100 * (best - noisy.r_sum_or_0) / best


def drops(lines: Sequence[Line], content: Content) -> list[Loss]:
    """Losses of the methods that were trained without noise and under the reference noise."""
    by_method: dict[str, dict[bool, Line]] = {}
    for line in lines:
        if line.drop is not None:
            by_method.setdefault(title_of(line.first, tuned=False), {})[line.first.tuned] = line
    return [
        Loss(
            title=title,
            here=of[False].drop if False in of else None,
            tuned=of[True].drop if True in of else None,
            printed=printed_drops(next(iter(of.values())).first, content.rows, content.papers),
        )
        for title, of in by_method.items()
    ]


def gains(lines: Sequence[Line], content: Content) -> list[Gain]:
    """What each method adds to its own base loss, which was trained for as many steps on the same backbone.

    Two averaged networks are compared with the mean of two seeds of the base loss, one network with one. Under a noise
    where that mean has too few results they are compared with one network, in a gain of their own. A base loss on the
    clean pairs is compared with the same loss on all pairs. A tuned method is compared with the base loss tuned on the
    same data. A collapsed control adds nothing, and nothing is compared with it.
    """
    titles = {
        (line.first.method, line.first.tuned and line.first.recipe): line
        for line in lines
        if line.first.comparable
    }
    all_gains = []
    for line in lines:
        first = line.first
        averaged = first.networks == "ensemble"
        name, options = _base_of(first, content.families), first.tuned and first.recipe
        missing = dict(line.rows)
        for base, alone in (
            (titles.get((name + MEAN_OF_TWO, options)) if averaged else None, False),
            (titles.get((name, options)), averaged),
        ):
            if base is None:
                continue
            by_slug = {}
            for slug, row in [*missing.items()]:
                other = base.rows.get(slug)
                # a control on clean pairs is not called preliminary
                few = row.kind == "clean" and row.n_seeds < SEEDS_FOR_A_RANK
                unusable = few or row.preliminary or row.collapsed
                if unusable or other is None or other.preliminary or other.collapsed:
                    continue
                if interval := content.significantly_different.difference(row, other):
                    by_slug[slug] = (row.r_sum_or_0 - other.r_sum_or_0, *interval)
                    del missing[slug]
            if by_slug:
                all_gains.append(Gain(line, base.title, alone, by_slug))
    return all_gains


def _base_of(row: Row, families: Mapping[str, Family]) -> str:
    """Name of the base loss of a row; empty without one."""
    if row.kind == "clean":
        return row.method.replace(CLEAN_SUFFIX, "").removesuffix(MEAN_OF_TWO)
    return families[row.family].base


def printed_drops(ours: Row, rows: Iterable[Row], papers: Mapping[str, Paper]) -> list[tuple[str, float]]:
    """Drops that papers print for the method of a row at the ratio of the reference noise, without doubtful rows.

    Networks on other features lose other shares, so only rows on the same kind of features as ours are compared.

    Returns:
        Dataset, backbone, noise and sources, and the percentage. A drop that several papers print for one row is listed
        once.
    """
    usable = [
        row
        for row in rows
        if (row.family, row.features, row.status) == (ours.family, ours.features, "reported")
        if row.condition.noise_ratio in (0.0, REFERENCE[1]) and row.ranked
    ]
    models = grouped(
        sorted(usable, key=attrgetter("number")),
        lambda row: (
            *(row.source, row.method, row.backbone, row.networks),
            *(row.condition.dataset, row.condition.protocol),
        ),
    )
    sources_of: dict[tuple[str, str], list[str]] = {}
    for group in models.values():
        of_unit = {row.condition.noise_unit: row for row in group}
        if clean := of_unit.pop("none", None):
            for unit, noisy in of_unit.items():
                where = f"{noisy.condition.data}, {noisy.backbone}, {UNIT_TITLES[unit]}"
                said = where, f"{drop(clean, noisy):.1f}"
                sources_of.setdefault(said, []).append(papers[noisy.source].name)
    return [
        (f"{where} ({', '.join(dict.fromkeys(sources))})", float(percent))
        for (where, percent), sources in sources_of.items()
    ]


def by_similarity(row: Row) -> dict[str, float]:
    """AUROC and average precision of the scored networks' similarity of the training pairs, means over seeds.

    The evidence holds the clean probability too, but its 16 bits make those near 1 equal; see ``Row.detection``.
    """
    values = [one["similarity"] for one in row.separated]
    return {name: statistics.fmean(getattr(one, name) for one in values) for name in Separation.model_fields}


def found_pairs(row: Row) -> list[float | None]:
    """Wrong pairs found at the method's own threshold, mean over seeds, in the order of the page's columns."""
    of_runs = [
        (
            *(each.accuracy, each.precision, each.recall, noise_left(each)),
            *(each.f1, each.average_precision_wrong, *map(each.precision_at.get, SHOWN_AT)),
        )
        for each in row.found
    ]
    return [mean(column) for column in zip(*of_runs, strict=True)]


def noise_left(pairs: DetectedPairs) -> float | None:
    """Share of wrong pairs among those called clean after the last epoch; None if accuracy and recall do not say it."""
    if pairs.noise_left:
        return pairs.noise_left[-1]
    if pairs.recall == 1:
        return 0.0
    if pairs.precision == 0:
        return None
    # for each wrong pair, some share of it is missed and some right pairs are called wrong: together 1 - accuracy
    called = pairs.recall / pairs.precision
    wrong = (1 - pairs.accuracy) / (1 - pairs.recall + called - pairs.recall)
    return wrong * (1 - pairs.recall) / (1 - wrong * called)


@dataclass(frozen=True)
class AblationResult:
    """A row of a paper's ablation.

    Attributes:
        row: the paper's.
        printed_drop: in percent.
        entry: our row; None where it was not trained. ``interval`` is 95 % over seeds and images.
        drop: what ours loses of our full method's rSum, in percent; None where one is missing.
        drop_interval: its 95 % interval.
    """

    row: AblationLine
    printed_drop: float
    entry: Row | None
    drop: float | None
    drop_interval: list[float] | None

    @property
    def differs(self) -> bool | None:
        """Whether the interval of the drop excludes 0."""
        ends = self.drop_interval
        return None if ends is None else ends[0] > 0 or ends[1] < 0


@dataclass(frozen=True)
class AblationTable:
    """A paper's ablation with our rows.

    Attributes:
        table: the paper's.
        condition: of our rows.
        title: of both.
        command: trains our rows.
        lines: in the paper's order.
    """

    table: Ablation
    condition: Condition
    title: str
    command: str
    lines: list[AblationResult]


def ablation_tables(content: Content) -> list[AblationTable]:
    """Every table of the papers' ablations of which at least one row beside the full method was trained."""
    rows = [row for row in content.rows if row.ablation and row.budget]
    tables = []
    for group in grouped(
        rows, lambda row: (row.ablation[0], row.condition, row.backbone, row.budget)
    ).values():
        ours = {row.ablation[1]: row for row in sorted(group, key=attrgetter("number"))}
        if any(row.kind == "ablation" for row in ours.values()):
            tables.append(_ablation(ours, content))
    return sorted(tables, key=lambda one: (one.condition.order, one.title))


def _ablation(ours: Mapping[str, Row], content: Content) -> AblationTable:
    first, test = next(iter(ours.values())), content.significantly_different
    name, condition = first.ablation[0], first.condition
    table = shipped_ablations()[name]
    full, lines = ours.get(table.rows[0].title), []
    for row in table.rows:
        entry = ours.get(row.title)
        lost = ends = None
        if full and full.r_sum and entry and entry is not full:
            lost, difference = drop(full, entry), test.difference(full, entry)
            ends = difference and [100 * end / full.r_sum for end in difference]
        shown = entry and entry.model_copy(update={"interval": test.interval(entry)})
        lines.append(AblationResult(row, table.printed_drop(row), shown, lost, ends))
    return AblationTable(
        table=table,
        condition=condition,
        title=f"{table.title}: {condition.title}, {first.backbone}, {first.budget:,} steps per network",
        command=f"ncl-bench sweep --table {name} --dataset {condition.dataset} --to {name}",
        lines=lines,
    )


def cost_chart(tables: Iterable[MeasuredTable], rows: Iterable[Row], *, standalone: bool = False) -> str:
    """rSum against cost of the methods and controls of the first measured table; empty without one.

    A row without a recorded cost, such as a closed form, is a level, also with its correction for hubs, which takes no
    step either. Preliminary rows and further draws are left out.
    """
    conditions = ((table, one) for table in tables for one in table.conditions)
    first = next((each for each in conditions if each[1].noise == SHOWN), None)
    if first is None:
        return ""
    table, shown = first
    points = []
    levels = [
        (f"{row.method}, {row.correction}", row.r_sum_or_0)
        for row in rows
        if row.condition == shown and row.closed_form and row.correction and not row.preliminary
        if "weight" not in row.correction  # dev chose it
    ]
    for line in table.lines:
        row = line.rows.get(shown.slug)
        if row is None or row.preliminary or row.kind == "draws":
            continue
        kind = "control" if line.group != METHODS else "c1" if row.networks == "ensemble" else "c0"
        if row.plain_steps is None:
            levels.append((line.name, row.r_sum_or_0))
        else:
            points.append((line.name, row.plain_steps, row.r_sum_or_0, kind))
    if not points:
        return ""
    return scatter(
        points,
        levels,
        title=f"rSum against cost, {shown.title}",
        x_title="cost in plain triplet steps; blue: one network, red: several, grey: controls",
        y_title="rSum",
        standalone=standalone,
    )


def measured_pages(content: Content, tables: Sequence[MeasuredTable]) -> dict[str, dict[str, Any]]:
    """Values of the pages of measured tables, detection, gains over the base loss, and ablations, by template.

    Args:
        content: everything that the leaderboard shows.
        tables: from :func:`measured_tables`.
    """
    detected = {
        "tables": [table for table in tables if table.detected],
        "epoch_curves": epoch_curves,
        "separated": [
            (row, (row.detection, by_similarity(row)))
            for row in content.rows
            if row.separated and row.kind != "draws"
        ],
        "printed": content.printed_detection,
        "labelled": _labelled(),
        "fewest": FEWEST,
        "precision_at": SHOWN_AT,
    }
    measured = {
        "tables": tables,
        "forest": forest,
        "epoch_curves": epoch_curves,
        "budgets": budgets(tables),
        "budget_curves": budget_curves,
        "seeds_for_a_rank": SEEDS_FOR_A_RANK,
        "groups": (METHODS, CONTROLS),
        "chart": cost_chart(tables, content.rows),
    }
    gain = {"tables": [table for table in tables if table.gains]}
    ablations = {"tables": ablation_tables(content)}
    return {
        "measured.html": measured,
        "detection.html": detected,
        "gain.html": gain,
        "ablations.html": ablations,
    }


def _labelled() -> list[tuple[str, int, int]]:
    """Datasets of natural noise whose pairs are labelled: title, labelled pairs, and wrong ones among them."""
    labels = [
        (spec.title, list(read_pair_labels(spec.pair_labels, spec).values()))
        for spec in DATASETS.values()
        if spec.pair_labels is not None
    ]
    return [(title, len(verdicts), verdicts.count("wrong")) for title, verdicts in labels]
