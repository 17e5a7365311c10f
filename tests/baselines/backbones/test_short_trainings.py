"""Networks that train on few digits by their shipped recipes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baselines.backbones import BACKBONES
from baselines.engine.job import TrainingJob
from baselines.engine.progress import TrainingProgress
from baselines.engine.recipe import Recipe, with_settings
from baselines.engine.run_folder import RunFolder
from baselines.engine.train import Trainer
from baselines.recipes import recipe_names
from ncl_bench.data import load_dataset
from ncl_bench.data.paired import PairedDataset

SMALLER = {"imram": ["backbone.steps=2", "backbone.mode=text"], "scan": [], "vsrn": []}


def load_fewer(name: str, **options: Any) -> PairedDataset:
    dataset = load_dataset(name, **options)
    return dataset.subset(np.arange(500)) if options["split"] == "train" else dataset


@pytest.mark.parametrize("name", SMALLER)
@pytest.mark.parametrize("method", ["info_nce", "triplet"])
def test_the_loss_falls_in_a_short_training(
    name: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baselines.engine.job.load_dataset", load_fewer)
    mean = ["method.negatives=mean", "method.warmup_epochs=0"] if method == "triplet" else []
    settings = ["method.epochs=2", "batch_size=32", *mean, *SMALLER[name]]
    recipe, _ = with_settings(Recipe.load(f"{method}/digits_{name}"), settings)
    trainer = Trainer(TrainingJob(recipe), RunFolder(tmp_path / "run"), "cpu")
    with TrainingProgress(len(trainer.plans)) as progress:
        trainer.run(progress)
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert history[1]["loss"] < history[0]["loss"]


def test_every_backbone_has_a_recipe_on_digits() -> None:
    assert {f"triplet/digits_{name}" for name in BACKBONES} <= set(recipe_names())
