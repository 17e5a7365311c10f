"""Training on images: a tiny CLIP with several methods, resumed, scored, shared out, and not trained at all."""

import io
import json
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from PIL import Image
from support.command import invoke
from support.few_digits import cut_short, digits_job, flat, outcome, trained
from support.refusals import refused
from support.rounding import assert_near
from support.tiny_clip import TINY_CLIP, clip_batch, random_weights, tiny_clip
from support.two_processes import in_two_processes

from baselines.kit.distributed import average_gradients
from baselines.kit.losses import info_nce
from baselines.training.job import TrainingJob
from baselines.training.recipe import Recipe
from baselines.training.run_folder import RunFolder
from baselines.training.submit import submit, submit_zero_shot
from baselines.training.train import Trainer
from ncl_bench.data import DATASETS
from ncl_bench.data.embedded import EmbeddedDataset, embedded_split
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError, TrainingError
from ncl_bench.evaluation.submission import read_submission

METHODS = {
    "info_nce": {"epochs": 2},
    "ncr": {"warmup_epochs": 1, "epochs": 1},
    "npc": {"warmup_epochs": 1, "epochs": 1},
    "osa": {"epochs": 2},
    "crcl": {"rounds": [1, 1], "freeze_epochs": 0},
}


def load_fewest(name, **options):
    """At most sixty training pairs."""
    dataset = load_dataset(name, **options)
    return dataset.subset(np.arange(60)) if options["split"] == "train" else dataset


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr("baselines.training.job.load_dataset", load_fewest)


def job(method, **backbone):
    recipe = {"batch_size": 20, "backbone": {**TINY_CLIP, **backbone}}
    return digits_job({"name": method, "learning_rate": 0.001, **METHODS[method]}, recipe=recipe)


