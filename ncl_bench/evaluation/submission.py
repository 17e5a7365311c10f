"""A submission: a folder with a typed ``submission.yaml`` and the score files it names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from ncl_bench.errors import SubmissionError, first_problem
from ncl_bench.evaluation.statement import ArrayFile, Split, Statement, Training
from ncl_bench.files import write_text
from ncl_bench.schema import Record, read_yaml
from ncl_bench.shown import Text

SUBMISSION_FILE = "submission.yaml"
FILL_IN = "FILL-IN"
"""Placeholder in a template for values only the submitter knows."""


class MatrixScores(Record):
    """Similarities, float16, float32 or float64, ``(n_images, n_captions)``: images as rows."""

    form: Literal["matrix"] = "matrix"
    matrix: ArrayFile

    @property
    def files(self) -> tuple[ArrayFile, ...]:
        """Iterate over the score files in order."""
        return (self.matrix,)


class EmbeddingScores(Record):
    """A pair of embedding arrays, ``(n_images, dim)`` and ``(n_captions, dim)``.

    Their cosine or dot product is computed in float64 and rounded to float32.
    """

    form: Literal["embeddings"] = "embeddings"
    similarity: Literal["cosine", "dot"]
    images: ArrayFile
    captions: ArrayFile

    @property
    def files(self) -> tuple[ArrayFile, ...]:
        """Iterate over the score files in order."""
        return (self.images, self.captions)


Scores = Annotated[MatrixScores | EmbeddingScores, Field(discriminator="form")]


class Submission(Statement):
    """A statement with its training runs and score files: the content of ``submission.yaml``.

    Attributes:
        training_seeds: one per training run behind the scores.
        hardware: hardware used for training.
        hours: training time of all networks together; null if unknown.
        scores: evaluated split to its score files.
        correspondence: one clean probability per training caption, float ``(n_train_captions,)``; optional.
        training: training record of this repository's engine; null for other code.
    """

    training_seeds: Annotated[tuple[int, ...], Field(min_length=1, max_length=100)]
    hardware: Text
    hours: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    scores: Annotated[dict[Split, Scores], Field(min_length=1)]
    correspondence: ArrayFile | None = None
    training: Training | None = None

    @model_validator(mode="after")
    def _has_what_its_scores_need(self) -> Self:
        missing = [split for split in self.scores if split not in self.order_fingerprint]
        if missing:
            raise ValueError(
                f"order_fingerprint of split {missing[0]!r} is missing, although its scores are given"
            )
        if self.correspondence is not None and self.noise.unit in ("none", "natural"):
            raise ValueError("correspondence is given, but without synthetic noise nothing can be separated")
        return self

    def files(self) -> Iterator[ArrayFile]:
        """Iterate over every array file that the submission names."""
        for scores in self.scores.values():
            yield from scores.files
        yield from filter(None, (self.noise.index, self.correspondence))

    def to_yaml(self) -> str:
        """Return the text of ``submission.yaml``."""
        content = self.model_dump(mode="json", exclude_none=True)
        if self.noise.unit == "natural":
            content["noise"]["ratio"] = None
        for key in ("order_fingerprint", "fingerprint"):
            if not content[key]:
                del content[key]
        if not self.recipes:
            del content["recipes"]
        for key in ("settings", "plugins"):
            if self.training is not None and not content["training"][key]:
                del content["training"][key]
        if self.training is not None:
            content["training"] = _in_order(content["training"], _TRAINING_ORDER)
        content = _in_order(content, _ORDER)
        content.setdefault("hours", None)
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


# pydantic puts a base class's fields first; written files keep the order that people know.
_ORDER = (
    *("protocol_version", "method", "paper", "code", "backbone", "networks", "dataset", "order_fingerprint"),
    *(
        "fingerprint",
        "language",
        "tokenizer",
        "noise",
        "training_seeds",
        "selection_split",
        "extra_clean_data",
    ),
    *("pretrained_encoder", "hardware", "hours", "scores", "correspondence", "recipes", "training", "notes"),
)
_TRAINING_ORDER = (
    *("precision", "torch", "device", "settings", "plugins", "budget", "steps", "pairs_seen", "cost"),
    *("last_epoch", "curve", "found"),
)


def _in_order(content: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: content[name] for name in names if name in content}


def read_submission(folder: str | Path) -> Submission:
    """Read and check ``submission.yaml`` of a folder, without opening score files.

    Raises:
        SubmissionError: it is missing, not plain YAML, not filled in, or a key is unknown, missing or wrong.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise SubmissionError(
            f"{folder} is not a folder; give the submission folder that holds {SUBMISSION_FILE}"
        )
    path = folder / SUBMISSION_FILE
    content = read_yaml(path)
    left = unfilled(content)
    if left:
        raise SubmissionError(
            f"{path}: {FILL_IN} still stands for {', '.join(left)}; replace each by what the comment beside it asks for"
        )
    try:
        return Submission.model_validate(content)
    except ValidationError as error:
        raise SubmissionError(f"{path}: {first_problem(error, content)}") from None


def unfilled(content: Any) -> list[str]:
    """Keys, joined by dots, that the submitter still has to fill in."""
    if content == FILL_IN:
        return [""]
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    return [f"{key}.{below}".rstrip(".") for key, value in items for below in unfilled(value)]


def write_submission(folder: str | Path, submission: Submission) -> None:
    """Write ``submission.yaml``; the caller writes the score files first.

    Raises:
        NclBenchError: the folder cannot be written.
    """
    write_text(Path(folder) / SUBMISSION_FILE, submission.to_yaml())


def submission_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``submission.yaml``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Submission.model_json_schema()
