"""Pictograms: what is shipped is what was built, splits share no concept, and every dataset opens without files."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ncl_bench import load_dataset
from ncl_bench.data.pictograms import DIM, EMOJI, REGIONS, SPEC, THUMBNAIL, WEB, Pictograms, rows, thumbnails
from ncl_bench.data.spec import SPLITS

FINGERPRINTS = {
    ("pictograms", "train"): "e92e50efd87e0e1f2e52cbd525cf58ec1c5c4675ff2607201199b6783518c231",
    ("pictograms", "dev"): "80a8387f230bbc6839d224d019800ae22d3179805ca5c09e44fc68296133deb1",
    ("pictograms", "test"): "ae3c742c13a32c25dcbc87e77cc64ec10422f91383a7e9536ee3aea580baf9fd",
    ("pictograms-emoji", "train"): "d825fc7b1081258f0bf0b8ada0403894e8e5161a8cee5506420eaa594f48d955",
    ("pictograms-emoji", "dev"): "56e91f6aa75d655935342e8c562b9cd668977a75ea69cffeb993318240886dd8",
    ("pictograms-emoji", "test"): "ff37377f0ebc0ec832306c70a4fd6fd9914aba59dcfd389c51f763ed3e355260",
    ("pictograms-web", "train"): "ae9b0bc4443849a188aa0ceaba76c5148d719af0616eacca438f1e17c6bddca9",
    ("pictograms-web", "dev"): "d03a0d5ee9c92c598bb75bdc28a6317c822f56fc8507c869bb5cd8aca5332afa",
    ("pictograms-web", "test"): "d74690910566a14dbd4e20134c892950e03015f3bdc5976cfcee5eebb79fa27d",
}
ALL = (SPEC, EMOJI, WEB)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
@pytest.mark.parametrize("split", SPLITS)
def test_sizes_and_bytes_are_the_published_ones(spec: Pictograms, split: str) -> None:
    content = spec.content(split)
    assert content.image_features.shape == (spec.images[split], REGIONS, DIM)
    assert content.fingerprint == FINGERPRINTS[spec.name, split]
    assert {len(captions) for captions in content.captions.values()} == {spec.images[split]}


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_a_picture_lies_in_one_split_and_no_text_of_dev_or_test_comes_twice(spec: Pictograms) -> None:
    ids = [name for split in SPLITS for name in spec.content(split).image_ids.tolist()]
    assert len(set(ids)) == len(ids) == sum(spec.images.values())
    held_out = [caption for split in ("dev", "test") for caption in spec.content(split).captions["en"]]
    assert len(set(held_out)) == len(held_out)
    assert not set(held_out) & set(spec.content("train").captions["en"])


def test_the_three_datasets_agree_on_their_splits() -> None:
    splits = {row.id: row.split for row in rows()}
    for spec in (EMOJI, WEB):
        for split in ("dev", "test"):
            assert {splits[name] for name in spec.content(split).image_ids.tolist()} == {split}
        assert {splits[name] for name in spec.content("train").image_ids.tolist()} <= {"train", ""}
    assert all(row.web_split == row.split for row in rows() if row.web_split in ("dev", "test"))


def test_opening_needs_neither_torch_nor_files(tmp_path: Path) -> None:
    code = (
        "import sys, ncl_bench; train = ncl_bench.load_dataset('pictograms', noise_ratio=0.4); "
        "assert 'torch' not in sys.modules and 'PIL' not in sys.modules; print(len(train), train.noise.seed)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == [str(SPEC.images["train"]), "0"]


def test_chinese_and_english_are_about_the_same_emoji() -> None:
    chinese, english = load_dataset("pictograms-emoji"), load_dataset("pictograms-emoji", language="en")
    assert chinese.fingerprint == english.fingerprint
    np.testing.assert_array_equal(chinese.image_ids, english.image_ids)
    row = chinese.image_ids.tolist().index("noto/pear")
    assert chinese.captions is not None
    assert english.captions is not None
    assert chinese.captions[row].startswith("梨")
    assert english.captions[row].startswith("pear")


def test_captions_of_the_web_are_those_of_train_alone() -> None:
    web, checked = WEB.content("train"), set(SPEC.content("train").image_ids.tolist())
    untold = [name for name in web.image_ids.tolist() if name not in checked]
    assert len(untold) > 0.4 * len(web.image_ids)
    assert any("gramastar" in caption for caption in web.captions["en"])
    assert WEB.content("test").captions["en"] == tuple(
        caption
        for name, caption in zip(
            SPEC.content("test").image_ids, SPEC.content("test").captions["en"], strict=True
        )
        if name.startswith("openclipart/")
    )


@pytest.mark.parametrize("split", SPLITS)
def test_every_picture_of_a_split_is_an_image(split: str) -> None:
    images = load_dataset("pictograms", split=split).images
    assert images is not None
    assert len(images) == SPEC.images[split]
    shown = set(images[-300:])
    assert len(shown) > 280, "icons of two sources may look alike"
    assert all(Image.open(io.BytesIO(png)).size == (THUMBNAIL, THUMBNAIL) for png in shown)
    assert all(np.ptp(pixels) > 8 for pixels in thumbnails(split).values())


def test_clip_art_whose_text_is_of_no_use_has_no_picture() -> None:
    told, untold = (next(row for row in rows() if bool(row.split) is wanted) for wanted in (True, False))
    assert SPEC.picture(told.id, np.zeros(0)) is not None
    assert WEB.picture(untold.id, np.zeros(0)) is None
    assert load_dataset("pictograms-web").images is None
    assert load_dataset("pictograms-web", split="test").images is not None


def test_an_installation_has_no_pictures_of_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncl_bench.data.pictograms.pictured", lambda: frozenset({"dev", "test"}))
    assert load_dataset("pictograms").images is None
    assert load_dataset("pictograms", split="test").images is not None
