"""A mirror for the Hugging Face Hub: eval.yaml for the dataset, results for each model's repository.

Only evaluated entries are exported; numbers that a paper prints are not ours to state there.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from leaderboard.board import read_content
from leaderboard.entries import Cell, Entry
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.files import write_text

NAME = "Noisy correspondence in image-text retrieval"
DESCRIPTION = (
    "Image-text retrieval trained on pairs of which a part is wrong; rSum, the sum of six recalls, per cell."
)


def export(root: Path, to: Path, repository: str) -> int:
    """Write ``eval.yaml``, and per model ``.eval_results/*.yaml`` and ``model-index.yaml``.

    Args:
        root: the leaderboard's folder.
        to: folder to write.
        repository: id of the benchmark's dataset repository on the Hub, such as ``owner/name``.

    Returns:
        The number of files.

    Raises:
        SubmissionError: an entry is refused, the id is no repository id, or nothing is evaluated yet.
    """
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repository):
        raise SubmissionError(f"repository is {repository!r}, expected owner/name")
    entries = [
        entry for entry in read_content(root, published=False).entries if entry.recalls.r_sum is not None
    ]
    if not entries:
        raise SubmissionError(
            f"{root / 'submissions'} holds no evaluated row; add one with `ncl-bench leaderboard add`"
        )
    cells = sorted({entry.cell for entry in entries}, key=lambda cell: cell.order)
    files = {"eval.yaml": _dump(_benchmark(cells))}
    models: dict[str, list[Entry]] = {}
    for entry in entries:
        models.setdefault(_model(entry), []).append(entry)
    for model, members in models.items():
        for entry in members:
            files[f"{model}/.eval_results/{entry.cell.slug}.yaml"] = _dump(_results(entry, repository))
        files[f"{model}/model-index.yaml"] = _dump({"model-index": _model_index(model, members, repository)})
    for name, text in files.items():
        write_text(to / name, text)
    return len(files)


def _benchmark(cells: Sequence[Cell]) -> dict[str, Any]:
    tasks = [{"id": cell.slug, "config": cell.dataset, "split": "test"} for cell in cells]
    return {"name": NAME, "description": DESCRIPTION, "evaluation_framework": "ncl_bench", "tasks": tasks}


def _results(entry: Entry, repository: str) -> list[dict[str, Any]]:
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    result = EvalResultEntry(
        dataset_id=repository,
        task_id=entry.cell.slug,
        value=_rounded(entry.r_sum),
        notes=_notes(entry),
        source_url=entry.code or None,
    )
    return list(eval_result_entries_to_yaml([result]))


def _model_index(model: str, entries: Sequence[Entry], repository: str) -> Any:
    from huggingface_hub import EvalResult
    from huggingface_hub.repocard_data import eval_results_to_model_index

    results = [
        EvalResult(
            task_type="image-text-retrieval",
            task_name="Image-text retrieval",
            dataset_type=repository,
            dataset_name=entry.cell.title,
            dataset_config=entry.cell.slug,
            dataset_split="test",
            metric_type=name,
            metric_name=name,
            metric_value=_rounded(value),
        )
        for entry in entries
        for name, value in {**entry.recalls.values, "r_sum": entry.r_sum}.items()
    ]
    return eval_results_to_model_index(model, results)


def _notes(entry: Entry) -> str:
    seeds = f"{len(entry.seeds)} training seed{'s' if len(entry.seeds) != 1 else ''}"
    spread = f", standard deviation {entry.spread['r_sum']:.1f}" if "r_sum" in entry.spread else ""
    chosen = "; checkpoint chosen on test" if entry.selection == "test" else ""
    return f"rSum of {', '.join(RECALLS)}; {entry.status}; {seeds}{spread}{chosen}"


def _model(entry: Entry) -> str:
    return re.sub(
        r"[^a-z0-9]+",
        "-",
        f"{entry.label} {entry.backbone}".lower().replace("+", " plus ").replace("∞", "-infinity"),
    ).strip("-")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _dump(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
