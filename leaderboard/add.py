"""Add submissions: check and evaluate each again, then write its seed and ranks into the files of its row."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from leaderboard.entries import anchor
from leaderboard.folder import REPRODUCED
from leaderboard.rank_files import read_pairs, write_ranks
from leaderboard.read_entries import check_header, condition_of, ranks_of, refuse_copies
from leaderboard.row_files import (
    Header,
    RowFile,
    SeedRecord,
    header_of,
    read_results,
    read_row_file,
    record_of,
    refuse_repeated,
    reproduced_yaml,
    row_name,
)
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.evaluate import evaluate_submission, open_submission
from ncl_bench.evaluation.ranks import Counted
from ncl_bench.files import sole_owner, write_text
from ncl_bench.progress import Progress, silent


class RowStands(SubmissionError):
    """The same submission already has a row.

    Attributes:
        row: name of the standing row.
        key: its seed.
    """

    def __init__(self, sentence: str, row: str, key: str) -> None:
        super().__init__(sentence)
        self.row, self.key = row, key


class NewRow(NamedTuple):
    """A re-evaluated submission that is not written yet.

    Attributes:
        folder: the submission folder.
        header: facts shared by all seeds of the row.
        record: facts of this seed.
        counted: ranks of its test split.
        places: where the board's page shows it, one per protocol; see :func:`leaderboard.entries.anchor`.
    """

    folder: Path
    header: Header
    record: SeedRecord
    counted: Counted
    places: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the row."""
        return row_name(self.header)


def add(folder: Path, root: Path, submitter: str = "") -> Path:
    """Write the result of one submission to ``root/results``; return the path of its file.

    Raises:
        RowStands: the same submission already has a row.
        SubmissionError: see :func:`new_row` and :func:`write_rows`.
        ScoresError: its scores are refused.
    """
    row = new_row(folder, root, submitter=submitter)
    write_rows([row], root)
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
        root: leaderboard folder, which contains results/.
        data_root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``). Fingerprints are
            compared if the dataset is prepared there.
        submitter: your name and GitHub account, as 'Ada (@ada)', shown on the board (default: none, for maintainers).
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
    check_header(header, opened.spec, str(folder), {})
    record = record_of(submission)
    name, key = row_name(header), record.key
    path = root / "results" / f"{name}.yaml"
    standing = read_row_file(path) if path.is_file() else None
    known = [(one.key, one.scores_sha256) for one in standing.seeds] if standing else []
    if standing and standing.header == header and (key, record.scores_sha256) in known:
        raise RowStands(f"{path} has seed {key} of {folder} already", name, key)
    with progress(f"evaluate {folder.name}", opened.n_images) as advance:
        report, counted = evaluate_submission(opened, on_rows=advance)
    evaluation = report.splits["test"]
    record = record.model_copy(update={"eccv": evaluation.eccv, "cxc": evaluation.cxc})
    places = tuple(anchor(condition_of(header, protocol), name) for protocol in evaluation.protocols)
    ranks = replace(counted["test"], pairs=read_pairs(folder, opened.spec))
    return NewRow(folder, header, record, ranks, places)


def write_rows(
    rows: Sequence[NewRow],
    root: Path,
    *,
    reproduced: bool = False,
    standing: Sequence[RowStands] = (),
    progress: Progress = silent,
) -> None:
    """Write results; if one is refused, write none.

    Adding a seed leaves the text of the other seeds in the file unchanged.

    Args:
        rows: from :func:`new_row`.
        root: folder of the leaderboard.
        reproduced: for maintainers: list the results in ``reproduced.yaml``.
        standing: results to list that are written already; an addition may have been stopped before it listed them.
        progress: reports the existing results whose ranks are read.
    """
    with sole_owner(root):
        results = read_results(root)
        files = dict(results.files)
        datasets = {row.header.dataset for row in rows}
        names = [name for name, file in files.items() if file.header.dataset in datasets]
        ranks = {}
        with progress("read results", len(names)) as advance:
            for name in names:
                ranks[name] = ranks_of(root, name, files[name])
                advance(1)
        for row in rows:
            files[row.name] = _with_row(files.get(row.name), row, root)
            ranks.setdefault(row.name, {})[row.record.key] = row.counted
        refuse_repeated(files, root / "results")
        owners: dict[str, tuple[str, RowFile]] = {}
        for name, counted in ranks.items():
            refuse_copies(name, files[name], counted, owners)
        for name in dict.fromkeys(row.name for row in rows):
            path = root / "results" / name
            order = [record.key for record in files[name].seeds]
            write_ranks(path.with_name(f"{path.name}.npz"), {seed: ranks[name][seed] for seed in order})
            write_text(path.with_name(f"{path.name}.yaml"), files[name].to_yaml())
        if reproduced:
            listed = {name: list(seeds) for name, seeds in results.reproduced.items()}
            new = ((row.name, row.record.key) for row in rows)
            for name, key in (*new, *((one.row, one.key) for one in standing)):
                listed[name] = sorted({*listed.get(name, ()), key})
            write_text(root / REPRODUCED, reproduced_yaml(listed))


def _with_row(standing: RowFile | None, row: NewRow, root: Path) -> RowFile:
    """Content of a file with one more seed."""
    if standing is None:
        return RowFile(header=row.header, seeds=(row.record,))
    path = root / "results" / f"{row.name}.yaml"
    ours, theirs = row.header.model_dump(), standing.header.model_dump()
    other = [name for name in ours if ours[name] != theirs[name]]
    if other:
        raise SubmissionError(
            f"{row.folder}: {other[0]} is {ours[other[0]]!r}, the other seeds in {path} have "
            f"{theirs[other[0]]!r}; state the same, or change the method's name if this is another one"
        )
    taken = {seed for record in standing.seeds for seed in record.training_seeds}
    again = taken & set(row.record.training_seeds)
    if again:
        raise SubmissionError(
            f"{path} has training seed {min(again)} of {row.folder} already; remove it first, or add another seed"
        )
    seeds = sorted((*standing.seeds, row.record), key=lambda record: record.training_seeds)
    return RowFile(header=standing.header, seeds=tuple(seeds))
