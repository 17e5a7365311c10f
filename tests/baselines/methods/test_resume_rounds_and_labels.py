"""Methods with rounds, labels or own draws: a run stopped inside an epoch ends with the bits of the whole run."""

from pathlib import Path

import numpy as np
import pytest
import torch

from baselines.engine.job import TrainingJob
from baselines.engine.progress import TrainingProgress
from baselines.engine.recipe import Recipe
from baselines.engine.run_folder import RunFolder
from baselines.engine.train import Trainer
from baselines.kit.batches import TrainingBatches

TINY = {"name": "vse_infinity", "embed_size": 8, "word_dim": 4}
METHODS = {
    "crcl": {"name": "crcl", "rounds": [2, 2], "freeze_epochs": 1},
    "gsc_plus": {"name": "gsc_plus", "epochs": 4},
    "rcl": {"name": "rcl", "epochs": 4, "negative_ratio": 0.5},
}
BATCHES_PER_EPOCH = 4


def trainer(method: str, folder: Path, *, stop_after: int | None = None) -> Trainer:
    """A trainer on 200 pairs that is interrupted after some batches."""
    content = {"dataset": "digits", "batch_size": 50, "backbone": TINY, "method": METHODS[method]}
    running = Trainer(TrainingJob(Recipe.from_dict(content), noise_ratio=0.6), RunFolder(folder), "cpu")
    all_batches, seen = running._batches, 0

    def count(n_pairs: int) -> None:
        nonlocal seen
        if seen == stop_after:
            raise KeyboardInterrupt
        seen += 1

    def few_batches(progress: TrainingProgress) -> TrainingBatches:
        batches = all_batches(progress)
        batches._rows = np.arange(0, len(batches.pair_ids), 50)
        batches._on_batch = count
        return batches

    running._batches = few_batches  # type: ignore[method-assign]
    return running


def run(running: Trainer) -> None:
    with TrainingProgress(len(running.plans)) as progress:
        running.run(progress)


@pytest.mark.parametrize("method", METHODS)
def test_stopped_runs_end_with_the_same_bits(method: str, tmp_path: Path) -> None:
    whole = trainer(method, tmp_path / "whole")
    run(whole)
    for stop_after in (BATCHES_PER_EPOCH + 2, 2 * BATCHES_PER_EPOCH + 1):
        with pytest.raises(KeyboardInterrupt):
            run(trainer(method, tmp_path / "broken", stop_after=stop_after))
    resumed = trainer(method, tmp_path / "broken")
    run(resumed)
    expected, found = whole.method.state_dict(), resumed.method.state_dict()
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name
    assert resumed.history == whole.history
    best = [folder / "best.safetensors" for folder in (tmp_path / "whole", tmp_path / "broken")]
    assert best[0].read_bytes() == best[1].read_bytes()
    labels = [value for name, value in expected.items() if name.endswith("values")]
    assert any((value != 1).any() for value in labels) or method == "rcl"  # which has none
