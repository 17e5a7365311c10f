"""The static site: pages from templates, one style sheet, one script; no server, no external request."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leaderboard.board import Board, Content, Division, boards_of
from leaderboard.entries import PROTOCOLS, RECALL_TITLES, STATUSES, Cell, Entry
from leaderboard.figures import bar_charts, epoch_curves, forest, method_charts, overview_charts
from leaderboard.measured import detection, drops, measured_tables
from leaderboard.methods import Family, family_recipes
from leaderboard.rendering import card_html, render
from ncl_bench.data import DATASETS
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION

STATIC = Path(__file__).parent / "static"
_ANSWERED = ("single", "ensemble", "pretrained")
_UNITS = {"none": "no noise", "unknown": "unit unknown"}


@dataclass(frozen=True)
class Gap:
    """A number measured here beside the number that the method's own paper prints for the same cell."""

    paper: Entry
    ours: Entry

    @property
    def remarks(self) -> list[str]:
        """What explains the gap, as far as the two entries say."""
        chosen = self.paper.selection == "test" != self.ours.selection
        remarks = ["The printed row was chosen on the test split."] if chosen else []
        if self.paper.noise != self.ours.noise:
            noises = [entry.noise or "the standard draw" for entry in (self.paper, self.ours)]
            remarks.append(f"The printed row has other noise ({noises[0]}) than ours ({noises[1]}).")
        return [*remarks, *self.ours.notes]


@dataclass(frozen=True)
class Line:
    """One line of the picker: a dataset under one protocol, its units, and the cells of each."""

    dataset: str
    title: str
    protocol: str
    units: list[tuple[str, list[tuple[Cell, str]]]]


def site_files(content: Content, cards: Path) -> dict[str, str]:
    """Text of every page, by path below the site's folder.

    Args:
        content: all entries and what they refer to.
        cards: folder with the dataset cards.
    """
    boards, families = content.boards, content.families
    of_family = Counter(entry.family for entry in content.entries)
    used = [key for key in families if of_family[key]]
    pages = {"site.css": _static("site.css"), "site.js": _static("site.js"), "index.html": _index(content)}
    pages["methods/index.html"] = _page(
        "methods.html",
        "methods/index.html",
        methods=[(key, families[key], of_family[key]) for key in used],
        has_recipes={key: bool(family_recipes(families[key])) for key in used},
    )
    for key in used:
        pages[f"methods/{key}.html"] = _method(key, families[key], content)
    of_dataset = Counter(entry.cell.dataset for entry in content.entries)
    specs = [(spec, of_dataset[spec.name]) for spec in DATASETS.values()]
    pages["datasets/index.html"] = _page("datasets.html", "datasets/index.html", datasets=specs)
    for spec, _ in specs:
        own = [board for board in boards if board.cell.dataset == spec.name]
        pages[f"datasets/{spec.name}.html"] = _page(
            "dataset.html",
            "datasets/page",
            spec=spec,
            card=card_html(cards / f"{spec.name}.md"),
            lines=_picker(own),
            charts=overview_charts(own, content.papers),
        )
    pages |= _measured(content)
    pages["downloads.html"] = _page(
        "downloads.html",
        "downloads.html",
        cells=[board.cell for board in boards],
        papers=content.papers,
        rows_of=Counter(entry.source for entry in content.entries),
    )
    pages["submit.html"] = _page("submit.html", "submit.html")
    return pages


def _measured(content: Content) -> dict[str, str]:
    """The pages of the measured tables and of what their methods detect."""
    tables = measured_tables(content)
    noisy = [
        (table, [cell for cell in table.cells if any(map(detection, table.entries(cell)))])
        for table in tables
    ]
    return {
        "measured.html": _page(
            "measured.html",
            "measured.html",
            tables=tables,
            forests={(table.slug, cell): forest(table, cell) for table in tables for cell in table.cells},
            curves={(t.slug, cell): epoch_curves(t, cell, "dev") for t in tables for cell in t.cells},
            drops={table.slug: drops(table, content) for table in tables},
        ),
        "detection.html": _page(
            "detection.html",
            "detection.html",
            tables=[(table, cells) for table, cells in noisy if cells],
            detection=detection,
            curves={(t.slug, cell): epoch_curves(t, cell, "auroc") for t, cells in noisy for cell in cells},
        ),
    }


