"""The order fingerprint: the same for every copy of the data in one order, another for any other order."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import miniatures
from support.refusals import refused

from ncl_bench.data import DATASETS
from ncl_bench.data.layout import read_manifest
from ncl_bench.data.load import load_dataset
from ncl_bench.data.order import order_fingerprint, order_of_download
from ncl_bench.data.prepare import prepare
from ncl_bench.errors import DataError
from ncl_bench.evaluation.protocol import known_order

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def by_definition(image_ids, captions):
    """docs/protocol.md, Order, word for word."""
    written = b""
    for row, own in enumerate(image_ids):
        of_the_image = []
        if captions is not None:
            each = len(captions) // len(image_ids)
            of_the_image = [captions[c] for c in range(len(captions)) if c // each == row]
        for text in [own, *of_the_image]:
            written += str(len(text.encode("utf-8"))).encode("ascii") + b":" + text.encode("utf-8") + b","
    return hashlib.sha256(written).hexdigest()


@given(st.data(), st.integers(1, 4), st.integers(1, 3))
def test_the_hash_follows_the_definition(data, images, each):
    ids = data.draw(st.lists(TEXTS, min_size=images, max_size=images))
    captions = data.draw(st.lists(TEXTS, min_size=images * each, max_size=images * each))
    assert order_fingerprint(ids, captions) == by_definition(ids, captions)
    assert order_fingerprint(ids, None) == by_definition(ids, None)
    assert order_fingerprint(np.array([7, 8]), None) == by_definition(["7", "8"], None)


@pytest.mark.parametrize(
    ("name", "split"), [(spec.name, split) for spec in DATASETS.values() for split in spec.order_fingerprints]
)
def test_the_facts_are_those_of_the_data(name, split):
    dataset = load_dataset(name, split=split)
    assert dataset.captions is not None
    shipped = DATASETS[name].order_fingerprints[split]
    assert shipped == by_definition([str(own) for own in dataset.image_ids], list(dataset.captions))


def test_every_embedded_dataset_ships_its_order():
    for spec in DATASETS.values():
        assert not spec.embedded or set(spec.order_fingerprints) == {"dev", "test"}, spec.name


@pytest.mark.parametrize("name", ["flickr30k", "coco", "cc152k", "now"])
def test_preparation_download_and_memory_agree_whatever_the_numbers_are(name, tmp_path, monkeypatch):
    spec = miniatures.SPECS[name]
    monkeypatch.setitem(DATASETS.data, name, spec)
    place = miniatures.make(tmp_path / "downloads", name)
    found = set()
    for dtype in (None, "float16"):
        folder = prepare(name, place, tmp_path / str(dtype), dtype=dtype)
        for split in ("dev", "test"):
            recorded = read_manifest(folder).splits[split].order_fingerprint
            assert recorded == known_order(spec, split, tmp_path / str(dtype))
            found.add((split, recorded))
    for features in place.rglob("*_ims.npy"):
        features.unlink()
    assert found == {(split, order_of_download(spec, place, split)) for split in ("dev", "test")}
    assert len(found) == 2


def test_what_is_known_needs_no_files(tmp_path):
    spec = miniatures.SPECS["flickr30k"]
    assert known_order(spec, "test", None) is None
    assert known_order(replace(spec, order_fingerprints={"test": "known"}), "test", None) == "known"
    with refused(DataError):
        order_of_download(DATASETS["digits"], tmp_path, "test")
    with refused(DataError):
        order_of_download(DATASETS["flickr30k"], tmp_path, "test")
