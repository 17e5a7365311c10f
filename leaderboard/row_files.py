"""Measured results on disk: one YAML file per row with all its seeds, and the ranks of every query beside it.

    results/<dataset>/<method>/<backbone>-<N>net-<noise>[...].yaml    statement, and one record per seed
    results/<dataset>/<method>/<backbone>-<N>net-<noise>[...].npz     ranks (leaderboard/rank_files.py)
    reproduced.yaml                                                   rows and seeds that the maintainers trained

Recalls, intervals and board ranks are in no file: every build computes them from the ranks of the queries.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter

from baselines.recipes import recipe_names, tuned_on
from leaderboard.folder import REPRODUCED, result_files
from ncl_bench.data import DATASETS, dataset_spec
from ncl_bench.data.tokenizers import TOKENIZERS
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.submission import (
    CorrectionChoice,
    CorrectionSetup,
    Statement,
    Submission,
)
from ncl_bench.evaluation.training_record import TrainingRecord, TrainingSetup
from ncl_bench.foreign import reading, whole_number
from ncl_bench.names import ShownText, Text
from ncl_bench.schema import Percent, Record, Sha256, checked
from ncl_bench.yaml import read_yaml

LARGEST_FILE = 2 * 1024 * 1024
"""Maximum size of a row's YAML file in bytes: enough for 100 seeds with long curves."""


class Header(Statement):
    """Facts shared by all seeds of a row.

    Attributes:
        submitter: name or account of the submitter; empty for the maintainers.
        correction: correction for hubs; null without one.
        training: training options of this repository's trainer; null for other code.
    """

    submitter: ShownText = ""
    correction: CorrectionSetup | None = None
    training: TrainingSetup | None = None

    @property
    def setup(self) -> TrainingSetup:
        """Its training options; other code changes none of this repository's."""
        return self.training or TrainingSetup(precision="32-true")


class SeedRecord(Record):
    """One result of a row.

    Attributes:
        training_seeds: one seed, or those of the runs whose similarities were averaged.
        scores_sha256: hash of the scores that the ranks were counted from; for several files, the hash of their hashes.
        hardware: hardware used for training.
        hours: training time of all networks together; null if unknown.
        correction: options of the correction for hubs; null without one.
        training: training record of this repository's trainer; null for other code.
        eccv, cxc: percentages on COCO 5K by the labels of ECCV Caption and CxC, which ranks cannot give.
        tied_queries: number of image and caption queries whose rank depends on ties, if the ranks do not say which.
    """

    training_seeds: Annotated[tuple[int, ...], Field(min_length=1, max_length=100)]
    scores_sha256: Sha256
    hardware: Text
    hours: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    correction: CorrectionChoice | None = None
    training: TrainingRecord | None = None
    eccv: dict[str, Percent] = Field(default_factory=dict, max_length=20)
    cxc: dict[str, Percent] = Field(default_factory=dict, max_length=20)
    tied_queries: dict[Literal["i2t", "t2i"], Annotated[int, Field(ge=0)]] | None = None

    @property
    def key(self) -> str:
        """The seed as text, ``0``; several are joined by ``+``."""
        return "+".join(map(str, self.training_seeds))


class RowFile(Record):
    """Content of a row's YAML file.

    Attributes:
        header: facts shared by all seeds.
        seeds: one record per seed, in ascending order.
    """

    header: Header
    seeds: Annotated[tuple[SeedRecord, ...], Field(min_length=1, max_length=1_000)]

    @property
    def name(self) -> str:
        """Path in ``results/`` without an ending; it follows from the header."""
        return row_name(self.header)

    def to_yaml(self) -> str:
        """Format the file; a seed's text does not depend on the other seeds."""
        header = _plain(self.header)
        header["noise"].setdefault("ratio", None)
        seeds = [_plain(record) for record in sorted(self.seeds, key=lambda one: one.training_seeds)]
        text: str = yaml.dump({"header": header, "seeds": seeds}, Dumper=_Dumper, **_STYLE)
        return text


_STYLE: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 110}


class _Dumper(yaml.SafeDumper):
    """Write lists of numbers on few lines."""

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        numbers = all(isinstance(item, int | float) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=numbers or flow_style)


def _plain(record: Record) -> dict[str, Any]:
    """Content without the defaults of the reader."""
    return record.model_dump(mode="json", exclude_none=True, exclude_defaults=True)


