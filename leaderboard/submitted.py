"""Row files: a submission, its evidence and its result, one YAML file below ``submissions/<dataset>/``.

Nothing in a row file is believed: the evidence (scores, or the rank of every query) lies beside it, and every build
evaluates it again and compares.
"""

import re
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from leaderboard.evidence import evaluate_evidence
from leaderboard.methods import Family, commands, family_of, own_key
from leaderboard.rows import RECALLS, Cell, Row
from leaderboard.significance import Hits
from ncl_bench.datasets import DATASETS
from ncl_bench.errors import SubmissionError, first_problem
from ncl_bench.evaluation.result import Evaluation, ProtocolResult
from ncl_bench.noise import standard_seed
from ncl_bench.submission import MatrixScores, Sha256, Submission
from ncl_bench.yaml_files import read_yaml

TOLERANCE = 1e-9
BACKBONES = {"VSE-infinity": "VSE∞"}
ORACLE = " (clean pairs only)"


class RowFile(BaseModel):
    """The content of a row file.

    Attributes:
        scores_sha256: name to hash of the score files that the submitter evaluated.
        verified_how: how the maintainers verified the row, where the evidence holds no scores; empty otherwise.
        submission: as submitted, with the scores replaced by the evidence.
        result: what ``ncl-bench evaluate`` said about the test split.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scores_sha256: Annotated[dict[str, Sha256], Field(min_length=1)]
    verified_how: Annotated[str, StringConstraints(max_length=300)] = ""
    submission: Submission
    result: Evaluation

    @property
    def verified(self) -> bool:
        """Whether scores lie in the repository, or the maintainers say how they verified the row."""
        return bool(self.verified_how) or isinstance(self.submission.scores["test"], MatrixScores)

    def to_yaml(self) -> str:
        """Text of the file."""
        content = self.model_dump(mode="json", exclude={"submission"})
        content["submission"] = yaml.safe_load(self.submission.to_yaml())
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


def row_slug(submission: Submission) -> str:
    """Name of a row's file, such as ``ncr-vse-infinity-caption-60-seed0``."""
    noise = submission.noise
    parts = [submission.method, submission.backbone, noise.unit]
    parts += [] if not noise.ratio else [f"{100 * noise.ratio:g}"]
    spec = DATASETS[submission.dataset]
    parts += [] if submission.language == spec.languages[0] else [submission.language]
    parts += [_other_noise(submission)]
    parts += ["seed" + "-".join(map(str, submission.training_seeds))]
    return re.sub(
        r"[^a-z0-9.]+", "-", "-".join(parts).lower().replace("∞", "infinity").replace("+", " plus")
    ).strip("-")[:120]


def read_row_file(path: Path) -> RowFile:
    """Read and check a row file, and that it lies where it belongs; evidence is not opened.

    Raises:
        SubmissionError: with file and field.
    """
    try:
        file = RowFile.model_validate(read_yaml(path))
    except ValidationError as error:
        raise SubmissionError(f"{path}: {first_problem(error)}") from None
    if "test" not in file.submission.scores:
        raise SubmissionError(
            f"{path}: submission.scores holds no test split; the leaderboard shows test results"
        )
    if path.parent.name != file.submission.dataset:
        raise SubmissionError(
            f"{path}: submission.dataset is {file.submission.dataset!r}; move the file to submissions/{file.submission.dataset}/"
        )
    return file


def read_row_files(folder: Path) -> dict[Path, RowFile]:
    """All row files below a folder of submissions, by path, sorted.

    Raises:
        SubmissionError: a file is refused, two rows are the same, or an evidence file belongs to no row.
    """
    files = {path: read_row_file(path) for path in sorted(folder.glob("*/*.yaml"))}
    seen: dict[tuple[object, ...], Path] = {}
    for path, file in files.items():
        for key in identities(file):
            if key in seen:
                raise SubmissionError(
                    f"{path} repeats the row of {seen[key]} ({key[0]}); remove one of the two"
                )
            seen[key] = path
    named = {path.parent / array.file for path, file in files.items() for array in file.submission.files()}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".yaml"):
        if path not in named and path.name != ".gitkeep":
            raise SubmissionError(f"{path} belongs to no row; remove it or add the row's YAML file")
    return files


def identities(file: RowFile) -> tuple[tuple[object, ...], ...]:
    """What no two rows may share: the same training runs, or the same scores."""
    submission = file.submission
    content = submission.model_dump(
        include={"method", "backbone", "networks", "dataset", "language", "tokenizer", "extra_clean_data"}
        | {"pretrained_encoder", "training_seeds"}
    )
    noise = submission.noise.sha256 or submission.noise.unit
    runs = (
        "the same method, data, noise and training seeds",
        *(str(value) for value in content.values()),
        noise,
    )
    scores = ("the same scores", *sorted(file.scores_sha256.values()))
    return runs, scores


