"""The entries as CSV, LaTeX and BibTeX, and as the Markdown tables of README.md."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from leaderboard.board import Board, Content, division_of
from leaderboard.entries import Entry, Unit
from leaderboard.figures import by_reference
from leaderboard.published import Paper
from ncl_bench.evaluation.metrics import RECALLS

_FACTS = (
    "method",
    "family",
    "backbone",
    "features",
    "encoder",
    "networks",
    "extra",
    "noise",
    "selection",
    "precision",
    "settings",
    "recipe",
    "budget",
    "pairs_seen",
    "cost",
    "last_epoch",
    "kind",
    "status",
    "source",
    "table",
)
_ECCV = ("i2t_map_at_r", "t2i_map_at_r")
_CELL = ("dataset", "protocol", "noise_unit", "noise_ratio", "text")
_LATEX = {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "*": r"$^{*}$", "∞": r"$\infty$", "±": r"$\pm$"}


def csv_text(boards: Iterable[Board]) -> str:
    """One line per entry: its cell, what it is, six recalls, rSum, rank, seeds and remarks."""
    out = io.StringIO()
    head = [
        "rank",
        *_CELL,
        *_FACTS,
        *RECALLS,
        "r_sum",
        "r_sum_std",
        *(f"eccv_{name}" for name in _ECCV),
        "printed_r_sum",
        "seeds",
        "doubts",
        "notes",
    ]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for rank, entry in (line for board in boards for line in board.ranks):
        cell = entry.cell.model_dump()
        writer.writerow(
            [
                "" if rank is None else rank,
                *("" if cell[name] is None else _shown(cell[name]) for name in _CELL),
                *(_shown(getattr(entry, name)) for name in _FACTS),
                *(_shown(value) for value in entry.recalls.values.values()),
                _shown(entry.r_sum),
                _shown(entry.spread.get("r_sum")),
                *(_shown(entry.eccv.get(name)) for name in _ECCV),
                _shown(entry.printed_r_sum),
                " ".join(map(str, entry.seeds)),
                _text(" ".join(entry.doubts)),
                _text(" ".join(entry.notes)),
            ]
        )
    return out.getvalue()


def _text(value: str) -> str:
    """A text that a spreadsheet shows and does not compute."""
    return f"'{value}" if value.startswith(("=", "@", "+", "-")) else value


def latex_text(board: Board) -> str:
    """One board as a LaTeX table, with its divisions as blocks."""
    lines = [
        f"% {board.cell.title}; needs booktabs; ?: doubtful, t: checkpoint chosen on test",
        r"\begin{tabular}{lrrrrrrr}",
        r"\toprule",
        r" & \multicolumn{3}{c}{Image to text} & \multicolumn{3}{c}{Text to image} & \\",
        r"Method & R@1 & R@5 & R@10 & R@1 & R@5 & R@10 & rSum \\",
    ]
    for division in board.divisions:
        lines += [r"\midrule", rf"\multicolumn{{8}}{{l}}{{\emph{{{_latex(division.title)}}}}} \\"]
        for ranked in division.ranked:
            entry = ranked.entry
            values = [_cell_text(entry, name) for name in (*RECALLS, "r_sum")]
            name = entry.label if entry.backbone in entry.method else f"{entry.label} ({entry.backbone})"
            marks = "?" * bool(entry.doubts) + "t" * (entry.selection == "test")
            mark = rf"\textsuperscript{{{marks}}}" if marks else ""
            lines.append(f"{_latex(name)}{mark} & {' & '.join(values)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def bibtex_text(papers: Mapping[str, Paper]) -> str:
    """BibTeX of the papers; first authors only, as the collection names no others."""
    items = []
    for key, paper in sorted(papers.items()):
        fields = {
            "author": f"{paper.authors} and others",
            "title": f"{{{paper.title}}}",
            "year": str(paper.year),
        }
        fields |= {
            "howpublished": paper.venue,
            "doi": paper.doi,
            "eprint": paper.arxiv,
            "url": paper.link,
        }
        body = "".join(f"  {name} = {{{_bib(value)}}},\n" for name, value in fields.items() if value)
        items.append(f"@misc{{{key},\n{body}}}\n")
    return "\n".join(items)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{round(value, 4):g}"
    if isinstance(value, tuple):
        return _text(", ".join(value))
    return "" if value is None else _text(str(value))


def _cell_text(entry: Entry, name: str) -> str:
    value = entry.r_sum if name == "r_sum" else getattr(entry.recalls, name)
    spread = f" $\\pm$ {entry.spread[name]:.1f}" if name in entry.spread else ""
    return "--" if value is None else f"{value:.1f}{spread}"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _bib(text: str) -> str:
    return re.sub(r"([&%#_])", r"\\\1", text) if not text.startswith("http") else text


BEGIN, END = (
    "<!-- leaderboard: begin (generated by `ncl-bench leaderboard build --tables`) -->",
    "<!-- leaderboard: end -->",
)
_ROWS = re.compile(r"^<!-- rows: ([0-9a-f]{64}) -->$", re.MULTILINE)
_DIVISIONS = ("single", "ensemble")
_MOST = 12


def rows_in(text: str) -> str:
    """Hash of the entries that a page's tables were written from; empty where it has none."""
    found = _ROWS.search(text)
    return found[1] if found else ""


