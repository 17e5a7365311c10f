"""The static site: pages from templates, one style sheet, one script; no server, no external request."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leaderboard.boards import PROTOCOLS, Board, Division, boards_of, cell_title
from leaderboard.cards import card_html
from leaderboard.charts import bar_charts, method_charts, overview_charts
from leaderboard.content import Content
from leaderboard.methods import Family, family_recipes
from leaderboard.rendering import render
from leaderboard.rows import RECALL_TITLES, STATUSES, Cell, Row
from ncl_bench.datasets import DATASETS
from ncl_bench.protocol import PROTOCOL_VERSION

STATIC = Path(__file__).parent / "static"
_ANSWERED = ("single", "ensemble", "pretrained")


@dataclass(frozen=True)
class Gap:
    """A number measured here beside the number that the method's own paper prints for the same cell."""

    paper: Row
    ours: Row

    @property
    def remarks(self) -> list[str]:
        """What explains the gap, as far as the two rows say."""
        chosen = self.paper.selection == "test" != self.ours.selection
        remarks = ["The printed row was chosen on the test split."] if chosen else []
        if self.paper.noise != self.ours.noise:
            noises = [row.noise or "the standard draw" for row in (self.paper, self.ours)]
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
        content: all rows and what they refer to.
        cards: folder with the dataset cards.
    """
    boards, families = content.boards, content.families
    used = [key for key in families if any(row.family == key for row in content.rows)]
    pages = {"site.css": _static("site.css"), "site.js": _static("site.js"), "index.html": _index(content)}
    pages["methods/index.html"] = _page(
        "methods.html",
        "methods/index.html",
        entries=[(key, families[key], sum(row.family == key for row in content.rows)) for key in used],
        has_recipes={key: bool(family_recipes(families[key])) for key in used},
    )
    for key in used:
        pages[f"methods/{key}.html"] = _method(key, families[key], content)
    specs = [(spec, sum(row.cell.dataset == spec.name for row in content.rows)) for spec in DATASETS.values()]
    pages["datasets/index.html"] = _page("datasets.html", "datasets/index.html", entries=specs)
    for spec, _ in specs:
        own = [board for board in boards if board.cell.dataset == spec.name]
        pages[f"datasets/{spec.name}.html"] = _page(
            "dataset.html",
            "datasets/page",
            spec=spec,
            card=card_html(cards / f"{spec.name}.md"),
            lines=_picker(own),
            charts=overview_charts(own, content.sources),
        )
    rows_of = {key: sum(row.source == key for row in content.rows) for key in content.sources}
    pages["downloads.html"] = _page(
        "downloads.html",
        "downloads.html",
        cells=[board.cell for board in boards],
        sources=content.sources,
        rows_of=rows_of,
    )
    pages["submit.html"] = _page("submit.html", "submit.html")
    return pages


def value_of(row: Row, name: str) -> float | None:
    """A recall by name, or ``r_sum``."""
    return row.r_sum if name == "r_sum" else getattr(row.recalls, name)


def _page(template: str, here: str, **values: Any) -> str:
    return render(
        template,
        here=here,
        up="../" * here.count("/"),
        protocol_version=PROTOCOL_VERSION,
        recall_titles=list(RECALL_TITLES.items()),
        cell_title=cell_title,
        value_of=value_of,
        **values,
    )


def _static(name: str) -> str:
    text = (STATIC / name).read_text(encoding="utf-8")
    figure = (Path(__file__).parent / "templates" / "figure.css").read_text(encoding="utf-8")
    return text.replace("/* figure.css */", figure.rstrip("\n"))


def _index(content: Content) -> str:
    counts = [(name, sum(row.status == name for row in content.rows)) for name in STATUSES]
    return _page(
        "index.html",
        "index.html",
        boards=content.boards,
        shown_first=_shown_first(content.boards),
        counts=counts,
        lines=_picker(content.boards),
        answers={board.cell.slug: _answers(board) for board in content.boards},
        sources=content.sources,
    )


def _shown_first(boards: Sequence[Board]) -> str:
    """The cell that most readers ask for: 40 % caption noise on the first dataset, else the fullest one."""
    wanted = [
        board for board in boards if board.cell.noise_unit == "caption" and board.cell.noise_ratio == 0.4
    ]
    best = wanted[:1] or sorted(boards, key=lambda board: -len(board.rows))[:1]
    return best[0].cell.slug if best else ""


def _answers(board: Board) -> list[tuple[Division, Row]]:
    divisions = [division for division in board.divisions if division.key in _ANSWERED and division.best]
    return [(division, division.best) for division in divisions if division.best is not None]


def _picker(boards: Sequence[Board]) -> list[Line]:
    lines: dict[tuple[str, str], dict[str, list[tuple[Cell, str]]]] = {}
    for cell in (board.cell for board in boards):
        units = lines.setdefault((cell.dataset, cell.protocol), {})
        label = (
            f"{cell.percent} %"
            if cell.noise_ratio
            else "clean"
            if cell.noise_unit == "none"
            else cell.text or "all"
        )
        name = f"{cell.noise_unit} {cell.text}".strip() if cell.noise_ratio else ""
        units.setdefault(name if cell.noise_ratio else cell.noise_unit, []).append((cell, label))
    titles = {"none": "no noise"}
    return [
        Line(
            dataset,
            DATASETS[dataset].title,
            PROTOCOLS.get(protocol, protocol),
            [(titles.get(unit, unit), cells) for unit, cells in units.items()],
        )
        for (dataset, protocol), units in lines.items()
    ]


def _method(key: str, family: Family, content: Content) -> str:
    rows = [row for row in content.rows if row.family == key]
    boards = boards_of(rows)
    return _page(
        "method.html",
        "methods/page",
        family=family,
        paper=content.sources.get(family.source),
        recipes=family_recipes(family),
        gaps=_gaps(rows, family),
        charts=method_charts(boards, content.sources),
        bar_charts=bar_charts(rows),
        runs=[row for row in content.single if row.family == key and row.status != "reported"],
        boards=boards,
        sources=content.sources,
    )


def _gaps(rows: Sequence[Row], family: Family) -> list[Gap]:
    """Rows of the method's own paper, paired with ours of the same cell, backbone and number of networks."""
    printed = [
        row
        for row in rows
        if row.status == "reported" and row.source == family.source and row.kind == "entry"
    ]
    ours = [row for row in rows if row.status != "reported"]
    same = ((paper, mine) for paper in printed for mine in ours if paper.cell == mine.cell)
    return [
        Gap(paper, mine)
        for paper, mine in same
        if paper.backbone == mine.backbone and paper.networks == mine.networks and paper.r_sum is not None
    ]
