"""Charts as SVG text: lines over an axis, and rows with intervals.

They use our own templates instead of matplotlib because they are part of the pages: their colours follow the page's
light or dark theme, every point has a title for screen readers and the pointer, no two charts share an element id, and
library versions change no byte.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leaderboard.measured import Place
from leaderboard.rendering import render

N_COLOURS = 8
_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 176, 16, 44


@dataclass(frozen=True)
class Curve:
    """A line of a figure: a name and ``(x, y, spread)`` points; spread 0 draws no whisker.

    Attributes:
        solid: draw a solid line instead of a dashed one.
        marks: draw the points, as for measured ones.
    """

    name: str
    points: tuple[tuple[float, float, float], ...]
    solid: bool = True
    marks: bool = True


def curves(
    series: Sequence[Curve], *, title: str, x_title: str, y_title: str, standalone: bool = False
) -> str:
    """Draw a line chart as SVG text. A curve below the axis is cut at its edge, and its name has a ↓.

    Args:
        series: at least one curve; colours and dashes repeat after ``N_COLOURS``.
        title: read by screen readers and shown on hover.
        x_title: axis title.
        y_title: axis title.
        standalone: write a file with its own style, instead of a figure inside a page.
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


def forest_chart(
    places: Sequence[Place], names: Sequence[str], groups: Sequence[tuple[int, int]], *, title: str
) -> str:
    """Draw rows from top to bottom as SVG text; bars on the right join rows that do not differ significantly.

    The axis is scaled to the best rows; a row below it is marked.

    Args:
        places: best first.
        names: names of the rows.
        groups: first and last row of each bar.
        title: read by screen readers and shown on hover.
    """
    left, width, step, top = 16 + 7 * max(map(len, names)), 300, 22, 8
    right, bottom = left + width, top + step * len(places) + 4
    sums = [place.entry.r_sum or 0.0 for place in places]
    ends = [end for place in places for end in (place.interval or ())]
    ends += [place.entry.last_epoch for place in places if place.entry.last_epoch is not None]
    worst, best = min([*sums, *ends]), max(sums)
    focus = best - 3 * (best - float(np.median(sums)))  # shows at least the better half
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


def _few(xs: list[float]) -> list[float]:
    """The values of an axis if they are few, else round ones between them."""
    return xs if len(xs) <= 10 else [value for value in ticks(xs[0], xs[-1]) if xs[0] <= value <= xs[-1]]


def _place_labels(lines: list[dict[str, object]]) -> None:
    """Put each curve's name beside its last point, moved so that names do not overlap."""
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
