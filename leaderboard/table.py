"""Tables for a paper: the rows of one board as LaTeX, Markdown or CSV, one table per division."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from leaderboard.add import RowStands, new_row
from leaderboard.board import Board, Content, Division, Ranked, compared, merge_seeds
from leaderboard.entries import SEEDS_FOR_A_RANK, Cell, Entry
from leaderboard.exports import OTHER_SUM, escape, latex, markdown_table
from leaderboard.results import Run, entries_of
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.difference import Hits
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.files import as_csv
from ncl_bench.papers import Paper, read_families
from ncl_bench.progress import Progress, silent

VALUES = (*RECALLS, "r_sum")
SHARED, CHOSEN_ON_TEST, DOUBTFUL, PRELIMINARY = "=", "†", "?", "§"
MARKS = {
    SHARED: "shares its rank: rSum is equal, or a test over seeds and images finds no difference",
    CHOSEN_ON_TEST: "chosen on test, so not ranked",
    DOUBTFUL: "doubtful number, so not ranked",
    OTHER_SUM: "the paper prints another rSum; this is the sum of its recalls",
    PRELIMINARY: f"preliminary: fewer than {SEEDS_FOR_A_RANK} training seeds, so not ranked; rSum has a 95 % interval "
    "(of a single seed: over images alone)",
}


@dataclass(frozen=True)
class Line:
    """One printed row.

    Attributes:
        rank: such as ``1``, or ``1=`` if shared; empty for an unranked row.
        method: its name and marks.
        backbone: empty if the source does not say.
        values: six recalls and rSum with one decimal, perhaps with a standard deviation, and rSum of a preliminary row
            with its interval; ``–`` for a missing one.
        best: which values are the best among the ranked rows.
        papers: keys of the papers that print it; empty for a measured row.
        origin: of a measured row: ``ours``, ``submitted`` or ``reproduced``; empty for a printed one.
    """

    rank: str
    method: str
    backbone: str
    values: tuple[str, ...]
    best: tuple[bool, ...]
    papers: tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class Table:
    """The rows of one division of a board, best first."""

    title: str
    lines: tuple[Line, ...]

    @property
    def notes(self) -> list[str]:
        """Meaning of the marks in its rows."""
        shown = "".join(line.rank + line.method for line in self.lines)
        return [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in shown]


def tables_of(board: Board, mine: Collection[str] = ()) -> list[Table]:
    """Make the tables of a board.

    Args:
        board: the board; its divisions become separate tables, because their rows are not comparable.
        mine: :attr:`Entry.file` of the user's own rows.
    """
    return [
        Table(f"{board.cell.title}: {division.title}", _lines(division, mine)) for division in board.divisions
    ]


def _lines(division: Division, mine: Collection[str]) -> tuple[Line, ...]:
    ranked = [one for one in division.ranked if one.rank is not None]
    columns = zip(*(_rounded(one.entry) for one in ranked), strict=True) if ranked else ([],) * len(VALUES)
    best = [max((value for value in column if value is not None), default=None) for column in columns]
    ranks = [one.rank for one in ranked]
    return tuple(_line(one, ranks.count(one.rank) > 1, best, mine) for one in division.ranked)


def _line(one: Ranked, shared: bool, best: Sequence[float | None], mine: Collection[str]) -> Line:
    entry, values = one.entry, _rounded(one.entry)
    marks = CHOSEN_ON_TEST * (entry.selection == "test") + DOUBTFUL * bool(entry.doubts)
    marks += OTHER_SUM * (entry.printed_gap is not None) + PRELIMINARY * entry.preliminary
    reported = entry.status == "reported"
    return Line(
        rank="" if one.rank is None else f"{one.rank}{SHARED * shared}",
        method=entry.label + marks,
        backbone=entry.backbone,
        values=tuple(
            _shown(value, entry.spread.get(name), entry.intervals.get("r_sum") if name == "r_sum" else None)
            for name, value in zip(VALUES, values, strict=True)
        ),
        best=tuple(
            one.rank is not None and value is not None and value == top
            for value, top in zip(values, best, strict=True)
        ),
        papers=tuple(dict.fromkeys(each.source for each in (entry, *one.also))) if reported else (),
        origin="" if reported else "ours" if entry.file in mine else entry.status,
    )


def _rounded(entry: Entry) -> list[float | None]:
    """Values with one decimal, so that all rows which print the best number are bold."""
    values = (*entry.recalls.values.values(), entry.r_sum)
    return [None if value is None else round(value, 1) for value in values]


def _shown(value: float | None, deviation: float | None, interval: tuple[float, float] | None) -> str:
    spread = "" if deviation is None else f" ± {deviation:.1f}"
    ends = "" if interval is None else f" ({interval[0]:.1f}–{interval[1]:.1f})"
    return "–" if value is None else f"{value:.1f}{spread}{ends}"


def latex_text(tables: Iterable[Table]) -> str:
    r"""Format as LaTeX; needs booktabs. A printed row cites its papers by their keys in the BibTeX export."""
    return "\n".join(map(_latex_table, tables))


def _latex_table(table: Table) -> str:
    out = [
        f"% {_comment(table.title)}; needs booktabs",
        *(f"% {note}" for note in table.notes),
        r"\begin{tabular}{rllrrrrrrrl}",
        r"\toprule",
        r" & & & \multicolumn{3}{c}{Image to text} & \multicolumn{3}{c}{Text to image} & & \\",
        r" & Method & Backbone & R@1 & R@5 & R@10 & R@1 & R@5 & R@10 & rSum & Source \\",
        r"\midrule",
    ]
    for line in table.lines:
        values = [
            rf"\textbf{{{value}}}" if best else value
            for value, best in zip(map(_latex, line.values), line.best, strict=True)
        ]
        source = rf"\cite{{{','.join(line.papers)}}}" if line.papers else latex(line.origin)
        words = [line.rank, _latex(line.method), _latex(line.backbone), *values, source]
        out.append(f"{' & '.join(words)} \\\\")
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _comment(text: str) -> str:
    return " ".join(text.split())  # a comment of LaTeX ends with its line


def _latex(text: str) -> str:
    return latex(text).replace(DOUBTFUL, "$^{?}$")


def markdown_text(tables: Iterable[Table], papers: Mapping[str, Paper]) -> str:
    """Format as Markdown. A printed row links to the papers that print it."""
    return "\n".join(_markdown_table(table, papers) for table in tables)


def _markdown_table(table: Table, papers: Mapping[str, Paper]) -> str:
    sides = [f"{side} R@{k}" for side in ("i2t", "t2i") for k in (1, 5, 10)]
    columns, rows = ["rank", "method", "backbone", *sides, "rSum", "source"], []
    for line in table.lines:
        values = [
            f"**{value}**" if best else value for value, best in zip(line.values, line.best, strict=True)
        ]
        source = "; ".join(_link(papers[key]) for key in line.papers) or line.origin
        rows.append([line.rank, escape(line.method), escape(line.backbone), *values, source])
    body = markdown_table(columns, rows, numbers=["rank", *sides, "rSum"])
    parts = [f"**{escape(table.title)}**", body, *(["; ".join(table.notes)] if table.notes else [])]
    return "\n\n".join(parts) + "\n"


def _link(paper: Paper) -> str:
    link = paper.link.replace("(", "%28").replace(")", "%29")
    return f"[{escape(paper.short)}]({link})" if link else escape(paper.short)


def csv_text(tables: Iterable[Table]) -> str:
    """Format as CSV: one line per row; the first column names its table, ``best`` names the bold columns."""
    rows = [["table", "rank", "method", "backbone", *VALUES, "best", "source"]]
    for table in tables:
        for line in table.lines:
            best = [name for name, bold in zip(VALUES, line.best, strict=True) if bold]
            source = " ".join(line.papers) or line.origin
            rows.append(
                [table.title, line.rank, line.method, line.backbone, *line.values, " ".join(best), source]
            )
    return as_csv(rows)


def cited(tables: Iterable[Table], papers: Mapping[str, Paper]) -> dict[str, Paper]:
    """The papers that the tables cite, by key."""
    return {key: papers[key] for table in tables for line in table.lines for key in line.papers}


def noise_name(cell: Cell) -> str:
    """Value of ``--noise`` for a cell: ``caption-40``, ``image-60``, ``natural`` or ``none``."""
    return f"{cell.noise_unit}-{cell.percent}" if cell.noise_ratio else cell.noise_unit


def boards_for(content: Content, dataset: str, noise: str, protocol: str = "") -> list[Board]:
    """Find the boards of one dataset and noise; several if the dataset has several protocols or tokenizers.

    Args:
        content: all rows.
        dataset: name of the dataset.
        noise: see :func:`noise_name`.
        protocol: such as ``5k``; empty for all.

    Raises:
        NclBenchError: the dataset or protocol is unknown, or no row has this noise.
    """
    spec = dataset_spec(dataset)
    if protocol and protocol not in spec.protocols:
        raise SubmissionError(
            f"unknown protocol {protocol!r} of {dataset}; choose one of: {', '.join(spec.protocols)}"
        )
    there = [
        board
        for board in content.boards
        if board.cell.dataset == spec.name and protocol in ("", board.cell.protocol)
    ]
    if not there:
        raise SubmissionError(
            f"the leaderboard has no row of {dataset}; evaluate a submission and name it with --mine"
        )
    found = [board for board in there if noise_name(board.cell) == noise]
    if not found:
        names = dict.fromkeys(noise_name(board.cell) for board in there)
        under = f" under {protocol}" if protocol else ""
        raise SubmissionError(
            f"no row of {dataset}{under} has noise {noise!r}; choose one of: {', '.join(names)}"
        )
    return found


def with_mine(
    content: Content, folders: Iterable[Path], root: Path, progress: Progress = silent
) -> tuple[Content, set[str]]:
    """Rank the rows of the leaderboard together with the user's submissions.

    Args:
        content: all rows.
        folders: submission folders; several seeds of one method make one row.
        root: folder of the leaderboard, which is not changed.
        progress: reports the images counted.

    Returns:
        The content, and :attr:`Entry.file` of the user's rows. A submission already on the board keeps its row there.

    Raises:
        SubmissionError: a submission is refused.
        ScoresError: its scores are refused.
    """
    own: list[Entry] = []
    hits: dict[Run, Hits] = {}
    files: set[str] = set()
    for folder in dict.fromkeys(folders):
        try:
            row = new_row(folder, root, progress=progress)
        except RowStands as stands:
            files.add(stands.cell)
            continue
        name = f"mine/{row.name}"  # the board may already have this name, from another run of the same method
        for entry, answered in entries_of(
            row.header, row.record, row.counted, read_families(), "submitted", name
        ):
            run = (name, row.record.key, entry.cell.protocol)
            if run in hits:
                raise SubmissionError(
                    f"{folder} repeats seed {row.record.key} of {row.header.method}; name one submission per seed"
                )
            hits[run] = answered
            own.append(entry)
        files.add(name)
    if not own:
        return content, files
    entries, boards, told_apart = compared(
        (*content.entries, *merge_seeds(own)), {**content.told_apart.hits, **hits}
    )
    return replace(content, entries=entries, boards=boards, told_apart=told_apart), files


def only_mine(boards: Iterable[Board], files: Collection[str], content: Content) -> list[Board]:
    """Divisions that contain the user's rows.

    Args:
        boards: from :func:`boards_for`.
        files: from :func:`with_mine`.
        content: from :func:`with_mine`.

    Raises:
        SubmissionError: a row of the user has another dataset or noise.
    """
    boards = list(boards)
    asked = boards[0].cell
    for cell in (entry.cell for entry in content.entries if entry.file in files):
        if (cell.dataset, noise_name(cell)) != (asked.dataset, noise_name(asked)):
            raise SubmissionError(
                f"the submission is of {cell.dataset} with noise {noise_name(cell)}; ask for its table with "
                f"--dataset {cell.dataset} --noise {noise_name(cell)}"
            )
    kept = [
        replace(board, divisions=tuple(division for division in board.divisions if _holds(division, files)))
        for board in boards
    ]
    return [board for board in kept if board.divisions]


def _holds(division: Division, files: Collection[str]) -> bool:
    return any(one.entry.file in files for one in division.ranked)