def with_tables(text: str, tables: str, sha256: str) -> str:
    """A page with the part between the markers replaced, or appended where the markers are missing.

    Args:
        text: the page.
        tables: of :func:`tables`.
        sha256: of what they were written from; it stands above them.
    """
    block = f"{BEGIN}\n<!-- rows: {sha256} -->\n\n{tables.strip()}\n{END}"
    if BEGIN in text and END in text:
        return text[: text.index(BEGIN)] + block + text[text.index(END) + len(END) :]
    return f"{text.rstrip()}\n\n{block}\n".lstrip("\n")


def tables(content: Content) -> str:
    """The main tables: per dataset, protocol and noise unit, rSum of the best entries at every ratio."""
    groups: dict[tuple[str, str, Unit, str], list[Board]] = {}
    for board in content.boards:
        cell = board.cell
        if cell.noise_unit in ("caption", "image", "natural", "none"):
            unit: Unit = "caption" if cell.noise_unit == "none" else cell.noise_unit
            groups.setdefault((cell.dataset, cell.protocol, unit, cell.text), []).append(board)
    parts = []
    for (_, _, unit, _), boards in groups.items():
        cell = max(boards, key=lambda board: board.cell.noise_ratio or 0.0).cell
        entries = [
            entry
            for board in boards
            for entry in board.entries
            if entry.ranked and division_of(entry) in _DIVISIONS
        ]
        title = cell.model_copy(update={"noise_ratio": None, "noise_unit": unit}).title
        body = _table(entries, content)
        if body:
            parts.append(f"### {title}\n\n{body}\n")
    return "\n".join(parts) if parts else "No rows yet.\n"


def _table(entries: Sequence[Entry], content: Content) -> str:
    ratios = sorted({entry.cell.noise_ratio or 0.0 for entry in entries})
    natural = any(entry.cell.noise_ratio is None for entry in entries)
    lines: dict[tuple[str, ...], dict[float, Entry]] = {}
    for entry in entries:
        lines.setdefault(_key(entry, content), {})[entry.cell.noise_ratio or 0.0] = entry
    lines = _quoted_once(lines)
    order = by_reference(lines)[:_MOST]
    if not order:
        return ""
    heads = ["rSum"] if natural else [f"{100 * ratio:g} %" for ratio in ratios]
    out = [f"| Method | Backbone | Networks | {' | '.join(heads)} | Status | Source |"]
    out.append(f"| --- | --- | --- | {' | '.join(['---:'] * len(heads))} | --- | --- |")
    for key in order:
        cells = [_value(lines[key].get(ratio)) for ratio in (ratios if not natural else [0.0])]
        method, backbone, networks, status, source = key
        words = [escape(method), escape(backbone) or "–", networks, *cells, status, escape(source)]
        out.append(f"| {' | '.join(words)} |")
    return "\n".join(out)


def _quoted_once(
    lines: Mapping[tuple[str, ...], dict[float, Entry]],
) -> dict[tuple[str, ...], dict[float, Entry]]:
    """Lines of several papers with the same numbers as one, which names all of the papers."""
    groups: dict[tuple[object, ...], list[tuple[str, ...]]] = {}
    for key, points in lines.items():
        numbers = tuple(sorted((ratio, _value(entry)) for ratio, entry in points.items()))
        lead = next(iter(points.values()))
        same = (lead.quoted_as[:-1], numbers) if lead.status == "reported" else (key,)
        groups.setdefault(same, []).append(key)
    once = {}
    for keys in groups.values():
        first = min(keys, key=lambda key: not any(entry.own for entry in lines[key].values()))
        sources = [first[-1], *(key[-1] for key in keys if key != first)]
        once[(*first[:-1], "; ".join(dict.fromkeys(sources)))] = lines[first]
    return once


def _key(entry: Entry, content: Content) -> tuple[str, ...]:
    source = content.papers[entry.source].short if entry.source in content.papers else entry.source
    return (entry.label, entry.backbone, entry.networks, entry.status, source)


def _value(entry: Entry | None) -> str:
    if entry is None or entry.r_sum is None:
        return "–"
    spread = f" ± {entry.spread['r_sum']:.1f} ({len(entry.seeds)})" if "r_sum" in entry.spread else ""
    return f"{entry.r_sum:.1f}{spread}"


def escape(text: str) -> str:
    """Text in which nothing is read as Markdown or HTML."""
    return "".join(f"\\{character}" if character in "|*_<>`[]" else character for character in text)
