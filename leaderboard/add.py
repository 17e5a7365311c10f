"""Add submissions: check and evaluate each again, then write their entry files with the evidence beside them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from leaderboard.evidence import write_evidence
from leaderboard.methods import read_families
from leaderboard.submissions import (
    EntryFile,
    entry_of,
    entry_slug,
    identities,
    read_entry_file,
    read_entry_files,
)
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.evaluate import evaluate_submission, open_submission
from ncl_bench.evaluation.ranks import Counted
from ncl_bench.evaluation.submission import Scores, Submission
from ncl_bench.files import sole_owner, write_text
from ncl_bench.progress import Progress, silent


class RowStands(SubmissionError):
    """The same submission has its row already."""


class NewRow(NamedTuple):
    """A submission that was evaluated again, and is not written yet.

    Attributes:
        folder: of the submission.
        target: path of its entry file.
        file: content of the entry file, with the scores as submitted.
        counted: ranks of its test split.
    """

    folder: Path
    target: Path
    file: EntryFile
    counted: Counted


def add(folder: Path, root: Path) -> Path:
    """Write the entry of one submission below ``root/submissions``, and return the path of its file.

    Raises:
        RowStands: as :func:`new_row`.
        SubmissionError: as :func:`new_row` and :func:`write_rows`.
        ScoresError: as :func:`new_row`.
    """
    row = new_row(folder, root)
    write_rows([row], root)
    return row.target


def new_row(
    folder: Path,
    root: Path,
    *,
    data_root: Path | None = None,
    recomputed: str = "",
    reproduced: str = "",
    progress: Progress = silent,
) -> NewRow:
    """Check a submission and evaluate it again; nothing is written.

    Args:
        folder: the submission folder.
        root: the leaderboard's folder.
        data_root: folder of prepared datasets; fingerprints are compared where the dataset is there.
        recomputed: for maintainers: how they evaluated scores again that are not kept.
        reproduced: for maintainers: how they trained the method again.
        progress: reports the images whose scores are counted.

    Raises:
        RowStands: the same submission has its row already.
        SubmissionError: the submission is refused.
        ScoresError: its scores are refused.
    """
    opened = open_submission(folder, root=data_root)
    submission = opened.submission
    if "test" not in submission.scores:
        raise SubmissionError(f"{folder}: scores hold no test split; the leaderboard shows test results")
    target = root / "submissions" / submission.dataset / f"{entry_slug(submission)}.yaml"
    said: dict[str, Any] = {
        "scores_sha256": {array.file: array.sha256 for array in submission.files_of("test")},
        "recomputed": recomputed,
        "reproduced": reproduced,
    }
    if target.exists():
        there = read_entry_file(target)
        kept = _kept(submission, there.submission.scores["test"])
        if there == there.model_copy(update={**said, "submission": kept}):
            raise RowStands(f"{target} is the row of {folder} already")
    with progress(f"evaluate {folder.name}", opened.n_images) as advance:
        report, counted = evaluate_submission(opened, on_rows=advance)
    file = EntryFile(**said, submission=submission, result=report.splits["test"])
    for protocol in file.result.protocols:
        entry_of(file, protocol, read_families(), str(folder))
    return NewRow(folder, target, file, counted["test"])


def write_rows(rows: Sequence[NewRow], root: Path, *, progress: Progress = silent) -> None:
    """Write entry files and evidence; where one is refused, none is written.

    Args:
        rows: of :func:`new_row`.
        root: the leaderboard's folder.
        progress: reports the standing rows that are read.

    Raises:
        SubmissionError: another row has the place, the training runs or the scores of one of them.
    """
    with sole_owner(root):
        _refuse_duplicates(rows, root, progress)
        for row in rows:
            submission = row.file.submission
            evidence = write_evidence(submission, row.folder, row.counted, row.target)
            file = row.file.model_copy(update={"submission": _kept(submission, evidence)})
            write_text(row.target, file.to_yaml())


def _refuse_duplicates(rows: Sequence[NewRow], root: Path, progress: Progress) -> None:
    adding = [row.target for row in rows]
    standing = read_entry_files(root / "submissions", adding=adding, progress=progress)
    taken = set(standing)
    owners = {identity: path for path, file in standing.items() for identity in identities(file)}
    for row in rows:
        mine = identities(row.file)
        for identity in mine:
            if identity in owners:
                raise SubmissionError(
                    f"{owners[identity]} has {identity[0]} as {row.folder}; change the submission or remove "
                    "the other first"
                )
        if row.target in taken:
            raise SubmissionError(
                f"{row.folder} would be written to {row.target}, which is taken; rename the method if this is "
                "another one"
            )
        taken.add(row.target)
        owners.update(dict.fromkeys(mine, row.folder))


def _kept(submission: Submission, evidence: Scores) -> Submission:
    """The submission as its entry file states it: evidence for scores, nothing that is not kept."""
    noise = submission.noise.model_copy(update={"index": None})
    return submission.model_copy(
        update={"scores": {"test": evidence}, "noise": noise, "correspondence": None}
    )
