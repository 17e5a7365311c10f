"""``ncl-bench features`` from the command line, and where its features go."""

import json

import numpy as np
import pytest
from support import flickr8k_miniature as miniature
from support.command import invoke
from support.drawings import draw, tiny_encoder
from support.refusals import refused

from baselines.training.job import TrainingJob
from baselines.training.recipe import Recipe
from baselines.training.run_folder import RunFolder
from ncl_bench.data import DATASETS, flickr8k
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError


def run(*arguments):
    return invoke(*arguments).stdout


@pytest.fixture
def quick(monkeypatch):
    """A tiny network in place of the encoder that was asked for."""
    monkeypatch.setattr("baselines.encoders.load_encoder", lambda *_: tiny_encoder())


def test_flickr8k_goes_from_photographs_to_a_run(tmp_path, monkeypatch):
    """As its card says, with the default encoder."""
    monkeypatch.setitem(DATASETS.data, "flickr8k", miniature.SPEC)
    place = miniature.make_texts(tmp_path / "flickr8k")
    photographs = miniature.make_photographs(place)
    lists = [f"--split={split}={place / file}" for split, file in flickr8k.LISTS.items()]
    said = run("features", photographs, *lists, "--to", place / "features")
    assert (
        said == f"train 12, dev 4, test 3 images, 16 regions of 1280 numbers each, in {place / 'features'}\n"
    )
    run("prepare", "flickr8k", "--from", place, "--to", tmp_path / "data")
    train = load_dataset("flickr8k", split="train", root=tmp_path / "data")
    assert train.encoding.weights_sha256 == flickr8k.WEIGHTS_SHA256
    assert len({features.tobytes() for features in train.image_features[np.arange(12)]}) == 12
    job = TrainingJob(Recipe.load("ncr/flickr8k_vse_infinity"), root=tmp_path / "data")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_run(job.record(train))
    recorded = json.loads((folder.path / "run.json").read_text())["encoding"]
    assert recorded == json.loads((place / "features" / "features.json").read_text())
    assert folder.read_run().encoding == train.encoding


def test_options_reach_the_features(quick, tmp_path):
    draw(tmp_path / "photos", 12)
    (tmp_path / "photos" / "notes.txt").write_text("a caption")
    options = ("--grid=1", "--pca=3", "--dtype=float32", "--dev=2", "--test=3", "--seed=7", "--batch-size=5")
    said = run(
        "features", tmp_path / "photos", *options, "--skip-damaged", "--workers=2", "--to", tmp_path / "out"
    )
    left_out, summary = said.splitlines()
    assert left_out.startswith(
        f"left out: {tmp_path / 'photos' / 'notes.txt'} is not an image of a known format"
    )
    assert summary == f"train 7, dev 2, test 3 images, 1 region of 3 numbers each, in {tmp_path / 'out'}"
    features = np.load(tmp_path / "out" / "train_ims.npy")
    assert (features.shape, features.dtype) == ((7, 1, 3), np.float32)
    encoding = json.loads((tmp_path / "out" / "features.json").read_text())
    assert (encoding["batch_size"], encoding["splits"]) == (5, "drawn with seed 7")


def test_what_a_table_already_splits_is_not_drawn(quick, tmp_path):
    names = draw(tmp_path, 3)
    rows = [f"{name},{split}" for name, split in zip(names, ("train", "dev", "test"), strict=True)]
    (tmp_path / "photos.csv").write_text("\n".join(["image,split", *rows]))
    run("features", tmp_path / "photos.csv", "--to", tmp_path / "out")
    assert (tmp_path / "out" / "test_ids.txt").read_text() == "002.png\n"
    asked = ["features", str(tmp_path / "photos.csv"), "--to", str(tmp_path / "other")]
    for option in ("--dev", "--test"):
        with refused(DataError):
            invoke(*asked, option, "1")


def test_shards_together_write_the_same_bytes(quick, tmp_path, monkeypatch):
    monkeypatch.setattr("baselines.features.CHUNK", 4)
    draw(tmp_path / "photos", 22)
    whole = ("features", tmp_path / "photos", "--batch-size=4")
    run(*whole, "--to", tmp_path / "whole")
    for shard in ("1/3", "3/3"):
        said = run(*whole, "--to", tmp_path / "joined", "--shard", shard)
        assert said.startswith("8 of 22" if shard == "1/3" else "6 of 22")
    assert len(list((tmp_path / ".joined.partial").glob("*.npz"))) == 4
    assert not (tmp_path / "joined").exists()
    run(*whole, "--to", tmp_path / "joined")  # the second part is missing, and encoded now
    for file in ("train_ims.npy", "dev_ims.npy", "test_ims.npy", "train_ids.txt"):
        assert (tmp_path / "joined" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    for wrong in ("0/3", "4/3", "half"):
        with refused():
            invoke(*whole, "--to", tmp_path / "w", "--shard", wrong)
