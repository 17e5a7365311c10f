"""Runs to submissions: whole or not at all, with what is known of the training."""

import json
import shutil
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch
from safetensors.torch import save
from support.few_digits import digits_job, load_few, trained
from support.refusals import refused
from support.rounding import assert_near

import baselines.training.submit
import ncl_bench
from baselines.kit.distributed import device_for
from baselines.training.job import FinishedRun, hidden_correspondence
from baselines.training.run_folder import RunFolder, machine_of
from baselines.training.scoring import score
from baselines.training.submit import chosen_method, submit
from ncl_bench.data.vocabulary import Vocabulary
from ncl_bench.errors import TrainingError
from ncl_bench.evaluation.call import evaluate
from ncl_bench.evaluation.detection import detection
from ncl_bench.evaluation.submission import PAIRS_FILE, read_submission
from ncl_bench.evaluation.training_record import Training
from ncl_bench.files import sole_owner


@pytest.fixture(scope="module")
def runs(few_pairs, tmp_path_factory):
    """Two finished runs with different seeds."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        method = {"name": "info_nce", "epochs": 1}
        trained(digits_job(method, 0.0, recipe={"batch_size": 500}, seed=seed), folder / str(seed))
    return [folder / str(seed) for seed in range(2)]


def submitted(runs, to, **options):
    return submit(runs, to, device="cpu", **options)


def with_other_words(name, **options):
    """The same data, whose preparation gave two words each other's id."""
    dataset = load_few(name, **options)
    words = list(dataset.vocabulary.words)
    words[-2:] = words[:-3:-1]
    return replace(dataset, vocabulary=Vocabulary(tuple(words), dataset.vocabulary.size))


def test_a_run_with_another_vocabulary_is_neither_resumed_nor_averaged_nor_scored(
    runs, tmp_path, monkeypatch
):
    job = FinishedRun.read(runs[0]).job
    monkeypatch.setattr("baselines.training.job.load_dataset", with_other_words)
    other = trained(job, tmp_path / "other")
    assert other.train_split.fingerprint == RunFolder(runs[0]).read_run().fingerprint
    with refused(TrainingError):
        trained(job, runs[0])
    with refused(TrainingError):
        submitted([runs[0], tmp_path / "other"], tmp_path / "mean")
    with refused(TrainingError):
        submitted(runs[:1], tmp_path / "one")


def test_a_submission_states_where_its_runs_were_trained_not_where_they_are_scored(runs, tmp_path):
    said = [{"torch": "2.6.0", "device": "NVIDIA L4"}, {"torch": "2.7.0", "device": "NVIDIA L4"}]
    for run, machine in zip(runs, said, strict=True):
        copy = tmp_path / run.name
        shutil.copytree(run, copy)
        described = json.loads((copy / "run.json").read_text())
        assert described["trained_on"] == [dict(machine_of(device_for("cpu", "32-true")))]
        (copy / "run.json").write_text(json.dumps(described | {"trained_on": [machine]}))
        outcome = RunFolder(copy).read_outcome().model_copy(update={"cost": 1.25})
        (copy / "training.json").write_text(outcome.model_dump_json())
    both = submitted([tmp_path / run.name for run in runs], tmp_path / "both")
    assert both.hardware == "NVIDIA L4"
    machine = Training(precision="32-true", torch="2.6.0 + 2.7.0", device="NVIDIA L4")
    # an average of two runs costs both
    assert both.training == machine.model_copy(update={"steps": 2, "pairs_seen": 1000.0, "cost": 2.5})
    assert read_submission(tmp_path / "both") == both


