"""Miniature downloads in the published layouts: few images, few features, every file name and quirk."""

import zipfile
from dataclasses import replace

import numpy as np

from ncl_bench.data import cc152k, coco, flickr30k, now
from ncl_bench.data.vocabulary import Vocabulary, vocabulary_json

IMAGES = {"train": 12, "dev": 4, "test": 3}
SPECS = {
    module.SPEC.name: replace(module.SPEC, images=IMAGES, n_regions=3, feature_dim=4)
    for module in (flickr30k, coco, cc152k, now)
}
WORDS = ["a", "dog", "runs", "over", "the", "green", "field", "'stop", "sign", "isn't", "red", "."]


def features(rows, seed, dtype="float32"):
    """Features of unique images."""
    return np.random.default_rng(seed).standard_normal((rows, 3, 4)).astype(dtype)


def caption(seed):
    """A caption of a few words."""
    return " ".join(np.random.default_rng(seed).choice(WORDS, 6)).capitalize()


def make_scan(folder, name):
    """Flickr30K or MS-COCO as SCAN published them: dev and test store every image five times."""
    folder = folder / {"flickr30k": "f30k_precomp", "coco": "coco_precomp"}[name]
    folder.mkdir(parents=True)
    for number, (split, prefix) in enumerate(PREFIXES[name].items()):
        images = IMAGES[split]
        repeat = 1 if split == "train" else 5
        ids = [str(1000 * number + 7 * i) for i in range(images)]
        captions = [caption(100 * number + c) for c in range(5 * images)]
        np.save(folder / f"{prefix}_ims.npy", np.repeat(features(images, number), repeat, axis=0))
        write_lines(folder / f"{prefix}_caps.txt", captions)
        write_lines(folder / f"{prefix}_ids.txt", np.repeat(ids, repeat).tolist())
    return folder


def make_cc152k(folder):
    """CC152K as NCR published it; the second caption of train begins with a stray quotation mark."""
    folder = folder / "cc152k_precomp"
    folder.mkdir(parents=True)
    for number, (split, images) in enumerate(IMAGES.items()):
        np.save(folder / f"{split}_ims.npy", features(images, number))
        rows = [f"{number}{i:03}_{i * i}\t{caption(100 * number + i)}" for i in range(images)]
        if split == "train":
            rows[1] = '0001_1\t"quoted at the start only'
        write_lines(folder / f"{split}_caps.tsv", rows)
    return folder


def make_now(folder, name="h5100k_precomp"):
    """Noise of Web: three tokenizations as ids, vocabularies in a folder beside them, more ids than words."""
    (folder / name).mkdir(parents=True)
    (folder / "vocab").mkdir()
    words = ("<pad>", "<start>", "<end>", "<unk>", " ", "web", "网页", "ねこ", "страница")
    for tokenizer in now.VOCABULARY_SIZES:
        text = vocabulary_json(Vocabulary(words, len(words) + 3))
        (folder / "vocab" / f"now100k_precomp_vocab_{tokenizer}.json").write_text(text)
    for number, (split, images) in enumerate(IMAGES.items()):
        np.save(folder / name / f"{split}_ims.npy", features(images, number, "float16"))
        write_lines(folder / name / f"{split}_ids.txt", [str(31 * i + number) for i in range(images)])
        for shift, tokenizer in enumerate(now.VOCABULARY_SIZES):
            ids = [[4 + (i + j + shift) % 5 for j in range(3 + i % 3)] for i in range(images)]
            rows = ["".join(f"{word}," for word in own) for own in ids]
            write_lines(folder / name / f"{split}_caps_{tokenizer}.txt", rows)
    return folder


def make(folder, name):
    """The download of a dataset; returns what to give as ``--from``."""
    if name == "cc152k":
        return make_cc152k(folder)
    return make_now(folder) if name == "now" else make_scan(folder, name)


def zipped(folder, target, compression=zipfile.ZIP_DEFLATED):
    """A zip file of everything in a folder."""
    with zipfile.ZipFile(target, "w", compression) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return target


def write_lines(path, lines, end="\n"):
    """A UTF-8 text file."""
    path.write_bytes("".join(f"{line}{end}" for line in lines).encode())


PREFIXES = {"flickr30k": flickr30k.SPEC.origin.prefixes, "coco": coco.SPEC.origin.prefixes}
