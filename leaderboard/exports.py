"""Downloads: the rows as CSV, JSON, LaTeX and BibTeX."""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping

from leaderboard.boards import Board, cell_title
from leaderboard.published import Source
from leaderboard.rows import RECALLS, Row

_FACTS = (
    "method",
    "family",
    "backbone",
    "features",
    "networks",
    "extra",
    "noise",
    "selection",
    "precision",
    "kind",
    "status",
    "source",
    "table",
)
_CELL = ("dataset", "protocol", "noise_unit", "noise_ratio", "text")
_LATEX = {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "*": r"$^{*}$", "∞": r"$\infty$", "±": r"$\pm$"}


def csv_text(boards: Iterable[Board]) -> str:
    """One line per row: its cell, what it is, six recalls, rSum, rank, seeds and remarks."""
    out = io.StringIO()
    head = [
        "rank",
        *_CELL,
        *_FACTS,
        *RECALLS,
        "r_sum",
        "r_sum_std",
        "printed_r_sum",
        "seeds",
        "doubts",
        "notes",
    ]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for rank, row in _ranked_rows(boards):
        cell = row.cell.model_dump()
        writer.writerow(
            [
                "" if rank is None else rank,
                *("" if cell[name] is None else _shown(cell[name]) for name in _CELL),
                *(getattr(row, name) for name in _FACTS),
                *(_shown(value) for value in row.recalls.values.values()),
                _shown(row.r_sum),
                _shown(row.spread.get("r_sum")),
                _shown(row.printed_r_sum),
                " ".join(map(str, row.seeds)),
                " ".join(row.doubts),
                " ".join(row.notes),
            ]
        )
    return out.getvalue()


def json_text(boards: Iterable[Board], protocol_version: int) -> str:
    """Every row with all its fields, as JSON."""
    rows = []
    for rank, row in _ranked_rows(boards):
        content = row.model_dump(mode="json")
        content |= {"rank": rank, "r_sum": row.r_sum, "cell": content["cell"] | {"name": row.cell.slug}}
        rows.append(_rounded(content))
    return (
        json.dumps({"protocol_version": protocol_version, "rows": rows}, indent=1, ensure_ascii=False) + "\n"
    )


def latex_text(board: Board) -> str:
    """One board as a LaTeX table, with its divisions as blocks."""
    lines = [
        f"% {cell_title(board.cell)}; needs booktabs; ?: doubtful, t: checkpoint chosen on test",
        r"\begin{tabular}{lrrrrrrr}",
        r"\toprule",
        r" & \multicolumn{3}{c}{Image to text} & \multicolumn{3}{c}{Text to image} & \\",
        r"Method & R@1 & R@5 & R@10 & R@1 & R@5 & R@10 & rSum \\",
    ]
    for division in board.divisions:
        lines += [r"\midrule", rf"\multicolumn{{8}}{{l}}{{\emph{{{_latex(division.title)}}}}} \\"]
        for ranked in division.rows:
            row = ranked.row
            values = [_cell_text(row, name) for name in (*RECALLS, "r_sum")]
            name = row.label if row.backbone in row.method else f"{row.label} ({row.backbone})"
            marks = "?" * bool(row.doubts) + "t" * (row.selection == "test")
            mark = rf"\textsuperscript{{{marks}}}" if marks else ""
            lines.append(f"{_latex(name)}{mark} & {' & '.join(values)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def bibtex_text(sources: Mapping[str, Source]) -> str:
    """BibTeX entries of the sources; first authors only, as the collection names no others."""
    entries = []
    for key, source in sorted(sources.items()):
        fields = {
            "author": f"{source.authors} and others",
            "title": f"{{{source.title}}}",
            "year": str(source.year),
        }
        fields |= {
            "howpublished": source.venue,
            "doi": source.doi,
            "eprint": source.arxiv,
            "url": source.link,
        }
        body = "".join(f"  {name} = {{{_bib(value)}}},\n" for name, value in fields.items() if value)
        entries.append(f"@misc{{{key},\n{body}}}\n")
    return "\n".join(entries)


def _ranked_rows(boards: Iterable[Board]) -> Iterable[tuple[int | None, Row]]:
    entries = (ranked for board in boards for division in board.divisions for ranked in division.rows)
    return ((ranked.rank, row) for ranked in entries for row in (ranked.row, *ranked.also))


def _shown(value: object) -> str:
    return "" if value is None else f"{round(value, 4):g}" if isinstance(value, float) else str(value)


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _cell_text(row: Row, name: str) -> str:
    value = row.r_sum if name == "r_sum" else getattr(row.recalls, name)
    spread = f" $\\pm$ {row.spread[name]:.1f}" if name in row.spread else ""
    return "--" if value is None else f"{value:.1f}{spread}"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _bib(text: str) -> str:
    return re.sub(r"([&%#_])", r"\\\1", text) if not text.startswith("http") else text
