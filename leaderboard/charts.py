"""Which figures a page shows: rSum against noise ratio, and recalls with their intervals."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from leaderboard.boards import Board, cell_title
from leaderboard.figures import Bar, Curve, bars, curves
from leaderboard.published import Source
from leaderboard.rows import RECALLS, Cell, Row

Charts = list[tuple[str, object]]
MOST_CURVES = 8
REFERENCE_RATIO = 0.4
Key = TypeVar("Key", str, tuple[str, ...])


def method_charts(boards: Iterable[Board], sources: Mapping[str, Source]) -> Charts:
    """One chart per dataset, protocol and noise unit: a curve per name and source of a method."""
    return _charts(boards, lambda row: _with_source(row, sources), lambda row: row.kind == "entry")


def overview_charts(boards: Iterable[Board], sources: Mapping[str, Source]) -> Charts:
    """One chart per protocol and noise unit: the best curves of comparable, undoubted region-feature rows."""

    def wanted(row: Row) -> bool:
        return row.ranked and row.features == "region" and not row.extra

    known = (board for board in boards if board.cell.noise_unit != "unknown")
    return _charts(known, lambda row: _with_source(row, sources), wanted)


def best_curves(rows: Sequence[Row], name: Callable[[Row], str]) -> list[Curve]:
    """The curves of rows of one dataset, protocol and unit that are best at ``REFERENCE_RATIO``."""
    lines: dict[str, dict[float, Row]] = {}
    for row in rows:
        if row.cell.noise_ratio is not None and row.r_sum is not None:
            points = lines.setdefault(name(row), {})
            held = points.get(row.cell.noise_ratio)
            if held is None or (held.r_sum or 0) < row.r_sum:
                points[row.cell.noise_ratio] = row
    several = {label: points for label, points in lines.items() if len(points) > 1}
    chosen = by_reference(several)[:MOST_CURVES]
    return [
        Curve(label, _points(lines[label].values()), _measured(lines[label].values())) for label in chosen
    ]


def by_reference(lines: Mapping[Key, Mapping[float, Row]]) -> list[Key]:
    """Keys of lines of rows by noise ratio: best at ``REFERENCE_RATIO`` first, those without it last."""

    def key(label: Key) -> tuple[bool, float]:
        points = lines[label]
        at = points.get(REFERENCE_RATIO)
        sums = [row.r_sum or 0.0 for row in points.values()]
        return at is None, -(sum(sums) / len(sums) if at is None else at.r_sum or 0.0)

    return sorted(sorted(lines), key=key)


def bar_charts(rows: Iterable[Row]) -> Charts:
    """One bar chart per measured row: six recalls, with bootstrap intervals or the deviation over seeds."""
    measured = sorted((row for row in rows if row.intervals or row.spread), key=lambda row: row.cell.order)
    return [
        (
            f"{row.label} {row.backbone}, {cell_title(row.cell)}. Whiskers: "
            + (
                f"standard deviation over {len(row.seeds)} seeds."
                if row.spread
                else "95 % bootstrap interval."
            ),
            _markup(_recall_bars(row)),
        )
        for row in measured
    ]


def plain_chart(boards: Sequence[Board], sources: Mapping[str, Source]) -> str:
    """The plot that stands in README.md, as a file of its own: of measured rows where there are some.

    Returns:
        SVG text; empty where no method has rows at two noise ratios.
    """

    def wanted(row: Row) -> bool:
        return row.ranked and row.features == "region" and not row.extra and row.cell.noise_unit != "unknown"

    measured = any(row.status != "reported" for board in boards for row in board.rows)
    for title, series in _series(
        boards,
        lambda row: _with_source(row, sources),
        lambda row: wanted(row) and measured == (row.status != "reported"),
    ):
        return curves(series, title=title, x_title="noise ratio, %", y_title="rSum", standalone=True) + "\n"
    return ""


def _charts(boards: Iterable[Board], name: Callable[[Row], str], wanted: Callable[[Row], bool]) -> Charts:
    return [
        (title, _markup(curves(series, title=title, x_title="noise ratio, %", y_title="rSum")))
        for title, series in _series(boards, name, wanted)
    ]


def _series(
    boards: Iterable[Board], name: Callable[[Row], str], wanted: Callable[[Row], bool]
) -> Iterator[tuple[str, list[Curve]]]:
    """Per dataset, protocol, text and noise unit: a title and the best curves, from ratio 0 if they can."""
    noisy: dict[tuple[str, ...], list[Row]] = {}
    clean: dict[tuple[str, ...], list[Row]] = {}
    for board in boards:
        cell = board.cell
        key = (cell.dataset, cell.protocol, cell.text)
        rows = [row for row in board.rows if wanted(row)]
        if cell.noise_unit == "none":
            clean.setdefault(key, []).extend(rows)
        elif cell.noise_unit != "natural" and rows:
            noisy.setdefault((*key, cell.noise_unit), []).extend(rows)
    for group, rows in noisy.items():
        names = {name(row) for row in rows}
        series = best_curves([*(row for row in clean.get(group[:3], []) if name(row) in names), *rows], name)
        if series:
            yield f"{cell_title(_without_ratio(rows[0].cell))}: rSum against noise ratio", series


def _with_source(row: Row, sources: Mapping[str, Source]) -> str:
    """The method's name, and the paper that prints the number where that is not the method's own."""
    source = sources.get(row.source)
    foreign = source is not None and source.method != row.family
    return f"{row.label} (in {source.short.split(',')[0]})" if source and foreign else row.label


def _without_ratio(cell: Cell) -> Cell:
    return cell.model_copy(update={"noise_ratio": None})


def _points(rows: Iterable[Row]) -> tuple[tuple[float, float, float], ...]:
    return tuple(
        (round(100 * (row.cell.noise_ratio or 0.0), 6), row.r_sum or 0.0, row.spread.get("r_sum", 0.0))
        for row in rows
    )


def _measured(rows: Iterable[Row]) -> bool:
    return any(row.status != "reported" for row in rows)


def _recall_bars(row: Row) -> str:
    members: dict[str, list[Bar]] = {"Image to text": [], "Text to image": []}
    for name in RECALLS:
        value = getattr(row.recalls, name) or 0.0
        deviation = row.spread.get(name, 0.0)
        low, high = row.intervals.get(name, (max(value - deviation, 0.0), min(value + deviation, 100.0)))
        group = "Image to text" if name.startswith("i2t") else "Text to image"
        members[group].append(Bar(name[4:].replace("r", "R@"), value, low, high))
    return bars(members, title=f"Recalls of {row.label}, {cell_title(row.cell)}")


def _markup(text: str) -> object:
    from markupsafe import Markup

    return Markup(text)
