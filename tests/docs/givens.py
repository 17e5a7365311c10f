"""What a reader has before a block and a test must make: downloads, scores, trained runs; all of them tiny."""

import re
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from support import miniatures

from baselines.backbones.torchvision import import_beside
from ncl_bench.data import DATASETS
from ncl_bench.data.load import load_dataset
from ncl_bench.evaluation.protocol import expected_shape

PAIRS = 300


def downloads(folder, patch):
    """Miniatures of the published downloads, below ``downloads`` and, by a placeholder's name, ``DOWNLOADS``."""
    for name, spec in miniatures.SPECS.items():
        patch.setitem(DATASETS.data, name, spec)
        miniatures.make(folder / "downloads", name)
    shutil.copytree(folder / "downloads" / "f30k_precomp", folder / "DOWNLOADS" / "f30k_precomp")


def prepared(folder, patch):
    """The miniatures, prepared below ``data``."""
    from ncl_bench.data.prepare import prepare

    downloads(folder, patch)
    for name in ("flickr30k", "cc152k"):
        prepare(name, folder / "downloads", folder / "data")


def flickr30k_scores(folder, patch):
    """Random scores of Flickr30K's test split, at full size."""
    shape = expected_shape(DATASETS["flickr30k"], "test")
    np.save(folder / "my_scores.npy", np.random.default_rng(0).random(shape, np.float32))


def digits_scores(folder, patch):
    """Scores of digits' test split that find most images, and what a model knows: two embeddings."""
    random = np.random.default_rng(0)
    images = random.standard_normal((200, 16), np.float32)
    captions = np.repeat(images, 5, axis=0) + 0.7 * random.standard_normal((1000, 16), np.float32)
    np.save(folder / "image_embeddings.npy", images)
    np.save(folder / "caption_embeddings.npy", captions)
    np.save(folder / "train_images.npy", random.standard_normal((60, 16), np.float32))
    np.save(folder / "train_captions.npy", random.standard_normal((90, 16), np.float32))


def filled_in(folder, patch):
    """Every template in the folder with its FILL-IN replaced, and its scores where it has none."""
    for statement in folder.glob("*/submission.yaml"):
        text = statement.read_text()
        scores = statement.parent / "test.npy"
        if not scores.exists():
            spec = DATASETS[re.search(r"^dataset: (\w+)", text, re.MULTILINE)[1]]
            np.save(scores, np.random.default_rng(0).random(expected_shape(spec, "test"), np.float32))
        digest = sha256(scores.read_bytes()).hexdigest()
        text = text.replace("sha256: FILL-IN", f"sha256: {digest}")
        order = sha256(b"an order").hexdigest()
        text = text.replace("test: FILL-IN", f"test: {order}")
        statement.write_text(text.replace(": FILL-IN", ": a laptop"))


def other(folder, patch):
    """A second submission, ``other``."""
    with_random_scores(folder, "other")


def three_seeds(folder, patch):
    """Submissions of three training runs of two methods, with random scores."""
    with_random_scores(folder, *(f"{method}-seed{seed}" for method in ("ncr", "crcl") for seed in range(3)))


def with_random_scores(folder, *names):
    """Copies of ``my_submission`` with scores of their own."""
    text = (folder / "my_submission" / "submission.yaml").read_text()
    spec = DATASETS[re.search(r"^dataset: (\w+)", text, re.MULTILINE)[1]]
    stated = re.search(r"file: test.npy\n +sha256: (\w+)", text)[1]
    random = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir()
        scores = folder / name / "test.npy"
        np.save(scores, random.random(expected_shape(spec, "test"), np.float32))
        digest = sha256(scores.read_bytes()).hexdigest()
        (folder / name / "submission.yaml").write_text(text.replace(stated, digest))


def features_and_captions(folder, patch):
    """Features of one vector per image, a file each, and a table of two captions per image in two languages."""
    random = np.random.default_rng(0)
    (folder / "features").mkdir()
    rows = ["image,en,zh"]
    for pet in range(80):
        np.save(folder / "features" / f"pet{pet}.npy", random.random(512, np.float32))
        rows += [f'pet{pet}.jpg,"A pet, number {pet}, view {view}.",宠物 {pet} 号' for view in range(2)]
    (folder / "captions.csv").write_text("\n".join(rows) + "\n", "utf-8")


def tiny_training(folder, patch):
    """Every recipe trains a tiny network for an epoch of each phase on a few pairs."""
    from baselines.training.recipe import Recipe

    load = Recipe.load

    def shrunken(source):
        recipe = load(source)
        options = recipe.backbone_config.model_dump()
        sizes = {key: 8 for key in options if key in ("embed_size", "word_dim", "sim_dim")}
        phases = {key: 1 for key, value in recipe.method_config if key.endswith("epochs") and value}
        return recipe.model_copy(
            update={"backbone": recipe.backbone | sizes, "method": recipe.method | phases, "batch_size": 50}
        )

    def few(name, **options):
        dataset = load_dataset(name, **options)
        few_pairs = options["split"] == "train" and len(dataset) > PAIRS
        return dataset.subset(np.arange(PAIRS)) if few_pairs else dataset

    patch.setattr(Recipe, "load", shrunken)
    patch.setattr("baselines.training.job.load_dataset", few)


def photographs(folder, patch):
    """Sixty drawings in ``photos``, each described in two languages in ``captions.csv``."""
    from support.drawings import describe

    describe(folder, 60)


def clip_training(folder, patch):
    """The same, with OpenCLIP beside a torch for CPUs."""
    import_beside("open_clip")
    tiny_training(folder, patch)


def photographs_of_prepared(folder, patch):
    """The prepared miniatures, and a file per image of Flickr30K's in ``photographs``."""
    prepared(folder, patch)
    (folder / "photographs").mkdir()
    for split in ("train", "dev", "test"):
        for image_id in load_dataset("flickr30k", split=split, root=folder / "data").image_ids:
            Image.new("RGB", (6, 4)).save(folder / "photographs" / f"{image_id}.jpg")


def labels_and_ticked_pairs(folder, patch):
    """Labels of a few pairs, as the page of an audit downloads them."""
    lines = "version,pair_id,label", "2,0,matches", "2,1,wrong", "2,2,partly"
    (folder / "labels.csv").write_text("\n".join(lines))


def labels_of_own_pairs(folder, patch):
    """Labels of the first two pairs of ``captions.csv``, as the page of an audit downloads them."""
    rows = pd.read_csv(folder / "captions.csv")[:2]
    lines = [
        f'2,{image},"{text}",{label}'
        for image, text, label in zip(rows["image"], rows["en"], ("matches", "wrong"), strict=True)
    ]
    (folder / "labels.csv").write_text("\n".join(["version,image_id,caption,label", *lines]))


def the_examples(folder, patch):
    """The folder ``examples`` of a clone."""
    shutil.copytree(Path(__file__).parents[2] / "examples", folder / "examples")
    patch.syspath_prepend(str(folder / "examples"))


GIVENS = {
    "the downloads": downloads,
    "the examples": the_examples,
    "prepared data": prepared,
    "scores on Flickr30K": flickr30k_scores,
    "embeddings of digits": digits_scores,
    "a template that is filled in": filled_in,
    "another submission": other,
    "submissions of three seeds of two methods": three_seeds,
    "features and captions": features_and_captions,
    "tiny recipes": tiny_training,
    "photographs and their captions": photographs,
    "OpenCLIP, and tiny recipes": clip_training,
    "prepared data and photographs": photographs_of_prepared,
    "labels and ticked pairs": labels_and_ticked_pairs,
    "labels of own pairs": labels_of_own_pairs,
}
