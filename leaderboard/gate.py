"""Check a pull request with results: it may only add cells and seeds under its submitter's name.

Files are compared after parsing, by cell and seed, so that no edit of an existing result passes as layout.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from leaderboard.board import published_folder
from leaderboard.cells import REPRODUCED, CellFile, read_results
from leaderboard.diff import row_key
from leaderboard.entries import Entry
from leaderboard.evidence import arrays_of, read_ranks
from leaderboard.methods import read_families
from leaderboard.published import DISAGREEMENT, read_papers, read_published
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.schema import Record

RESULTS = ("leaderboard/results/", f"leaderboard/{REPRODUCED}")
_ALLOWED = "a change may add cells and seeds of its own, and maintainers label a correction"


def refuse_mixed(changed: Iterable[str]) -> None:
    """Refuse a change of both results and code, because unreviewed code would then check the results.

    Args:
        changed: paths of the changed files in the repository; Markdown does not count as code.

    Raises:
        SubmissionError: names a file of each kind.
    """
    paths = [path for path in changed if path]
    results = [path for path in paths if path.startswith(RESULTS)]
    code = [path for path in paths if not path.startswith(RESULTS) and not path.endswith(".md")]
    if results and code:
        raise SubmissionError(
            f"the change touches results ({results[0]}) and other files ({code[0]}); open two pull requests, one "
            "with the results and one with the rest"
        )


def refuse_touched(base: Path, root: Path) -> None:
    """Refuse a leaderboard in which an existing result is changed or gone.

    Args:
        base: folder of the leaderboard before the change.
        root: folder of the leaderboard after the change.

    Raises:
        SubmissionError: names the first changed file and field, or a file that cannot be read.
    """
    link = next((path for path in (root, *root.rglob("*")) if path.is_symlink()), None)
    if link is not None:
        raise SubmissionError(f"{link} is a link; put the file itself there")
    before, after = read_results(base), read_results(root)
    for name, standing in before.cells.items():
        path = root / "results" / f"{name}.yaml"
        if name not in after.cells:
            raise SubmissionError(f"{path} is gone; {_ALLOWED}")
        _compare_cell(standing, after.cells[name], base / "results" / f"{name}.yaml", path)
    for name, cell in after.cells.items():
        known = {record.key for record in before.cells[name].seeds} if name in before.cells else set()
        new = next((record.key for record in cell.seeds if record.key not in known), None)
        if new is not None and not cell.header.submitter:  # it would count as the maintainers' own result
            raise SubmissionError(
                f"{root / 'results' / name}.yaml: seed {new} is new and names no submitter; add it with "
                "`ncl-bench leaderboard add DIR --submitter NAME`"
            )
    if after.reproduced != before.reproduced:
        raise SubmissionError(
            f"{root / REPRODUCED} is changed; only maintainers change it, with a correction"
        )
    _compare_published(base, root)


def _compare_cell(standing: CellFile, now: CellFile, base: Path, path: Path) -> None:
    _compare(standing.header, now.header, f"{path}: header")
    records = {record.key: record for record in now.seeds}
    for record in standing.seeds:
        if record.key not in records:
            raise SubmissionError(f"{path}: seed {record.key} is gone; {_ALLOWED}")
        _compare(record, records[record.key], f"{path}: seed {record.key}")
    spec = dataset_spec(standing.header.dataset)
    before = read_ranks(base.with_suffix(".npz"), [record.key for record in standing.seeds], spec)
    after = read_ranks(path.with_suffix(".npz"), list(records), spec)
    for seed, counted in before.items():
        ours, theirs = dict(arrays_of(counted)), dict(arrays_of(after[seed]))
        if ours.keys() != theirs.keys() or not all(np.array_equal(ours[name], theirs[name]) for name in ours):
            raise SubmissionError(
                f"{path.with_suffix('.npz')}: the ranks of seed {seed} are changed; {_ALLOWED}"
            )


def _compare(before: Record, after: Record, where: str) -> None:
    changed = [name for name, value in before if value != getattr(after, name)]
    if changed:
        raise SubmissionError(f"{where}: {changed[0]} is changed; {_ALLOWED}")


def _compare_published(base: Path, root: Path) -> None:
    folders = published_folder(base), published_folder(root)
    before, after = ({row_key(entry): entry for entry in _printed(folder)} for folder in folders)
    for key, entry in before.items():
        what = f"{folders[1]}: the row {entry.method} of {entry.source}, {entry.table}, in {entry.cell.title}"
        if key not in after:
            raise SubmissionError(f"{what} is gone; {_ALLOWED}")
        _compare(entry, after[key], what)
    papers, now = (read_papers(folder) for folder in folders)
    for name, paper in papers.items():
        if now.get(name) != paper:
            raise SubmissionError(f"{folders[1]}: the source {name} is changed; {_ALLOWED}")


def _printed(folder: Path) -> list[Entry]:
    """Rows without the remark on other papers, which a new row may add to an existing one."""
    entries = read_published(read_families(), folder)
    kept = ([note for note in entry.notes if not note.startswith(DISAGREEMENT)] for entry in entries)
    return [
        entry.model_copy(update={"notes": tuple(notes)}) for entry, notes in zip(entries, kept, strict=True)
    ]
