"""Scoring a run: resumed by block, and never with what other runs left behind."""

import json
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import save
from support.few_digits import TINY, load_few
from support.rounding import assert_near

import baselines.engine.score_run
from baselines.engine.devices import fabric_for, machine_of
from baselines.engine.progress import TrainingProgress
from baselines.engine.recipe import Recipe
from baselines.engine.run_folder import RunFolder, TrainingJob
from baselines.engine.score_run import submit
from baselines.engine.similarities import CAPTION_BLOCK, score, score_blocks
from baselines.engine.train import Trainer
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.vocabulary import Vocabulary
from ncl_bench.errors import TrainingError
from ncl_bench.evaluation.protocol import evaluate
from ncl_bench.evaluation.submission import MatrixScores, Training, read_submission
from ncl_bench.files import sha256_of_file


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs with different seeds."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = Recipe.from_dict(
        {
            "dataset": "digits",
            "batch_size": 500,
            "backbone": TINY,
            "method": {"name": "info_nce", "epochs": 1},
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("baselines.engine.run_folder.load_dataset", load_few)
        for seed in range(2):
            trainer = Trainer(TrainingJob(recipe, seed=seed), RunFolder(folder / str(seed)), "cpu")
            trainer.run(TrainingProgress(1, Console(quiet=True)))
    return [folder / str(seed) for seed in range(2)]


def with_other_words(name: str, **options: Any) -> PairedDataset:
    """The same data, whose preparation gave two words each other's id."""
    dataset = load_few(name, **options)
    words = list(dataset.vocabulary.words)
    words[-2:] = words[:-3:-1]
    return replace(dataset, vocabulary=Vocabulary(tuple(words), dataset.vocabulary.size))


def test_a_run_with_another_vocabulary_is_neither_resumed_nor_averaged_nor_scored(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = RunFolder(runs[0]).job()
    monkeypatch.setattr("baselines.engine.run_folder.load_dataset", with_other_words)
    other = Trainer(job, RunFolder(tmp_path / "other"), "cpu")
    other.run(TrainingProgress(1, Console(quiet=True)))
    assert other.train_split.fingerprint == RunFolder(runs[0]).read_run().fingerprint
    with pytest.raises(TrainingError, match="holds a run with another vocabulary"):
        Trainer(job, RunFolder(runs[0]), "cpu").run(TrainingProgress(1, Console(quiet=True)))
    with pytest.raises(
        TrainingError, match="have another vocabulary; only runs that share it can be averaged"
    ):
        submit([runs[0], tmp_path / "other"], tmp_path / "mean", device="cpu")
    with pytest.raises(TrainingError, match=r"token ids differ; give the --root of the training"):
        submit(runs[:1], tmp_path / "one", device="cpu")


def test_a_submission_states_where_its_runs_were_trained_not_where_they_are_scored(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [{"torch": "2.6.0", "device": "NVIDIA L4"}, {"torch": "2.7.0", "device": "NVIDIA L4"}]
    for run, machine in zip(runs, said, strict=True):
        copy = tmp_path / run.name
        shutil.copytree(run, copy)
        described = json.loads((copy / "run.json").read_text())
        assert described["trained_on"] == [dict(machine_of(fabric_for("cpu", "32-true")))]
        (copy / "run.json").write_text(json.dumps(described | {"trained_on": [machine]}))
    both = submit([tmp_path / run.name for run in runs], tmp_path / "both", device="cpu")
    assert both.hardware == "NVIDIA L4"
    machine = Training(precision="32-true", torch="2.6.0 + 2.7.0", device="NVIDIA L4")
    assert both.training == machine.model_copy(update={"steps": 2, "pairs_seen": 1000.0})
    assert read_submission(tmp_path / "both") == both


def test_a_run_of_so_many_steps_states_its_compute_and_the_last_epoch_beside_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baselines.engine.run_folder.load_dataset", load_few)
    method = {"name": "crcl", "rounds": [1, 1], "freeze_epochs": 1}
    content = {"dataset": "digits", "batch_size": 100, "steps": 30, "backbone": TINY, "method": method}
    job = TrainingJob(Recipe.from_dict(content), noise_ratio=0.4)
    trainer = Trainer(job, RunFolder(tmp_path / "run"), "cpu")
    trainer.run(TrainingProgress(1, Console(quiet=True)))
    training = submit([tmp_path / "run"], tmp_path / "to", device="cpu").training
    assert training is not None
    assert (training.budget, training.steps, training.settings) == (30, 30, {})
    assert training.pairs_seen == 30 * 100
    assert training.cost == RunFolder(tmp_path / "run").read_outcome().cost
    last = score(trainer.method.eval().networks, job.load("test"))
    assert training.last_epoch == pytest.approx(evaluate(last, dataset="digits").r_sum)
    assert training.curve is not None
    assert training.curve.steps == (10, 20, 30)
    history = trainer.history
    assert training.curve.dev == tuple(round(entry.dev["r_sum"], 4) for entry in history)
    assert training.curve.auroc[2] == round(history[2].diagnosis["clean_probability"].auroc, 4)
    assert read_submission(tmp_path / "to").training == training
    # where another epoch was the best one, its scores say nothing of the last
    outcome = trainer.folder.read_outcome().model_copy(update={"best_epoch": 0})
    (tmp_path / "run" / "training.json").write_text(outcome.model_dump_json())
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    without = submit([tmp_path / "run"], tmp_path / "without", device="cpu").training
    assert without == training.model_copy(update={"last_epoch": None})


def test_scores_of_a_last_epoch_that_was_the_best_are_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baselines.engine.run_folder.load_dataset", load_few)
    method = {"name": "info_nce", "epochs": 2}
    content = {"dataset": "digits", "batch_size": 500, "steps": 4, "backbone": TINY, "method": method}
    run = RunFolder(tmp_path / "run")
    trainer = Trainer(TrainingJob(Recipe.from_dict(content)), run, "cpu")
    trainer.run(TrainingProgress(1, Console(quiet=True)))
    outcome = run.read_outcome()
    begun = interrupt_after(-1, monkeypatch)  # never; it counts

    def scorings_and_last_epoch(
        name: str, best_epoch: int, best: dict[str, torch.Tensor]
    ) -> tuple[int, float]:
        said = outcome.model_copy(update={"best_epoch": best_epoch, "best_sha256": None})
        (tmp_path / "run" / "training.json").write_text(said.model_dump_json())
        run.best.write_bytes(save(best))
        begun.clear()
        training = submit([tmp_path / "run"], tmp_path / name, device="cpu").training
        assert training is not None
        assert training.last_epoch is not None
        return len(begun), training.last_epoch

    last = trainer.method.networks.state_dict()
    scorings, at_hand = scorings_and_last_epoch("last", outcome.epochs - 1, last)
    assert scorings == 1
    assert at_hand == round(evaluate(tmp_path / "last" / "test.npy", dataset="digits").r_sum, 4)
    earlier = {name: torch.zeros_like(value) + 0.01 for name, value in last.items()}
    assert scorings_and_last_epoch("earlier", 0, earlier) == (2, at_hand)
    assert evaluate(tmp_path / "earlier" / "test.npy", dataset="digits").r_sum < at_hand


def test_a_run_that_does_not_say_where_it_was_trained_is_scored(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "old")
    described = json.loads((tmp_path / "old" / "run.json").read_text())
    del described["trained_on"]
    (tmp_path / "old" / "run.json").write_text(json.dumps(described))
    mean = submit([tmp_path / "old", runs[1]], tmp_path / "mean", device="cpu")
    assert (mean.training, mean.hardware) == (None, "unknown")


def interrupt_after(blocks: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stop scoring after some blocks; lists where each call began."""
    begun: list[int] = []

    def interrupted(*args: Any, first_caption: int, **options: Any) -> Iterator[Any]:
        begun.append(first_caption)
        for count, block in enumerate(score_blocks(*args, first_caption=first_caption, **options)):
            if count == blocks and len(begun) == 1:
                raise KeyboardInterrupt
            yield block

    monkeypatch.setattr(baselines.engine.score_run, "score_blocks", interrupted)
    return begun


def test_interrupted_scoring_goes_on_at_the_next_block_to_the_same_bits(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = submit(runs[:1], tmp_path / "whole", device="cpu")
    begun = interrupt_after(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        submit(runs[:1], tmp_path / "broken", device="cpu")
    assert not (tmp_path / "broken" / "test.npy").exists()
    assert submit(runs[:1], tmp_path / "broken", device="cpu") == whole
    assert begun == [0, 2 * CAPTION_BLOCK]
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "broken" / path.name).read_bytes()
    assert len(list((tmp_path / "broken").iterdir())) == len(list((tmp_path / "whole").iterdir()))


def test_more_images_than_memory_holds_are_scored_in_strips(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(runs[:1], tmp_path / "whole", device="cpu")
    monkeypatch.setattr("baselines.engine.similarities.IMAGE_BLOCK", 64)
    monkeypatch.setattr("baselines.engine.similarities.MOST_VECTORS", 1)
    submit(runs[:1], tmp_path / "strips", device="cpu")
    scores = [np.load(tmp_path / name / "test.npy") for name in ("whole", "strips")]
    assert_near(scores[1], scores[0], 1e-6, scale=1)
    begun = interrupt_after(6, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        submit(runs[:1], tmp_path / "broken", device="cpu")
    journal = json.loads((tmp_path / "broken" / ".journal.json").read_text())
    assert (journal["images"], journal["captions"]) == (64, 2 * CAPTION_BLOCK)
    submit(runs[:1], tmp_path / "broken", device="cpu")
    assert begun == [0, 2 * CAPTION_BLOCK]
    assert (tmp_path / "broken" / "test.npy").read_bytes() == (tmp_path / "strips" / "test.npy").read_bytes()


@pytest.mark.parametrize("stopped", ["within", "before the submission"])
def test_what_another_run_left_is_not_taken_for_this_runs_scores(
    stopped: str, runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = submit(runs[1:], tmp_path / "expected", device="cpu")
    with monkeypatch.context() as patch:
        if stopped == "within":
            interrupt_after(2, patch)
        else:
            patch.setattr(
                baselines.engine.score_run, "write_submission", lambda *args: (_ for _ in ()).throw(KeyError)
            )
        with pytest.raises((KeyboardInterrupt, KeyError)):
            submit(runs[:1], tmp_path / "shared", device="cpu")
    assert (tmp_path / "shared" / "test.npy").exists() == (stopped != "within")
    assert submit(runs[1:], tmp_path / "shared", device="cpu") == expected


def test_a_run_counts_once_in_a_mean(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="is given twice"):
        submit([*runs, runs[0] / ".." / runs[0].name], tmp_path / "mean", device="cpu")
    assert not (tmp_path / "mean").exists()


def test_scores_of_unknown_origin_are_refused_and_kept(runs: list[Path], tmp_path: Path) -> None:
    np.save(tmp_path / "test.npy", np.zeros(3))
    before = (tmp_path / "test.npy").read_bytes()
    with pytest.raises(TrainingError, match="exists and is no submission"):
        submit(runs[:1], tmp_path, device="cpu")
    assert (tmp_path / "test.npy").read_bytes() == before


@pytest.mark.slow  # measures memory
def test_whole_scores_are_checked_in_blocks(tmp_path: Path) -> None:
    part = tmp_path / ".test.npy.part"
    matrix = np.lib.format.open_memmap(part, "w+", "<f4", (4_000, 1_000))
    matrix[3_999, 999] = np.inf
    matrix.flush()
    tracemalloc.start()
    with pytest.raises(TrainingError, match="are not finite"):
        baselines.engine.score_run._whole_scores(tmp_path)
    matrix[3_999, 999] = 0
    matrix.flush()
    scores = baselines.engine.score_run._whole_scores(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(scores, MatrixScores)
    assert scores.matrix.sha256 == sha256_of_file(tmp_path / "test.npy")
    assert peak < matrix.size / 4


def resident_mebibytes(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


@pytest.mark.slow  # measures memory
def test_pages_of_scores_do_not_stay_in_memory(tmp_path: Path) -> None:
    matrix = np.lib.format.open_memmap(tmp_path / "scores.npy", "w+", "<f4", (2_000, 8_192))
    block = np.random.default_rng(0).random((2_000, 1_024), dtype=np.float32)
    most, before = 0.0, resident_mebibytes("RssFile") + resident_mebibytes("RssShmem")
    for first in range(0, 8_192, 1_024):
        baselines.engine.score_run._fill(matrix, slice(0, 2_000), slice(first, first + 1_024), block)
        most = max(most, resident_mebibytes("RssFile") + resident_mebibytes("RssShmem"))
    assert most - before < matrix.nbytes / 2**20 / 8
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), np.tile(block, 8))


def test_damaged_weights_are_not_scored(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "run")
    weights = tmp_path / "run" / "best.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(TrainingError, match="its sha256 is not the one"):
        submit([tmp_path / "run"], tmp_path / "to", device="cpu")
    assert not (tmp_path / "to").exists()


def test_a_network_that_no_memory_holds_is_refused(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "run")
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    described["recipe"]["backbone"]["embed_size"] = 10**12
    (tmp_path / "run" / "run.json").write_text(json.dumps(described))
    with pytest.raises(TrainingError, match="backbone vse_infinity does not fit into memory"):
        submit([tmp_path / "run"], tmp_path / "to", device="cpu")
