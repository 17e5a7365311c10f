"""Row files: a submission, its evidence and its result, one YAML file below ``submissions/<dataset>/``."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from leaderboard.evidence import packed_path
from ncl_bench.datasets import DATASETS
from ncl_bench.errors import SubmissionError, first_problem
from ncl_bench.evaluation.result import Evaluation, ProtocolResult
from ncl_bench.noise import standard_seed
from ncl_bench.published_noise import published_name
from ncl_bench.score_forms import MatrixScores, Sha256
from ncl_bench.submission import Submission
from ncl_bench.yaml_files import read_yaml


class RowFile(BaseModel):
    """The content of a row file.

    Attributes:
        scores_sha256: name to hash of the score files that the submitter evaluated.
        recomputed: how the maintainers evaluated scores again that are not kept; else empty.
        reproduced: how the maintainers trained the method again; else empty.
        submission: as submitted, with the scores replaced by the evidence.
        result: what ``ncl-bench evaluate`` said about the test split.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scores_sha256: Annotated[dict[str, Sha256], Field(min_length=1)]
    recomputed: Annotated[
        str,
        StringConstraints(max_length=300),
        Field(validation_alias=AliasChoices("recomputed", "verified_how")),
    ] = ""
    reproduced: Annotated[str, StringConstraints(max_length=300)] = ""
    submission: Submission
    result: Evaluation

    @property
    def status(self) -> Literal["submitted", "recomputed", "reproduced"]:
        """``recomputed`` where scores lie in the repository, which every build evaluates, or the maintainers say so."""
        if self.reproduced:
            return "reproduced"
        kept = isinstance(self.submission.scores["test"], MatrixScores)
        return "recomputed" if kept or self.recomputed else "submitted"

    def to_yaml(self) -> str:
        """Text of the file."""
        content = self.model_dump(mode="json", exclude={"submission"})
        content = {name: value for name, value in content.items() if value != ""}
        content["submission"] = yaml.safe_load(self.submission.to_yaml())
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


def row_slug(submission: Submission) -> str:
    """Name of a row's file, such as ``ncr-vse-infinity-caption-60-seed0``."""
    noise = submission.noise
    parts = [submission.method, submission.backbone, noise.unit]
    parts += [] if not noise.ratio else [f"{100 * noise.ratio:g}"]
    spec = DATASETS[submission.dataset]
    parts += [] if submission.language == spec.languages[0] else [submission.language]
    parts += [other_noise(submission), reduced_precision(submission)]
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
            f"{path}: submission.dataset is {file.submission.dataset!r}; move the file to the folder of that "
            "name"
        )
    for protocol, result in file.result.protocols.items():
        _check_possible(result, f"{path}: result.protocols.{protocol}")
    return file


def _check_possible(result: ProtocolResult, where: str) -> None:
    for direction, values in (("i2t", result.i2t), ("t2i", result.t2i)):
        low = 0.0
        for name in ("r1", "r5", "r10"):
            value = getattr(values, name)
            if not low <= value <= 100:
                raise SubmissionError(
                    f"{where}.{direction}.{name} is {value}, expected {low} to 100: "
                    "recalls are percentages and grow with K"
                )
            low = value
        if sorted(values.intervals or {}) != ["r1", "r10", "r5"]:
            raise SubmissionError(
                f"{where}.{direction}.intervals has {', '.join(values.intervals or {}) or 'nothing'}, "
                "expected r1, r5 and r10; add the submission again with `ncl-bench leaderboard add`"
            )


def read_row_files(folder: Path, *, adding: Path | None = None) -> dict[Path, RowFile]:
    """All row files below a folder of submissions, by path, sorted.

    Args:
        folder: holds ``<dataset>/<row>.yaml`` and the evidence beside it.
        adding: a row file about to be written, whose evidence may be there from an interrupted attempt.

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
    named = {
        packed_path(path.parent, array) for path, file in files.items() for array in file.submission.files()
    }
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".yaml"):
        begun = (
            adding is not None and path.parent == adding.parent and path.name.startswith(f"{adding.stem}.")
        )
        if path not in named and path.name != ".gitkeep" and not begun:
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
        reduced_precision(submission),
    )
    scores = ("the same scores", *sorted(file.scores_sha256.values()))
    return runs, scores


def reduced_precision(submission: Submission) -> str:
    """The precision of the training where it is recorded and below that of float32."""
    precision = submission.training.precision if submission.training else "32-true"
    return "" if precision == "32-true" else precision


def noise_used(submission: Submission) -> str:
    """Which noise: as :func:`other_noise`, and under image noise the standard draw too.

    No seed draws the image files that papers share, so rows on them and rows on our draw have other noise.
    """
    other, seed = other_noise(submission), submission.noise.seed
    return other or (f"our draw, seed {seed}" if submission.noise.unit == "image" else "")


def other_noise(submission: Submission) -> str:
    """What the noise is, where it is not the cell's standard draw: a shared file, a seed, or a hash."""
    noise = submission.noise
    if noise.unit not in ("caption", "image") or noise.ratio is None:
        return ""
    unit: Any = noise.unit
    if noise.seed is not None and noise.seed == standard_seed(submission.dataset, unit, noise.ratio):
        return ""
    if noise.seed is not None:
        return f"noise seed {noise.seed}"
    known = noise.published or published_name(str(noise.sha256))
    return known or f"noise file {str(noise.sha256)[:8]}"
