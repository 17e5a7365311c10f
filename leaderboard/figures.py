"""The figures of the site as SVG text: rSum against noise ratio, during training, and with intervals.

They use our own templates instead of matplotlib because they are part of the pages: their colours follow the page's
light or dark theme, every point has a title for screen readers and the pointer, no two charts share an element id, and
library versions change no byte.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

import numpy as np

from leaderboard.entries import Row, by_reference, grouped, title_of
from leaderboard.rendering import svg
from ncl_bench.papers import Paper

Charts = list[tuple[str, str]]
MOST_CURVES = 8
_NAME_STEP = 15.0
_LONGEST_NAME = 26
N_COLOURS = 8
_WIDTH, _HEIGHT = 748, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 204, 16, 44  # the margin holds _LONGEST_NAME in a wide font
_BOX = {
    "width": _WIDTH,
    "height": _HEIGHT,
    "left": _LEFT,
    "right": _WIDTH - _RIGHT,
    "top": _TOP,
    "bottom": _HEIGHT - _BOTTOM,
}
"""Size of a chart, and the edges of its axes."""


@dataclass(frozen=True)
class Curve:
    """A line of a figure: a name and ``(x, y, spread)`` points; spread 0 draws no whisker.

    Attributes:
        solid: draw a solid line instead of a dashed one.
        marks: draw the points, as for measured ones.
        control: a level to compare with, drawn thin and grey.
    """

    name: str
    points: tuple[tuple[float, float, float], ...]
    solid: bool = True
    marks: bool = True
    control: bool = False


Recorded = tuple[Sequence[float], Sequence[float], int]
"""Of a run: steps, values after each of them, and the place of the epoch that is best on dev."""


def method_charts(rows: Iterable[Row], family: str, papers: Mapping[str, Paper]) -> Charts:
    """One chart per dataset, protocol and noise unit, with one curve per name and paper of a method.

    Args:
        rows: all rows; closed forms are drawn as controls.
        family: key of the method.
        papers: by key.
    """
    methods = [row for row in rows if row.kind == "method"]
    return _charts([row for row in methods if row.family == family or row.closed_form], papers)


def overview_charts(rows: Iterable[Row], papers: Mapping[str, Paper]) -> Charts:
    """One chart per protocol and noise unit: the best curves of comparable, undoubted region-feature rows."""
    return _charts(
        [row for row in rows if row.comparable and row.features == "region" and not row.extra], papers
    )


def _charts(rows: Iterable[Row], papers: Mapping[str, Paper]) -> Charts:
    """Per dataset, protocol, text and noise unit: a title and the best curves, from ratio 0 if they can."""
    charts: Charts = []
    named = [(_with_paper(row, papers), row) for row in rows if row.condition.noise_unit != "natural"]
    for here, group in grouped(named, lambda one: one[1].condition.at_every_ratio()).items():
        names, unit = {name for name, _ in group}, here.noise_unit
        clean = [
            (name, row)
            for name, row in named
            if row.condition.noise_unit == "none" and name in names
            if row.condition.at_every_ratio(unit) == here
        ]
        series = best_curves([*clean, *group]) if unit != "none" else []
        if not all(curve.control for curve in series):
            title = f"{here.title}: rSum against noise ratio"
            charts.append((title, curves(series, title=title, x_title="noise ratio, %", y_title="rSum")))
    return charts


def _with_paper(row: Row, papers: Mapping[str, Paper]) -> str:
    """The method's name, with the paper that prints the number if it is not the method's own."""
    paper = papers.get(row.source)
    return f"{row.label} (in {paper.name})" if paper and paper.method != row.family else row.label


def best_curves(rows: Sequence[tuple[str, Row]]) -> list[Curve]:
    """Curves of named rows of one dataset, protocol and unit that are best at the reference ratio.

    Closed forms are added to them, whatever their place.
    """
    lines: dict[str, dict[float, Row]] = {}
    for name, row in rows:
        ratio = row.condition.noise_ratio
        if ratio is not None and row.r_sum is not None:
            points = lines.setdefault(name, {})
            points[ratio] = max(points.get(ratio, row), row, key=attrgetter("r_sum_or_0"))
    several = {label: points for label, points in lines.items() if len(points) > 1}
    drawn = [_curve(label, [*several[label].values()]) for label in by_reference(several)]
    methods = [curve for curve in drawn if not curve.control]
    return [*methods[:MOST_CURVES], *(curve for curve in drawn if curve.control)]


def _curve(label: str, rows: Sequence[Row]) -> Curve:
    points = (
        (round(100 * (row.condition.noise_ratio or 0.0), 6), row.r_sum_or_0, row.spread.get("r_sum", 0.0))
        for row in rows
    )
    solid, control = any(row.status != "reported" for row in rows), rows[0].closed_form
    return Curve(label, tuple(points), solid, control=control)


def epoch_curves(rows: Sequence[Row], of: str) -> Charts:
    """Curves over the steps of the best rows of a measured table under one noise.

    Args:
        rows: best first.
        of: ``auroc``: detection AUROC in percent, ``dev``: rSum on dev, or of the division ``noise_left``,
            ``precision`` or ``recall`` in percent.

    Returns:
        Label and markup, for the default and the tuned recipes, if there are any. A closed form has no steps: its
        level is drawn across.
    """
    share = of if of in ("auroc", "dev", "noise_left") else f"{of}_by_epoch"
    title = {"dev": "rSum on dev", "auroc": "AUROC, %"}.get(of, f"{of.replace('_', ' ')}, %")
    factor = 1.0 if of == "dev" else 100.0
    charts: Charts = []
    for tuned, kind in ((False, "default recipes"), (True, "tuned recipes")):
        series, levels = [], []
        for row in rows:
            runs, name = recorded(row, share), title_of(row, tuned=False)
            if runs and row.closed_form:
                levels.append((name, factor * statistics.fmean(values[best] for _, values, best in runs)))
            elif runs and row.tuned == tuned:
                points = tuple((x, factor * y, 0.0) for x, y in mean_curve(runs))
                series.append(Curve(name, points, marks=False))
        if series:
            series = _with_levels(series[:MOST_CURVES], levels)
            whole = f"{title}, {rows[0].condition.title}"
            charts.append((kind, curves(series, title=whole, x_title="steps", y_title=title)))
    return charts


def _with_levels(series: list[Curve], levels: Iterable[tuple[str, float]]) -> list[Curve]:
    """The curves, with lines across the figure to compare with."""
    ends = [x for curve in series for x, _, _ in curve.points]
    across = [
        Curve(name, tuple((x, level, 0.0) for x in (min(ends), max(ends))), marks=False, control=True)
        for name, level in levels
    ]
    return series + across


def mean_curve(runs: Sequence[Recorded]) -> list[tuple[float, float]]:
    """Mean over runs at twenty steps, linear between epochs, as ``(step, value)``."""
    end = min(steps[-1] for steps, _, _ in runs)
    start = max(steps[0] for steps, _, _ in runs)
    if start >= end:
        return [(float(end), statistics.fmean(values[-1] for _, values, _ in runs))]
    places = [start + (end - start) * n / 19 for n in range(20)]
    return [(x, statistics.fmean(_at(steps, values, x) for steps, values, _ in runs)) for x in places]


def recorded(row: Row, of: str) -> list[Recorded]:
    """Values of the runs of a row that recorded them, by their name in a curve or in the pairs found."""
    sources: Sequence[object] = row.curves if of in ("auroc", "dev") else row.found
    if len(sources) != len(row.curves):
        return []  # which run each belongs to is not known
    values = [(curve, getattr(one, of)) for curve, one in zip(row.curves, sources, strict=True)]
    return [(curve.steps, measured, curve.best) for curve, measured in values if measured]


def _at(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    # numpy.interp takes the last of two measurements after one step
    for (x0, y0), (x1, y1) in pairwise(zip(xs, ys, strict=True)):
        if x0 <= x <= x1 and x1 > x0:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return ys[-1]


def budget_curves(lines: Mapping[str, Mapping[int, Row]], levels: Sequence[Row], title: str) -> Charts:
    """rSum of methods at several budgets, against steps and against cost.

    Args:
        lines: by line, its rows by number of steps.
        levels: closed forms, which take no steps.
        title: of the data, the backbone and the noise.

    Returns:
        Caption and markup of each chart; that against cost needs methods with a recorded cost.
    """
    charts: Charts = []
    for against, x_title in (
        (attrgetter("budget"), "steps per network"),
        (attrgetter("plain_steps"), "cost, plain triplet steps"),
    ):
        series = []
        for line, rows in lines.items():
            points = [
                (float(x), row.r_sum_or_0, row.spread.get("r_sum", 0.0))
                for row in rows.values()
                if (x := against(row)) is not None
            ]
            series += [Curve(line, tuple(points))] if len(points) > 1 else []
        if series:
            series = _with_levels(series, ((title_of(row), row.r_sum_or_0) for row in levels))
            caption = f"rSum against {x_title}"
            chart = curves(series, title=f"{caption}, {title}", x_title=x_title, y_title="rSum")
            charts.append((caption, chart))
    return charts


def short_name(name: str) -> str:
    """A name that fits into the margin; the whole one is shown on hover.

    Names of a method's variants differ at their ends, so the middle is cut.
    """
    return name if len(name) <= _LONGEST_NAME else f"{name[:7]}…{name[8 - _LONGEST_NAME :]}"


def curves(series: Sequence[Curve], *, title: str, x_title: str, y_title: str) -> str:
    """Draw a line chart as SVG. A curve below the axis is cut at its edge, and its name has a ↓.

    Args:
        series: at least one curve; colours and dashes repeat after ``N_COLOURS``.
        title: read by screen readers and shown on hover.
        x_title: axis title.
        y_title: axis title.
    """
    xs = sorted({point[0] for curve in series for point in curve.points})
    ends = [y + sign * spread for curve in series for _, y, spread in curve.points for sign in (-1, 1)]
    y_ticks = ticks(max(without_outliers(ends), 0.0), max(ends))
    ends_of_x = [xs[0], xs[-1]] if len(xs) > 1 else [xs[0] - 10, xs[0] + 10]
    x = _axis(ends_of_x, _LEFT + 12, _WIDTH - _LEFT - _RIGHT - 24)
    y = _axis(y_ticks[::-1], _TOP, _HEIGHT - _TOP - _BOTTOM)
    lines = [
        {
            "name": curve.name,
            "label": short_name(curve.name) + " ↓" * any(value < y_ticks[0] for _, value, _ in curve.points),
            "colour": number % N_COLOURS,
            "control": curve.control,
            "dashed": not curve.solid,
            "points": [(x(a), y(b)) for a, b, _ in sorted(curve.points)],
            "marks": [
                (x(a), y(b), y(b - c), y(b + c), f"{a:g}", f"{b:.1f}", c)
                for a, b, c in sorted(curve.points)
                if curve.marks
            ],
        }
        for number, curve in enumerate(series)
    ]
    _place_labels(lines)
    few = xs if len(xs) <= 10 else [value for value in ticks(xs[0], xs[-1]) if xs[0] <= value <= xs[-1]]
    return svg(
        "curves.svg.j2",
        lines=lines,
        x_ticks=_marks(x, few),
        y_ticks=_marks(y, y_ticks),
        title=title,
        x_title=x_title,
        y_title=y_title,
        box=_BOX,
    )


def scatter(
    points: Sequence[tuple[str, float, float, str]],
    levels: Sequence[tuple[str, float]],
    *,
    title: str,
    x_title: str,
    y_title: str,
    standalone: bool = False,
) -> str:
    """Draw named points, with their names in the right margin.

    Args:
        points: at least one; name, x, y and colour: ``c0`` to ``c7``, or ``control``.
        levels: name and y of lines across the figure, to compare with.
        title, x_title, y_title: see :func:`curves`.
        standalone: write a file with its own style, instead of a figure inside a page.
    """
    x_ticks = ticks(min(point[1] for point in points), max(point[1] for point in points))
    heights = [*(point[2] for point in points), *(y for _, y in levels)]
    y_ticks = ticks(min(heights), max(heights))
    tall = max(
        _HEIGHT, round(_NAME_STEP * (len(points) + 1)) + 8 + _BOTTOM
    )  # every name has a line of its own
    x = _axis(x_ticks, _LEFT, _WIDTH - _LEFT - _RIGHT)
    y = _axis(y_ticks[::-1], _TOP, tall - _TOP - _BOTTOM)
    lines: list[dict[str, object]] = [
        {
            "name": name,
            "label": short_name(name),
            "colour": colour,
            "says": f"{a:.1f}, {b:.1f}",
            "points": [(x(a), y(b))],
        }
        for name, a, b, colour in points
    ]
    _place_labels(lines, tall - _BOTTOM + 8)  # above the numbers of the axis
    # a name stands on its line, or below it if it would cover the name above
    drawn: list[tuple[str, str, str, int]] = []
    for name, value in sorted(levels, key=lambda level: -level[1]):
        crowded = drawn and float(y(value)) - float(drawn[-1][2]) < _NAME_STEP
        drawn.append((name, f"{value:.1f}", y(value), 12 if crowded else -4))
    return svg(
        "scatter.svg.j2",
        lines=lines,
        levels=drawn,
        x_ticks=_marks(x, x_ticks),
        y_ticks=_marks(y, y_ticks),
        title=title,
        x_title=x_title,
        y_title=y_title,
        box=_BOX | {"height": tall, "bottom": tall - _BOTTOM},
        standalone=standalone,
    )


def forest(rows: Sequence[Row], groups: Sequence[tuple[int, int]], *, title: str) -> str:
    """Draw rows of a measured table from top to bottom: mean, interval, and last epoch.

    Bars on the right join rows that do not differ significantly. The axis is scaled to the best rows; a row below it is
    marked.

    Args:
        rows: best first.
        groups: first and last row of each bar.
        title: read by screen readers and shown on hover.
    """
    names = [*map(title_of, rows)]
    left, width, step, top = 16 + 7 * max(map(len, names)), 300, 22, 8
    right, bottom = left + width, top + step * len(rows) + 4
    sums = [row.r_sum_or_0 for row in rows]
    ends = [end for row in rows for end in (row.interval or ())]
    ends += [row.last_epoch for row in rows if row.last_epoch is not None]
    worst, best = min([*sums, *ends]), max(sums)
    focus = best - 3 * (best - float(np.median(sums)))  # shows at least the better half
    scale = ticks(max(worst, focus, 0.0), min(max([*sums, *ends]), 600.0))

    along = _axis(scale, left, width)

    def x(value: float | None) -> str | None:
        return None if value is None else along(min(max(value, scale[0]), scale[-1]))

    levels = [
        (name, f"{value:.1f}", x(value))
        for row, name, value in zip(rows, names, sums, strict=True)
        if row.closed_form and value >= scale[0]
    ]
    drawn = []
    for index, (row, name, value) in enumerate(zip(rows, names, sums, strict=True)):
        low, high = row.interval or (None, None)
        last = row.last_epoch
        drawn.append(
            {
                "name": name,
                "control": row.rank is None,
                "y": _number(top + step * (index + 0.5)),
                "x": x(value),
                "below": value < scale[0],
                "text": f"{value:.1f}",
                "low": x(low),
                "high": x(high),
                "last": x(last),
                "last_text": "" if last is None else f"{last:.1f}",
            }
        )
    bars = [
        {
            "x": right + 58 + 9 * number,
            "top": _number(top + step * (first + 0.5) - 4),
            "bottom": _number(top + step * (last + 0.5) + 4),
            "names": ", ".join(names[first : last + 1]),
        }
        for number, (first, last) in enumerate(groups)
    ]
    return svg(
        "forest.svg.j2",
        rows=drawn,
        levels=levels,
        bars=bars,
        title=title,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        width=right + 66 + 9 * max(len(groups), 1),
        height=bottom + 24,
        x_ticks=_marks(along, scale),
    )


def without_outliers(values: Sequence[float]) -> float:
    """Smallest value that is not a low outlier; an axis from there shows how the best rows differ.

    An outlier is more than three interquartile ranges below the first quartile (Tukey's outer fence).
    """
    first, third = np.quantile(values, [0.25, 0.75])
    return min(value for value in values if value >= first - 3 * (third - first))


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers that enclose ``low`` and ``high``."""
    span = max(high - low, 1.0)
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= span / 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def _axis(ticks: Sequence[float], start: float, length: float) -> Callable[[float], str]:
    """Place of a value on an axis from its first to its last tick."""
    return lambda value: _number(start + length * (value - ticks[0]) / (ticks[-1] - ticks[0]))


def _marks(axis: Callable[[float], str], ticks: Iterable[float]) -> list[tuple[str, str]]:
    return [(axis(value), f"{value:g}") for value in ticks]


def _place_labels(lines: list[dict[str, object]], height: float = _HEIGHT) -> None:
    """Put each curve's name beside its last point, moved so that names do not overlap."""
    step = _NAME_STEP
    wanted = sorted(lines, key=lambda line: float(line["points"][-1][1]))  # type: ignore[index]
    placed: list[float] = []
    for line in wanted:
        at = min(float(line["points"][-1][1]), height - _BOTTOM)  # type: ignore[index]
        placed.append(max(at, placed[-1] + step) if placed else at)
    limit = height - 8
    for number in reversed(range(len(placed))):
        placed[number] = min(placed[number], limit)
        limit = placed[number] - step
    for line, at in zip(wanted, placed, strict=True):
        line["label_y"] = _number(at)


def _number(value: float) -> str:
    return f"{value:.1f}"