@pytest.mark.usefixtures("few_pairs")
def test_a_run_of_so_many_steps_states_its_compute_and_the_last_epoch_beside_the_best(tmp_path):
    job = digits_job({"name": "crcl", "rounds": [1, 1], "freeze_epochs": 1}, recipe={"steps": 30})
    trainer = trained(job, tmp_path / "run")
    training = submitted([tmp_path / "run"], tmp_path / "to").training
    assert (training.budget, training.steps, training.settings) == (30, 30, {})
    assert training.pairs_seen == 30 * 100
    assert training.cost == RunFolder(tmp_path / "run").read_outcome().cost
    last = score(trainer.method.eval().networks, job.load("test"))
    assert training.last_epoch == pytest.approx(evaluate(last, dataset="digits").r_sum)
    assert training.curve.steps == (10, 20, 30)
    history = trainer.history
    assert training.curve.dev == tuple(round(entry.dev["r_sum"], 4) for entry in history)
    assert training.curve.auroc[2] == round(history[2].diagnosis["clean_probability"].auroc, 4)
    kept = trainer.folder.read_estimates(2, 1000)["clean_probability"]
    wrong = detection(kept, hidden_correspondence(trainer.train_split), 0.5)
    assert training.found.f1 == round(wrong.own.f1, 4)
    assert training.found.average_precision_wrong == round(wrong.average_precision_wrong, 4)
    assert training.found.precision_at[50] == round(wrong.precision_at[50], 4)
    by_epoch = (training.found.precision_by_epoch, training.found.recall_by_epoch, training.found.noise_left)
    assert [len(values) for values in by_epoch] == [3, 3, 3]
    assert [values[2] for values in by_epoch[:2]] == [training.found.precision, training.found.recall]
    truth = hidden_correspondence(trainer.train_split)
    for epoch, left in enumerate(training.found.noise_left):
        called_clean = trainer.folder.read_estimates(epoch, 1000)["clean_probability"] > 0.5
        assert left == pytest.approx((called_clean & ~truth).sum() / max(1, called_clean.sum()), abs=1e-4)
    assert read_submission(tmp_path / "to").training == training
    with np.load(tmp_path / "to" / PAIRS_FILE) as said:
        best = trainer.folder.read_estimates(trainer.folder.read_outcome().best_epoch, 1000)[
            "clean_probability"
        ]
        assert np.array_equal(said["clean_probability"], best.astype(np.float16))
        networks = chosen_method(FinishedRun.read(tmp_path / "run"), torch.device("cpu")).networks
        train = trainer.train_split
        scores = score(networks, train, np.arange(train.n_images), np.arange(1000))
        own = scores[train.caption_to_image, np.arange(1000)]  # the images that the captions are shown with
        np.testing.assert_allclose(said["similarity"], own, atol=2e-3)
    # where another epoch was the best one, its scores say nothing of the last
    outcome = trainer.folder.read_outcome().model_copy(update={"best_epoch": 0})
    (tmp_path / "run" / "training.json").write_text(outcome.model_dump_json())
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    without = submitted([tmp_path / "run"], tmp_path / "without").training
    assert without == training.model_copy(update={"last_epoch": None})


@pytest.mark.usefixtures("few_pairs")
def test_a_control_on_the_clean_pairs_states_no_detection_as_it_was_given_the_truth(tmp_path):
    job = digits_job(
        {"name": "crcl", "rounds": [1, 1], "freeze_epochs": 1}, recipe={"steps": 20, "clean_only": True}
    )
    trainer = trained(job, tmp_path / "run")
    assert trainer.folder.read_estimates(1, 1000)["clean_probability"].shape == (1000,)
    training = submitted([tmp_path / "run"], tmp_path / "to").training
    assert training.found is None
    assert training.curve.dev
    assert training.curve.auroc == ()
    assert not (tmp_path / "to" / PAIRS_FILE).exists()


@pytest.mark.usefixtures("few_pairs")
def test_scores_of_a_last_epoch_that_was_the_best_are_at_hand(tmp_path, monkeypatch):
    job = digits_job({"name": "info_nce", "epochs": 2}, 0.0, recipe={"batch_size": 500, "steps": 4})
    trainer, run = trained(job, tmp_path / "run"), RunFolder(tmp_path / "run")
    outcome = run.read_outcome()
    begun = count_scorings(monkeypatch)

    def scorings_and_last_epoch(name, best_epoch, best):
        weights = save(best)
        said = {"best_epoch": best_epoch, "best_sha256": sha256(weights).hexdigest()}
        run.write_outcome(outcome.model_copy(update=said))
        run.best.write_bytes(weights)
        begun.clear()
        training = submitted([tmp_path / "run"], tmp_path / name).training
        assert training.last_epoch is not None
        return len(begun), training.last_epoch

    last = trainer.method.networks.state_dict()
    scorings, at_hand = scorings_and_last_epoch("last", outcome.epochs - 1, last)
    assert scorings == 1
    assert at_hand == round(evaluate(tmp_path / "last" / "test.npy", dataset="digits").r_sum, 4)
    earlier = {name: torch.zeros_like(value) + 0.01 for name, value in last.items()}
    assert scorings_and_last_epoch("earlier", 0, earlier) == (2, at_hand)
    assert evaluate(tmp_path / "earlier" / "test.npy", dataset="digits").r_sum < at_hand


def test_a_run_that_does_not_say_where_it_was_trained_is_scored(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "old")
    described = json.loads((tmp_path / "old" / "run.json").read_text())
    del described["trained_on"]
    (tmp_path / "old" / "run.json").write_text(json.dumps(described))
    mean = submitted([tmp_path / "old", runs[1]], tmp_path / "mean")
    assert (mean.training, mean.hardware) == (None, "unknown")


class Killed(BaseException):
    """Stands for the end of a process in the middle of scoring."""


def count_scorings(monkeypatch):
    """Images of every call of ``score``."""
    begun = []

    def counted(networks, dataset, **options):
        begun.append(dataset.n_images)
        return score(networks, dataset, **options)

    monkeypatch.setattr(baselines.training.submit, "score", counted)
    return begun


@pytest.mark.parametrize("stopped", ["scoring._encode_strip", "submit.write_submission"])
def test_a_stopped_call_leaves_nothing_and_the_next_one_writes_the_same_bytes(
    stopped, runs, tmp_path, monkeypatch
):
    whole = submitted(runs[:1], tmp_path / "whole")
    (tmp_path / "broken").mkdir()
    with monkeypatch.context() as patch:

        def stop(*args):
            raise Killed

        patch.setattr(f"baselines.training.{stopped}", stop)
        with pytest.raises(Killed):
            submitted(runs[:1], tmp_path / "broken")
    assert list((tmp_path / "broken").iterdir()) == []
    assert submitted(runs[:1], tmp_path / "broken") == whole
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "broken" / path.name).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "broken"}