def header_of(submission: Submission, submitter: str = "", where: str = "") -> Header:
    """Facts of a submission shared by all its seeds; noise files and true correspondence are not kept."""
    content = submission.model_dump(include=set(Statement.model_fields))
    content["noise"]["index"] = None
    content |= _parts(submission, TrainingSetup, CorrectionSetup)
    return checked(Header, content | {"submitter": submitter}, where)


def record_of(submission: Submission) -> SeedRecord:
    """Facts of a submission's seed; those that its scores are evaluated for are left out."""
    hashes = [array.sha256 for array in submission.scores["test"].files]
    whole = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    content = submission.model_dump(include={"training_seeds", "hardware", "hours"})
    content |= _parts(submission, TrainingRecord, CorrectionChoice)
    return SeedRecord(scores_sha256=hashes[0] if len(hashes) == 1 else whole, **content)


def _parts(submission: Submission, training: type[Record], correction: type[Record]) -> dict[str, Any]:
    """What a submission states of training and correction, as far as these records hold it."""
    parts = (("training", submission.training, training), ("correction", submission.correction, correction))
    return {
        name: stated.model_dump(include=set(record.model_fields)) for name, stated, record in parts if stated
    }


def row_name(header: Header) -> str:
    """Path of a row in ``results/`` without an ending: ``digits/ncr/vse-infinity-2net-caption-60-1500steps``.

    Recipes of this repository, trained by its maintainers on standard noise, have a plain name. Other names end with
    eight digits of a hash of everything that defines the row: settings, clean data, encoder, selection, noise, paper,
    code, recipes, plugins and submitter, and the exact spelling of method and backbone.
    """
    noise, setup = header.noise, header.setup
    parts = [slug(header.backbone), f"{header.networks}net", noise.unit]
    parts += [f"{100 * noise.ratio:g}"] if noise.ratio else []
    text = text_of(header)
    if text:
        parts.append(text if text.startswith(header.language) else f"{header.language}-{text}")
    parts += ["tuned"] if any(name.endswith("_tuned") for name in header.recipes) else []
    parts += [f"{setup.budget}steps"] if setup.budget else []
    if header.correction is not None:
        weight = header.correction.given_weight
        parts.append(header.correction.name + ("" if weight is None else f"-{100 * weight:g}"))
    parts += [setup.precision] if setup.precision != "32-true" else []
    parts += [] if is_plain(header) else [_hash8(header)]
    return f"{header.dataset}/{slug(header.method) or f'm-{_hash8(header)}'}/{'-'.join(filter(None, parts))}"


_DEVICES = re.compile("con|prn|aux|nul|(com|lpt)[0-9]")


def slug(name: str) -> str:
    """A name in lower-case ASCII letters, digits and hyphens, such as ``vse-infinity``.

    It is empty without a letter, and for the name of a device: no clone on Windows could hold a folder of that name.
    """
    text = name.lower().replace("∞", "-infinity").replace("+", " plus ")
    plain = re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:60].strip("-")
    return plain if re.search("[a-z]", plain) and not _DEVICES.fullmatch(plain) else ""


@cache
def known_recipes() -> tuple[str, ...]:
    """Names of the recipes of this repository, such as ``ncr/flickr30k_sgr``, sorted."""
    return tuple(recipe_names())


def is_plain(header: Header) -> bool:
    """Whether the maintainers trained unchanged recipes of this repository on standard noise."""
    return (
        not header.submitter
        and bool(header.recipes)
        and set(header.recipes) <= set(known_recipes())
        and header.training is not None
        and not header.setup.settings
        and not header.setup.plugins
        and header.selection_split == "dev"
        and is_standard_noise(header)
    )


def is_standard_noise(header: Header) -> bool:
    """Whether the noise is the protocol's draw for its unit and ratio, or there is none."""
    noise = header.noise
    if noise.unit == "none" or noise.unit == "natural" or noise.ratio is None:
        return True
    return noise.seed is not None and noise.seed == dataset_spec(header.dataset).standard_seed(
        noise.unit, noise.ratio
    )


def _hash8(header: Header) -> str:
    names = (
        *("method", "backbone", "language", "tokenizer", "selection_split", "extra_clean_data"),
        *("pretrained_encoder", "paper", "code", "recipes", "submitter", "training"),
    )
    content = header.model_dump(mode="json", include=set(names))
    content["noise"] = header.noise.sha256 or header.noise.unit
    kept = {name: value for name, value in content.items() if value}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]


