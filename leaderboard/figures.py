"""The figures of the site: rSum against noise ratio, during training, and with intervals."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Literal, TypeVar

from leaderboard.board import Board
from leaderboard.entries import Cell, Entry
from leaderboard.measured import MeasuredTable, mean_curve
from leaderboard.rendering import markup
from leaderboard.svg import Curve, curves, forest_chart
from ncl_bench.papers import Paper

Charts = list[tuple[str, object]]
MOST_CURVES = 8
REFERENCE_RATIO = 0.4
Key = TypeVar("Key", str, tuple[str, ...])
_LONGEST_NAME = 26


def method_charts(boards: Iterable[Board], papers: Mapping[str, Paper]) -> Charts:
    """One chart per dataset, protocol and noise unit, with one curve per name and paper of a method."""
    return _charts(boards, lambda entry: _with_paper(entry, papers), lambda entry: entry.kind == "method")


def overview_charts(boards: Iterable[Board], papers: Mapping[str, Paper]) -> Charts:
    """One chart per protocol and noise unit: the best curves of comparable, undoubted region-feature entries."""

    def wanted(entry: Entry) -> bool:
        return entry.comparable and entry.features == "region" and not entry.extra

    known = (board for board in boards if board.cell.noise_unit != "unknown")
    return _charts(known, lambda entry: _with_paper(entry, papers), wanted)


def best_curves(entries: Sequence[Entry], name: Callable[[Entry], str]) -> list[Curve]:
    """Curves of entries of one dataset, protocol and unit that are best at ``REFERENCE_RATIO``."""
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
    """Keys of lines of entries by noise ratio: best at ``REFERENCE_RATIO`` first, then those without it.

    Lines with a preliminary entry come last.
    """

    def key(label: Key) -> tuple[bool, bool, float]:
        points = lines[label]
        at = points.get(REFERENCE_RATIO)
        sums = [entry.r_sum or 0.0 for entry in points.values()]
        preliminary = any(entry.preliminary for entry in points.values())
        return preliminary, at is None, -(sum(sums) / len(sums) if at is None else at.r_sum or 0.0)

    return sorted(sorted(lines), key=key)


def plain_chart(boards: Sequence[Board], papers: Mapping[str, Paper]) -> str:
    """The plot of README.md as a file of its own; of measured entries if there are any.

    Returns:
        SVG text; empty if no method has entries at two noise ratios.
    """

    def wanted(entry: Entry) -> bool:
        return (
            entry.comparable
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
    """The method's name, with the paper that prints the number if it is not the method's own."""
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


def forest(table: MeasuredTable, cell: Cell) -> object:
    """All rows of a measured table under one noise: mean, interval, last epoch, and bars over similar rows."""
    rows = table.places[cell]
    return markup(
        forest_chart(
            rows,
            [table.lines[place.line].title for place in rows],
            table.groups[cell],
            title=f"rSum on test, {cell.title}",
        )
    )


def epoch_curves(table: MeasuredTable, cell: Cell, of: Literal["auroc", "dev"]) -> list[tuple[str, object]]:
    """Curves over the steps under one noise, of the best lines: detection AUROC in percent, or rSum on dev.

    Returns:
        Label and markup, for the default and the tuned recipes, if there are any.
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
            # names of a method's variants differ at their ends, so cut the middle
            short = name if len(name) <= _LONGEST_NAME else f"{name[:7]}…{name[8 - _LONGEST_NAME :]}"
            series.append(Curve(short, tuple((x, factor * y, 0.0) for x, y in points), marks=False))
    if not series:
        return None
    shown = series[:MOST_CURVES]
    return markup(curves(shown, title=f"{title}, {cell.title}", x_title="steps", y_title=title))
