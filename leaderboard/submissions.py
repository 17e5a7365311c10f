"""Entries that were submitted: one YAML file each below ``submissions/<dataset>/``, with its evidence beside it.

Nothing in an entry file is believed: every build evaluates the evidence (scores, or the rank of every query) again
and compares.
"""

import math
import re
import shlex
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AliasChoices, Field, StringConstraints

from leaderboard.entries import Cell, Entry, checked
from leaderboard.evidence import evaluate_evidence, packed_path
from leaderboard.methods import (
    Family,
    command_lines,
    commands,
    drawn_noise,
    family_of,
    known_recipes,
    own_key,
)
from ncl_bench.data import DATASETS
from ncl_bench.data.tokenizers import TOKENIZERS
from ncl_bench.errors import NclBenchError, SubmissionError
from ncl_bench.evaluation.difference import Hits
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.evaluation.results import Evaluation, ProtocolResult
from ncl_bench.evaluation.submission import MatrixScores, Submission
from ncl_bench.noise.draw import standard_seed
from ncl_bench.noise.files import known_noise_name
from ncl_bench.progress import Progress, silent
from ncl_bench.schema import Record, Sha256, parse_yaml, read_short

ROUNDING = 1e-9
"""By how much the same sum may differ between two machines."""
ORACLE = " (clean pairs only)"
"""Ends the name of a method that was told which pairs are wrong."""


class EntryFile(Record):
    """The content of an entry file.

    Attributes:
        scores_sha256: name to hash of the score files that the submitter evaluated.
        recomputed: how the maintainers evaluated scores again that are not kept; else empty.
        reproduced: how the maintainers trained the method again; else empty.
        submission: as submitted, with the scores replaced by the evidence.
        result: what ``ncl-bench evaluate`` said about the test split.
    """

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


def entry_slug(submission: Submission) -> str:
    """Name of an entry file, such as ``ncr-vse-infinity-caption-60-seed0``."""
    noise = submission.noise
    parts = [submission.method, submission.backbone, noise.unit]
    parts += [] if not noise.ratio else [f"{100 * noise.ratio:g}"]
    spec = DATASETS[submission.dataset]
    parts += [] if submission.language == spec.languages[0] else [submission.language]
    parts += [other_noise(submission), reduced_precision(submission), *_variant(submission)]
    parts += ["seed" + "-".join(map(str, submission.training_seeds))]
    return re.sub(
        r"[^a-z0-9.]+", "-", "-".join(parts).lower().replace("∞", "infinity").replace("+", " plus")
    ).strip("-")[:120]


def read_entry_file(path: Path) -> EntryFile:
    """Read and check an entry file, and that it lies where it belongs; evidence is not opened.

    Raises:
        SubmissionError: with file and field.
    """
    return _entry_file(path, read_short(path))


@cache
def _entry_file(path: Path, text: bytes) -> EntryFile:
    """Whoever adds many rows checks the text of each once."""
    file = checked(EntryFile, parse_yaml(text, path), str(path))
    if "test" not in file.submission.scores:
        raise SubmissionError(
            f"{path}: submission.scores holds no test split; the leaderboard shows test results"
        )
    if path.parent.name != file.submission.dataset:
        raise SubmissionError(
            f"{path}: submission.dataset is {file.submission.dataset!r}; move the file to the folder of that "
            "name"
        )
    return file


def read_entry_files(
    folder: Path, *, adding: Collection[Path] = (), progress: Progress = silent
) -> dict[Path, EntryFile]:
    """All entry files below a folder of submissions, by path, sorted.

    Args:
        folder: holds ``<dataset>/<entry>.yaml`` and the evidence beside it.
        adding: entry files about to be written, whose evidence may be there from an interrupted attempt.
        progress: reports the files that are read.

    Raises:
        SubmissionError: a file is refused, two are the same, or an evidence file belongs to none.
    """
    paths = sorted(folder.glob("*/*.yaml"))
    files: dict[Path, EntryFile] = {}
    with progress("read rows", len(paths)) as advance:
        for path in paths:
            files[path] = read_entry_file(path)
            advance(1)
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
    begun = tuple(f"{path.with_suffix('')}." for path in adding)
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".yaml"):
        if path not in named and not str(path).startswith(begun):
            raise SubmissionError(f"{path} belongs to no row; remove it or add the row's YAML file")
    return files


