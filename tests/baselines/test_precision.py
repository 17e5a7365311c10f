"""What a precision does to the scores of a run."""

import math
from pathlib import Path

import pytest
import torch
from few_digits import TINY, load_few
from rich.console import Console

from baselines.config import Recipe
from baselines.precision import PRECISIONS, R_SUM_LIMIT, SIMILARITY_LIMIT, precision_effects
from baselines.progress import TrainingProgress
from baselines.run import Job, RunFolder
from baselines.train import Trainer


def test_half_precision_moves_scores_a_little_and_tf32_not_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baselines.run.load_dataset", load_few)
    method = {"name": "info_nce", "epochs": 1}
    recipe = Recipe.from_dict({"dataset": "digits", "batch_size": 250, "backbone": TINY, "method": method})
    trained = Trainer(Job(recipe), RunFolder(tmp_path / "run"), "cpu").run(
        TrainingProgress(1, Console(quiet=True))
    )
    exact, tf32, half = precision_effects(RunFolder(tmp_path / "run"), device="cpu")
    assert [effect.precision for effect in (exact, tf32, half)] == list(PRECISIONS)
    assert exact.difference == 0
    assert exact.r_sum == trained["dev"]["r_sum"]
    assert tf32.difference <= 1e-6
    assert 0 < half.difference < 0.1
    for effect in (exact, tf32, half):
        near = math.isclose(effect.r_sum, exact.r_sum, abs_tol=R_SUM_LIMIT)
        assert effect.within_limits == (effect.difference <= SIMILARITY_LIMIT and near)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32
