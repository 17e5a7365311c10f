"""Add a submission: check it, evaluate it again, and write its entry file with the evidence beside it."""

from pathlib import Path
from typing import Any

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
from ncl_bench.evaluation.submission import Scores, Submission
from ncl_bench.files import sole_owner, write_text


class RowStands(SubmissionError):
    """The same submission has its row already."""


def add(
    folder: Path, root: Path, *, data_root: Path | None = None, recomputed: str = "", reproduced: str = ""
) -> Path:
    """Write the entry of a submission below ``root/submissions``.

    Args:
        folder: the submission folder.
        root: the leaderboard's folder.
        data_root: folder of prepared datasets; fingerprints are compared where the dataset is there.
        recomputed: for maintainers: how they evaluated scores again that are not kept.
        reproduced: for maintainers: how they trained the method again.

    Returns:
        Path of the entry file.

    Raises:
        RowStands: the same submission has its row already; nothing is written.
        SubmissionError: the submission is refused, or another one has its place.
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
    report, counted = evaluate_submission(opened)
    file = EntryFile(**said, submission=submission, result=report.splits["test"])
    for protocol in file.result.protocols:
        entry_of(file, protocol, read_families(), str(folder))
    with sole_owner(root):
        _refuse_duplicate(file, root, target)
        evidence = write_evidence(submission, folder, counted["test"], target)
        write_text(target, file.model_copy(update={"submission": _kept(submission, evidence)}).to_yaml())
    return target


def _refuse_duplicate(file: EntryFile, root: Path, target: Path) -> None:
    mine = set(identities(file))
    for path, other in read_entry_files(root / "submissions", adding=target).items():
        shared = mine & set(identities(other))
        if shared:
            raise SubmissionError(
                f"{path} has {min(shared)[0]}; change the submission or remove that row first"
            )
    if target.exists():
        raise SubmissionError(f"{target} exists already; rename the method if this is another one")


def _kept(submission: Submission, evidence: Scores) -> Submission:
    """The submission as its entry file states it: evidence for scores, nothing that is not kept."""
    noise = submission.noise.model_copy(update={"index": None})
    return submission.model_copy(
        update={"scores": {"test": evidence}, "noise": noise, "correspondence": None}
    )
