"""Add submissions: check and evaluate each again, then write its seed and ranks into the files of its cell."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from leaderboard.cells import (
    REPRODUCED,
    CellFile,
    Header,
    Results,
    SeedRecord,
    cell_name,
    header_of,
    identities,
    read_cell,
    read_results,
    reproduced_yaml,
)
from leaderboard.evidence import read_ranks, write_ranks
from leaderboard.results import check_header, entry_of, refuse_copies
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.evaluate import evaluate_submission, open_submission
from ncl_bench.evaluation.ranks import Counted
from ncl_bench.evaluation.results import Evaluation
from ncl_bench.evaluation.statement import TrainingRecord
from ncl_bench.evaluation.submission import Submission
from ncl_bench.files import sole_owner, write_text
from ncl_bench.papers import read_families
from ncl_bench.progress import Progress, silent


class RowStands(SubmissionError):
    """The same submission already has a row.

    Attributes:
        cell: name of the row's cell.
    """

    def __init__(self, sentence: str, cell: str) -> None:
        super().__init__(sentence)
        self.cell = cell


class NewRow(NamedTuple):
    """A re-evaluated submission that is not written yet.

    Attributes:
        folder: the submission folder.
        header: facts shared by all seeds of the cell.
        record: facts of this seed.
        counted: ranks of its test split.
    """

    folder: Path
    header: Header
    record: SeedRecord
    counted: Counted

    @property
    def name(self) -> str:
        """Name of the cell."""
        return cell_name(self.header)


def add(folder: Path, root: Path, submitter: str = "") -> Path:
    """Write the result of one submission to ``root/results``; return the path of its cell file.

    Raises:
        RowStands: see :func:`new_row`.
        SubmissionError: see :func:`new_row` and :func:`write_rows`.
        ScoresError: see :func:`new_row`.
    """
    row = new_row(folder, root, submitter=submitter)
    if not write_rows([row], root):
        raise _row_stands(root, row.name, row.record.key, folder)
    return root / "results" / f"{row.name}.yaml"


def new_row(
    folder: Path,
    root: Path,
    *,
    data_root: Path | None = None,
    submitter: str = "",
    progress: Progress = silent,
) -> NewRow:
    """Check a submission and evaluate it again, without writing.

    Args:
        folder: the submission folder.
        root: folder of the leaderboard.
        data_root: folder of prepared datasets; fingerprints are compared if the dataset is prepared there.
        submitter: name or account of the submitter; empty for the maintainers.
        progress: reports the images counted.

    Raises:
        RowStands: the same submission already has a row.
        SubmissionError: the submission is refused.
        ScoresError: its scores are refused.
    """
    opened = open_submission(folder, root=data_root)
    submission = opened.submission
    if "test" not in submission.scores:
        raise SubmissionError(f"{folder}: scores hold no test split; the leaderboard shows test results")
    header = header_of(submission, submitter, str(folder))
    check_header(header, opened.spec, str(folder))
    path = root / "results" / f"{cell_name(header)}.yaml"
    standing = read_cell(path) if path.is_file() else None
    if _stands(standing, header, seed_key(submission), scores_sha256(submission)):
        raise _row_stands(root, cell_name(header), seed_key(submission), folder)
    with progress(f"evaluate {folder.name}", opened.n_images) as advance:
        report, counted = evaluate_submission(opened, on_rows=advance)
    evaluation = report.splits["test"]
    row = NewRow(folder, header, _record(submission, evaluation), counted["test"])
    for protocol, result in evaluation.protocols.items():
        entry_of(header, row.record, protocol, result, read_families(), "submitted", str(folder))
    return row


def _stands(cell: CellFile | None, header: Header, key: str, scores: str) -> bool:
    """Whether a cell has this seed with these scores."""
    if cell is None or cell.header != header:
        return False
    return any((record.key, record.scores_sha256) == (key, scores) for record in cell.seeds)


def _row_stands(root: Path, cell: str, key: str, folder: Path) -> RowStands:
    return RowStands(f"{root / 'results' / cell}.yaml has seed {key} of {folder} already", cell)


def scores_sha256(submission: Submission) -> str:
    """Hash of the scores of the test split; for several files, the hash of their hashes."""
    hashes = [array.sha256 for array in submission.scores["test"].files]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def seed_key(submission: Submission) -> str:
    """See :attr:`leaderboard.cells.SeedRecord.key`."""
    return "+".join(map(str, submission.training_seeds))


def _record(submission: Submission, evaluation: Evaluation) -> SeedRecord:
    training = submission.training
    content = {
        "training_seeds": submission.training_seeds,
        "scores_sha256": scores_sha256(submission),
        "hardware": submission.hardware,
        "hours": submission.hours,
        "training": training.model_dump(include=set(TrainingRecord.model_fields)) if training else None,
        "eccv": evaluation.eccv,
        "cxc": evaluation.cxc,
    }
    return SeedRecord.model_validate(content)


def write_rows(
    rows: Sequence[NewRow], root: Path, *, reproduced: bool = False, progress: Progress = silent
) -> list[NewRow]:
    """Write results; if one is refused, write none.

    Adding a seed leaves the text of the other seeds in the file unchanged. A row that stands is passed over: it is
    given twice, or another command has written it since :func:`new_row`.

    Args:
        rows: from :func:`new_row`.
        root: folder of the leaderboard.
        reproduced: for maintainers: list the results in ``reproduced.yaml``.
        progress: reports the existing results whose ranks are read.

    Returns:
        The rows that were written.

    Raises:
        SubmissionError: another result has the cell name, the training run, the scores or the ranks of one of the rows.
    """
    with sole_owner(root):
        results = read_results(root, [row.name for row in rows])
        cells, ranks = dict(results.cells), _standing_ranks(results, rows, root, progress)
        written = []
        for row in rows:
            standing = cells.get(row.name)
            if not _stands(standing, row.header, row.record.key, row.record.scores_sha256):
                cells[row.name] = _with_row(standing, row, root)
                ranks.setdefault(row.name, {})[row.record.key] = row.counted
                written.append(row)
        _refuse_repeated(results, written, root)
        owners: dict[str, str] = {}
        for name, counted in ranks.items():
            refuse_copies(name, counted, owners)
        for name in dict.fromkeys(row.name for row in written):
            path = root / "results" / name
            order = [record.key for record in cells[name].seeds]
            write_ranks(path.with_name(f"{path.name}.npz"), {seed: ranks[name][seed] for seed in order})
            write_text(path.with_name(f"{path.name}.yaml"), cells[name].to_yaml())
        if reproduced:
            _list_reproduced(results, written, root)
        return written


def _standing_ranks(
    results: Results, rows: Sequence[NewRow], root: Path, progress: Progress
) -> dict[str, dict[str, Counted]]:
    """Ranks of all existing results on the datasets of the new rows, by cell and seed."""
    datasets = {row.header.dataset for row in rows}
    cells = {name: file for name, file in results.cells.items() if file.header.dataset in datasets}
    ranks = {}
    with progress("read results", len(cells)) as advance:
        for name, file in cells.items():
            seeds, spec = [record.key for record in file.seeds], dataset_spec(file.header.dataset)
            added = [row.record.key for row in rows if row.name == name]
            ranks[name] = read_ranks(root / "results" / f"{name}.npz", seeds, spec, added)
            advance(1)
    return ranks


def _with_row(standing: CellFile | None, row: NewRow, root: Path) -> CellFile:
    """Content of a cell file with one more seed."""
    if standing is None:
        return CellFile(header=row.header, seeds=(row.record,))
    path = root / "results" / f"{row.name}.yaml"
    ours, theirs = row.header.model_dump(), standing.header.model_dump()
    other = [name for name in ours if ours[name] != theirs[name]]
    if other:
        raise SubmissionError(
            f"{row.folder}: {other[0]} is {ours[other[0]]!r}, the other seeds in {path} have "
            f"{theirs[other[0]]!r}; state the same, or change the method's name if this is another one"
        )
    taken = {seed for record in standing.seeds for seed in record.training_seeds}
    if taken & set(row.record.training_seeds):
        raise SubmissionError(
            f"{path} has training seed {min(taken & set(row.record.training_seeds))} already, with other scores than "
            f"{row.folder}; remove it first, or add another seed"
        )
    seeds = sorted((*standing.seeds, row.record), key=lambda record: record.training_seeds)
    return CellFile(header=standing.header, seeds=tuple(seeds))


def _refuse_repeated(results: Results, rows: Iterable[NewRow], root: Path) -> None:
    owners: dict[tuple[object, ...], Path] = {
        identity: root / "results" / f"{name}.yaml"
        for name, file in results.cells.items()
        for identity in identities(file)
    }
    for row in rows:
        for identity in identities(CellFile(header=row.header, seeds=(row.record,))):
            if identity in owners:
                raise SubmissionError(
                    f"{owners[identity]} has {identity[0]} of {row.folder} already; change the submission or remove "
                    "the other first"
                )
            owners[identity] = row.folder


def _list_reproduced(results: Results, rows: Iterable[NewRow], root: Path) -> None:
    listed = {name: list(seeds) for name, seeds in results.reproduced.items()}
    for row in rows:
        listed[row.name] = sorted({*listed.get(row.name, ()), row.record.key})
    write_text(root / REPRODUCED, reproduced_yaml(listed))
