"""The static site: pages from templates, one style sheet and one script; no server, no external request."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from leaderboard.ablations import ablation_tables
from leaderboard.board import Board, Content, Division, boards_of
from leaderboard.entries import RECALL_TITLES, SEEDS_FOR_A_RANK, STATUSES, Cell, Entry
from leaderboard.figures import epoch_curves, forest, method_charts, overview_charts
from leaderboard.measured import PRECISION_AT, detection, drops, found_pairs, measured_tables
from leaderboard.methods import family_recipes
from leaderboard.rendering import card_html, render
from ncl_bench.data import DATASETS
from ncl_bench.data.pair_labels import FEWEST, read_pair_labels
from ncl_bench.data.spec import DatasetSpec, protocol_title
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION
from ncl_bench.noise.draw import clean_pairing
from ncl_bench.noise.similar import share_without_common_word
from ncl_bench.papers import Family

STATIC = Path(__file__).parent / "static"
_ANSWERED = ("single", "ensemble", "pretrained")
"""Groups of a table whose best row is named."""


@dataclass(frozen=True)
class Gap:
    """A number measured here beside the one that the method's own paper prints for the same cell."""

    paper: Entry
    ours: Entry

    @property
    def remarks(self) -> list[str]:
        """Explanations of the gap, as far as the two entries give them."""
        chosen = self.paper.selection == "test" != self.ours.selection
        remarks = ["The printed checkpoint was chosen on the test split."] if chosen else []
        if self.paper.noise != self.ours.noise:
            noises = [entry.noise or "the standard draw" for entry in (self.paper, self.ours)]
            remarks.append(f"Different noise: printed {noises[0]}, ours {noises[1]}.")
        return [*remarks, *self.ours.notes]


@dataclass(frozen=True)
class Line:
    """A dataset under one protocol in the picker, with its tables in order."""

    key: str
    title: str
    cells: list[Cell]


