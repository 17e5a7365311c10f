"""Check a pull request: it may add rows, seeds and printed rows, and what stands stays unless a maintainer agrees.

Every changed file is of one kind (:func:`kind_of`). Data is read by the base's code and compared after parsing, by
file, seed and row, so that no edit of an existing result passes as layout. Code is judged by the rows that it moves.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from leaderboard.additions import additions
from leaderboard.board import own_published, published_folder
from leaderboard.build import README, readme
from leaderboard.diff import Moves, place
from leaderboard.entries import Entry
from leaderboard.evidence import arrays_of, read_ranks
from leaderboard.exports import tables_in
from leaderboard.results import DISAGREEMENT, read_published
from leaderboard.row_files import REPRODUCED, Results, RowFile, read_results
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.papers import PrintedDetection, read_families, read_papers, read_printed_detection
from ncl_bench.schema import Record

RESULTS = ("leaderboard/results/", f"leaderboard/{REPRODUCED}")
PUBLISHED_FILES = ("results.csv", "detection.csv", "notes.yaml", "sources.yaml")
_ALLOWED = "a change may add rows and seeds of its own, and maintainers label a correction"


def kind_of(path: str) -> str:
    """What a changed file of the repository is: ``results``, ``printed numbers``, ``pages`` or ``code``.

    Pages are Markdown. Whatever is nothing else is code, so that no file is of no kind.
    """
    if path.startswith(RESULTS):
        return "results"
    if path.startswith("ncl_bench/papers/published/"):
        return "printed numbers"
    return "pages" if path.endswith(".md") else "code"


def code_in(changed: Iterable[str]) -> list[str]:
    """Changed files that are code."""
    return [path for path in changed if kind_of(path) == "code"]


def refuse_mixed(changed: Iterable[str]) -> None:
    """Refuse a change of both data and code, because unreviewed code would then check the data.

    Args:
        changed: paths of the changed files in the repository; Markdown does not count as code.
    """
    first: dict[str, str] = {}
    for path in changed:
        first.setdefault(kind_of(path), path)
    data = next((kind for kind in ("results", "printed numbers") if kind in first), None)
    other = [path for kind, path in first.items() if kind not in (data, "pages")]
    if data and other:
        raise SubmissionError(
            f"the change touches {data} ({first[data]}) and other files ({other[0]}); open two pull requests, one "
            f"with the {data} and one with the rest"
        )


def refuse_moved_by_code(moves: Moves, code: list[str]) -> None:
    """Refuse code that moves a row; its own build of the same data is compared with the base's."""
    if code and moves.rows:
        others = f" and {len(code) - 1:,} other files" if len(code) > 1 else ""
        raise SubmissionError(
            f"the code of the change ({code[0]}{others}) moves {len(moves.rows):,} rows, such as "
            f"{place(moves.rows[0])}; {_ALLOWED}"
        )


def refuse_links(root: Path) -> None:
    """Refuse links in a leaderboard, or among its checkout's papers: they lead the reader elsewhere.

    Raises:
        SubmissionError: names the first link.
    """
    papers = root.parent / "ncl_bench" / "papers"
    read = (root, *root.rglob("*"), papers.parent, papers, *papers.rglob("*"))
    link = next((path for path in read if path.is_symlink()), None)
    if link is not None:
        raise SubmissionError(f"{link} is a link; put the file itself there")


def refuse_touched(base: Path, root: Path, author: str | None = None) -> None:
    """Refuse a leaderboard in which existing data is changed or gone.

    Args:
        base: folder of the leaderboard before the change.
        root: folder of the leaderboard after the change.
        author: GitHub account that brings the change; by default unknown. Only an account that the submitter's name
            holds may add a seed to a standing row, because anybody can write a name.
    """
    refuse_links(root)
    before, after = read_results(base), read_results(root)
    for name, standing in before.files.items():
        path = root / "results" / f"{name}.yaml"
        if name not in after.files:
            raise SubmissionError(f"{path} is gone; {_ALLOWED}")
        _compare_file(standing, after.files[name], base / "results" / f"{name}.yaml", path)
    _check_additions(before, after, root, author)
    if after.reproduced != before.reproduced:
        raise SubmissionError(
            f"{root / REPRODUCED} is changed; only maintainers change it, with a correction"
        )
    _compare_published(base, root)
    if tables_in(readme(base)) != tables_in(readme(root)):
        raise SubmissionError(
            f"{root / README}: the tables are changed; leave them, they are written after merging"
        )


def _check_additions(before: Results, after: Results, root: Path, author: str | None) -> None:
    for one in additions(before.files, after.files):
        where = f"{root / 'results' / one.name}.yaml: seed {one.record.key} is new and"
        if not one.header.submitter:  # it would count as the maintainers' own result
            raise SubmissionError(
                f"{where} names no submitter; add it with `ncl-bench leaderboard add DIR --submitter NAME`"
            )
        if one.joins and author is not None and not one.is_by(author):
            raise SubmissionError(
                f"{where} joins the row of {one.header.submitter}, a name that does not hold @{author}; add it under "
                "a name of your own, or ask a maintainer for the label correction"
            )


def _compare_file(standing: RowFile, now: RowFile, base: Path, path: Path) -> None:
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


def _compare_published(base: Path, root: Path) -> None:
    before, after = published_folder(base), own_published(root) or root / "published"
    if own_published(base) is None and not after.exists():
        return  # neither has printed numbers of its own
    strange = min((path for path in after.rglob("*") if path.name not in PUBLISHED_FILES), default=None)
    if strange is not None:
        raise SubmissionError(f"{strange} belongs to no printed numbers; remove it")
    standing, now = _printed(before), _printed(after)
    for key, record in standing.items():
        what = f"{after}: the {' '.join(filter(None, key))}"
        if key not in now:
            raise SubmissionError(f"{what} is gone; {_ALLOWED}")
        _compare(record, now[key], what)


def _printed(folder: Path) -> dict[tuple[str, ...], Record | PrintedDetection]:
    """Everything that is printed in papers, by what it is and where it stands."""
    found: dict[tuple[str, ...], Record | PrintedDetection] = {}
    records: list[tuple[tuple[str, ...], Record | PrintedDetection]] = [
        *((("source", name), paper) for name, paper in read_papers(folder).items()),
        *(
            (_place_of_row(entry), _without_remark(entry))
            for entry in read_published(read_families(), folder)
        ),
        *((_place_of_detection(line), line) for line in read_printed_detection(folder)),
    ]
    for key, record in records:
        if key in found:
            raise SubmissionError(
                f"{folder}: the {' '.join(filter(None, key))} stands twice; remove one of the two"
            )
        found[key] = record
    return found


def _place_of_row(entry: Entry) -> tuple[str, ...]:
    return "row", entry.method, entry.backbone, "of", entry.source, entry.table, "in", entry.condition.slug


def _place_of_detection(line: PrintedDetection) -> tuple[str, ...]:
    return (
        "detection row",
        line.method,
        line.backbone,
        "of",
        line.paper,
        line.table,
        "on",
        line.dataset,
        line.noise,
    )


def _without_remark(entry: Entry) -> Entry:
    """A row without the remark on other papers, which a new row may add to an existing one."""
    notes = tuple(note for note in entry.notes if not note.startswith(DISAGREEMENT))
    return entry.model_copy(update={"notes": notes})


def _compare(before: Record | PrintedDetection, after: Record | PrintedDetection, where: str) -> None:
    changed = [name for name, value in vars(before).items() if value != getattr(after, name)]
    if changed:
        raise SubmissionError(f"{where}: {changed[0]} is changed; {_ALLOWED}")
