"""Flickr8K in its published layout with a few drawn photographs, and features in place of the encoder's."""

from dataclasses import replace

import numpy as np
from PIL import Image

from ncl_bench.data import flickr8k
from ncl_bench.data.encoding import Encoding, Preprocessing

IMAGES = {"train": 12, "dev": 4, "test": 3}
SPEC = replace(flickr8k.SPEC, images=IMAGES)
STRAY = "2258277193_586949ec62.jpg.1"
"""Has captions, and is no photograph."""


def names(split):
    """File names of a split, in the order of its list, which is not that of the alphabet."""
    first = 100 * list(IMAGES).index(split)
    return [f"{(first + 37 * i) % 1000:03}_{split}.jpg" for i in reversed(range(IMAGES[split]))]


def caption(name, number):
    """A caption as published: words and full stop apart."""
    return f"A dog of {name.removesuffix('.jpg')} runs , view {number} ."


def make_texts(folder):
    """What is in Flickr8k_text.zip."""
    folder.mkdir(parents=True, exist_ok=True)
    everyone = sorted(name for split in IMAGES for name in names(split))
    rows = [f"{name}#{i}\t{caption(name, i)}" for name in [*everyone, STRAY] for i in range(5)]
    (folder / flickr8k.CAPTIONS).write_text("\n".join(rows) + "\n")
    for split, file in flickr8k.LISTS.items():
        (folder / file).write_text("\n".join(names(split)) + "\n")
    return folder


def make_judgements(folder):
    """Judgements of all pairs of a test image and caption number 2 of a test image, as in Flickr8k_text.zip."""
    everyone = names("test")
    pairs = [(image, f"{of}#2") for image in everyone for of in everyone]
    expert, crowd = flickr8k.JUDGEMENT_FILES["expert"], flickr8k.JUDGEMENT_FILES["crowd"]
    own = [caption.startswith(image) for image, caption in pairs]
    ratings = ["4\t4\t3" if each else "1\t2\t1" for each in own]
    votes = ["1\t3\t0" if each else "0.25\t1\t3" for each in own]
    for i in range(1, len(pairs), 8):  # other captions too, and enough of them for a resample of more images
        ratings[i] = "3\t3\t2"
    for i in range(5, len(pairs), 7):
        votes[i] = "0.6666666666666666\t2\t1"
    for name, said in ((expert, ratings), (crowd, votes)):
        rows = [f"{image}\t{caption}\t{each}" for (image, caption), each in zip(pairs, said, strict=True)]
        (folder / name).write_text("\n".join(rows) + "\n")


def make_photographs(folder):
    """What is in Flickr8k_Dataset.zip; one photograph is in no list."""
    folder = folder / "Flicker8k_Dataset"
    folder.mkdir(parents=True)
    for number, name in enumerate(["unused.jpg", *(name for split in IMAGES for name in names(split))]):
        quarters = np.random.default_rng(number).integers(0, 256, (2, 2, 3), dtype=np.uint8)
        Image.fromarray(quarters).resize((50, 40), Image.Resampling.BILINEAR).save(folder / name)
    return folder


def make_features(folder, **changes):
    """Random numbers where ``ncl-bench features`` writes features, and what it says of them."""
    folder = folder / "features"
    folder.mkdir(parents=True)
    for number, split in enumerate(IMAGES):
        rows = np.random.default_rng(number).random((IMAGES[split], 16, 1280), np.float32)
        np.save(folder / f"{split}_ims.npy", rows.astype(np.float16))
        (folder / f"{split}_ids.txt").write_text("\n".join(names(split)) + "\n")
    encoding = Encoding(
        tool="ncl_bench 0.1.0",
        key=flickr8k.WEIGHTS_SHA256,
        encoder="efficientnet-lite0",
        weights="lite0.pth",
        weights_sha256=flickr8k.WEIGHTS_SHA256,
        preprocessing=Preprocessing(size=224, interpolation="bicubic", mean=(127,) * 3, std=(128,) * 3),
        grid=4,
        feature_dim=1280,
        pca=None,
        dtype="float16",
        batch_size=32,
        device="CPU",
        versions={"torch": "2"},
        splits="given",
        images=IMAGES,
        skipped={},
    )
    (folder / "features.json").write_text(encoding.model_copy(update=changes).model_dump_json())
    return folder


def make(folder, **changes):
    """All but the photographs; returns what to give as ``--from``."""
    make_features(make_texts(folder), **changes)
    make_judgements(folder)
    return folder
