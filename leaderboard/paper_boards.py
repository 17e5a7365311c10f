"""Tables for a paper: the boards of one dataset and noise, with the user's own submissions ranked among the rows."""

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboard.board import (
    Board,
    Category,
    Content,
    boards,
    compared,
    group_of,
    merge_seeds,
    read_content,
)
from leaderboard.entries import Condition, Entry, Row
from leaderboard.folder import published_folder
from leaderboard.results_frame import read_frame, rows_of
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError, named
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.papers import Paper, read_families, read_papers
from ncl_bench.progress import Progress, silent
from ncl_bench.schema import checked

if TYPE_CHECKING:  # what evaluates is imported where a user's row is evaluated
    from ncl_bench.evaluation.difference import Hits


def noise_name(condition: Condition) -> str:
    """Value of ``--noise`` for a condition: ``caption-40``, ``image-60``, ``natural`` or ``none``."""
    return f"{condition.noise_unit}-{condition.percent}" if condition.noise_ratio else condition.noise_unit


def boards_for(rows: Sequence[Row], dataset: str, noise: str, protocol: str = "") -> list[Board]:
    """Find the boards of one dataset and noise; several if the dataset has several protocols or tokenizers.

    Args:
        rows: of the leaderboard, ranked.
        dataset: name of the dataset.
        noise: see :func:`noise_name`; empty for all.
        protocol: such as ``5k``; empty for all.
    """
    spec = dataset_spec(dataset)
    if protocol and protocol not in spec.protocols:
        raise SubmissionError(
            f"unknown protocol {protocol!r} of {dataset}; choose one of: {', '.join(spec.protocols)}"
        )
    protocols = [protocol] if protocol else spec.protocols
    there = boards(
        row for row in rows if row.condition.dataset == spec.name and row.condition.protocol in protocols
    )
    if not there:
        raise SubmissionError(
            f"the leaderboard has no row of {dataset}; evaluate a submission and name it with {named('mine')}"
        )
    wanted = [board for board in there if noise in ("", noise_name(board.condition))]
    if not wanted:
        names = dict.fromkeys(noise_name(board.condition) for board in there)
        under = f" under {protocol}" if protocol else ""
        raise SubmissionError(
            f"no row of {dataset}{under} has noise {noise!r}; choose one of: {', '.join(names)}"
        )
    return wanted


def with_mine(
    content: Content,
    paths: Iterable[Path],
    root: Path,
    asked: tuple[str, str] | None = None,
    progress: Progress = silent,
) -> tuple[Content, set[str]]:
    """Rank the rows of the leaderboard together with the user's submissions or similarities.

    Args:
        content: all rows.
        paths: submission folders, of which several seeds of one method make one row; or files of similarities of the
            test split, each taken for a single network that is named after its file.
        root: folder of the leaderboard, which is not changed.
        asked: dataset and noise of files of similarities, see :func:`noise_name`.
        progress: reports the images counted.

    Returns:
        The content, and ``file`` of the user's rows. A submission already on the board keeps its row there.
    """
    from leaderboard.add import RowStands, new_row
    from leaderboard.read_entries import entries_of
    from ncl_bench.evaluation.people import agreement_of

    mine: list[Entry] = []
    standing = content.significantly_different
    hits, agreements = dict(standing.hits), dict(standing.agreements)
    files: set[str] = set()
    for folder in dict.fromkeys(paths):
        if asked is not None and folder.is_file():
            if not asked[1]:  # else it would stand among the rows of every noise, trained under one of them
                raise SubmissionError(
                    f"{named('noise')} is not given, under which {folder} was trained; give it"
                )
            entries = _entries_of_file(folder, boards_for(content.rows, *asked), progress)
        else:
            try:
                row = new_row(folder, root, progress=progress)
            except RowStands as stands:
                files.add(stands.row)
                continue
            name = f"mine/{row.name}"  # the board may already have this name, from another run of the same method
            counted = {row.record.key: row.counted}
            entries = entries_of(row.header, [row.record], counted, read_families(), name)
            if (agreement := agreement_of(row.counted.judged, row.counted.crossed)) is not None:
                agreements[name, row.record.key] = agreement
        for entry, answered in entries:
            run = (entry.file, entry.runs[0], entry.condition.protocol)
            if run in hits:
                raise SubmissionError(
                    f"{folder} repeats seed {entry.runs[0]} of {entry.method}; name one submission per seed"
                )
            hits[run] = answered
            mine.append(entry)
            files.add(entry.file)
    if not mine:
        return content, files
    if not (root / "results").is_dir():
        return replace(content, rows=_without_ranks(content.rows, mine)), files
    seeds = (*content.seeds, *mine)
    rows, significantly_different = compared(seeds, hits, agreements)
    return replace(content, seeds=seeds, rows=rows, significantly_different=significantly_different), files