@pytest.mark.parametrize(
    "method", [name if name == "ncr" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_two_epochs_on_images_resume_to_the_same_bits_and_score(method, tmp_path):
    history = trained(job(method), tmp_path / "whole").history
    assert len(history) == 2
    assert all(epoch.loss > 0 for epoch in history)
    cut_short(tmp_path / "whole", tmp_path / "broken")
    trained(job(method), tmp_path / "broken")
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")
    submission = submit([tmp_path / "whole"], tmp_path / "submission", device="cpu")
    assert (submission.backbone, submission.tokenizer) == ("CLIP", "OpenCLIP byte pairs")
    assert submission.pretrained_encoder == ""
    invoke("evaluate", tmp_path / "submission")


def test_a_run_says_what_it_began_with_and_is_scored_without_it(tmp_path):
    weights = random_weights(tmp_path / "mine.safetensors")
    begun = job("info_nce", weights=str(weights))
    trained(begun, tmp_path / "run")
    other = random_weights(tmp_path / "other.safetensors", seed=8)
    other.rename(weights)
    with refused(TrainingError):
        trained(begun, tmp_path / "run")
    weights.unlink()
    submission = submit([tmp_path / "run"], tmp_path / "submission", device="cpu")
    assert submission.pretrained_encoder.startswith("CLIP (mine.safetensors, sha256 ")


def test_the_pretrained_weights_are_what_training_begins_with(tmp_path):
    weights = random_weights(tmp_path / "mine.safetensors")
    trainer = Trainer(job("ncr", weights=str(weights)), RunFolder(tmp_path / "run"), "cpu")
    first, second = (flat("network", network.state_dict()) for network in trainer.method.networks)
    assert first == second
    fresh = Trainer(job("ncr"), RunFolder(tmp_path / "run"), "cpu")
    first, second = (flat("network", network.state_dict()) for network in fresh.method.networks)
    assert first != second


def test_zero_shot_scores_the_weights_as_they_are(tmp_path):
    weights = random_weights(tmp_path / "mine.safetensors")
    zero_shot = job("info_nce", weights=str(weights))
    submission = submit_zero_shot(zero_shot, tmp_path / "submission", device="cpu")
    test = zero_shot.load("test")
    network = tiny_clip(weights=str(weights)).eval()
    network.load_pretrained()
    with torch.no_grad():
        images = network.encode_images(
            torch.from_numpy(test.image_features[np.arange(3)]), torch.full((3,), 16)
        )
        captions = network.encode_captions(*map(torch.from_numpy, test.tokens.padded(np.arange(5))))
        expected = network.similarities(images, captions).numpy()
    found = np.load(tmp_path / "submission" / "test.npy")
    assert_near(found[:3, :5], expected, 1e-6, scale=1)
    said = (submission.method, submission.noise.unit, submission.selection_split)
    assert said == ("CLIP zero-shot", "none", "none")
    assert submission.pretrained_encoder.startswith("CLIP (mine.safetensors, sha256 ")
    assert read_submission(tmp_path / "submission") == submission
    invoke("evaluate", tmp_path / "submission")


def test_the_command_for_zero_shot_takes_a_recipe_and_its_options(tmp_path):
    weights = random_weights(tmp_path / "mine.safetensors")
    recipe = tmp_path / "clip.yaml"
    recipe.write_text(json.dumps(job("info_nce").recipe.model_dump(mode="json")))
    command = ["score", "--zero-shot", str(recipe), "--device", "cpu", "--to", str(tmp_path / "submission")]
    with refused():
        invoke(*command)
    assert not (tmp_path / "submission").exists()
    result = invoke(*command, "--set", f"backbone.weights={weights}")
    assert result.stderr.startswith("digits: no noise; CLIP zero-shot on cpu\n")
    assert read_submission(tmp_path / "submission").networks == 1


@pytest.mark.usefixtures("unscored")
def test_runs_that_read_images_otherwise_are_not_averaged(tmp_path):
    for name, crop in (("a", 0.9), ("b", 0.8)):
        trained(job("info_nce", smallest_crop=crop), tmp_path / name)
    with refused(TrainingError):
        submit([tmp_path / "a", tmp_path / "b"], tmp_path / "submission", device="cpu")


def test_images_are_not_kept_on_a_device(tmp_path):
    with refused(TrainingError):
        Trainer(job("info_nce"), RunFolder(tmp_path / "run"), "cpu", features="gpu")


def five_steps(gradient_checkpointing=False):
    network, batch = tiny_clip(gradient_checkpointing=gradient_checkpointing).double().train(), clip_batch(9)
    batch = type(batch)(**{**vars(batch), "image_features": batch.image_features.double()})
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.2)
    losses = []
    for _ in range(5):
        images, captions = network.encode(batch)
        loss = info_nce(network.compare(images, captions), 0.1).mean()
        loss = loss + network.image_image_similarities(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(parameters)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), network.state_dict()


@pytest.mark.slow
def test_two_processes_train_like_one(tmp_path):
    """Each encodes its part of nine pairs, with its layers computed again; negatives come from both."""
    expected = five_steps()
    assert expected[0][-1] < expected[0][0] - 0.1
    for found in in_two_processes(tmp_path / "ranks", five_steps, True):
        assert_near(found, expected, 1e-8, scale=1)


class Squares(EmbeddedDataset):
    """Coloured squares: a dataset of one's own, with images and captions and nothing else."""

    def content(self, split):
        """No regions, and numbers none."""
        ids = [f"{split}-{row}" for row in range(self.images[split])]
        captions = tuple(f"a square of shade {row}" for row in range(len(ids)))
        return embedded_split(np.zeros((len(ids), 0, 0), np.float32), ids, {"en": captions})

    def load_embedded(self, split, language=None, tokenizer=None):
        """With its images."""
        dataset = super().load_embedded(split, language, tokenizer)
        return replace(dataset, images=[square(row) for row in range(dataset.n_images)])


def square(shade):
    stream = io.BytesIO()
    Image.new("RGB", (40, 30), (shade, shade, 0)).save(stream, "JPEG")
    return stream.getvalue()


def test_an_own_dataset_may_have_images_and_no_region_features(tmp_path, monkeypatch):
    sizes = {"train": 60, "dev": 20, "test": 20}
    facts = {each.name: getattr(DATASETS["digits"], each.name) for each in fields(DATASETS["digits"])}
    changed = {"name": "squares", "images": sizes, "captions_per_image": 1, "n_regions": 0, "feature_dim": 0}
    changed |= {"protocols": ("20",), "languages": ("en",), "tokenizers": {"en": "word"}}
    changed["order_fingerprints"] = {}
    monkeypatch.setitem(DATASETS.data, "squares", Squares(**{**facts, **changed}))
    recipe = job("info_nce").recipe.model_dump() | {"dataset": "squares"}
    trained(TrainingJob(Recipe.from_dict(recipe), noise_ratio=0.4), tmp_path / "run")
    submission = submit([tmp_path / "run"], tmp_path / "submission", device="cpu")
    assert submission.dataset == "squares"
    other = recipe | {"backbone": {"name": "vse_infinity"}}
    with refused(DataError):
        Trainer(TrainingJob(Recipe.from_dict(other)), RunFolder(tmp_path / "other"), "cpu")


def test_embeddings_say_what_the_matrix_says(tmp_path):
    """Of two networks too, whose similarities are averaged."""
    trained(job("ncr"), tmp_path / "run")
    submit([tmp_path / "run"], tmp_path / "matrix", device="cpu")
    to = tmp_path / "embeddings"
    command = ["score", str(tmp_path / "run"), "--embeddings", "--device", "cpu", "--to", str(to)]
    result = invoke(*command)
    assert result.stderr.startswith(
        "digits: caption noise of ratio 0.4 (seed 0, realised 0.3999); NCR on cpu\n"
    )
    names = {path.name for path in to.iterdir()}
    assert names == {"test_images.npy", "test_captions.npy", "pairs.npz", "submission.yaml"}
    images, captions = (np.load(to / f"test_{side}.npy") for side in ("images", "captions"))
    assert (images.shape, captions.shape) == ((200, 64), (1000, 64))
    matrix = np.load(tmp_path / "matrix" / "test.npy")
    assert_near(images @ captions.T, matrix, 1e-6, scale=1)
    result = invoke("evaluate", to)
    with refused():
        submit([tmp_path / "run"], to, embeddings=True, device="cpu")


@pytest.mark.usefixtures("unscored")
def test_what_embeddings_cannot_say_is_refused(tmp_path):
    weights = random_weights(tmp_path / "mine.safetensors")
    zero_shot = job("info_nce", weights=str(weights))
    submission = submit_zero_shot(zero_shot, tmp_path / "submission", embeddings=True, device="cpu")
    assert submission.scores["test"].form == "embeddings"
    sgr = {"name": "sgr", "embed_size": 8, "word_dim": 6, "sim_dim": 6}
    recipe = Recipe.from_dict(job("info_nce").recipe.model_dump() | {"backbone": sgr, "steps": 1})
    trained(TrainingJob(recipe), tmp_path / "sgr")
    with refused(TrainingError):
        submit([tmp_path / "sgr"], tmp_path / "other", embeddings=True, device="cpu")
    assert not (tmp_path / "other").exists()