def recipe_kind(header: Header) -> str:
    """``default``, ``tuned``, or ``tuned on X`` with the other dataset X; empty if no recipe is named."""
    datasets = sorted({tuned_on(name) for name in header.recipes} - {""})
    if not datasets:
        return "default" if header.recipes else ""
    return "tuned" if datasets == [header.dataset] else f"tuned on {', '.join(datasets)}"


def text_of(header: Header) -> str:
    """See :class:`~leaderboard.entries.Condition`; a tokenizer built into a network is not named."""
    spec = DATASETS[header.dataset]
    built_in = header.tokenizer not in TOKENIZERS
    usual = built_in or header.tokenizer == spec.tokenizers[header.language]
    if header.language != spec.languages[0]:
        return header.language if usual else f"{header.language}-{header.tokenizer}"
    return "" if built_in or (usual and not spec.shipped_tokenizers) else header.tokenizer


@dataclass(frozen=True)
class Results:
    """The result files of a leaderboard.

    Attributes:
        files: rows by name, sorted.
        reproduced: name of a row to the seeds that the maintainers trained.
    """

    files: dict[str, RowFile]
    reproduced: dict[str, tuple[str, ...]]


def read_results(root: Path, dataset: str = "") -> Results:
    """Read and check all YAML files of a leaderboard; ranks are not opened.

    Args:
        root: folder with ``results/`` and ``reproduced.yaml``; either may be missing.
        dataset: read only the rows of this dataset.

    Raises:
        SubmissionError: a file is refused, has a name that differs from its content, has no partner, or repeats a
            result.
    """
    folder, files = root / "results", {}
    for path in (path for path in result_files(folder / dataset) if path.suffix == ".yaml"):
        file = read_row_file(path)
        expected = folder / f"{file.name}.yaml"
        if path != expected:
            raise SubmissionError(f"{path} holds the row of {expected}; give it that name")
        files[file.name] = file
    refuse_repeated(files, folder)
    path = root / REPRODUCED
    with reading(path, SubmissionError, fix="give every row a list of seeds"):
        listed = _REPRODUCED.validate_python(read_yaml(path, largest=LARGEST_FILE) if path.exists() else {})
    return Results(files, {name: tuple(map(str, seeds)) for name, seeds in listed.items()})


_REPRODUCED = TypeAdapter(dict[str, list[int | str]])


def read_row_file(path: Path) -> RowFile:
    """Read and check the YAML file of a row."""
    return checked(RowFile, read_yaml(path, largest=LARGEST_FILE), str(path))


def refuse_repeated(files: dict[str, RowFile], folder: Path) -> None:
    """Refuse two results of one training run of a submitter."""
    seen: dict[tuple[str, str], str] = {}
    for name, file in files.items():
        runs = _runs(file.header)
        for key in (record.key for record in file.seeds):
            if standing := seen.get((runs, key)):
                raise SubmissionError(
                    f"{folder / name}.yaml repeats seed {key} of {folder / standing}.yaml; remove one of the two"
                )
            seen[runs, key] = name


def _runs(header: Header) -> str:
    """The training runs of a submitter: rows that share it are of one, but for the seed."""
    names = {"method", "backbone", "networks", "dataset", "language", "tokenizer", "extra_clean_data"}
    apart = {"pretrained_encoder", "training", "submitter", "correction"}
    content = header.model_dump(mode="json", include=names | apart)
    noise = header.noise.sha256 or header.noise.unit
    return json.dumps([content, noise, recipe_kind(header)], sort_keys=True)


def may_agree(*files: RowFile) -> bool:
    """Whether rows may have equal scores and ranks.

    Closed forms may, since a filter that keeps every pair is no filter, and so may scores before and after a correction
    for hubs, since dev may choose weight 0.
    """
    if any(file.header.correction for file in files):
        return True
    records = (record for file in files for record in file.seeds)
    return all(record.training is not None and record.training.steps == 0 for record in records)


def reproduced_yaml(reproduced: Mapping[str, Sequence[str]]) -> str:
    """Format ``reproduced.yaml``."""
    begin = "# Rows and seeds that the maintainers trained from a recipe of this repository.\n"
    plain = {
        name: [seed if (number := whole_number(seed)) is None else number for seed in seeds]
        for name, seeds in sorted(reproduced.items())
    }
    text: str = yaml.dump(plain, Dumper=_Dumper, **_STYLE | {"width": 1_000})
    return begin + text
