"""A dataset is pickled by where it lies: few bytes, the same pairs in another process."""

import multiprocessing
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import miniatures
from support.processes import python

from ncl_bench import load_dataset
from ncl_bench.data.prepare import prepare
from ncl_bench.plugins import load_plugins

TESTS = Path(__file__).parents[2]
A_KILOBYTE = 1024


@pytest.fixture
def root(tmp_path):
    prepare("flickr30k", miniatures.make(tmp_path / "from", "flickr30k"), tmp_path / "root")
    return tmp_path / "root"


def assert_same(copy, dataset):
    everything = np.arange(len(dataset))
    for name, array in vars(dataset.read(everything)).items():
        np.testing.assert_array_equal(getattr(copy.read(everything), name), array)
    np.testing.assert_array_equal(copy.image_ids, dataset.image_ids)
    assert list(copy.captions or ()) == list(dataset.captions or ())
    assert replace(copy.noise, source=None) == replace(dataset.noise, source=None)
    for name in ("name", "split", "fingerprint", "captions_per_image", "n_images"):
        assert getattr(copy, name) == getattr(dataset, name)
    assert copy.vocabulary.sha256 == dataset.vocabulary.sha256


CHANGES = {
    "all": lambda dataset: dataset,
    "subset": lambda dataset: dataset.subset(np.arange(5, 40)),
    "shard of a subset": lambda dataset: dataset.subset(np.arange(50)[::-1].copy()).shard(3, 1),
    "first images": lambda dataset: dataset.first_images(7),
    "in memory": lambda dataset: dataset.in_ram().subset(np.array([3, 3, 1])),
}


@pytest.mark.parametrize(
    "noise", [{}, {"noise_ratio": 0.4}, {"noise_ratio": 0.5, "noise_unit": "image", "noise_seed": 3}]
)
def test_a_prepared_split_is_pickled_in_less_than_a_kilobyte(root, noise):
    whole = load_dataset("flickr30k", root=root, **noise)
    for change, changed in CHANGES.items():
        dataset = changed(whole)
        pickled = pickle.dumps(dataset)
        rows = {"subset": 35, "shard of a subset": 50 + 17, "in memory": 3}.get(change, 0)  # are sent along
        assert len(pickled) < A_KILOBYTE + 8 * rows, change
        assert_same(pickle.loads(pickled), dataset)


def test_a_noise_file_and_an_embedded_dataset_are_opened_again(tmp_path, monkeypatch):
    noisy = load_dataset("digits", noise_ratio=0.2, noise_seed=9)
    np.save(tmp_path / "noise.npy", noisy.caption_to_image)
    monkeypatch.chdir(tmp_path)
    dataset = load_dataset("digits", noise_file="noise.npy")
    monkeypatch.chdir("/")
    pickled = pickle.dumps(dataset)
    assert len(pickled) < A_KILOBYTE
    assert_same(pickle.loads(pickled), dataset)


def test_a_folder_named_by_the_environment_or_relative_is_found_from_elsewhere(root, monkeypatch):
    monkeypatch.chdir(root.parent)
    monkeypatch.setenv("NCL_BENCH_DATA", "root")
    dataset = load_dataset("flickr30k", split="dev")
    monkeypatch.chdir("/")
    monkeypatch.delenv("NCL_BENCH_DATA")
    assert_same(pickle.loads(pickle.dumps(dataset)), dataset)


def test_what_a_user_replaced_is_pickled_with_its_arrays(root):
    dataset = load_dataset("flickr30k", root=root)
    mine = replace(dataset, caption_to_image=dataset.caption_to_image[::-1].copy())
    assert_same(pickle.loads(pickle.dumps(mine)), mine)


PLUGIN = """
from ncl_bench.data import DATASETS, register
from support import miniatures

spec = miniatures.SPECS["flickr30k"]
register(type(spec)(**{**vars(spec), "name": "mine", "protocols": ("3",)}))
"""


def test_a_dataset_of_a_plugin_is_opened_in_a_fresh_process(root, tmp_path, no_plugins):
    (tmp_path / "mine.py").write_text(PLUGIN)
    load_plugins([str(tmp_path / "mine.py")])
    prepare("mine", tmp_path / "from", root)
    dataset = load_dataset("mine", noise_ratio=0.4, root=root)
    (tmp_path / "dataset.pickle").write_bytes(pickle.dumps(dataset))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).noise.sha256)"
    found = python(code, tmp_path / "dataset.pickle", env=os.environ | {"PYTHONPATH": str(TESTS)})
    assert found.stdout.strip() == dataset.noise.sha256


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader_give_the_same_pairs(root, start):
    torch = pytest.importorskip("torch")
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system starts no process by {start}")
    train = load_dataset("digits", noise_ratio=0.4).subset(np.arange(20, 30))
    loader = torch.utils.data.DataLoader(train, batch_size=4, num_workers=1, multiprocessing_context=start)
    batches = list(loader)
    assert [len(batch["pair_ids"]) for batch in batches] == [4, 4, 2]
    for name, expected in train.to_torch().items():
        if name != "caption_tokens":  # padded batch by batch
            assert torch.equal(torch.cat([batch[name] for batch in batches]), expected)
