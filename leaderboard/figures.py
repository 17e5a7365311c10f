"""The figures of the site: rSum against noise ratio, during training, and with intervals.

They are SVG from our own templates rather than matplotlib's, because they stand inside the pages: their colours
follow the page's light or dark theme through its style sheet, every point has a title for screen readers and the
pointer, no two of them share an element's id, and another version of a library changes no byte.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, TypeVar

import numpy as np

from leaderboard.board import Board
from leaderboard.entries import Cell, Entry
from leaderboard.measured import MeasuredTable, Place, mean_curve
from leaderboard.published import Paper
from leaderboard.rendering import markup, render

Charts = list[tuple[str, object]]
MOST_CURVES = 8
REFERENCE_RATIO = 0.4
Key = TypeVar("Key", str, tuple[str, ...])
N_COLOURS = 8
_LONGEST_NAME = 26
_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 176, 16, 44


@dataclass(frozen=True)
class Curve:
    """One line of a figure: a name and ``(x, y, spread)`` points; spread 0 draws no whisker.

    Attributes:
        solid: dashed otherwise.
        marks: draw the points, as measured ones are.
    """

    name: str
    points: tuple[tuple[float, float, float], ...]
    solid: bool = True
    marks: bool = True


def method_charts(boards: Iterable[Board], papers: Mapping[str, Paper]) -> Charts:
    """One chart per dataset, protocol and noise unit: a curve per name and paper of a method."""
    return _charts(boards, lambda entry: _with_paper(entry, papers), lambda entry: entry.kind == "method")


def overview_charts(boards: Iterable[Board], papers: Mapping[str, Paper]) -> Charts:
    """One chart per protocol and noise unit: the best curves of comparable, undoubted region-feature entries."""

    def wanted(entry: Entry) -> bool:
        return entry.ranked and entry.features == "region" and not entry.extra

    known = (board for board in boards if board.cell.noise_unit != "unknown")
    return _charts(known, lambda entry: _with_paper(entry, papers), wanted)


def best_curves(entries: Sequence[Entry], name: Callable[[Entry], str]) -> list[Curve]:
    """The curves of entries of one dataset, protocol and unit that are best at ``REFERENCE_RATIO``."""
    lines: dict[str, dict[float, Entry]] = {}
    for entry in entries:
        if entry.cell.noise_ratio is not None and entry.r_sum is not None:
            points = lines.setdefault(name(entry), {})
            held = points.get(entry.cell.noise_ratio)
            if held is None or (held.r_sum or 0) < entry.r_sum:
                points[entry.cell.noise_ratio] = entry
    several = {label: points for label, points in lines.items() if len(points) > 1}
    chosen = by_reference(several)[:MOST_CURVES]
    return [
        Curve(label, _points(lines[label].values()), _measured(lines[label].values())) for label in chosen
    ]


def by_reference(lines: Mapping[Key, Mapping[float, Entry]]) -> list[Key]:
    """Keys of lines of entries by noise ratio: best at ``REFERENCE_RATIO`` first, those without it last."""

    def key(label: Key) -> tuple[bool, float]:
        points = lines[label]
        at = points.get(REFERENCE_RATIO)
        sums = [entry.r_sum or 0.0 for entry in points.values()]
        return at is None, -(sum(sums) / len(sums) if at is None else at.r_sum or 0.0)

    return sorted(sorted(lines), key=key)


def plain_chart(boards: Sequence[Board], papers: Mapping[str, Paper]) -> str:
    """The plot that stands in README.md, as a file of its own: of measured entries where there are some.

    Returns:
        SVG text; empty where no method has entries at two noise ratios.
    """

    def wanted(entry: Entry) -> bool:
        return (
            entry.ranked
            and entry.features == "region"
            and not entry.extra
            and entry.cell.noise_unit != "unknown"
        )

    measured = any(entry.status != "reported" for board in boards for entry in board.entries)
    for title, series in _series(
        boards,
        lambda entry: _with_paper(entry, papers),
        lambda entry: wanted(entry) and measured == (entry.status != "reported"),
    ):
        return curves(series, title=title, x_title="noise ratio, %", y_title="rSum", standalone=True) + "\n"
    return ""


def _charts(boards: Iterable[Board], name: Callable[[Entry], str], wanted: Callable[[Entry], bool]) -> Charts:
    return [
        (title, markup(curves(series, title=title, x_title="noise ratio, %", y_title="rSum")))
        for title, series in _series(boards, name, wanted)
    ]


def _series(
    boards: Iterable[Board], name: Callable[[Entry], str], wanted: Callable[[Entry], bool]
) -> Iterator[tuple[str, list[Curve]]]:
    """Per dataset, protocol, text and noise unit: a title and the best curves, from ratio 0 if they can."""
    noisy: dict[tuple[str, ...], list[Entry]] = {}
    clean: dict[tuple[str, ...], list[Entry]] = {}
    for board in boards:
        cell = board.cell
        key = (cell.dataset, cell.protocol, cell.text)
        entries = [entry for entry in board.entries if wanted(entry)]
        if cell.noise_unit == "none":
            clean.setdefault(key, []).extend(entries)
        elif cell.noise_unit != "natural" and entries:
            noisy.setdefault((*key, cell.noise_unit), []).extend(entries)
    for group, entries in noisy.items():
        names = {name(entry) for entry in entries}
        series = best_curves(
            [*(entry for entry in clean.get(group[:3], []) if name(entry) in names), *entries], name
        )
        if series:
            yield f"{_without_ratio(entries[0].cell).title}: rSum against noise ratio", series


def _with_paper(entry: Entry, papers: Mapping[str, Paper]) -> str:
    """The method's name, and the paper that prints the number where that is not the method's own."""
    paper = papers.get(entry.source)
    foreign = paper is not None and paper.method != entry.family
    return f"{entry.label} (in {paper.short.split(',')[0]})" if paper and foreign else entry.label


def _without_ratio(cell: Cell) -> Cell:
    return cell.model_copy(update={"noise_ratio": None})


def _points(entries: Iterable[Entry]) -> tuple[tuple[float, float, float], ...]:
    return tuple(
        (round(100 * (entry.cell.noise_ratio or 0.0), 6), entry.r_sum or 0.0, entry.spread.get("r_sum", 0.0))
        for entry in entries
    )


def _measured(entries: Iterable[Entry]) -> bool:
    return any(entry.status != "reported" for entry in entries)


def curves(
    series: Sequence[Curve], *, title: str, x_title: str, y_title: str, standalone: bool = False
) -> str:
    """A line chart as SVG text. A curve that falls below the axis ends at its edge, and its name says so by ↓.

    Args:
        series: at least one curve; colours and dashes repeat after ``N_COLOURS``.
        title: read by screen readers and shown on hover.
        x_title: axis title.
        y_title: axis title.
        standalone: write a file that carries its own style, rather than a figure inside a page.
    """
    xs = sorted({point[0] for curve in series for point in curve.points})
    ends = [y + sign * spread for curve in series for _, y, spread in curve.points for sign in (-1, 1)]
    y_ticks = ticks(max(without_outliers(ends), 0.0), max(ends))
    x_low, x_high = (xs[0], xs[-1]) if len(xs) > 1 else (xs[0] - 10, xs[0] + 10)
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> str:
        return _number(_LEFT + 12 + (plot_width - 24) * (value - x_low) / (x_high - x_low))

    def y(value: float) -> str:
        return _number(_TOP + plot_height * (y_ticks[-1] - value) / (y_ticks[-1] - y_ticks[0]))

    def falls(curve: Curve) -> bool:
        return any(value < y_ticks[0] for _, value, _ in curve.points)

    lines = [
        {
            "name": curve.name + " ↓" * falls(curve),
            "colour": number % N_COLOURS,
            "dashed": not curve.solid,
            "marks": curve.marks,
            "points": [
                (x(a), y(b), y(b - c), y(b + c), f"{a:g}", f"{b:.1f}", c) for a, b, c in sorted(curve.points)
            ],
        }
        for number, curve in enumerate(series)
    ]
    _place_labels(lines)
    return render(
        "curves.svg.j2",
        lines=lines,
        x_ticks=[(x(value), f"{value:g}") for value in _few(xs)],
        y_ticks=[(y(value), f"{value:g}") for value in y_ticks],
        title=title,
        x_title=x_title,
        y_title=y_title,
        standalone=standalone,
        box={"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "right": _WIDTH - _RIGHT, "top": _TOP}
        | {"bottom": _HEIGHT - _BOTTOM},
    ).strip()


def forest(table: MeasuredTable, cell: Cell) -> object:
    """All rows of a measured table under one noise: mean, interval, last epoch, and bars over rows that are alike."""
    rows = table.places[cell]
    return markup(
        forest_chart(
            rows,
            [table.lines[place.line].title for place in rows],
            table.groups[cell],
            title=f"rSum on test, {cell.title}",
        )
    )


def forest_chart(
    places: Sequence[Place], names: Sequence[str], groups: Sequence[tuple[int, int]], *, title: str
) -> str:
    """Rows from top to bottom as SVG text, with bars on the right over runs of rows that do not differ significantly.

    The axis shows how the best rows differ; a row below it is marked.

    Args:
        places: best first.
        names: of the rows.
        groups: first and last row of each run.
        title: read by screen readers and shown on hover.
    """
    left, width, step, top = 16 + 7 * max(map(len, names)), 300, 22, 8
    right, bottom = left + width, top + step * len(places) + 4
    sums = [place.entry.r_sum or 0.0 for place in places]
    ends = [end for place in places for end in (place.interval or ())]
    ends += [place.entry.last_epoch for place in places if place.entry.last_epoch is not None]
    worst, best = min([*sums, *ends]), max(sums)
    focus = best - 3 * (best - float(np.median(sums)))  # at least the better half is in sight
    scale = ticks(max(worst, focus, 0.0), min(max([*sums, *ends]), 600.0))

    def x(value: float) -> str:
        share = (min(max(value, scale[0]), scale[-1]) - scale[0]) / (scale[-1] - scale[0])
        return _number(left + width * share)

    rows = []
    for index, (place, name, value) in enumerate(zip(places, names, sums, strict=True)):
        low, high = place.interval or (None, None)
        last = place.entry.last_epoch
        rows.append(
            {
                "name": name,
                "control": place.rank is None,
                "y": _number(top + step * (index + 0.5)),
                "x": x(value),
                "below": value < scale[0],
                "text": f"{value:.1f}",
                "low": None if low is None else x(low),
                "high": None if high is None else x(high),
                "last": None if last is None else x(last),
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
    return render(
        "forest.svg.j2",
        rows=rows,
        bars=bars,
        title=title,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        width=right + 66 + 9 * max(len(groups), 1),
        height=bottom + 24,
        x_ticks=[(x(value), f"{value:g}") for value in scale],
    ).strip()


def epoch_curves(table: MeasuredTable, cell: Cell, of: Literal["auroc", "dev"]) -> list[tuple[str, object]]:
    """Under one noise, over the steps: AUROC of the detection in per cent, or rSum on dev; of the best lines with one.

    Returns:
        For the default and the tuned recipes, if there are any: which, and the markup.
    """
    return [
        (kind, picture)
        for tuned, kind in ((False, "default recipes"), (True, "tuned recipes"))
        if (picture := _epoch_curve(table, cell, of, tuned)) is not None
    ]


def _epoch_curve(table: MeasuredTable, cell: Cell, of: Literal["auroc", "dev"], tuned: bool) -> object | None:
    title, factor = {"auroc": ("AUROC, %", 100.0), "dev": ("rSum on dev", 1.0)}[of]
    series = []
    for place in table.places[cell]:
        line = table.lines[place.line]
        points = mean_curve(place.entry.curves, attrgetter(of))
        if points and line.tuned == tuned:
            name = line.method
            # variants of a method differ in how their names end
            short = name if len(name) <= _LONGEST_NAME else f"{name[:7]}…{name[8 - _LONGEST_NAME :]}"
            series.append(Curve(short, tuple((x, factor * y, 0.0) for x, y in points), marks=False))
    if not series:
        return None
    shown = series[:MOST_CURVES]
    return markup(curves(shown, title=f"{title}, {cell.title}", x_title="steps", y_title=title))


def without_outliers(values: Sequence[float]) -> float:
    """The smallest value that is no low outlier, so that an axis which starts there shows how the best differ.

    An outlier lies more than three times the interquartile range below the first quartile (Tukey's outer fence).
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


def _few(xs: list[float]) -> list[float]:
    """The values of an axis where they are few, else round ones between them."""
    return xs if len(xs) <= 10 else [value for value in ticks(xs[0], xs[-1]) if xs[0] <= value <= xs[-1]]


def _place_labels(lines: list[dict[str, object]]) -> None:
    """Put each curve's name beside its last point, moved apart so that names do not overlap."""
    step = 15.0
    wanted = sorted(lines, key=lambda line: float(line["points"][-1][1]))  # type: ignore[index]
    placed: list[float] = []
    for line in wanted:
        at = min(float(line["points"][-1][1]), _HEIGHT - _BOTTOM)  # type: ignore[index]
        placed.append(max(at, placed[-1] + step) if placed else at)
    overflow = (placed[-1] if placed else 0.0) - (_HEIGHT - 8)
    for number in range(len(placed) - 1, -1, -1):
        limit = _HEIGHT - 8 if number == len(placed) - 1 else placed[number + 1] - step
        placed[number] = min(placed[number], limit) if overflow > 0 else placed[number]
    for line, at in zip(wanted, placed, strict=True):
        line["label_y"] = _number(at)


def _number(value: float) -> str:
    return f"{value:.1f}"