def identities(file: EntryFile) -> tuple[tuple[object, ...], ...]:
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
        *_variant(submission),
    )
    scores = ("the same scores", *sorted(file.scores_sha256.values()))
    return runs, scores


def reduced_precision(submission: Submission) -> str:
    """The precision of the training where it is recorded and below that of float32."""
    precision = submission.training.precision if submission.training else "32-true"
    return "" if precision == "32-true" else precision


def _variant(submission: Submission) -> tuple[str, ...]:
    """How a row was trained otherwise than by a recipe as we ship it."""
    budget = submission.training.budget if submission.training else None
    tuned = ("tuned",) if recipe_kind(submission) == "tuned" else ()
    return (*tuned, *((f"{budget} steps",) if budget else ()), *changed_settings(submission))


def recipe_kind(submission: Submission) -> Literal["default", "tuned", ""]:
    """Whether the recipes of a row hold values that were tuned; empty where it names none."""
    if any(name.endswith("_tuned") for name in submission.recipes):
        return "tuned"
    return "default" if submission.recipes else ""


def changed_settings(submission: Submission) -> tuple[str, ...]:
    """What was changed in the recipes, such as ``method.epochs=10``, by name."""
    settings = submission.training.settings if submission.training else {}
    texts = {name: yaml.safe_dump(value).removesuffix("...\n").strip() for name, value in settings.items()}
    return tuple(f"{name}={text}" for name, text in sorted(texts.items()))


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
    known = noise.published or known_noise_name(str(noise.sha256))
    return known or f"noise file {str(noise.sha256)[:8]}"


def read_submissions(
    folder: Path, families: dict[str, Family], progress: Progress = silent
) -> tuple[list[Entry], dict[tuple[str, str], Hits]]:
    """Entries below a folder of submissions, evaluated again from their evidence.

    Args:
        folder: holds ``<dataset>/<entry>.yaml`` and the evidence beside it.
        families: the methods.
        progress: reports the rows that are read and evaluated.

    Returns:
        The entries, and by entry file and protocol what was answered.

    Raises:
        SubmissionError: a row is refused, or its evidence gives other numbers.
    """
    entries: list[Entry] = []
    hits: dict[tuple[str, str], Hits] = {}
    files = read_entry_files(folder, progress=progress)
    with progress("evaluate rows", len(files)) as advance:
        for path, file in files.items():
            try:
                evaluation, found = evaluate_evidence(file.submission, path.parent)
            except NclBenchError as error:
                raise SubmissionError(f"{path}: {error}") from None
            _compare(path, file.result, evaluation)
            name = path.relative_to(folder).as_posix()
            hits |= {(name, protocol): answered for protocol, answered in found.items()}
            entries += [entry_of(file, protocol, families, name) for protocol in evaluation.protocols]
            advance(1)
    return entries, hits


def entry_of(file: EntryFile, protocol: str, families: dict[str, Family], name: str) -> Entry:
    """The entry of an entry file under one protocol.

    Raises:
        SubmissionError: a value cannot stand on the leaderboard, such as markup in a name.
    """
    result, submission, noise = file.result.protocols[protocol], file.submission, file.submission.noise
    facts = {
        "dataset": submission.dataset,
        "protocol": protocol,
        "noise_unit": noise.unit,
        "noise_ratio": noise.ratio,
        "text": _text(submission),
    }
    cell = checked(Cell, facts, name)
    key = family_of(submission.method, families) or own_key(submission.method)
    backbone = submission.backbone.replace("-infinity", "∞")
    networks = "single" if submission.networks == 1 else "ensemble"
    command: tuple[str, ...] = ()
    if submission.recipes:
        _check_recipes(submission, name)
        command = recipe_commands(submission, cell)
    elif key in families:
        command = commands(families[key], submission.method, backbone, networks, cell)
    values = result.recalls()
    content: dict[str, Any] = {
        "method": submission.method,
        "family": key,
        "backbone": backbone,
        "features": "pretrained" if submission.pretrained_encoder else "region",
        "encoder": submission.pretrained_encoder,
        "networks": networks,
        "extra": submission.extra_clean_data,
        "kind": "oracle" if submission.method.endswith(ORACLE) else "method",
        "cell": cell,
        "recalls": {name: values[name] for name in RECALLS},
        "intervals": _intervals(result),
        "eccv": file.result.eccv if protocol == "5k" else {},
        "cxc": file.result.cxc if protocol == "5k" else {},
        "seeds": submission.training_seeds,
        "status": file.status,
        "source": "submission",
        "files": (name,),
        "paper": submission.paper,
        "code": submission.code,
        "command": "\n".join(command),
        "noise": noise_used(submission),
        "selection": submission.selection_split,
        "recipe": recipe_kind(submission),
        "notes": _notes(file),
    }
    training = submission.training
    if training is not None:
        content |= {
            "precision": training.precision,
            "settings": changed_settings(submission),
            "trained_on": (f"torch {training.torch}, {training.device}",),
            "budget": training.budget,
            "pairs_seen": training.pairs_seen,
            "cost": training.cost,
            "last_epoch": training.last_epoch,
            "curves": () if training.curve is None else (training.curve,),
        }
    return checked(Entry, content, name)


