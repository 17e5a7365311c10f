"""Tables for a paper: the boards of one dataset and noise, with the user's own submissions ranked among the rows."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from leaderboard.add import RowStands, new_row
from leaderboard.board import Content, boards, compared
from leaderboard.entries import Condition, Entry, Row
from leaderboard.results import Run, entries_of
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.difference import Hits
from ncl_bench.papers import read_families
from ncl_bench.progress import Progress, silent


def noise_name(condition: Condition) -> str:
    """Value of ``--noise`` for a condition: ``caption-40``, ``image-60``, ``natural`` or ``none``."""
    return f"{condition.noise_unit}-{condition.percent}" if condition.noise_ratio else condition.noise_unit


def boards_for(content: Content, dataset: str, noise: str, protocol: str = "") -> list[Row]:
    """Find the boards of one dataset and noise; several if the dataset has several protocols or tokenizers.

    Args:
        content: all rows.
        dataset: name of the dataset.
        noise: see :func:`noise_name`.
        protocol: such as ``5k``; empty for all.
    """
    spec = dataset_spec(dataset)
    if protocol and protocol not in spec.protocols:
        raise SubmissionError(
            f"unknown protocol {protocol!r} of {dataset}; choose one of: {', '.join(spec.protocols)}"
        )
    protocols = [protocol] if protocol else spec.protocols
    there = boards(
        row for row in content.rows if row["dataset"] == spec.name and row["protocol"] in protocols
    )
    if not there:
        raise SubmissionError(
            f"the leaderboard has no row of {dataset}; evaluate a submission and name it with --mine"
        )
    found = [board for board in there if noise_name(board["condition"]) == noise]
    if not found:
        names = dict.fromkeys(noise_name(board["condition"]) for board in there)
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
        The content, and ``file`` of the user's rows. A submission already on the board keeps its row there.
    """
    own: list[Entry] = []
    hits: dict[Run, Hits] = {}
    files: set[str] = set()
    for folder in dict.fromkeys(folders):
        try:
            row = new_row(folder, root, progress=progress)
        except RowStands as stands:
            files.add(stands.row)
            continue
        name = f"mine/{row.name}"  # the board may already have this name, from another run of the same method
        for entry, answered in entries_of(
            row.header, row.record, row.counted, read_families(), "submitted", name
        ):
            run = (name, row.record.key, entry.condition.protocol)
            if run in hits:
                raise SubmissionError(
                    f"{folder} repeats seed {row.record.key} of {row.header.method}; name one submission per seed"
                )
            hits[run] = answered
            own.append(entry)
        files.add(name)
    if not own:
        return content, files
    seeds = (*content.seeds, *own)
    rows, significantly_different = compared(seeds, {**content.significantly_different.hits, **hits})
    return replace(content, seeds=seeds, rows=rows, significantly_different=significantly_different), files


def only_mine(found: Iterable[Row], files: Collection[str], content: Content) -> list[Row]:
    """Divisions that contain the user's rows.

    Args:
        found: from :func:`boards_for`.
        files: from :func:`with_mine`.
        content: from :func:`with_mine`.
    """
    found = list(found)
    asked = found[0]["condition"]
    for condition in (row["condition"] for row in content.rows if row["file"] in files):
        if (condition.dataset, noise_name(condition)) != (asked.dataset, noise_name(asked)):
            raise SubmissionError(
                f"the submission is of {condition.dataset} with noise {noise_name(condition)}; ask for its table with "
                f"--dataset {condition.dataset} --noise {noise_name(condition)}"
            )
    kept = []
    for board in found:
        categories = [one for one in board["categories"] if any(row["file"] in files for row in one["rows"])]
        kept += [board | {"categories": categories}] if categories else []
    return kept
