"""Runs on the Hugging Face Hub: push one with a model card, fetch one to score it."""

import json
import re
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from huggingface_hub import EvalResult, HfApi, ModelCardData, snapshot_download

from baselines.training.job import FinishedRun
from baselines.training.run_folder import OUTCOME_FILE
from ncl_bench.data import dataset_spec
from ncl_bench.data.hub import answered, on_the_hub
from ncl_bench.errors import TrainingError
from ncl_bench.evaluation.results import RESULT_FILE, Evaluation, read_result
from ncl_bench.files import write_text

PREFIX = "hub:"
"""Marks a run on the Hub where the path of a run is expected: ``hub:USER/NAME@REVISION``."""
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = ("run.json", "best.safetensors", OUTCOME_FILE, "history.json")


def push(run: Path, repository: str, *, result: Path | None = None) -> None:
    """Upload weights, recipe, curves and result of a finished run, with a model card; a new repository is private.

    Args:
        run: folder of a finished run.
        repository: model repository, ``USER/NAME``; a new one is private. The user's stored token opens it.
        result: evaluated submission of the run, whose ``result.json`` is uploaded and gives the card its metrics
            (default: ``submission`` in the run's folder, if it was evaluated).
    """
    _check_name(repository)
    finished = FinishedRun.read(run)
    result_folder = result or run / "submission"
    scored = read_result(result_folder) if result or (result_folder / RESULT_FILE).is_file() else None
    api = HfApi()
    with TemporaryDirectory() as folder:
        card = model_card(finished, repository, scored.splits.get("test") if scored else None)
        write_text(Path(folder) / "README.md", card)
        recipe = yaml.safe_dump(finished.run.recipe.model_dump(mode="json"), sort_keys=False)
        write_text(Path(folder) / "recipe.yaml", recipe)
        paths = [Path(folder) / "README.md", Path(folder) / "recipe.yaml"]
        paths += [run / name for name in _FILES if (run / name).is_file()]
        paths += [result_folder / RESULT_FILE] if scored else []
        with on_the_hub(f"{run} was not uploaded to {repository}", error=TrainingError):
            answered(partial(api.create_repo, repository, private=True, exist_ok=True))
            for path in paths:
                api.upload_file(path_or_fileobj=str(path), path_in_repo=path.name, repo_id=repository)


def model_card(finished: FinishedRun, repository: str, evaluation: Evaluation | None) -> str:
    """README of the repository: what was trained, its metrics as ``model-index``, and how to score it again."""
    run, spec = finished.run, dataset_spec(finished.run.recipe.dataset)
    noise = f"{run.noise.ratio:.0%} noise by {run.noise.unit}" if run.noise.unit else "no synthetic noise"
    metrics = evaluation.recalls() if evaluation else {}
    data = ModelCardData(
        library_name="ncl_bench",
        tags=["noisy-correspondence", "image-text-retrieval"],
        model_name=repository,
        eval_results=[
            EvalResult(
                task_type="image-text-retrieval",
                dataset_type=spec.name,
                dataset_name=spec.title,
                dataset_split="test",
                metric_type=name,
                metric_name=name,
                metric_value=round(value, 4),
            )
            for name, value in metrics.items()
        ]
        or None,
    )
    lines = [
        f"# {finished.job.title} on {spec.title}",
        f"Trained with ncl_bench: backbone `{run.recipe.backbone['name']}`, {noise}, training seed {run.seed}, "
        f"precision {run.precision}.",
    ]
    if evaluation:
        lines.append(f"```text\n{evaluation}\n```")
    lines.append(
        "Score it again:\n\n"
        f"```bash\nncl-bench score {PREFIX}{repository} --to submission\nncl-bench evaluate submission\n```"
    )
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(lines) + "\n"


def fetch(name: str) -> Path:
    """Download a pushed run into the Hub's cache.

    Args:
        name: ``hub:USER/NAME`` or ``hub:USER/NAME@REVISION``; a revision is a commit, tag or branch.

    Returns:
        Its folder, which :func:`baselines.score` reads.
    """
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    _check_name(repository)
    with on_the_hub(f"{name} cannot be downloaded", error=TrainingError):
        snapshot = snapshot_download(
            repository, revision=revision or None, allow_patterns=[*_FILES, "recipe.yaml"]
        )
    return Path(snapshot)


def _check_name(repository: str) -> None:
    if not _NAME.fullmatch(repository):
        raise TrainingError(f"{json.dumps(repository)} is no repository of the Hub, expected USER/NAME")
