"""Rows from row files.

Nothing in a row file is believed: the evidence (scores, or the rank of every query) lies beside it, and every
build evaluates it again and compares.
"""

from pathlib import Path

from pydantic import ValidationError

from leaderboard.evidence import evaluate_evidence
from leaderboard.methods import RECIPES, Family, commands, family_of, own_key, recipe_commands
from leaderboard.row_files import RowFile, noise_used, read_row_files
from leaderboard.rows import RECALLS, Cell, Row
from leaderboard.significance import Hits
from ncl_bench.datasets import DATASETS
from ncl_bench.errors import NclBenchError, SubmissionError, first_problem
from ncl_bench.evaluation.result import Evaluation, ProtocolResult
from ncl_bench.submission import Submission

TOLERANCE = 1e-9
BACKBONES = {"VSE-infinity": "VSE∞"}
ORACLE = " (clean pairs only)"


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
    rows: list[Row] = []
    hits: dict[tuple[str, str], Hits] = {}
    for path, file in read_row_files(folder).items():
        try:
            evaluation, found = evaluate_evidence(file.submission, path.parent)
        except NclBenchError as error:
            raise SubmissionError(f"{path}: {error}") from None
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
            f"{path}: result.protocols has {sorted(stated.protocols)}, "
            f"expected {sorted(evaluation.protocols)}; add the submission again with `ncl-bench leaderboard add`"
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
    if submission.recipes:
        _check_recipes(submission, name)
        command = recipe_commands(submission, cell)
    else:
        command = (
            commands(families[key], submission.method, backbone, networks, cell) if key in families else ()
        )
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
        "status": file.status,
        "source": "submission",
        "files": (name,),
        "paper": submission.paper,
        "code": submission.code,
        "command": "\n".join(command),
        "noise": noise_used(submission),
        "selection": submission.selection_split,
        "notes": _notes(file),
    }
    training = submission.training
    if training is not None:
        content |= {
            "precision": training.precision,
            "trained_on": (f"torch {training.torch}, {training.device}",),
        }
    return Row.model_validate(content)


def _notes(file: RowFile) -> list[str]:
    again = (("Recomputed", file.recomputed), ("Reproduced", file.reproduced))
    how = [f"{status}: {text}" for status, text in again if text]
    return [file.submission.notes, *how] if file.submission.notes else how


def _check_recipes(submission: Submission, name: str) -> None:
    """Refuse recipes that this repository does not have: nobody could train the row with them."""
    for recipe in submission.recipes:
        if not (RECIPES / f"{recipe}.yaml").is_file():
            raise SubmissionError(
                f"{name}: recipes names {recipe!r}, which this repository does not have; choose from "
                "`ncl-bench recipes`, or leave recipes out for training code of your own"
            )


def _text(submission: Submission) -> str:
    spec = DATASETS[submission.dataset]
    usual = submission.tokenizer == spec.tokenizers[submission.language]
    if submission.language != spec.languages[0]:
        return submission.language if usual else f"{submission.language}-{submission.tokenizer}"
    return "" if usual and spec.name != "now" else submission.tokenizer
