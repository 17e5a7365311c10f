"""Finished runs to a submission: the test split is scored once, by the networks chosen on dev.

Scoring goes on where an interrupted call stopped: similarities fill a hidden file block by block, which takes its
final name when it is whole.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import load_file
from torch import nn

from baselines.config import shipped_name
from baselines.methods import METHODS
from baselines.run import Job, RunFolder
from baselines.score import score
from baselines.train import build_method, fabric_for
from ncl_bench.datasets import dataset_spec
from ncl_bench.datasets.paired import PairedDataset
from ncl_bench.errors import TrainingError
from ncl_bench.files import sha256_of_file, sole_owner, write_text
from ncl_bench.protocol import PROTOCOL_VERSION
from ncl_bench.submission import SUBMISSION_FILE, ArrayFile, MatrixScores, Noise, Submission, write_submission

BACKBONE_TITLES = {"sgr": "SGR", "saf": "SAF", "vse_infinity": "VSE-infinity"}
SCORES_FILE = "test.npy"


def submit(runs: Sequence[Path], to: Path, *, root: Path | None = None, device: str = "auto") -> Submission:
    """Score test with one run, or with the mean of several, and write a submission folder.

    Args:
        runs: finished runs on the same dataset and noise; SGRAF is the mean of an SGR and an SAF run.
        to: folder to write; it must not hold a submission yet.
        root: folder of prepared datasets.
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        TrainingError: a run is unfinished, the runs do not belong together, or the folder is in use.
    """
    folders = [RunFolder(run) for run in runs]
    described = [folder.read("run.json") for folder in folders]
    finished = [folder.read("result.json") for folder in folders]
    _check_alike(runs, described)
    if (to / SUBMISSION_FILE).exists():
        raise TrainingError(
            f"{to} holds a submission already; test is scored once, choose a new folder with --to"
        )
    if to.is_dir() and any(path.name not in (SCORES_FILE, _PART, _JOURNAL) for path in to.iterdir()):
        raise TrainingError(f"{to} exists and is no submission; choose a new folder with --to")
    jobs = [folder.job(root) for folder in folders]
    test = jobs[0].load("test")
    fabric = fabric_for(device, jobs[0].precision)
    networks = [
        network
        for job, folder in zip(jobs, folders, strict=True)
        for network in chosen_networks(job, folder, fabric.device)
    ]
    to.mkdir(parents=True, exist_ok=True)
    with sole_owner(to):
        key = json.dumps([described, finished], sort_keys=True)
        matrix = _score_resumably(networks, test, to, key, fabric)
        submission = _describe(jobs, described, test, len(networks), matrix, fabric)
        write_submission(to, submission)
        (to / _JOURNAL).unlink(missing_ok=True)
    return submission


def chosen_networks(job: Job, folder: RunFolder, device: torch.device) -> nn.ModuleList:
    """The networks of a finished run that were best on dev, in evaluation mode."""
    method = build_method(job, job.load("train"), job.seed)
    method.networks.load_state_dict(load_file(folder.best))
    method.eval()
    return method.networks.to(device)


_PART = f".{SCORES_FILE}.part"
_JOURNAL = ".journal.json"


def _score_resumably(
    networks: Sequence[nn.Module], test: PairedDataset, to: Path, key: str, fabric: Fabric
) -> ArrayFile:
    target, part, journal = to / SCORES_FILE, to / _PART, to / _JOURNAL
    if not target.exists():
        done = _captions_done(journal, key)
        matrix = _open_part(part, test, done)
        bar = (
            TextColumn("score"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
        )
        with Progress(*bar) as progress, fabric.autocast():
            task = progress.add_task("score", total=len(test), completed=done)

            def block_done(captions: int) -> None:
                matrix.flush()
                write_text(journal, json.dumps({"key": key, "captions": captions}))
                progress.update(task, completed=captions)

            score(networks, test, device=fabric.device, out=matrix, on_block=block_done, first_caption=done)
        if not np.isfinite(matrix).all():
            raise TrainingError(f"scores of {to} are not finite; the networks cannot be submitted")
        os.replace(part, target)
    return ArrayFile(file=SCORES_FILE, sha256=sha256_of_file(target))


def _captions_done(journal: Path, key: str) -> int:
    if not journal.is_file():
        return 0
    content = json.loads(journal.read_text(encoding="utf-8"))
    return int(content["captions"]) if content["key"] == key else 0


def _open_part(part: Path, test: PairedDataset, done: int) -> np.memmap[Any, np.dtype[np.float32]]:
    if done and part.is_file():
        return np.lib.format.open_memmap(part, mode="r+")
    return np.lib.format.open_memmap(part, mode="w+", dtype="<f4", shape=(test.n_images, len(test)))


def _check_alike(runs: Sequence[Path], described: Sequence[dict[str, Any]]) -> None:
    for run, other in zip(runs[1:], described[1:], strict=True):
        for key in ("fingerprint", "noise", "precision"):
            if other[key] != described[0][key]:
                raise TrainingError(
                    f"{run} and {runs[0]} have another {key}; only runs that share it can be averaged"
                )
        for key in ("dataset", "language", "tokenizer", "clean_only"):
            if other["recipe"][key] != described[0]["recipe"][key]:
                raise TrainingError(
                    f"{run} and {runs[0]} have another {key}; only runs that share it can be averaged"
                )


def _describe(
    jobs: Sequence[Job],
    described: Sequence[dict[str, Any]],
    test: PairedDataset,
    networks: int,
    matrix: ArrayFile,
    fabric: Fabric,
) -> Submission:
    recipe = jobs[0].recipe
    imported = [entry["imported"] for entry in described if "imported" in entry]
    spec = dataset_spec(test.name)
    language = recipe.language or spec.languages[0]
    method = METHODS[recipe.method["name"]]
    title = method.title_of(recipe.method_config)
    backbones = sorted(
        {BACKBONE_TITLES.get(job.recipe.backbone["name"], job.recipe.backbone["name"]) for job in jobs}
    )
    return Submission(
        protocol_version=PROTOCOL_VERSION,
        method=f"{title} (clean pairs only)" if recipe.clean_only else title,
        paper=method.paper,
        code="",
        backbone="SGRAF" if backbones == ["SAF", "SGR"] else " + ".join(backbones),
        networks=networks,
        dataset=test.name,
        fingerprint={"test": test.fingerprint, "train": described[0]["fingerprint"]},
        language=language,
        tokenizer=recipe.tokenizer or spec.tokenizers[language],
        noise=_noise(described[0]["noise"], spec.noise),
        training_seeds=tuple(sorted({entry["seed"] for entry in described})),
        selection_split=max((entry["selection"] for entry in imported), key=_SELECTIONS.index, default="dev"),
        extra_clean_data="the true correspondence of the training pairs" if recipe.clean_only else "",
        pretrained_encoder="",
        hardware="unknown" if imported else _hardware(fabric),
        hours=None,
        recipes=() if imported else _recipes(jobs),
        notes=" ".join(map(_origin, imported)),
        scores={"test": MatrixScores(matrix=matrix)},
    )


_SELECTIONS = ("dev", "none", "test")


def _origin(imported: dict[str, Any]) -> str:
    seed = "" if imported["seed_known"] else " The seed of that training is unknown; 0 stands for it."
    return (
        f"Weights imported from {imported['file']} (sha256 {imported['sha256']}), trained by code outside this "
        f"repository; noise and selection are as stated at the import.{seed}"
    )


def _recipes(jobs: Sequence[Job]) -> tuple[str, ...]:
    names = [shipped_name(job.recipe) for job in jobs]
    known = [name for name in names if name is not None]
    return tuple(known) if len(known) == len(names) else ()


def _noise(record: dict[str, Any], kind: str) -> Noise:
    if kind == "natural":
        return Noise(unit="natural", ratio=None)
    if record["unit"] is None:
        return Noise(unit="none", ratio=0.0)
    keys = ("unit", "ratio", "seed", "sha256", "realised_ratio")
    return Noise(**{key: record[key] for key in keys})


def _hardware(fabric: Fabric) -> str:
    if fabric.device.type == "cuda":
        return torch.cuda.get_device_name(fabric.device)
    return f"CPU, {torch.get_num_threads()} threads"
