"""A submission: a folder with a typed ``submission.yaml`` and the score files it names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, Field, PositiveInt, field_validator, model_validator

from ncl_bench.data import DATASETS
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import SubmissionError, known_name
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION
from ncl_bench.evaluation.training_record import Training
from ncl_bench.files import write_text
from ncl_bench.names import Link, LongText, Name, ShownText, Text
from ncl_bench.noise import UNITS
from ncl_bench.noise.draw import Noise
from ncl_bench.schema import Described, FileName, Matching, NotNegative, Sha256, checked
from ncl_bench.yaml import leaves, read_yaml

SUBMISSION_FILE = "submission.yaml"
PAIRS_FILE = "pairs.npz"
"""What the scored networks say of each training pair, float16 ``(n_train_captions,)``: ``similarity``, and the method's
``clean_probability``; optional, beside the statement."""
FILL_IN = "FILL-IN"
"""Placeholder in a template for values only the submitter knows."""
NOTHING = ("none", "no", "n/a", "null", "-")


def _is_something(value: str) -> str:
    if value.lower() in NOTHING:
        raise ValueError('write "" if there is none, because any text here is ranked apart')
    return value


TextIfAny = Annotated[ShownText, AfterValidator(_is_something)]
RecipeName = Annotated[
    str,
    Field(max_length=100),
    Matching("[a-z0-9_]+/[a-z0-9_-]+", "the name of a recipe, as `ncl-bench recipes` lists them"),
]
Ratio = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Split = Literal["test", "dev"]


class ArrayFile(Described):
    """An ``.npy`` file of the submission."""

    file: Annotated[FileName, Matching(r".*\.npy", "the name of an .npy file")]
    """Path in the submission folder, with /."""
    sha256: Sha256
    """sha256 of the file, as `sha256sum` prints it."""


def _is_unit(name: str) -> str:
    return known_name("noise unit", name, ("none", *UNITS, "natural"), ValueError)


class StatedNoise(Described):
    """Noise of the training pairs."""

    unit: Annotated[str, AfterValidator(_is_unit)]
    """none for clean pairs; natural for datasets that carry their own noise; or a unit, such as caption."""
    ratio: Ratio | None
    """Nominal ratio, in [0, 1); 0 for none, null for natural."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    """Seed of the protocol's draw; null for a noise file, none and natural."""
    sha256: Sha256 | None = None
    """Hash of the little-endian int64 image of every training caption; null for none and natural."""
    realised_ratio: Ratio | None = None
    """Share of training captions whose image is not their own; null for natural."""
    published: Text | None = None
    """Name of the shared noise file used for training, such as RCL's; optional."""
    index: ArrayFile | None = None
    """The noise file itself, if no seed draws the noise; optional."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        fits = (self.ratio is None) == (self.unit == "natural") and (self.ratio == 0) == (self.unit == "none")
        if not fits or (self.unit not in ("none", "natural") and self.sha256 is None):
            raise ValueError(
                f"ratio {self.ratio} and sha256 {self.sha256} do not fit unit {self.unit!r}; state ratio 0 with none, "
                "null with natural, and with others a ratio and the hash of the noise index"
            )
        return self

    @property
    def in_words(self) -> str:
        """Such as ``caption noise of ratio 0.4 (seed 7, realised 0.3988)``, ``no noise`` or ``natural noise``."""
        if not self.ratio:
            return "no noise" if self.unit == "none" else f"{self.unit} noise"
        origin = "from a file" if self.seed is None else f"seed {self.seed}"
        realised = "" if self.realised_ratio is None else f", realised {self.realised_ratio:.4f}"
        return f"{self.unit} noise of ratio {self.ratio:g} ({origin}{realised})"


def noise_of(noise: Noise, spec: DatasetSpec) -> StatedNoise:
    """State the noise of a training split."""
    if spec.noise == "natural":
        return StatedNoise(unit="natural", ratio=None)
    if noise.unit is None:
        return StatedNoise(unit="none", ratio=0.0)
    keys = ("unit", "ratio", "seed", "sha256", "realised_ratio", "published")
    return StatedNoise(**{key: getattr(noise, key) for key in keys})


class CorrectionSetup(Described):
    """Correction of the scores for hubs with a bank of training items; the same for all seeds of a row."""

    name: Literal["csls"]
    """Cross-domain similarity local scaling, see ncl_bench.without_hubs."""
    captions: PositiveInt
    """Training captions in the bank."""
    images: PositiveInt
    """Training images in the bank."""
    given_weight: NotNegative | None = None
    """Weight, if it was given; null if it was chosen on dev."""


class CorrectionChoice(Described):
    """Options of the correction in one submission."""

    weight: NotNegative
    """0 for none, 1 for the usual one."""
    neighbours: PositiveInt
    """Highest similarities to the bank that are averaged."""


class Correction(CorrectionChoice, CorrectionSetup):
    """Correction of the scores for hubs."""


class Statement(Described):
    """Facts of a submission that are the same for every training seed; a leaderboard row begins with them."""

    protocol_version: int
    """Version of the protocol."""
    method: Name
    """Name of the method."""
    paper: Link
    """Link to the paper, or empty."""
    code: Link
    """Link to the code, or empty."""
    backbone: Name
    """Network that computes similarities, such as SGR."""
    networks: Annotated[int, Field(ge=1, le=100)]
    """Number of networks whose similarities were averaged."""
    dataset: str
    """Name of the dataset."""
    order_fingerprint: dict[Split, Sha256] = Field(default_factory=dict)
    """sha256 of each evaluated split's image ids and captions in order (docs/protocol.md)."""
    fingerprint: dict[Literal["train", "dev", "test"], Sha256] = Field(default_factory=dict)
    """sha256 of a split's content, features included, as its prepared dataset states it."""
    language: Text
    """Language of the captions."""
    tokenizer: Text
    """Tokenizer of the captions."""
    noise: StatedNoise
    """Noise of the training pairs: caption, image, similar or noun; none for clean pairs."""
    selection_split: Literal["dev", "test", "train", "none"]
    """Split on which the checkpoint was chosen: dev, test, train, or none for the last epoch."""
    extra_clean_data: TextIfAny
    """Clean pairs beyond the noisy training split, such as "3,000 pairs of train", or empty."""
    pretrained_encoder: TextIfAny
    """Encoder pre-trained on image-text pairs, such as CLIP ViT-B/32, or empty."""
    recipes: Annotated[tuple[RecipeName, ...], Field(max_length=10)] = ()
    """Recipes of ncl_bench that trained it, as `ncl-bench recipes` lists them; empty for other code."""
    notes: LongText = ""
    """Anything a reader should know."""

    @field_validator("protocol_version")
    @classmethod
    def _is_current(cls, value: int) -> int:
        if value != PROTOCOL_VERSION:
            raise ValueError(f"this release evaluates protocol version {PROTOCOL_VERSION}")
        return value

    @field_validator("dataset")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return known_name("dataset", value, DATASETS, ValueError)

    @model_validator(mode="after")
    def _agrees_with_the_dataset(self) -> Self:
        spec = DATASETS[self.dataset]
        known_name(f"language of {spec.name}", self.language, spec.languages, ValueError)
        if (self.noise.unit == "natural") != (spec.noise == "natural"):
            raise ValueError(
                f"noise unit {self.noise.unit!r} does not fit {spec.name}, whose noise is {spec.noise}"
            )
        return self