def _compare(path: Path, stated: Evaluation, evaluation: Evaluation) -> None:
    """Refuse a file whose numbers are not those of its evidence."""
    numbers, expected = _numbers(stated), _numbers(evaluation)
    for name in expected | numbers:
        have, want = numbers.get(name), expected.get(name)
        if have is None or want is None or not math.isclose(have, want, rel_tol=0, abs_tol=ROUNDING):
            raise SubmissionError(
                f"{path}: result.{name} is {have}, the evidence gives {want}; "
                "add the submission again with `ncl-bench leaderboard add`"
            )


def _numbers(evaluation: Evaluation) -> dict[str, float]:
    """Every recall, both ends of its interval, and every sum, by protocol and name."""
    numbers: dict[str, float] = {}
    for protocol, result in evaluation.protocols.items():
        numbers |= {f"{protocol}.{name}": value for name, value in result.recalls().items()}
        for name, (low, high) in _intervals(result).items():
            numbers |= {f"{protocol}.{name} (low)": low, f"{protocol}.{name} (high)": high}
    return numbers


def _intervals(result: ProtocolResult) -> dict[str, tuple[float, float]]:
    sides = {"i2t": result.i2t, "t2i": result.t2i}
    return {
        f"{side}_{name}": ends for side, one in sides.items() for name, ends in (one.intervals or {}).items()
    }


def _notes(file: EntryFile) -> list[str]:
    encoder, stated = file.submission.pretrained_encoder, file.submission.notes
    begun = [f"Pre-trained encoder: {encoder}."] if encoder else []
    again = (("Recomputed", file.recomputed), ("Reproduced", file.reproduced))
    return [*begun, *([stated] if stated else []), *(f"{status}: {text}" for status, text in again if text)]


def _check_recipes(submission: Submission, name: str) -> None:
    """Refuse recipes that neither this repository nor a plugin has: nobody could train the row with them."""
    own = submission.training is not None and submission.training.plugins
    for recipe in submission.recipes:
        if recipe not in known_recipes() and not own:
            raise SubmissionError(
                f"{name}: recipes names {recipe!r}, which this repository does not have; choose from "
                "`ncl-bench recipes`, or leave recipes out for training code of your own"
            )


def recipe_commands(submission: Submission, cell: Cell) -> tuple[str, ...]:
    """The command lines of a row that states its recipes: on its noise, with its first seed and settings."""
    noise, seed, training = submission.noise, submission.training_seeds[0], submission.training
    options = drawn_noise(cell.noise_ratio or 0.0, cell.noise_unit)
    if noise.unit in ("caption", "image") and noise.seed is None:
        options = f" --noise-file FILE --noise-unit {noise.unit}"
    elif other_noise(submission):
        options += f" --noise-seed {noise.seed}"
    options += f" --seed {seed}" if seed else ""
    options += f" --precision {training.precision}" if training and reduced_precision(submission) else ""
    options += f" --set steps={training.budget}" if training and training.budget else ""
    options += "".join(f" --set {shlex.quote(setting)}" for setting in changed_settings(submission))
    plugins = training.plugins if training else ()
    return command_lines(submission.recipes, options, cell.slug, plugins)


def _text(submission: Submission) -> str:
    """See :class:`~leaderboard.entries.Cell`; a network that splits captions in a way of its own changes nothing."""
    spec = DATASETS[submission.dataset]
    own = submission.tokenizer not in TOKENIZERS
    usual = own or submission.tokenizer == spec.tokenizers[submission.language]
    if submission.language != spec.languages[0]:
        return submission.language if usual else f"{submission.language}-{submission.tokenizer}"
    return "" if own or (usual and not spec.shipped_tokenizers) else submission.tokenizer
