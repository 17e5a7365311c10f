"""Plans of sweeps: what is counted is what a training then does, and what is finished is not counted."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from baselines.engine.plan import left_to_do
from baselines.engine.sweep import cells_of, sweep
from ncl_bench.cli import app
from ncl_bench.data import load_dataset

TINY = {
    "dataset": "digits",
    "batch_size": 1000,
    "backbone": {"name": "vse_infinity", "embed_size": 64, "word_dim": 32},
    "method": {"name": "info_nce", "epochs": 2},
}


def test_a_plan_is_what_a_training_then_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baselines.engine.plan.WORDS", load_dataset("digits").vocabulary.size)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(TINY))
    cells = cells_of(tmp_path / "out", [str(recipe)], ["none", "caption-40"], seeds=[0])
    (before,) = left_to_do(cells).values()
    assert [before[key] for key in ("cells", "finished", "runs", "steps")] == [2, 0, 2, 2 * 2 * 10]
    sweep(tmp_path / "out", cells[:1], jobs=1, device="cpu")
    (after,) = left_to_do(cells).values()
    assert [after[key] for key in ("cells", "finished", "runs", "steps")] == [2, 1, 1, 2 * 10]
    assert 2 * after["flops"] == before["flops"] > 0
    run, submission = cells[0].run, cells[0].submission
    assert list(run.read_outcome().steps) == [20]
    written = [run.best, *run.checkpoints.glob("*.pt"), submission / "test.npy"]
    assert sum(path.stat().st_size for path in written) == pytest.approx(after["bytes"], rel=0.1)


def test_a_plan_knows_networks_budgets_clean_pairs_and_means(tmp_path: Path) -> None:
    def steps(recipe: str, *settings: str) -> dict[str, int]:
        cells = cells_of(tmp_path, [recipe], ["caption-60"], seeds=[0], settings=settings)
        return {title.split(" method.")[0]: work["steps"] for title, work in left_to_do(cells).items()}

    tiny = ("method.epochs=2", "method.warmup_epochs=1", "backbone.embed_size=8")
    batches = -(-145_000 // 128)
    mean = "bicro/flickr30k_sgr + bicro/flickr30k_saf"
    assert steps(mean, *tiny) == {
        "bicro/flickr30k_sgr": 2 * 3 * batches,
        "bicro/flickr30k_saf": 2 * 3 * batches,
        mean: 0,
    }
    assert steps("ncr/flickr30k_sgr", *tiny, "steps=7") == {"ncr/flickr30k_sgr": 2 * 7}
    assert steps("triplet/flickr30k_sgr_clean", *tiny) == {
        "triplet/flickr30k_sgr_clean": 3 * -(-(145_000 * 2 // 5) // 128)
    }


def test_the_command_prints_a_plan_and_writes_nothing(tmp_path: Path) -> None:
    command = ["sweep", "crcl", "--table", "flickr30k", "--noise", "caption-40", "--seed", "1", "--plan"]
    arguments = [*command, "--set", "backbone.embed_size=8", "--to", str(tmp_path / "out")]
    found = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert found.exit_code == 0, found.exception
    assert "no card does this work in fewer hours" in found.stdout
    total = next(line for line in found.stdout.splitlines() if line.startswith(" sum"))
    assert total.split()[1:4] == ["4", "0", "3"]
    assert not (tmp_path / "out").exists()
