"""A mirror for the Hugging Face Hub: eval.yaml for the dataset, results for each model's repository.

Only evaluated rows are exported; numbers that a paper prints are not ours to state there.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from leaderboard.boards import cell_title
from leaderboard.content import read_content
from leaderboard.rows import RECALLS, Cell, Row
from ncl_bench.errors import SubmissionError
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
        SubmissionError: a row is refused, the id is no repository id, or nothing is evaluated yet.
    """
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repository):
        raise SubmissionError(f"repository is {repository!r}, expected owner/name")
    rows = [row for row in read_content(root, published=False).rows if row.recalls.r_sum is not None]
    if not rows:
        raise SubmissionError(
            f"{root / 'submissions'} holds no evaluated row; add one with `ncl-bench leaderboard add`"
        )
    cells = sorted({row.cell for row in rows}, key=lambda cell: cell.order)
    files = {"eval.yaml": _dump(_benchmark(cells))}
    models: dict[str, list[Row]] = {}
    for row in rows:
        models.setdefault(_model(row), []).append(row)
    for model, members in models.items():
        for row in members:
            files[f"{model}/.eval_results/{row.cell.slug}.yaml"] = _dump(_results(row, repository))
        files[f"{model}/model-index.yaml"] = _dump({"model-index": _model_index(model, members, repository)})
    for name, text in files.items():
        write_text(to / name, text)
    return len(files)


def _benchmark(cells: Sequence[Cell]) -> dict[str, Any]:
    tasks = [{"id": cell.slug, "config": cell.dataset, "split": "test"} for cell in cells]
    return {"name": NAME, "description": DESCRIPTION, "evaluation_framework": "ncl_bench", "tasks": tasks}


def _results(row: Row, repository: str) -> list[dict[str, Any]]:
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entry = EvalResultEntry(
        dataset_id=repository,
        task_id=row.cell.slug,
        value=_rounded(row.r_sum),
        notes=_notes(row),
        source_url=row.code or None,
    )
    return list(eval_result_entries_to_yaml([entry]))


def _model_index(model: str, rows: Sequence[Row], repository: str) -> Any:
    from huggingface_hub import EvalResult
    from huggingface_hub.repocard_data import eval_results_to_model_index

    results = [
        EvalResult(
            task_type="image-text-retrieval",
            task_name="Image-text retrieval",
            dataset_type=repository,
            dataset_name=cell_title(row.cell),
            dataset_config=row.cell.slug,
            dataset_split="test",
            metric_type=name,
            metric_name=name,
            metric_value=_rounded(value),
        )
        for row in rows
        for name, value in {**row.recalls.values, "r_sum": row.r_sum}.items()
    ]
    return eval_results_to_model_index(model, results)


def _notes(row: Row) -> str:
    seeds = f"{len(row.seeds)} training seed{'s' if len(row.seeds) != 1 else ''}"
    spread = f", standard deviation {row.spread['r_sum']:.1f}" if "r_sum" in row.spread else ""
    chosen = "; checkpoint chosen on test" if row.selection == "test" else ""
    return f"rSum of {', '.join(RECALLS)}; {row.status}; {seeds}{spread}{chosen}"


def _model(row: Row) -> str:
    return re.sub(
        r"[^a-z0-9]+",
        "-",
        f"{row.label} {row.backbone}".lower().replace("+", " plus ").replace("∞", "-infinity"),
    ).strip("-")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _dump(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