@pytest.mark.usefixtures("few_pairs")
def test_a_folder_in_use_is_told_before_anything_is_scored(tmp_path, monkeypatch):
    trained(digits_job({"name": "info_nce", "epochs": 1}, recipe={"batch_size": 500}), tmp_path / "run")
    monkeypatch.setattr(baselines.training.submit, "score", None)
    with sole_owner(tmp_path / "to"), refused():
        submitted([tmp_path / "run"], tmp_path / "to")


def test_more_images_than_memory_holds_are_scored_in_strips(runs, tmp_path, monkeypatch):
    submitted(runs[:1], tmp_path / "whole")
    monkeypatch.setattr("baselines.training.scoring.IMAGE_BLOCK", 64)
    monkeypatch.setattr("baselines.training.scoring.MOST_VECTORS", 1)
    submitted(runs[:1], tmp_path / "strips")
    scores = [np.load(tmp_path / name / "test.npy") for name in ("whole", "strips")]
    assert_near(scores[1], scores[0], 1e-6, scale=1)


def test_scores_that_are_not_finite_are_not_submitted(runs, tmp_path, monkeypatch):
    def broken(*args, **options):
        scores = score(*args, **options)
        scores[199, 999] = np.inf
        return scores

    monkeypatch.setattr(baselines.training.submit, "score", broken)
    with refused(TrainingError):
        submitted(runs[:1], tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_run_counts_once_in_a_mean(runs, tmp_path):
    with refused(TrainingError):
        submitted([*runs, runs[0] / ".." / runs[0].name], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_scores_of_unknown_origin_are_refused_and_kept(runs, tmp_path):
    np.save(tmp_path / "test.npy", np.zeros(3))
    before = (tmp_path / "test.npy").read_bytes()
    with refused():
        submitted(runs[:1], tmp_path)
    assert (tmp_path / "test.npy").read_bytes() == before


def test_damaged_weights_are_not_scored(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    weights = tmp_path / "run" / "best.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with refused(TrainingError):
        submitted([tmp_path / "run"], tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_weights_larger_than_the_networks_are_not_read(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    with (tmp_path / "run" / "best.safetensors").open("r+b") as file:
        file.truncate(10**12)  # without a byte on the disk
    with refused(TrainingError):
        submitted([tmp_path / "run"], tmp_path / "to")


def test_scores_without_hubs_state_what_dev_chose_and_agree_with_the_formula(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("baselines.training.hubs.BANK_CAPTIONS", 300)
    monkeypatch.setattr("baselines.training.hubs.IMAGES_AT_ONCE", 70)
    plain, chosen = (submitted(runs, tmp_path / str(hubs), hubs=hubs) for hubs in (None, "auto"))
    assert plain.correction is None
    correction = chosen.correction
    assert (correction.name, correction.captions, correction.given_weight) == ("csls", 300, None)
    assert read_submission(tmp_path / "auto") == chosen
    job = FinishedRun.read(runs[0]).job
    train, test, dev = (job.load(split) for split in ("train", "test", "dev"))
    rows = np.sort(np.random.default_rng(0).permutation(len(train))[:300])
    assert correction.images == train.n_images
    networks = [
        network
        for run in runs
        for network in baselines.training.submit.chosen_method(
            FinishedRun.read(run), torch.device("cpu")
        ).networks
    ]

    def corrected(split, weight, neighbours):
        images, captions = np.arange(split.n_images), np.arange(len(split))
        return ncl_bench.without_hubs(
            score(networks, split, images, captions),
            score(networks, split, images, rows, captions_of=train),
            score(networks, train, np.arange(train.n_images), captions, captions_of=split),
            weight,
            neighbours,
        )

    found = np.load(tmp_path / "auto" / "test.npy")
    assert_near(found, corrected(test, correction.weight, correction.neighbours))
    sums = {
        (weight, k): evaluate(corrected(dev, weight, k), dataset="digits", split="dev", intervals=False).r_sum
        for weight in (0.0, 0.5, 1.0, 1.5)
        for k in (10, 50)
    }
    assert sums[correction.weight, correction.neighbours] == pytest.approx(max(sums.values()), abs=0.5)
    # a weight that was given is another row
    given = submitted(runs, tmp_path / "given", hubs="0").correction
    assert (given.given_weight, given.weight) == (0.0, 0.0)
    assert_near(np.load(tmp_path / "given" / "test.npy"), np.load(tmp_path / "None" / "test.npy"))


@pytest.mark.parametrize(
    ("hubs", "embeddings"), [("much", False), (-1.0, False), ("nan", False), ("inf", False), ("auto", True)]
)
def test_hubs_that_cannot_be_corrected_are_refused_before_scoring(runs, tmp_path, hubs, embeddings):
    with refused(TrainingError):
        submitted(runs, tmp_path / "to", hubs=hubs, embeddings=embeddings)
    assert not (tmp_path / "to").exists()