def site_files(content: Content, cards: Path, links: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Render every page, by path in the site's folder.

    Args:
        content: everything that the leaderboard shows.
        cards: folder of the dataset cards.
        links: label and address of more links in the header; addresses on the site are relative to its folder.
    """
    families, of_family = content.families, Counter(entry.family for entry in content.entries)
    of_dataset = Counter(entry.cell.dataset for entry in content.entries)
    used = [key for key in families if of_family[key]]
    pages: dict[str, tuple[str, dict[str, Any]]] = {
        "index.html": ("index.html", _index(content)),
        "methods/index.html": (
            "methods.html",
            {
                "methods": [(key, families[key], of_family[key]) for key in used],
                "has_recipes": {key: bool(family_recipes(families[key])) for key in used},
            },
        ),
        "datasets/index.html": (
            "datasets.html",
            {"datasets": [(spec, of_dataset[spec.name]) for spec in DATASETS.values()]},
        ),
        "papers.html": (
            "papers.html",
            {"papers": content.papers, "rows_of": Counter(entry.source for entry in content.entries)},
        ),
        "downloads.html": ("downloads.html", {"cells": [board.cell for board in content.boards]}),
        "submit.html": ("submit.html", {}),
        "ablations.html": (
            "ablations.html",
            {"tables": ablation_tables(content.entries, content.told_apart)},
        ),
        **_measured(content),
    }
    for key in used:
        pages[f"methods/{key}.html"] = ("method.html", _method(key, families[key], content))
    for spec in DATASETS.values():
        pages[f"datasets/{spec.name}.html"] = ("dataset.html", _dataset(spec, content, cards))
    rendered = {path: _page(template, path, links, values) for path, (template, values) in pages.items()}
    return {"site.css": _static("site.css"), "site.js": _static("site.js"), **rendered}


def repository_link() -> list[tuple[str, str]]:
    """Label and address of the source code, from ``[project.urls]`` of pyproject.toml; empty if it has none."""
    try:
        urls = [line.partition(", ") for line in metadata("ncl-bench").get_all("Project-URL", [])]
    except PackageNotFoundError:
        return []
    return [(label, url) for label, _, url in urls if label == "Repository"]


def _measured(content: Content) -> dict[str, tuple[str, dict[str, Any]]]:
    """Pages of the measured tables and of detection."""
    tables = measured_tables(content)
    noisy = [
        (table, [cell for cell in table.cells if any(map(detection, table.entries(cell)))])
        for table in tables
    ]
    return {
        "measured.html": (
            "measured.html",
            {
                "tables": tables,
                "forests": {
                    (table.slug, cell): forest(table, cell) for table in tables for cell in table.cells
                },
                "curves": {(t.slug, cell): epoch_curves(t, cell, "dev") for t in tables for cell in t.cells},
                "drops": {table.slug: drops(table, content) for table in tables},
            },
        ),
        "detection.html": (
            "detection.html",
            {
                "tables": [(table, cells) for table, cells in noisy if cells],
                "detection": detection,
                "found_pairs": found_pairs,
                "precision_at": PRECISION_AT,
                "printed": content.printed_detection,
                "labelled": _labelled(),
                "fewest": FEWEST,
                "curves": {
                    (t.slug, cell): epoch_curves(t, cell, "auroc") for t, cells in noisy for cell in cells
                },
            },
        ),
    }


def _labelled() -> list[tuple[str, int, int]]:
    """Datasets of natural noise whose pairs are labelled: title, labelled pairs, and wrong ones among them."""
    labels = [
        (spec.title, list(read_pair_labels(spec.pair_labels, spec).values()))
        for spec in DATASETS.values()
        if spec.pair_labels is not None
    ]
    return [(title, len(found), found.count("wrong")) for title, found in labels]


def value_of(entry: Entry, name: str) -> float | None:
    """A recall by name, or ``r_sum``."""
    return entry.r_sum if name == "r_sum" else getattr(entry.recalls, name)


def _page(template: str, path: str, links: Sequence[tuple[str, str]], values: Mapping[str, Any]) -> str:
    return render(
        template,
        here=path,
        up="../" * path.count("/"),
        links=links,
        protocol_version=PROTOCOL_VERSION,
        recall_titles=list(RECALL_TITLES.items()),
        value_of=value_of,
        **values,
    )


def _static(name: str) -> str:
    text = (STATIC / name).read_text(encoding="utf-8")
    figure = (Path(__file__).parent / "templates" / "figure.css").read_text(encoding="utf-8")
    return text.replace("/* figure.css */", figure.rstrip("\n"))


def _index(content: Content) -> dict[str, Any]:
    of_status = Counter(entry.status for entry in content.entries)
    return {
        "boards": content.boards,
        "shown_first": _shown_first(content.boards),
        "copied": _copied(content.boards),
        "counts": [(name, of_status[name]) for name in STATUSES],
        "lines": _picker(content.boards),
        "answers": {board.cell.slug: _answers(board) for board in content.boards},
        "papers": content.papers,
        "seeds_for_a_rank": SEEDS_FOR_A_RANK,
        "strangers": _without_common_word([board.cell for board in content.boards]),
    }


def _without_common_word(cells: Iterable[Cell]) -> dict[str, float]:
    """By slug: share of the wrong pairs without a common word, for the unit ``similar`` on embedded datasets."""
    shares = {}
    for cell in cells:
        captions = DATASETS[cell.dataset].train_captions() if cell.noise_unit == "similar" else None
        if captions is not None and cell.noise_ratio:
            spec = DATASETS[cell.dataset]
            paired, _ = spec.draw_noise(noise_ratio=cell.noise_ratio, noise_unit="similar")
            clean = clean_pairing(spec.images["train"], spec.captions_per_image)
            shares[cell.slug] = share_without_common_word(captions, clean, paired)
    return shares


def _copied(boards: Sequence[Board]) -> list[str]:
    """Titles of the datasets with rows from papers only."""
    statuses: dict[str, set[str]] = {}
    for board in boards:
        statuses.setdefault(board.cell.dataset, set()).update(entry.status for entry in board.entries)
    return [DATASETS[name].title for name, found in statuses.items() if found == {"reported"}]


def _shown_first(boards: Sequence[Board]) -> str:
    """The most requested cell: 40 % caption noise on the first dataset, else the fullest one."""
    wanted = [
        board for board in boards if board.cell.noise_unit == "caption" and board.cell.noise_ratio == 0.4
    ]
    best = wanted[:1] or sorted(boards, key=lambda board: -len(board.entries))[:1]
    return best[0].cell.slug if best else ""


def _answers(board: Board) -> list[tuple[Division, Entry]]:
    divisions = [division for division in board.divisions if division.key in _ANSWERED and division.best]
    return [(division, division.best) for division in divisions if division.best is not None]


def _picker(boards: Sequence[Board]) -> list[Line]:
    lines: dict[str, Line] = {}
    for cell in (board.cell for board in boards):
        key = f"{cell.dataset}-{cell.protocol}"
        lines.setdefault(key, Line(key, _dataset_title(cell), [])).cells.append(cell)
    return list(lines.values())


def _dataset_title(cell: Cell) -> str:
    return f"{DATASETS[cell.dataset].title}, {protocol_title(cell.protocol)}"


def _dataset(spec: DatasetSpec, content: Content, cards: Path) -> dict[str, Any]:
    boards = [board for board in content.boards if board.cell.dataset == spec.name]
    return {
        "spec": spec,
        "boards": boards,
        "protocol_title": protocol_title,
        "answers": {board.cell.slug: _answers(board) for board in boards},
        "charts": overview_charts(boards, content.papers),
        "card": card_html(cards / f"{spec.name}.md"),
    }


def _method(key: str, family: Family, content: Content) -> dict[str, Any]:
    entries = [entry for entry in content.entries if entry.family == key]
    boards = boards_of(entries)
    source = content.papers.get(family.source)
    datasets = [
        (title, list(members)) for title, members in groupby(boards, lambda board: _dataset_title(board.cell))
    ]
    return {
        "family": family,
        "paper": family.paper or source,
        "code": source.code if source else "",
        "recipes": family_recipes(family),
        "gaps": _gaps(entries, family),
        "charts": method_charts(boards, content.papers),
        "runs": [entry for entry in content.unmerged if entry.family == key and entry.status != "reported"],
        "datasets": [(title, found, sum(len(board.entries) for board in found)) for title, found in datasets],
        "papers": content.papers,
    }


def _gaps(entries: Sequence[Entry], family: Family) -> list[Gap]:
    """Pair entries of the method's own paper with ours of the same cell, backbone and number of networks."""
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
