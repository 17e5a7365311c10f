"""The static site: pages from templates, one style sheet and one script; no server, no external request."""

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from baselines.recipes import beginning, split_name
from leaderboard.board import Board, Content, boards
from leaderboard.entries import RECALL_TITLES, SEEDS_FOR_A_RANK, STATUSES, Condition, Row, grouped
from leaderboard.figures import N_COLOURS, method_charts, overview_charts, scatter
from leaderboard.rendering import markup, render
from leaderboard.row_files import known_recipes
from ncl_bench.data import DATASETS
from ncl_bench.data.spec import DatasetSpec, protocol_title
from ncl_bench.evaluation.people import PRINTED
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION
from ncl_bench.noise.draw import clean_pairing
from ncl_bench.noise.similar import share_without_common_word
from ncl_bench.papers import Family, command_lines, drawn_noise

STATIC = Path(__file__).parent / "static"
_ANSWERED = ("single", "ensemble", "pretrained")
"""Groups of a table whose best row is named."""


@dataclass(frozen=True)
class JudgedBoard:
    """Agreement with experts under one condition, the best first, preliminary rows last.

    Attributes:
        rows: all rows whose agreement is known. ``interval`` of a row is 95 % over images, captions and seeds; None if
            its evidence lacks images and captions. ``rank`` is one plus the number of rows above that agree
            significantly more; None with too few seeds, and in every row if the evidence of one lacks images and
            captions.
        figure: agreement against rSum.
        differences: of the ranked rows, each row minus each column and its 95 % interval; None on the diagonal.
    """

    condition: Condition
    rows: list[Row]
    figure: str
    differences: list[list[tuple[float, float, float] | None]]


def site_files(
    content: Content,
    measured: Mapping[str, dict[str, Any]],
    cards: Path,
    links: Sequence[tuple[str, str]] = (),
) -> dict[str, str]:
    """Render every page, by path in the site's folder.

    Args:
        content: everything that the leaderboard shows.
        measured: from :func:`leaderboard.measured_tables.measured_pages`.
        cards: folder of the dataset cards.
        links: label and address of more links in the header; addresses on the site are relative to its folder.
    """
    families, rows = content.families, content.rows
    of_family = Counter(row.family for row in rows)
    used = [key for key in families if of_family[key]]
    shown = boards(rows)
    answers = {board.condition.slug: _answers(board) for board in shown}
    of_dataset = Counter(row.condition.dataset for row in rows)
    chart = measured.get("measured.html", {}).get("chart")
    named = {
        "index.html": _index(content, shown) | {"answers": answers, "chart": chart},
        **measured,
        "people.html": {"places": _judged(content), "printed": PRINTED},
        "papers.html": {"papers": content.papers, "rows_of": Counter(row.source for row in rows)},
        "downloads.html": {"conditions": [board.condition for board in shown]},
        "submit.html": {},
    }
    pages = {name: (name, values) for name, values in named.items()}
    methods = [(key, families[key], of_family[key], bool(family_recipes(families[key]))) for key in used]
    pages["methods/index.html"] = ("methods.html", {"methods": methods})
    for key in used:
        pages[f"methods/{key}.html"] = ("method.html", _method(key, families[key], content))
    datasets = [(spec, of_dataset[spec.name]) for spec in DATASETS.values()]
    pages["datasets/index.html"] = ("datasets.html", {"datasets": datasets})
    for spec in DATASETS.values():
        pages[f"datasets/{spec.name}.html"] = (
            "dataset.html",
            _dataset(spec, content, shown, cards) | {"answers": answers},
        )
    rendered = {
        path: render(
            template,
            here=path,
            up="../" * path.count("/"),
            links=links,
            protocol_version=PROTOCOL_VERSION,
            recall_titles=list(RECALL_TITLES.items()),
            **values,
        )
        for path, (template, values) in pages.items()
    }
    return {"site.css": _static("site.css"), "site.js": _static("site.js"), **rendered}


