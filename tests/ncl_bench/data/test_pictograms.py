"""Pictograms: what is shipped is what was built, splits share no picture, and every dataset opens without files."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.processes import python

from ncl_bench import load_dataset
from ncl_bench.data.pictograms import EMOJI, SHEETS, SPEC, THUMBNAIL, WEB, png, rows, thumbnails
from ncl_bench.data.spec import SPLITS

ALL = (SPEC, EMOJI, WEB)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_a_picture_lies_in_one_split_and_no_text_of_dev_or_test_comes_twice(spec):
    ids = [name for split in SPLITS for name in spec.content(split).image_ids]
    assert len(set(ids)) == len(ids) == sum(spec.images.values())
    held_out = [caption for split in ("dev", "test") for caption in spec.content(split).captions["en"]]
    assert len(set(held_out)) == len(held_out)
    assert not set(held_out) & set(spec.content("train").captions["en"])


def test_the_three_datasets_agree_on_their_splits():
    splits = {row.id: row.split for row in rows()}
    for spec in (EMOJI, WEB):
        for split in ("dev", "test"):
            assert {splits[name] for name in spec.content(split).image_ids} == {split}
        assert {splits[name] for name in spec.content("train").image_ids} <= {"train", ""}
    assert all(row.web_split == row.split for row in rows() if row.web_split in ("dev", "test"))


def test_opening_needs_neither_torch_nor_files(tmp_path):
    code = (
        "import sys, ncl_bench; train = ncl_bench.load_dataset('pictograms', noise_ratio=0.4); "
        "assert 'torch' not in sys.modules and 'PIL' not in sys.modules; print(len(train), train.noise.seed)"
    )
    assert python(code, cwd=tmp_path).stdout.split() == [str(SPEC.images["train"]), "0"]


def test_chinese_and_english_are_about_the_same_emoji():
    chinese, english = load_dataset("pictograms-emoji"), load_dataset("pictograms-emoji", language="en")
    assert chinese.fingerprint == english.fingerprint
    np.testing.assert_array_equal(chinese.image_ids, english.image_ids)
    row = chinese.image_ids.tolist().index("noto/pear")
    assert chinese.captions[row].startswith("梨")
    assert english.captions[row].startswith("pear")


def test_captions_of_the_web_are_those_of_train_alone():
    web, checked = WEB.content("train"), set(SPEC.content("train").image_ids)
    untold = [name for name in web.image_ids if name not in checked]
    assert len(untold) > 0.4 * len(web.image_ids)
    assert any("gramastar" in caption for caption in web.captions["en"])
    held_out = SPEC.content("test")
    pairs = zip(held_out.image_ids, held_out.captions["en"], strict=True)
    of_clip_art = tuple(caption for name, caption in pairs if name.startswith("openclipart/"))
    assert WEB.content("test").captions["en"] == of_clip_art


@pytest.mark.parametrize("split", SPLITS)
def test_every_picture_of_a_split_is_an_image(split):
    images = load_dataset("pictograms", split=split).images
    assert len(images) == SPEC.images[split]
    shown = set(images[-300:])
    assert len(shown) > 280, "icons of two sources may look alike"
    assert all(Image.open(io.BytesIO(png)).size == (THUMBNAIL, THUMBNAIL) for png in shown)
    assert all(np.ptp(pixels) > 8 for pixels in thumbnails(split).values())


def test_every_picture_has_a_thumbnail_also_clip_art_whose_text_is_of_no_use():
    for sheet in SHEETS:
        assert set(thumbnails(sheet)) == {row.id for row in rows() if row.sheet == sheet}
    images = load_dataset("pictograms-web").images
    assert len(images) == WEB.images["train"]


def test_every_labelled_pair_can_be_looked_at():
    assert WEB.pair_labels is not None
    labelled = pd.read_csv(WEB.pair_labels)
    drawn = pd.Series({name: np.ptp(png_of(name)) for name in labelled.image_id})
    assert len(drawn) == 1_200
    assert drawn.min() > 8  # a drawing, not a white tile


def png_of(image_id):
    return np.asarray(Image.open(io.BytesIO(png(image_id))))


def test_an_installation_has_no_pictures_of_train(monkeypatch):
    monkeypatch.setattr("ncl_bench.data.pictograms.pictured", lambda: frozenset({"dev", "test"}))
    assert load_dataset("pictograms").images is None
    assert load_dataset("pictograms-web").images is None
    assert load_dataset("pictograms", split="test").images is not None
