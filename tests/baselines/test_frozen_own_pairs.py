"""Ids, order of rows and splits that own pairs of different forms are read as; a prepared dataset depends on them."""

import hashlib
import json

import pandas as pd
import pytest

from baselines.features import list_images
from ncl_bench.data.own_tables import draw_splits, read_captions
from ncl_bench.data.pairs.columns import read_pairs

NAMES = ["b/2.jpg", "a/10.jpg", "a/9.jpg", "Zu\u0308rich.jpg"]
TEXTS = ["a dog", "two  cats", "a red bus", "a lake", "the dog again"]
IMAGES = [0, 1, 2, 3, 0]
SPLITS = ["train", "dev", "test", "train", "train"]


def sha256(content):
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()[:16]


def frame(image="image", caption="caption", **more):
    return pd.DataFrame({image: [NAMES[i] for i in IMAGES], caption: TEXTS} | more)


def table(name, content, separator=","):
    def write(folder):
        content.to_csv(folder / name, index=False, sep=separator)
        return folder / name

    return write


def text(name, content):
    def write(folder):
        (folder / name).write_text(content, encoding="utf-8", newline="")
        return folder / name

    return write


def karpathy(**more):
    images = [
        {
            "filename": name,
            "split": split,
            "sentences": [{"raw": TEXTS[row]} for row in range(5) if IMAGES[row] == number],
        }
        | more
        for number, (name, split) in enumerate(zip(NAMES, ["restval", "val", "test", "train"], strict=True))
    ]
    return json.dumps({"images": images})


def photos(folder):
    for name in NAMES:
        (folder / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "photos" / name).touch()
    return folder / "photos"


CAPTIONS = {
    "csv": (table("captions.csv", frame()), "b8d425d3f6b1431e"),
    "csv with splits": (table("captions.csv", frame(split=SPLITS)), "6dae4de0051d6bba"),
    "csv with names in capitals": (
        table("captions.csv", frame("Image", "Caption", Split=SPLITS)),
        "6dae4de0051d6bba",
    ),
    "semicolons": (table("captions.csv", frame(number=range(5)), ";"), "b8d425d3f6b1431e"),
    "tsv": (table("captions.tsv", frame(), "\t"), "b8d425d3f6b1431e"),
    "two languages": (
        table("captions.csv", frame(caption="en", zh=["狗", "猫", "车", "湖", "狗"])),
        "5464dc02b8986b65",
    ),
    "quoted": (
        text("captions.csv", 'image,caption\r\nb.jpg,"one, two"\r\na.jpg,"say ""hi"""\r\n'),
        "47ac63600e4fb3ca",
    ),
    "mark of byte order": (
        text("captions.csv", "\ufeffimage,caption\nb.jpg,x\na.jpg,y\n"),
        "97c58e5dac9b8d90",
    ),
    "Karpathy": (text("captions.json", karpathy()), "6dae4de0051d6bba"),
    "Karpathy with folders": (text("captions.json", karpathy(filepath="val2014")), "691635b15121e103"),
}
LISTINGS = {
    "folder": (photos, "e0005572cf0d4699"),
    "csv": (table("captions.csv", frame()), "6988cc2f9ef804c3"),
    "csv with splits": (table("captions.csv", frame(split=SPLITS)), "7006160b3e16d221"),
    "Karpathy": (text("captions.json", karpathy()), "7006160b3e16d221"),
}


@pytest.mark.parametrize("form", CAPTIONS)
def test_captions(form, tmp_path):
    write, known = CAPTIONS[form]
    found = read_captions(write(tmp_path))
    splits = found.splits or draw_splits(list(found.captions) * 10, None, None, 0)
    assert sha256([found.languages, list(found.captions.items()), splits]) == known


@pytest.mark.parametrize("form", LISTINGS)
def test_images(form, tmp_path):
    write, known = LISTINGS[form]
    found = list_images(write(tmp_path))
    assert sha256([found.names, found.splits]) == known


@pytest.mark.parametrize("columns", [("path", "title"), ("image", "alt"), ("file_name", "text")])
def test_columns_of_other_names_are_recognised(columns, tmp_path):
    found = read_pairs(table("captions.csv", frame(*columns))(tmp_path))
    assert (found.image_column, found.caption_column) == columns
    assert list(found.captions) == [" ".join(text.split()) for text in TEXTS]