def read_submitted(
    folder: Path, families: dict[str, Family]
) -> tuple[list[Row], dict[tuple[str, str], Hits]]:
    """Rows below a folder of submissions, evaluated again from their evidence.

    Args:
        folder: holds ``<dataset>/<row>.yaml`` and the evidence beside it.
        families: the methods.

    Returns:
        The rows, and by row file and protocol what was answered.

    Raises:
        SubmissionError: a row is refused, or its evidence gives other numbers.
    """
    rows, hits = [], {}
    for path, file in read_row_files(folder).items():
        evaluation, found = evaluate_evidence(file.submission, path.parent)
        _compare(path, file.result, evaluation)
        name = path.relative_to(folder).as_posix()
        hits |= {(name, protocol): answered for protocol, answered in found.items()}
        rows += [row_of(file, protocol, families, name) for protocol in evaluation.protocols]
    return rows, hits


def row_of(file: RowFile, protocol: str, families: dict[str, Family], name: str) -> Row:
    """The row of a row file under one protocol.

    Raises:
        SubmissionError: a value cannot stand on the leaderboard, such as markup in a name.
    """
    try:
        return _row(file, protocol, file.result.protocols[protocol], families, name)
    except ValidationError as error:
        raise SubmissionError(f"{name}: {first_problem(error)}") from None


def _compare(path: Path, stated: Evaluation, evaluation: Evaluation) -> None:
    if set(evaluation.protocols) != set(stated.protocols):
        raise SubmissionError(
            f"{path}: result has protocols {sorted(stated.protocols)}, expected {sorted(evaluation.protocols)}"
        )
    for protocol, result in evaluation.protocols.items():
        numbers = _numbers(stated.protocols[protocol])
        for name, value in _numbers(result).items():
            if abs(numbers[name] - value) > TOLERANCE:
                raise SubmissionError(
                    f"{path}: result.{protocol}.{name} is {numbers[name]}, the evidence gives {value}; "
                    "add the submission again with `ncl-bench leaderboard add`"
                )


def _numbers(result: ProtocolResult) -> dict[str, float]:
    numbers = result.recalls()
    for name in RECALLS:
        low, high = (getattr(result, name[:3]).intervals or {}).get(name[4:], (0.0, 0.0))
        numbers |= {f"{name} (interval, low)": low, f"{name} (interval, high)": high}
    return numbers


def _row(file: RowFile, protocol: str, result: ProtocolResult, families: dict[str, Family], name: str) -> Row:
    submission, noise = file.submission, file.submission.noise
    cell = Cell(
        dataset=submission.dataset,
        protocol=protocol,
        noise_unit=noise.unit,
        noise_ratio=noise.ratio,
        text=_text(submission),
    )
    key = family_of(submission.method, families) or own_key(submission.method)
    backbone = BACKBONES.get(submission.backbone, submission.backbone)
    networks = "single" if submission.networks == 1 else "ensemble"
    command = commands(families[key], submission.method, backbone, networks, cell) if key in families else ()
    values = result.recalls()
    content = {
        "method": submission.method,
        "family": key,
        "backbone": backbone,
        "features": "pretrained" if submission.pretrained_encoder else "region",
        "networks": networks,
        "extra": submission.extra_clean_data,
        "kind": "oracle" if submission.method.endswith(ORACLE) else "entry",
        "cell": cell,
        "recalls": {name: values[name] for name in RECALLS},
        "intervals": {name: (getattr(result, name[:3]).intervals or {})[name[4:]] for name in RECALLS},
        "seeds": submission.training_seeds,
        "status": "verified" if file.verified else "submitted",
        "source": "submission",
        "files": (name,),
        "paper": submission.paper,
        "code": submission.code,
        "command": "\n".join(command),
        "noise": _other_noise(submission),
    }
    return Row.model_validate(content | _remarks(submission))


def _remarks(submission: Submission) -> dict[str, Any]:
    doubts = ["The checkpoint was chosen on the test split."] if submission.selection_split == "test" else []
    return {"notes": (submission.notes,) if submission.notes else (), "doubts": tuple(doubts)}


def _text(submission: Submission) -> str:
    spec = DATASETS[submission.dataset]
    usual = submission.tokenizer == spec.tokenizers[submission.language]
    if submission.language != spec.languages[0]:
        return submission.language if usual else f"{submission.language}-{submission.tokenizer}"
    return "" if usual and spec.name != "now" else submission.tokenizer


def _other_noise(submission: Submission) -> str:
    """What the noise is, where it is not the cell's standard draw."""
    noise = submission.noise
    if noise.unit not in ("caption", "image") or noise.ratio is None:
        return ""
    unit: Any = noise.unit
    if noise.seed == standard_seed(submission.dataset, unit, noise.ratio):
        return ""
    return f"noise seed {noise.seed}" if noise.seed is not None else f"noise file {str(noise.sha256)[:8]}"
