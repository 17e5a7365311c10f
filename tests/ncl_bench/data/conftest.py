"""Miniature datasets in place of the real ones."""

import pytest
from support import miniatures

from ncl_bench.data import DATASETS
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import load_prepared


@pytest.fixture(autouse=True)
def small_datasets(monkeypatch):
    """The registry holds datasets of a few images."""
    for name, spec in miniatures.SPECS.items():
        monkeypatch.setitem(DATASETS.data, name, spec)


@pytest.fixture
def source(tmp_path):
    """A miniature download of Flickr30K."""
    return miniatures.make_scan(tmp_path / "from", "flickr30k")


@pytest.fixture
def prepared(tmp_path):
    """Prepare a miniature once and open one of its splits: ``prepared("coco", "dev")``."""

    def opened(name, split, **choice):
        if not (tmp_path / "root" / name).exists():
            prepare(name, miniatures.make(tmp_path / "from", name), tmp_path / "root")
        return load_prepared(tmp_path / "root", miniatures.SPECS[name], split, **choice)

    return opened
