"""SVG figures from our own templates: the same bytes on every machine, colours from a style sheet."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leaderboard.rendering import render

N_COLOURS = 8
_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 176, 16, 44


@dataclass(frozen=True)
class Curve:
    """One line of a figure: a name and ``(x, y, spread)`` points; spread 0 draws no whisker."""

    name: str
    points: tuple[tuple[float, float, float], ...]
    solid: bool = True


@dataclass(frozen=True)
class Bar:
    """One bar: a label, a value in percent, and the ends of its whisker (equal to the value for none)."""

    label: str
    value: float
    low: float
    high: float


def curves(
    series: Sequence[Curve], *, title: str, x_title: str, y_title: str, standalone: bool = False
) -> str:
    """A line chart as SVG text.

    Args:
        series: at least one curve; colours and dashes repeat after ``N_COLOURS``.
        title: read by screen readers and shown on hover.
        x_title: axis title; x values are percentages.
        y_title: axis title.
        standalone: write a file that carries its own style, rather than a figure inside a page.
    """
    xs = sorted({point[0] for curve in series for point in curve.points})
    ends = [y + sign * spread for curve in series for _, y, spread in curve.points for sign in (-1, 1)]
    y_ticks = ticks(max(min(ends), 0.0), max(ends))
    x_low, x_high = (xs[0], xs[-1]) if len(xs) > 1 else (xs[0] - 10, xs[0] + 10)
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> str:
        return _number(_LEFT + 12 + (plot_width - 24) * (value - x_low) / (x_high - x_low))

    def y(value: float) -> str:
        return _number(_TOP + plot_height * (y_ticks[-1] - value) / (y_ticks[-1] - y_ticks[0]))

    lines = [
        {
            "name": curve.name,
            "colour": number % N_COLOURS,
            "dashed": not curve.solid,
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
        x_ticks=[(x(value), f"{value:g}") for value in xs],
        y_ticks=[(y(value), f"{value:g}") for value in y_ticks],
        title=title,
        x_title=x_title,
        y_title=y_title,
        standalone=standalone,
        box={"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "right": _WIDTH - _RIGHT, "top": _TOP}
        | {"bottom": _HEIGHT - _BOTTOM},
    ).strip()


def bars(groups: Mapping[str, Sequence[Bar]], *, title: str) -> str:
    """Recall bars with whiskers as SVG text; one row of bars per label, one block per group.

    Args:
        groups: block title to bars; values in [0, 100].
        title: read by screen readers and shown on hover.
    """
    left, width, step, gap = 52, 250, 22, 30
    blocks, top = [], 4
    for name, members in groups.items():
        placed = []
        for number, bar in enumerate(members):
            scale = [_number(left + width * value / 100) for value in (bar.value, bar.low, bar.high)]
            length = _number(width * bar.value / 100)
            placed.append({"bar": bar, "y": top + gap + step * number, "length": length, "ends": scale})
        blocks.append({"name": name, "y": top + 18, "bars": placed})
        top += gap + step * len(members) + 8
    return render("bars.svg.j2", blocks=blocks, title=title, left=left, width=width, height=top + 4).strip()


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers that enclose ``low`` and ``high``."""
    span = max(high - low, 1.0)
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= span / 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def _place_labels(lines: list[dict[str, object]]) -> None:
    """Put each curve's name beside its last point, moved apart so that names do not overlap."""
    step = 15.0
    wanted = sorted(lines, key=lambda line: float(line["points"][-1][1]))  # type: ignore[index]
    placed: list[float] = []
    for line in wanted:
        at = float(line["points"][-1][1])  # type: ignore[index]
        placed.append(max(at, placed[-1] + step) if placed else at)
    overflow = (placed[-1] if placed else 0.0) - (_HEIGHT - 8)
    for number in range(len(placed) - 1, -1, -1):
        limit = _HEIGHT - 8 if number == len(placed) - 1 else placed[number + 1] - step
        placed[number] = min(placed[number], limit) if overflow > 0 else placed[number]
    for line, at in zip(wanted, placed, strict=True):
        line["label_y"] = _number(at)


def _number(value: float) -> str:
    return f"{value:.1f}"
