"""Registering a dataset: what a class must offer, and what a reader's mistakes would cost."""

from typing import Any

import numpy as np
import pytest
from support.refusals import refused

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
    ("kind", "facts"),
    [
        (OtherSignature, {}),
        (DatasetSpec, {}),
        (Lines, {"files": ()}),
        (Lines, {"files": ("ims.npy", "{split}.txt")}),
        (Lines, {"files": ("{split}_{part}.npy",)}),
        (Lines, {"files": ("{}.npy",)}),
        (Lines, {"name": "Fish set"}),
        (Lines, {"images": {"train": 4, "test": 4}, "protocols": ("4",)}),
        (ScanLayout, {"name": "Own"}),
        (ScanLayout, {"name": "digits"}),
        (ScanLayout, {"images": {"train": 4, "val": 2, "test": 2}, "protocols": ("2",)}),
        (ScanLayout, {"protocols": ("1k",)}),
    ],
)
def test_a_dataset_that_cannot_be_prepared_is_refused(kind, facts):
    with refused(DataError):
        register(spec(kind, **facts))
    assert "own" not in DATASETS


def test_a_cell_that_runs_again_registers_the_same_dataset():
    register(spec(type("Lines", (Lines,), {"__qualname__": "Lines"})))
    register(spec(type("Lines", (Lines,), {"__qualname__": "Lines"})))
    with refused(DataError):
        register(spec(ScanLayout))


def read(n_ids, n_captions, **captions):
    def content(split):
        extra = {language: [f"{split} {i}" for i in range(n)] for language, n in captions.items()}
        return Split(
            [f"{split}{i}" for i in range(n_ids)], {"en": [f"text {i}" for i in range(n_captions)]} | extra
        )

    return content


@pytest.mark.parametrize(
    "given",
    [
        read(3, 8),
        read(4, 7),
        read(4, 4),
        read(4, 8, de=8),
        lambda split: Split([f"{i}" for i in range(4)]),
    ],
)
def test_a_reader_that_skips_a_line_is_told(given, tmp_path, monkeypatch):
    monkeypatch.setattr(Lines, "given", staticmethod(given))
    register(spec())
    for split, n in IMAGES.items():
        np.save(tmp_path / f"{split}.npy", np.random.default_rng(n).random((n, 3), np.float32))
        (tmp_path / f"{split}.txt").write_text("")
    with refused(DataError):
        prepare("own", tmp_path, tmp_path / "data")