class MatrixScores(Described):
    """Similarities, float16, float32 or float64, ``(n_images, n_captions)``: images as rows."""

    form: Literal["matrix"] = "matrix"
    matrix: ArrayFile

    @property
    def files(self) -> tuple[ArrayFile, ...]:
        """The score files in order."""
        return (self.matrix,)


class EmbeddingScores(Described):
    """A pair of embedding arrays, ``(n_images, dim)`` and ``(n_captions, dim)``.

    Their cosine or dot product is computed in float64 and rounded to float32.
    """

    form: Literal["embeddings"] = "embeddings"
    similarity: Literal["cosine", "dot"]
    images: ArrayFile
    captions: ArrayFile

    @property
    def files(self) -> tuple[ArrayFile, ...]:
        """The score files in order."""
        return (self.images, self.captions)


Scores = Annotated[MatrixScores | EmbeddingScores, Field(discriminator="form")]


class Submission(Statement):
    """The content of ``submission.yaml``: method, data, noise, training runs and score files."""

    training_seeds: Annotated[tuple[int, ...], Field(min_length=1, max_length=100)]
    """One seed per training run behind the scores."""
    hardware: Text
    """Hardware used for training, such as 1 GPU of 24 GB."""
    hours: NotNegative | None
    """Training time of all networks together; null if unknown."""
    scores: Annotated[dict[Split, Scores], Field(min_length=1)]
    """Score files of each evaluated split."""
    correspondence: ArrayFile | None = None
    """One clean probability per training caption, float (n_train_captions,); optional."""
    correction: Correction | None = None
    """How the scores were corrected for hubs; null if they were not."""
    training: Training | None = None
    """Training record of this repository's trainer; null for other code."""

    @model_validator(mode="after")
    def _has_what_its_scores_need(self) -> Self:
        missing = [split for split in self.scores if split not in self.order_fingerprint]
        if missing:
            raise ValueError(
                f"order_fingerprint of split {missing[0]!r} is missing, although its scores are given"
            )
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
        content.setdefault("hours", None)
        if training := content.get("training"):
            content["training"] = {
                name: training[name] for name in _TRAINING_ORDER if training.get(name) not in (None, {}, [])
            }
        unsaid = {name for name in ("order_fingerprint", "fingerprint", "recipes") if not content[name]}
        content = {name: content[name] for name in ORDER if name in content and name not in unsaid}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