def _judged(content: Content) -> list[JudgedBoard]:
    """Rows whose agreement with people is known, by condition; the condition with the most ranked rows comes first."""
    judged = []
    for group in grouped((row for row in content.rows if row.people), attrgetter("condition")).values():
        rows = sorted(group, key=lambda row: (row.preliminary, -row.people["expert_tau_c"]))
        condition = group[0].condition
        # a method stands once in the figure: at the number of steps that most rows have, or in closed form
        budgets = [row.budget for row in rows if not row.closed_form]
        usual = max(budgets, key=budgets.count, default=None)
        shown = [row for row in rows if (row.closed_form or row.budget == usual) and not row.correction]
        levels = [(row.method, row.people["expert_tau_c"]) for row in shown if row.closed_form]
        figure = scatter(
            [
                (row.method, row.r_sum_or_0, row.people["expert_tau_c"], f"c{number % N_COLOURS}")
                for number, row in enumerate(shown)
            ],
            [PRINTED["expert_tau_c"], *levels],
            title=f"Agreement with experts against rSum, {condition.title}",
            x_title="rSum",
            y_title="experts, tau-c",
        )
        placed, differences = _by_agreement(rows, content)
        judged.append(JudgedBoard(condition, placed, figure, differences))
    return sorted(judged, key=lambda one: -sum(row.ranked for row in one.rows))


def _by_agreement(
    rows: Sequence[Row], content: Content
) -> tuple[list[Row], list[list[tuple[float, float, float] | None]]]:
    """Rows and differences of :class:`JudgedBoard`."""
    test = content.significantly_different.agreement
    intervals = {row.number: test(row) for row in rows}
    tested = [row for row in rows if not row.preliminary]
    if not all(intervals[row.number] for row in tested):
        tested = []  # a rank among a few of the rows would be read as one among all
    ranks: dict[int, int] = {}
    differences: list[list[tuple[float, float, float] | None]] = []
    for number, row in enumerate(tested):
        line = []
        for other in tested:
            interval = None if other is row else test(row, other)
            apart = row.people["expert_tau_c"] - other.people["expert_tau_c"]
            line.append(None if interval is None else (apart, *interval))
        above = sum(one is not None and one[2] < 0 for one in line[:number])
        ranks[row.number] = max(1 + above, *ranks.values(), 1)
        differences.append(line)
    placed = [
        row.model_copy(update={"interval": intervals[row.number], "rank": ranks.get(row.number)})
        for row in rows
    ]
    return placed, differences


def _static(name: str) -> str:
    text = (STATIC / name).read_text(encoding="utf-8")
    figure = (Path(__file__).parent / "templates" / "figure.css").read_text(encoding="utf-8")
    return text.replace("/* figure.css */", figure.rstrip("\n"))


def _index(content: Content, shown: Sequence[Board]) -> dict[str, Any]:
    rows, of_status = content.rows, Counter(row.status for row in content.rows)
    copied = [
        DATASETS[name].title
        for name, group in grouped(rows, lambda row: row.condition.dataset).items()
        if all(row.status == "reported" for row in group)
    ]
    conditions = [board.condition for board in shown]
    return {
        "boards": shown,
        "shown_first": _shown_first(rows),
        "copied": copied,
        "counts": [(name, of_status[name]) for name in STATUSES],
        "lines": [(title, list(group)) for title, group in groupby(conditions, attrgetter("data"))],
        "papers": content.papers,
        "seeds_for_a_rank": SEEDS_FOR_A_RANK,
        "strangers": _without_common_word(conditions),
    }


def _without_common_word(conditions: Iterable[Condition]) -> dict[str, float]:
    """By slug: share of the wrong pairs without a common word, for the unit ``similar`` on embedded datasets."""
    shares = {}
    for condition in conditions:
        captions = DATASETS[condition.dataset].train_captions() if condition.noise_unit == "similar" else None
        if captions is not None and condition.noise_ratio:
            spec = DATASETS[condition.dataset]
            paired, _ = spec.draw_noise(noise_ratio=condition.noise_ratio, noise_unit="similar")
            clean = clean_pairing(spec.images["train"], spec.captions_per_image)
            shares[condition.slug] = share_without_common_word(captions, clean, paired)
    return shares


def _shown_first(rows: Sequence[Row]) -> str:
    """The most requested condition: 40 % caption noise on the first dataset, else the fullest one."""
    wanted = (row.condition.slug for row in rows if row.condition.noise == ("caption", 0.4))
    fullest = (slug for slug, _ in Counter(row.condition.slug for row in rows).most_common(1))
    return next(wanted, next(fullest, ""))


@dataclass(frozen=True)
class Answer:
    """The best row of a category.

    Attributes:
        key, title: of the category.
        best: the row.
        same: labels of the other rows that share its rank.
        ours: our best reproduced one; None without one.
    """

    key: str
    title: str
    best: Row
    same: list[str]
    ours: Row | None