def _without_ranks(rows: Sequence[Row], mine: Iterable[Entry]) -> list[Row]:
    """Put the user's rows among others by their rSum; without the evidence of these, nothing tells them apart."""
    placed = list(rows)
    for row in (Row.of(entry) for entry in merge_seeds(mine)):
        insort(placed, row, key=lambda one: (*group_of(one), one.preliminary, -one.r_sum_or_0))
    return placed


def _entries_of_file(
    path: Path, shown: Iterable[Board], progress: Progress
) -> "Iterator[tuple[Entry, Hits]]":
    """Entries of a file of similarities: one per board, as far as a file alone can say what they are."""
    from leaderboard.rank_files import hits_of
    from ncl_bench.evaluation.protocol import fold_size, measure, open_scores, protocol_result, ranks_under

    spec = dataset_spec(next(iter(shown)).condition.dataset)
    with progress(f"evaluate {path.name}", spec.images["test"]) as advance:
        _, counted = measure(open_scores((path,), spec, "test"), spec, "test", on_rows=advance)
    answered = hits_of(counted, spec)
    for board in shown:
        condition = board.condition
        ranks = ranks_under(counted, condition.protocol)
        result = protocol_result(ranks, fold_size(condition.protocol, len(ranks.i2t)), intervals=True)
        recalls = result.recalls()
        content: dict[str, Any] = {
            "method": path.stem,
            "family": "mine",
            "networks": "single",
            "condition": condition,
            "recalls": {name: recalls[name] for name in RECALLS},
            "intervals": {"r_sum": result.r_sum_interval},
            "status": "submitted",
            "source": "submission",
            "file": f"mine/{path}",
            "runs": ("0",),
        }
        yield checked(Entry, content, str(path)), answered[condition.protocol]


def together(board: Board) -> Board:
    """The board with single networks and ensembles in one table, best first: marked, and without ranks."""
    both = [one for one in board.categories if one.key in ("single", "ensemble", "unstated")]
    if len(both) < 2:
        return board
    rows = [
        row.model_copy(update={"rank": None, "shown_as": row.label + " (ensemble)" * (one.key == "ensemble")})
        for one in both
        for row in one.rows
    ]
    rows.sort(key=lambda row: -row.r_sum_or_0)
    merged = Category("all", "Single networks and ensembles, without ranks", rows)
    return replace(board, categories=[merged, *(one for one in board.categories if one not in both)])


def chosen_boards(
    dataset: str,
    noise: str,
    mine: Sequence[Path],
    root: Path,
    *,
    protocol: str = "",
    every: bool = False,
    label: str = "",
    progress: Progress = silent,
) -> tuple[list[Board], set[str], dict[str, Paper]]:
    """The boards of one dataset and noise, with the user's rows; only those tables if there are some.

    Args:
        dataset, noise, protocol: as for :func:`boards_for`.
        mine: as for :func:`with_mine`.
        root: folder of the leaderboard.
        every: put single networks and ensembles into one table.
        label: name of the user's rows; empty for the method's name with its changed settings.
        progress: reports what is read.

    Returns:
        The boards, ``file`` of the user's rows, and the papers of printed rows.
    """
    name = dataset_spec(dataset).name
    lines = read_frame(root, name)
    rows, files = [] if lines is None else rows_of(lines), set[str]()
    if mine or lines is None:
        has_evidence = (root / "results").is_dir() or lines is None
        # the measured rows of all datasets take ten times as long to read
        content = read_content(root, published=True, dataset=name, progress=progress)
        content = content if has_evidence else replace(content, rows=rows)
        content, files = with_mine(content, mine, root, (dataset, noise), progress)
        if not files <= {row.file for row in content.rows}:
            # a row that already stands on the board of another dataset, which only_mine says
            content = read_content(root, published=True, progress=progress)
        rows = content.rows
    if label:
        rows = [row.model_copy(update={"shown_as": label}) if row.file in files else row for row in rows]
    chosen = boards_for(rows, dataset, noise, protocol)
    chosen = [together(board) for board in chosen] if every else chosen
    return only_mine(chosen, files, rows) if mine else chosen, files, read_papers(published_folder(root))


def only_mine(shown: Sequence[Board], files: Collection[str], rows: Iterable[Row]) -> list[Board]:
    """Divisions that contain the user's rows.

    Args:
        shown: from :func:`boards_for`.
        files: from :func:`with_mine`.
        rows: from :func:`with_mine`.
    """
    asked = {(board.condition.dataset, noise_name(board.condition)) for board in shown}
    for condition in (row.condition for row in rows if row.file in files):
        if (condition.dataset, noise_name(condition)) not in asked:
            raise SubmissionError(
                f"the submission is of {condition.dataset} with noise {noise_name(condition)}; ask for its table with "
                f"{named('dataset', condition.dataset)} {named('noise', noise_name(condition))}"
            )
    mine = [
        replace(
            board,
            categories=[one for one in board.categories if any(row.file in files for row in one.rows)],
        )
        for board in shown
    ]
    return [board for board in mine if board.categories]