# pydantic puts a base class's fields first; written files keep the order that people know.
ORDER = (
    *("protocol_version", "method", "paper", "code", "backbone", "networks", "dataset", "order_fingerprint"),
    *("fingerprint", "language", "tokenizer", "noise", "training_seeds", "selection_split"),
    *(
        "extra_clean_data",
        "pretrained_encoder",
        "hardware",
        "hours",
        "scores",
        "correction",
        "correspondence",
        "recipes",
    ),
    *("training", "notes"),
)
_TRAINING_ORDER = (
    *("precision", "torch", "device", "settings", "plugins", "budget", "steps", "pairs_seen", "cost"),
    *("last_epoch", "curve", "found"),
)


def read_submission(folder: str | Path) -> Submission:
    """Read and check ``submission.yaml`` of a folder, without opening score files."""
    folder = Path(folder)
    path = folder / SUBMISSION_FILE
    if not path.exists():
        # the current folder is given by a script whose variable is empty
        problem = (
            f"{folder.absolute()} holds no {SUBMISSION_FILE}"
            if folder.is_dir()
            else f"{folder} is no folder"
            if folder.exists()
            else f"{folder} does not exist"
        )
        fix = (
            f"give a submission; scores alone need their dataset: ncl-bench evaluate {folder} --dataset NAME"
        )
        if (folder / "run.json").is_file():
            fix = f"score the run first: ncl-bench score {folder} --to submissions/{folder.name}"
        raise SubmissionError(f"{problem}; {fix}")
    content = read_yaml(path)
    left = unfilled(content)
    if left:
        raise SubmissionError(
            f"{path}: {FILL_IN} still stands for {', '.join(left)}; replace each by what the comment above it asks for"
        )
    return checked(Submission, content, str(path))


def unfilled(content: Any) -> list[str]:
    """Keys, joined by dots, that the submitter still has to fill in."""
    return [key for key, value in leaves(content) if value == FILL_IN]


def write_submission(folder: str | Path, submission: Submission) -> None:
    """Write ``submission.yaml``; the caller writes the score files first."""
    write_text(Path(folder) / SUBMISSION_FILE, submission.to_yaml())


def submission_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``submission.yaml``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Submission.model_json_schema()