def _answers(board: Board) -> list[Answer]:
    """The best row of each category that has one, those that do not differ from it, and our best reproduced one."""
    answers = []
    for category in board.categories:
        leaders = [row for row in category.rows if row.rank == 1]
        if category.key in _ANSWERED and leaders:
            best = max(leaders, key=lambda row: STATUSES.index(row.status))
            same = [row.label for row in leaders if row is not best]
            ours = (row for row in category.rows if row.rank and row.status == "reproduced")
            answers.append(Answer(category.key, category.title, best, same, next(ours, None)))
    return answers


def _dataset(spec: DatasetSpec, content: Content, shown: Sequence[Board], cards: Path) -> dict[str, Any]:
    return {
        "spec": spec,
        "boards": [board for board in shown if board.condition.dataset == spec.name],
        "protocol_title": protocol_title,
        "charts": overview_charts(
            (row for row in content.rows if row.condition.dataset == spec.name), content.papers
        ),
        "card": card_html(cards / f"{spec.name}.md"),
    }


def _method(key: str, family: Family, content: Content) -> dict[str, Any]:
    rows = [row for row in content.rows if row.family == key]
    source = content.papers.get(family.source)
    datasets = groupby(grouped(rows, attrgetter("condition")).values(), lambda group: group[0].condition.data)
    return {
        "family": family,
        "paper": family.paper or source,
        "code": source.code if source else "",
        "recipes": family_recipes(family),
        "gaps": _gaps(sorted(rows, key=attrgetter("number")), family),
        "charts": method_charts(content.rows, key, content.papers),
        "runs": [seed for seed in content.seeds if seed.family == key and seed.status != "reported"],
        "datasets": [(title, list(members)) for title, members in datasets],
        "papers": content.papers,
    }


def family_recipes(family: Family) -> list[tuple[str, tuple[str, ...]]]:
    """Recipes of a method in this repository by name, each with the commands that use it.

    The commands use 40 % caption noise as an example.
    """
    recipes = []
    for name in known_recipes():
        if name.partition("/")[0] not in (family.recipes, family.ensemble_recipes):
            continue
        _, dataset, rest = split_name(name)
        if not family.backbones or beginning(rest, family.backbones):
            options = drawn_noise(0.4 if DATASETS[dataset].noise == "synthetic" else 0.0, "caption")
            recipes.append((name, command_lines([name], options, f"{dataset}_{rest}")))
    return recipes


@dataclass(frozen=True)
class Gap:
    """A printed row, ours of the same condition, backbone and number of networks, and why they may differ."""

    paper: Row
    ours: Row
    remarks: list[str]


def _gaps(rows: Sequence[Row], family: Family) -> list[Gap]:
    """Pair rows of the method's own paper with ours of the same condition, backbone and number of networks."""
    papers = [
        row
        for row in rows
        if (row.status, row.source, row.kind) == ("reported", family.source, "method")
        and row.r_sum is not None
    ]
    ours = [row for row in rows if row.status != "reported"]
    same = attrgetter("condition", "backbone", "networks")
    return [
        Gap(paper, mine, _remarks(paper, mine))
        for paper in papers
        for mine in ours
        if same(paper) == same(mine)
    ]


def _remarks(paper: Row, ours: Row) -> list[str]:
    """Explanations of the gap between a printed number and ours, as far as the two rows give them."""
    chosen = paper.selection == "test" != ours.selection
    remarks = ["The printed checkpoint was chosen on the test split."] if chosen else []
    if paper.noise != ours.noise:
        noises = [row.noise or "the standard draw" for row in (paper, ours)]
        remarks.append(f"Different noise: printed {noises[0]}, ours {noises[1]}.")
    return [*remarks, *ours.notes]


def card_html(path: Path) -> str:
    """Render a card's Markdown as safe markup; raw HTML in it is shown as text.

    Returns:
        Markup; empty if the card does not exist. The YAML block at the top and the first heading are left out, and
        pictures beside the card are embedded, so that a page is one file.
    """
    from markdown_it import MarkdownIt

    if not path.is_file():
        return markup("")
    text = path.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        text = text.split("\n---\n", 1)[-1]
    lines = text.lstrip("\n").split("\n")
    body = "\n".join(lines[1:] if lines[0].startswith("# ") else lines)
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(body)
    # after rendering, which walks an address letter by letter
    return markup(
        re.sub(r'(?<=<img src=")[\w-]+\.png(?=")', lambda name: _data_uri(path.with_name(name[0])), html)
    )


def _data_uri(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode('ascii')}"