def value_of(entry: Entry, name: str) -> float | None:
    """A recall by name, or ``r_sum``."""
    return entry.r_sum if name == "r_sum" else getattr(entry.recalls, name)


def _page(template: str, here: str, **values: Any) -> str:
    return render(
        template,
        here=here,
        up="../" * here.count("/"),
        protocol_version=PROTOCOL_VERSION,
        recall_titles=list(RECALL_TITLES.items()),
        value_of=value_of,
        **values,
    )


def _static(name: str) -> str:
    text = (STATIC / name).read_text(encoding="utf-8")
    figure = (Path(__file__).parent / "templates" / "figure.css").read_text(encoding="utf-8")
    return text.replace("/* figure.css */", figure.rstrip("\n"))


def _index(content: Content) -> str:
    of_status = Counter(entry.status for entry in content.entries)
    return _page(
        "index.html",
        "index.html",
        boards=content.boards,
        shown_first=_shown_first(content.boards),
        counts=[(name, of_status[name]) for name in STATUSES],
        lines=_picker(content.boards),
        answers={board.cell.slug: _answers(board) for board in content.boards},
        papers=content.papers,
    )


def _shown_first(boards: Sequence[Board]) -> str:
    """The cell that most readers ask for: 40 % caption noise on the first dataset, else the fullest one."""
    wanted = [
        board for board in boards if board.cell.noise_unit == "caption" and board.cell.noise_ratio == 0.4
    ]
    best = wanted[:1] or sorted(boards, key=lambda board: -len(board.entries))[:1]
    return best[0].cell.slug if best else ""


def _answers(board: Board) -> list[tuple[Division, Entry]]:
    divisions = [division for division in board.divisions if division.key in _ANSWERED and division.best]
    return [(division, division.best) for division in divisions if division.best is not None]


def _picker(boards: Sequence[Board]) -> list[Line]:
    lines: dict[tuple[str, str], dict[str, list[tuple[Cell, str]]]] = {}
    for cell in (board.cell for board in boards):
        units = lines.setdefault((cell.dataset, cell.protocol), {})
        unit = _UNITS.get(cell.noise_unit, cell.noise_unit)
        if cell.percent:
            units.setdefault(f"{unit} {cell.text}".strip(), []).append((cell, f"{cell.percent} %"))
        else:
            units.setdefault(unit, []).append((cell, cell.text or "all"))
    return [
        Line(
            dataset,
            DATASETS[dataset].title,
            PROTOCOLS.get(protocol, protocol),
            list(units.items()),
        )
        for (dataset, protocol), units in lines.items()
    ]


def _method(key: str, family: Family, content: Content) -> str:
    entries = [entry for entry in content.entries if entry.family == key]
    boards = boards_of(entries)
    return _page(
        "method.html",
        "methods/page",
        family=family,
        paper=content.papers.get(family.source),
        recipes=family_recipes(family),
        gaps=_gaps(entries, family),
        charts=method_charts(boards, content.papers),
        bar_charts=bar_charts(entries),
        runs=[entry for entry in content.unmerged if entry.family == key and entry.status != "reported"],
        boards=boards,
        papers=content.papers,
    )


def _gaps(entries: Sequence[Entry], family: Family) -> list[Gap]:
    """Entries of the method's own paper, paired with ours of the same cell, backbone and number of networks."""
    printed = [
        entry
        for entry in entries
        if entry.status == "reported" and entry.source == family.source and entry.kind == "method"
    ]
    ours = [entry for entry in entries if entry.status != "reported"]
    same = ((paper, mine) for paper in printed for mine in ours if paper.cell == mine.cell)
    return [
        Gap(paper, mine)
        for paper, mine in same
        if paper.backbone == mine.backbone and paper.networks == mine.networks and paper.r_sum is not None
    ]
