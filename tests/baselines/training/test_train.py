"""The trainer: determinism, resuming, refusals. Tiny networks on the real digits."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from support.command import invoke
from support.few_digits import (
    TINY,
    cut_short,
    digits_job,
    few_digits_recipe,
    load_few,
    outcome,
    trained,
)
from support.refusals import refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from baselines.kit.batches import CPU_BYTES, memory_budget
from baselines.methods import METHODS
from baselines.plot import plot_run
from baselines.training.job import TrainingJob
from baselines.training.recipe import Recipe
from baselines.training.run_folder import Machine, RunFolder
from baselines.training.scoring import score
from baselines.training.train import Trainer, TrainingProgress
from ncl_bench.data import dataset_spec
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import TrainingError
from ncl_bench.evaluation.protocol import selection_images

NCR = {"name": "ncr", "warmup_epochs": 1, "epochs": 2, "learning_rate": 0.001}
TRIPLET = {"name": "triplet", "epochs": 1}


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    """Train on the first three hundred pairs; lists the splits that were opened."""
    splits = []

    def load(name, **options):
        splits.append(options["split"])
        return load_few(name, n_pairs=300, **options)

    monkeypatch.setattr("baselines.training.job.load_dataset", load)
    return splits


def train(job, folder, device="cpu"):
    trainer = Trainer(job, RunFolder(folder), device)
    with TrainingProgress(len(trainer.plans)) as progress:
        return trainer.run(progress)


def test_same_seed_gives_same_bits_and_another_seed_does_not(tmp_path):
    train(digits_job(TRIPLET), tmp_path / "a")
    train(digits_job(TRIPLET, seed=1), tmp_path / "b")
    train(digits_job(TRIPLET), tmp_path / "c")
    first, other, again = (outcome(tmp_path / name) for name in "abc")
    assert first == again
    assert first["best.safetensors"] != other["best.safetensors"]


def test_training_neither_moves_the_global_generator_nor_opens_test(tmp_path, opened):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(digits_job(TRIPLET), tmp_path / "run")
    assert torch.equal(torch.rand(3), expected)
    assert sorted(set(opened)) == ["dev", "train"]


@pytest.mark.parametrize("name", ["checkpoints", "estimates", "tensorboard", "plots"])
def test_a_run_whose_folders_are_links_out_of_it_is_not_written(name, tmp_path):
    outside, run = tmp_path / "outside", tmp_path / "run"
    for folder in (outside, run):
        folder.mkdir()
    (outside / "epoch-000001.0123456789abcdef.pt").write_text("of somebody else")
    (run / name).symlink_to(outside)
    with refused():
        train(digits_job(TRIPLET), run)
    if name == "plots":
        with refused():
            plot_run(RunFolder(run))
    assert [path.read_text() for path in outside.iterdir()] == ["of somebody else"]
    assert [path.name for path in run.iterdir()] == [name]


@pytest.mark.parametrize(
    "state",
    [
        {"epochs": 1},
        {"epochs": 0, "history": [], "method": {"networks.0.x": torch.zeros(1)}},
        {"epochs": 0, "history": [], "method": [], "optimizers": 3},
    ],
)
def test_a_checkpoint_of_another_run_is_one_sentence(state, tmp_path):
    trainer = Trainer(digits_job(TRIPLET), RunFolder(tmp_path / "run"), "cpu")
    trainer.folder.begin(trainer.job.record(trainer.train_split))
    trainer.folder.save_state(1, state)
    with refused(TrainingError):
        train(digits_job(TRIPLET), tmp_path / "run")


def score_twenty(trainer):
    """Score twenty images of dev, and draw the other scores: attention compares every two slowly."""
    trainer.method.eval()
    n = selection_images(dataset_spec("digits"))
    scores = np.random.default_rng(0).random((n, 5 * n), np.float32)
    scores[:20, :100] = score(trainer.method.networks, trainer.dev_split, np.arange(20))
    return scores


@pytest.mark.parametrize("name", [name for name in METHODS if not METHODS[name].closed_form])
def test_every_method_estimates_from_0_to_1_and_goes_on_with_the_same_bits_past_a_damaged_checkpoint(
    name, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(Trainer, "_score_dev", score_twenty)
    recipe = Recipe.from_dict(
        few_digits_recipe(name, warmup_epochs=1, epochs=1, rounds=[1, 1], trusted_pairs=32)
    )
    short = TrainingJob(recipe, noise_ratio=0.4)
    whole = trained(short, tmp_path / "whole")
    for epoch in range(len(whole.history)):
        kept = whole.folder.read_estimates(epoch, 300)
        for values in (kept[name] for name in whole.method.estimates() if name in kept):
            assert 0 <= values.min() <= values.max() <= 1
    cut_short(tmp_path / "whole", tmp_path / "broken")
    train(short, tmp_path / "broken")
    assert "is damaged and was deleted" in capsys.readouterr().out
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_a_run_on_a_gpu_begins_as_on_a_cpu_and_resumes(name, tmp_path):
    short = TrainingJob(Recipe.from_dict(few_digits_recipe(name)), noise_ratio=0.4)
    losses = []
    for device in ("cpu", "cuda"):
        train(short, tmp_path / device, device)
        history = json.loads((tmp_path / device / "history.json").read_text())
        losses.append(history[0]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    cut_short(tmp_path / "cuda", tmp_path / "again")
    train(short, tmp_path / "again", "cuda")
    assert (tmp_path / "again" / "training.json").exists()
    assert json.loads((tmp_path / "again" / "history.json").read_text())[0]["loss"] == losses[1]


@pytest.mark.parametrize("stopped_after", [0, 1])
def test_ctrl_c_says_what_is_kept_and_the_same_command_where_it_goes_on(tmp_path, monkeypatch, stopped_after):
    epoch = Trainer._epoch

    def stop(trainer, number, *rest):
        if number == stopped_after:
            raise KeyboardInterrupt
        epoch(trainer, number, *rest)

    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(few_digits_recipe("triplet", epochs=2)))
    command = ["train", str(tmp_path / "recipe.yaml"), "--device", "cpu", "--to", str(tmp_path / "run")]
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_epoch", stop)
        stopped = invoke(*command, code=130)
    said = {
        0: "interrupted: no epoch was complete; the same command starts again",
        1: f"interrupted: {tmp_path / 'run'} keeps 1 epoch; the same command goes on after epoch 1",
    }
    assert said[stopped_after] in stopped.stderr.splitlines()
    again = invoke(*command)
    assert (f"{tmp_path / 'run'} resumes after epoch 1" in again.stderr) == (stopped_after == 1)


def test_a_budget_of_steps_counts_epochs_in_one_way(tmp_path):
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(few_digits_recipe("triplet", epochs=1)))
    command = ["train", str(tmp_path / "recipe.yaml"), "--device", "cpu", "--to", str(tmp_path / "run")]
    said = invoke(*command, "--set", "steps=9")
    epochs = re.findall(r"epoch (\d+), (?:warmup|train)  ", said.stderr)
    assert len(epochs) > 1
    assert epochs == [str(number + 1) for number in range(len(epochs))]
    assert f" of {epochs[-1]}, rSum" in said.stdout


def test_a_run_stopped_after_its_last_checkpoint_has_every_epoch_in_its_curves(tmp_path, monkeypatch):
    save_state = RunFolder.save_state

    def save_and_stop(folder, epochs, state):
        path = save_state(folder, epochs, state)
        if epochs == 2:
            raise KeyboardInterrupt
        return path

    method = TRIPLET | {"epochs": 2}
    monkeypatch.setattr(RunFolder, "save_state", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train(digits_job(method), tmp_path)
    train(digits_job(method), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("dev/r_sum")] == [0, 1]
    assert len(json.loads((tmp_path / "history.json").read_text())) == 2


@pytest.mark.parametrize("epochs_before", [0, 1])
def test_a_run_names_every_machine_that_trained_it(epochs_before, tmp_path, monkeypatch):
    save_state = RunFolder.save_state

    def save_and_stop(folder, epochs, state):
        if epochs_before == 1:
            save_state(folder, epochs, state)
        raise KeyboardInterrupt

    first, second, third = (Machine(torch=version, device="a GPU") for version in ("2.6.0", "2.7.0", "2.8.0"))
    method = TRIPLET | {"epochs": 2}
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_state", save_and_stop)
        patch.setattr("baselines.training.train.machine_of", lambda device: first)
        with pytest.raises(KeyboardInterrupt):
            train(digits_job(method), tmp_path / "run")
    for machine in (second, third):  # the third finds a finished run
        monkeypatch.setattr("baselines.training.train.machine_of", lambda device, machine=machine: machine)
        train(digits_job(method), tmp_path / "run")
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["trained_on"] == [dict(first), dict(second)][1 - epochs_before :]


@pytest.mark.parametrize(("device", "expected"), [("a GPU", 4_000), ("another GPU", 16_000)])
def test_a_resumed_run_keeps_the_budget_that_it_recorded_for_this_device(
    device, expected, tmp_path, monkeypatch
):
    first = Machine(torch="2.6.0", device="a GPU", block_bytes=4_000)
    second = Machine(torch="2.6.0", device=device, block_bytes=16_000)
    method, seen = TRIPLET | {"epochs": 2}, []
    train_epoch = METHODS["triplet"].train_epoch

    def train_and_stop(self, plan, *others):
        seen.append(memory_budget(torch.device("cpu")))
        if len(seen) == 2:
            raise KeyboardInterrupt
        train_epoch(self, plan, *others)

    monkeypatch.setattr(METHODS["triplet"], "train_epoch", train_and_stop)
    monkeypatch.setattr("baselines.training.train.machine_of", lambda device: first)
    with pytest.raises(KeyboardInterrupt):
        train(digits_job(method), tmp_path / "run")
    monkeypatch.setattr("baselines.training.train.machine_of", lambda device: second)
    train(digits_job(method), tmp_path / "run")
    assert seen == [4_000, 4_000, expected]
    assert memory_budget(torch.device("cpu")) == CPU_BYTES


def test_a_run_that_began_without_naming_its_machine_names_none(tmp_path):
    folder, wanted = RunFolder(tmp_path / "run"), digits_job(TRIPLET)
    folder.begin(wanted.record(wanted.load("train")))
    folder.add_machine(Machine(torch="2.7.0", device="a GPU"), goes_on=True)
    assert folder.read_run().trained_on is None


def test_folder_of_another_run_is_refused(tmp_path):
    first = digits_job(TRIPLET)
    RunFolder(tmp_path / "run").begin(first.record(first.load("train")))
    before = (tmp_path / "run" / "run.json").read_bytes()
    for other in (
        digits_job(TRIPLET, seed=3),
        digits_job(TRIPLET, noise_seed=1),
        digits_job({**TRIPLET, "epochs": 2}),
    ):
        with refused(TrainingError):
            train(other, tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_a_run_that_recorded_only_what_its_recipe_gave_goes_on(tmp_path):
    folder, wanted = RunFolder(tmp_path / "run"), digits_job(TRIPLET)
    record = wanted.record(wanted.load("train"))
    given = {"dataset": "digits", "batch_size": 100, "backbone": TINY, "method": TRIPLET}
    (tmp_path / "run").mkdir()
    folder.run_file.write_text(json.dumps({**record.model_dump(mode="json"), "recipe": given}))
    folder.begin(record)
    other = digits_job({**TRIPLET, "margin": 0.3})
    with refused(TrainingError):
        folder.begin(other.record(other.load("train")))


def test_the_command_counts_epochs_from_one_and_says_that_nothing_was_left_to_do(tmp_path):
    recipe = digits_job({**TRIPLET, "warmup_epochs": 1}).recipe
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    arguments = ["train", str(tmp_path / "recipe.yaml"), "--noise-ratio", "0.4", "--device", "cpu"]
    arguments += ["--root", str(tmp_path), "--to", str(tmp_path / "my run")]
    said = invoke(*arguments)
    assert "best on dev: epoch 2 of 2, rSum" in said.stdout  # the first is warm-up, which is never chosen
    following = f"'{tmp_path / 'my run'}' --root {tmp_path} --to 'submissions/my run'"
    assert f"next: ncl-bench score {following}" in said.stdout
    assert "finished before" not in said.stdout
    again = invoke(*arguments)
    assert "my run is already finished, nothing was trained" in again.stdout


@pytest.mark.parametrize(
    ("precision", "features"),
    [("tf32", "mapped"), ("32-true", "gpu")],
)
def test_what_only_a_gpu_has_is_refused_on_a_cpu_before_anything_is_written(precision, features, tmp_path):
    with refused(TrainingError):
        Trainer(
            digits_job(TRIPLET, precision=precision), RunFolder(tmp_path / "run"), "cpu", features=features
        )
    assert not (tmp_path / "run").exists()


def test_foreign_folder_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with refused():
        train(digits_job(TRIPLET), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_non_finite_loss_stops_with_step_pairs_and_checkpoint(tmp_path, monkeypatch):
    calls = 0

    def poisoned(similarities, margin):
        nonlocal calls
        calls += 1
        return similarities.diagonal() * (float("nan") if calls == 4 else 1.0)

    monkeypatch.setattr("baselines.methods.triplet.hardest_triplet", poisoned)
    with refused(TrainingError):
        train(digits_job(TRIPLET | {"epochs": 3}), tmp_path / "run")


def load_alike(name, **options):
    """Train has 41 pairs of one image and one caption."""
    dataset = load_dataset(name, **options)
    if options["split"] != "train":
        return dataset
    features = np.repeat(dataset.image_features[np.array([0])], dataset.n_images, axis=0)
    tokens = dataset.tokens.take(np.zeros(len(dataset), np.int64))
    return replace(dataset, image_features=features, tokens=tokens).subset(np.arange(41))


@pytest.mark.parametrize("name", ["cream", "dcl", "in2r", "npc", "osa", "pcsr", "sps"])
def test_pairs_that_are_all_alike_and_a_batch_of_one_leave_numbers_or_one_sentence(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr("baselines.training.job.load_dataset", load_alike)
    from_start = dict.fromkeys(("hard_from_epoch", "clean_from_epoch", "noisy_from_epoch"), 0)
    recipe = few_digits_recipe(name, warmup_epochs=1, epochs=2, **from_start)
    alike = TrainingJob(Recipe.from_dict(recipe | {"batch_size": 20}))
    if name == "osa":
        with pytest.raises(TrainingError, match="OSA trusts none"):
            train(alike, tmp_path / "run")
        return
    train(alike, tmp_path / "run")
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert len(history) == 3
    assert np.isfinite([epoch["loss"] for epoch in history]).all()
    weights = load_file(tmp_path / "run" / "best.safetensors")
    assert all(weight.isfinite().all() for weight in weights.values())


def test_history_says_what_happened(tmp_path):
    result = train(digits_job(NCR), tmp_path / "run")
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert [(e["phase"], e["epoch"]) for e in history] == [("warmup", 0), ("train", 0), ("train", 1)]
    chosen = [entry for entry in history if entry["best"]][-1]
    best = max(entry["dev"]["r_sum"] for entry in history if entry["phase"] == "train")
    assert chosen["dev"]["r_sum"] == result.dev["r_sum"] == best
    separation = history[-1]["diagnosis"]["clean_probability"]
    assert 0 <= separation["auroc"] <= 1
    assert sum(separation["histogram"]["true"]) + sum(separation["histogram"]["false"]) == 300
