"""Submission folders for tests: digits, every form of scores."""

import hashlib
import json

import numpy as np
import yaml

from ncl_bench.data import DATASETS
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION

N_IMAGES, EACH = 200, 5
DIM = 16


def embeddings(seed=0, noise=0.5):
    """Embeddings of 200 images and their 1,000 captions, of which most find their image."""
    random = np.random.default_rng(seed)
    images = random.normal(size=(N_IMAGES, DIM))
    captions = np.repeat(images, EACH, axis=0) + noise * random.normal(size=(N_IMAGES * EACH, DIM))
    return images.astype(np.float32), captions.astype(np.float32)


def similarities(seed=0, noise=0.5):
    """Dot products of the embeddings, rounded to float32 from float64."""
    images, captions = embeddings(seed, noise)
    return (images.astype(np.float64) @ captions.astype(np.float64).T).astype(np.float32)


def order(split="test"):
    """The order fingerprint of a split of digits."""
    return DATASETS["digits"].order_fingerprints[split]


def write_array(folder, name, array):
    """Write an array and say what a submission states about it."""
    np.save(folder / name, array)
    return {"file": name, "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()}


def scores_of_form(folder, form, seed=0, split="test"):
    """Write the similarities of a seed in one of the forms."""
    scores = similarities(seed)
    if form == "matrix":
        return {"form": form, "matrix": write_array(folder, f"{split}.npy", scores)}
    images, captions = (
        write_array(folder, f"{split}_{name}.npy", array)
        for name, array in zip(("images", "captions"), embeddings(seed), strict=True)
    )
    return {"form": form, "similarity": "dot", "images": images, "captions": captions}


def statement(scores, ratio=0.4):
    """Content of submission.yaml."""
    noise = {"unit": "none", "ratio": 0.0}
    if ratio:
        _, drawn = DATASETS["digits"].draw_noise(noise_ratio=ratio, noise_unit="caption")
        facts = ("seed", "sha256", "realised_ratio")
        noise = {"unit": "caption", "ratio": ratio} | {fact: getattr(drawn, fact) for fact in facts}
    return {
        "protocol_version": PROTOCOL_VERSION,
        "method": "Example",
        "paper": "",
        "code": "https://example.org/code",
        "backbone": "a network",
        "networks": 1,
        "dataset": "digits",
        "order_fingerprint": {split: order(split) for split in scores},
        "language": "en",
        "tokenizer": "word",
        "noise": noise,
        "training_seeds": [0],
        "selection_split": "dev",
        "extra_clean_data": "",
        "pretrained_encoder": "",
        "hardware": "a laptop",
        "hours": 0.5,
        "scores": scores,
    }


def write_statement(folder, content):
    """Write submission.yaml."""
    (folder / "submission.yaml").write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")


def write_folder(folder, form="matrix", seed=0):
    """Write a good submission folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_statement(folder, statement({"test": scores_of_form(folder, form, seed)}))
    return folder


def write_matrix(folder, scores, ratio=0.4, **stated):
    """Write a submission folder of these similarities, with these changes of what is stated."""
    folder.mkdir(parents=True, exist_ok=True)
    matrix = write_array(folder, "test.npy", scores)
    write_statement(folder, statement({"test": {"form": "matrix", "matrix": matrix}}, ratio) | stated)
    return folder


def read_json(path):
    """Parse JSON that holds no NaN."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(path.read_text("utf-8"), parse_constant=refuse)
