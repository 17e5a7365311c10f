"""Noise, the rows that forms of a user's pairs hold, and what datasets made of them load as."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.drawings import tiny_encoder
from support.own_forms import FORMS, NAMES, N, frame

from ncl_bench import load_dataset, new_dataset
from ncl_bench.data import DATASETS
from ncl_bench.data.own_tables import read_captions

SHIPPED = tuple(DATASETS)
RATIOS = (0.2, 0.4, 0.5, 0.6, 0.8)


def sha256(*contents: object) -> str:
    content = hashlib.sha256()
    for each in contents:
        content.update(each if isinstance(each, bytes) else repr(each).encode())
    return content.hexdigest()[:16]


def cells(source: object, images: Path | None, work: Path, *, in_order: bool) -> list[tuple[str, bytes]]:
    """Captions of a source, each with the bytes of its picture, by caption."""
    table = read_captions(source, images=images, rows_in_order=in_order, work=work)
    return sorted(
        (caption, table.files[image].read_bytes())
        for image, captions in table.captions.items()
        for (caption,) in captions
    )


def loaded(name: str, root: Path | None = None) -> dict[str, str]:
    """Of each split: its fingerprint, and hashes of names and of the ids of words."""
    found = {}
    for split in ("train", "dev", "test"):
        data = load_dataset(name, split=split, root=root)
        ids = [row.tolist() for row in data.read(range(len(data))).caption_tokens]
        found[split] = f"{data.fingerprint} {sha256(data.image_ids.tolist())} {sha256(ids)}"
    return found


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("baselines.encoders.load_encoder", lambda *_: tiny_encoder())
    monkeypatch.chdir(tmp_path)
    before = dict(DATASETS)
    yield
    DATASETS.clear()
    DATASETS.update(before)


@pytest.mark.parametrize("unit", ["caption", "image", "similar", "noun"])
def test_standard_draws(unit: str, frozen) -> None:
    """``similar`` on digits and one ratio of the others stand in its own tests."""
    texts = unit in ("similar", "noun")
    names = {"similar": ["pictograms-web"], "noun": ["digits"]}.get(unit, SHIPPED)
    found = {}
    for name in names:
        for ratio in RATIOS[1:2] if texts else RATIOS:
            _, record = DATASETS[name].draw_noise(noise_ratio=ratio, noise_unit=unit)
            found[f"{name} {unit} {ratio}"] = [record.seed, record.sha256, record.realised_ratio]
    assert found == frozen("noise", found)


@pytest.mark.parametrize("form", FORMS)
def test_rows_and_the_dataset_of_a_form(form: str, own: None, tmp_path: Path, frozen) -> None:
    source, images = FORMS[form](tmp_path)
    in_order = "named by row" in form
    found = {"cells": sha256(cells(source, images, tmp_path / "work", in_order=in_order))}
    sizes = {} if "Karpathy" in form else {"dev": 2, "test": 2}
    spec, _ = new_dataset("own", source, images=images, to="data", rows_in_order=in_order, **sizes)
    found |= loaded("own", Path("data")) | {"images": spec.images, "each": spec.captions_per_image}
    assert {form: found} == frozen("forms", {form: found})


def test_the_dataset_of_features(own: None, tmp_path: Path, frozen) -> None:
    (tmp_path / "features").mkdir()
    for row, name in enumerate(NAMES):
        np.save(f"features/{Path(name).stem}.npy", np.random.default_rng(row).random((3, 4), np.float32))
    rows = frame(names=[Path(name).stem for name in NAMES])
    rows["split"] = ["dev", "test", *["train"] * (N - 2)]
    rows.to_csv("captions.csv", index=False)
    new_dataset("own", captions="captions.csv", features="features", to="data")
    found = {"features of images": loaded("own", Path("data"))}
    assert found == frozen("forms", found)


@pytest.mark.parametrize("name", ["digits", "pictograms", "pictograms-emoji", "pictograms-web"])
def test_embedded_datasets(name: str, frozen) -> None:
    found = {name: loaded(name)}
    assert found == frozen("embedded", found)
