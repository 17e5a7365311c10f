"""Registering a dataset: what a class must offer, and what a reader's mistakes would cost."""

from typing import Any

import numpy as np
import pytest

from ncl_bench.data import DATASETS, register
from ncl_bench.data.captions import ScanLayout
from ncl_bench.data.prepare import prepare
from ncl_bench.data.spec import DatasetSpec, Origin, Split
from ncl_bench.errors import DataError

IMAGES = {"train": 4, "dev": 2, "test": 2}


class Lines(DatasetSpec):
    """A class whose reader gives what a test says."""

    given: Any = None

    def read_captions(self, download, paths, split):
        return type(self).given(split)


class OtherSignature(DatasetSpec):
    def read_captions(self, split):  # type: ignore[override]
        raise AssertionError(split)


def spec(kind=Lines, **facts):
    files = facts.pop("files", ("{split}.npy", "{split}.txt"))
    options = {"name": "own", "images": IMAGES, "captions_per_image": 2, "n_regions": 1, "feature_dim": 3}
    return kind(**options | facts, origin=Origin(files=files, licence="none"))


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    for name, known in list(DATASETS.items()):
        monkeypatch.setitem(DATASETS.data, name, known)
    yield
    DATASETS.pop("own", None)


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        (
            OtherSignature,
            {},
            r"read_captions\(split: str\).*write read_captions\(self, download, paths, split\)|and",
        ),
        (DatasetSpec, {}, "write read_captions"),
        (Lines, {"files": ()}, "with the files .*; list the features of a split first"),
        (Lines, {"files": ("ims.npy", "{split}.txt")}, "list the features of a split first"),
        (Lines, {"files": ("{split}_{part}.npy",)}, "with the files .*cannot be read"),
        (Lines, {"files": ("{}.npy",)}, "with the files .*cannot be read"),
        (Lines, {"name": "Fish set"}, "name is 'Fish set', expected small letters"),
        (
            Lines,
            {"images": {"train": 4, "test": 4}, "protocols": ("4",)},
            "counts images of test, train, expected",
        ),
        (ScanLayout, {"name": "Own"}, "expected small letters"),
        (ScanLayout, {"name": "digits"}, "exists already"),
        (
            ScanLayout,
            {"images": {"train": 4, "val": 2, "test": 2}, "protocols": ("2",)},
            "expected those of train",
        ),
        (ScanLayout, {"protocols": ("1k",)}, "name it after the images of test"),
    ],
)
def test_a_dataset_that_cannot_be_prepared_is_refused(kind, facts, words):
    with pytest.raises(DataError, match=words):
        register(spec(kind, **facts))
    assert "own" not in DATASETS


def test_a_cell_that_runs_again_registers_the_same_dataset():
    register(spec(type("Lines", (Lines,), {"__qualname__": "Lines"})))
    register(spec(type("Lines", (Lines,), {"__qualname__": "Lines"})))
    with pytest.raises(DataError, match="exists already"):
        register(spec(ScanLayout))


def read(n_ids, n_captions, **captions):
    def content(split):
        extra = {language: [f"{split} {i}" for i in range(n)] for language, n in captions.items()}
        return Split(
            [f"{split}{i}" for i in range(n_ids)], {"en": [f"text {i}" for i in range(n_captions)]} | extra
        )

    return content


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (read(3, 8), "'image_ids': 3"),
        (read(4, 7), "'en': 7"),
        (read(4, 4), "'en': 4"),
        (read(4, 8, de=8), "'de': 8"),
        (lambda split: Split([f"{i}" for i in range(4)]), "expected"),
    ],
)
def test_a_reader_that_skips_a_line_is_told(given, words, tmp_path, monkeypatch):
    monkeypatch.setattr(Lines, "given", staticmethod(given))
    register(spec())
    for split, n in IMAGES.items():
        np.save(tmp_path / f"{split}.npy", np.random.default_rng(n).random((n, 3), np.float32))
        (tmp_path / f"{split}.txt").write_text("")
    with pytest.raises(DataError, match=f"own/train has .*{words}"):
        prepare("own", tmp_path, tmp_path / "data")
