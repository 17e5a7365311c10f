"""Fingerprints, token ids, order, noise; and miniature downloads through ``prepare``."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from probe import BASE, array, command, file_hashes, first_of, refused, sha

from ncl_bench import DATASETS, load_dataset

EMBEDDED = ("digits", "pictograms", "pictograms-emoji", "pictograms-web")
SPLITS = ("train", "dev", "test")
RATIOS = (0.2, 0.4, 0.5, 0.6, 0.8)


def opened(name: str, **options: Any) -> dict[str, Any]:
    """All that a split holds, as hashes."""
    split = load_dataset(name, **options)
    pairs = split.read(np.arange(len(split)))
    read = {
        field: array(getattr(pairs, field))
        for field in ("image_features", "image_lengths", "caption_tokens", "caption_lengths", "pair_ids")
        if hasattr(pairs, field)
    }
    batches = [batch for _, batch in zip(range(3), split.batches(32, seed=5), strict=False)]
    return {
        "sizes": [len(split), split.n_images, split.n_regions, split.feature_dim],
        "fingerprint": split.fingerprint,
        "noise": [
            split.noise.unit,
            split.noise.ratio,
            split.noise.seed,
            split.noise.sha256,
            split.noise.realised_ratio,
        ],
        "vocabulary": [
            split.vocabulary.size,
            split.vocabulary.sha256,
            sha(json.dumps(list(split.vocabulary.words))),
        ],
        "captions": None
        if split.captions is None
        else sha(json.dumps(list(split.captions), ensure_ascii=False)),
        "image_ids": sha(json.dumps([str(one) for one in split.image_ids])),
        "read": read,
        "order_of_batches": [array(batch.pair_ids) for batch in batches],
    }


def choices(spec: Any) -> list[dict[str, str]]:
    """The ways to open a dataset: every language with its usual tokenizer."""
    return [{"language": language} for language in spec.languages]


def facts(spec: Any) -> dict[str, Any]:
    """What the protocol fixes of a dataset."""
    names = (
        "title",
        "images",
        "captions_per_image",
        "n_regions",
        "feature_dim",
        "noise",
        "protocols",
        "languages",
    )
    found = {name: getattr(spec, name) for name in names}
    return found | {
        "tokenizers": {str(key): str(value) for key, value in dict(spec.tokenizers).items()},
        "order": dict(getattr(spec, "order_fingerprints", {})),
    }


def data() -> dict[str, Any]:
    """Facts of every dataset, and all that the embedded ones hold."""
    found: dict[str, Any] = {"facts": {name: facts(spec) for name, spec in DATASETS.items()}}
    found["open"] = {
        name: {
            f"{split}-{choice['language']}": opened(name, split=split, **choice)
            for split in SPLITS
            for choice in choices(DATASETS[name])
        }
        for name in EMBEDDED
    }
    train = load_dataset("digits", noise_ratio=0.4)
    shard = train.shard(3, 1)
    few = train.subset(np.array([7, 3, 3, 9_000]))
    found["parts"] = {
        "shard": [array(shard.read(np.arange(50)).pair_ids), len(shard)],
        "subset": array(few.read(np.arange(4)).image_features),
        "first_images": len(load_dataset("digits", split="dev").first_images(20)),
    }
    found["true"] = array(first_of("ncl_bench.data:true_correspondence")(train))
    for name, options in {
        "no such dataset": {"name": "digit"},
        "no such split": {"name": "digits", "split": "val"},
        "noise on test": {"name": "digits", "split": "test", "noise_ratio": 0.4},
        "noise on natural": {"name": "pictograms-web", "noise_ratio": 0.4},
        "ratio of one": {"name": "digits", "noise_ratio": 1.0},
        "no root": {"name": "flickr30k"},
        "no such language": {"name": "digits", "language": "xx"},
        "no such tokenizer": {"name": "digits", "tokenizer": "xx"},
    }.items():
        found.setdefault("refusals", {})[name] = refused(lambda o=options: load_dataset(**o))
    return found


def noise() -> dict[str, Any]:
    """Hashes of noise files of every dataset, unit and ratio, and what ``identify`` says of them."""
    found: dict[str, Any] = {}
    draw = getattr(first_of("ncl_bench.data.spec:DatasetSpec"), "draw_noise", None)
    draw = draw or first_of("ncl_bench.noise.draw:draw_noise")
    for name, spec in DATASETS.items():
        if spec.noise != "synthetic":
            continue
        for unit in ("caption", "image"):
            for ratio in RATIOS:
                for seed in (None, 1):
                    index, record = draw(spec, noise_ratio=ratio, noise_unit=unit, seed=seed)
                    found[f"{name}-{unit}-{ratio}-{seed}"] = [
                        array(index),
                        record.sha256,
                        record.seed,
                        record.realised_ratio,
                    ]
    for name in ("flickr30k", "digits", "pictograms"):
        for unit in ("caption", "image"):
            file = Path(f"{name}-{unit}.npy")
            made = command("noise", "make", name, "--ratio", 0.4, "--unit", unit, "--to", file)
            found[f"file of {name} by {unit}"] = {
                "make": made,
                "content": array(np.load(file)),
                "identify": command("noise", "identify", file),
                "check": command("noise", "check", file, "--dataset", name, "--unit", unit),
            }
    found["refusals"] = {
        "natural": command("noise", "make", "now", "--ratio", 0.4, "--to", "x.npy"),
        "exists": command("noise", "make", "digits", "--ratio", 0.4, "--to", "digits-caption.npy"),
        "misfit": command("noise", "check", "digits-caption.npy", "--dataset", "coco"),
        "missing": command("noise", "identify", "missing.npy"),
        "unit": command("noise", "check", "digits-caption.npy", "--dataset", "digits", "--unit", "word"),
    }
    found["left"] = file_hashes(Path())
    return found


IMAGES = {"train": 12, "dev": 4, "test": 3}
WORDS = ["a", "dog", "runs", "over", "the", "green", "field", "'stop", "sign", "isn't", "red", "."]
NOW_TOKENIZERS = ("bpe", "bert", "jieba")


def numbers(rows: int, seed: int, dtype: str = "float32") -> np.ndarray:
    """Region features."""
    return np.random.default_rng(seed).standard_normal((rows, 3, 4)).astype(dtype)


def caption(seed: int) -> str:
    """A caption of six words."""
    return " ".join(np.random.default_rng(seed).choice(WORDS, 6)).capitalize()


def lines(path: Path, texts: list[str]) -> None:
    """A text file of lines."""
    path.write_bytes("".join(f"{text}\n" for text in texts).encode())


def scan_download(folder: Path, name: str) -> Path:
    """Flickr30K or MS-COCO as SCAN published them, of few images."""
    prefixes = dict(DATASETS[name].origin.prefixes)
    folder.mkdir(parents=True)
    for number, (split, images) in enumerate(IMAGES.items()):
        repeat, prefix = (1 if split == "train" else 5), prefixes[split]
        np.save(folder / f"{prefix}_ims.npy", np.repeat(numbers(images, number), repeat, axis=0))
        lines(folder / f"{prefix}_caps.txt", [caption(100 * number + c) for c in range(5 * images)])
        ids = [str(1000 * number + 7 * i) for i in range(images)]
        lines(folder / f"{prefix}_ids.txt", np.repeat(ids, repeat).tolist())
    return folder


def cc152k_download(folder: Path) -> Path:
    """CC152K as NCR published it, of few images."""
    folder.mkdir(parents=True)
    for number, (split, images) in enumerate(IMAGES.items()):
        np.save(folder / f"{split}_ims.npy", numbers(images, number))
        rows = [f"{number}{i:03}_{i * i}\t{caption(100 * number + i)}" for i in range(images)]
        if split == "train":
            rows[1] = '0001_1\t"quoted at the start only'
        lines(folder / f"{split}_caps.tsv", rows)
    return folder


def now_download(folder: Path) -> Path:
    """Noise of Web, of few images: three tokenizations as ids."""
    inner = folder / "h5100k_precomp"
    inner.mkdir(parents=True)
    (folder / "vocab").mkdir()
    words = ("<pad>", "<start>", "<end>", "<unk>", " ", "web", "网页", "ねこ", "страница")
    sizes = first_of("ncl_bench.data.now:VOCABULARY_SIZES")
    for tokenizer in sizes:
        content = {
            "word2idx": {word: n for n, word in enumerate(words)},
            "idx2word": {str(n): w for n, w in enumerate(words)},
            "idx": len(words) + 3,
        }
        (folder / "vocab" / f"now100k_precomp_vocab_{tokenizer}.json").write_text(json.dumps(content))
    for number, (split, images) in enumerate(IMAGES.items()):
        np.save(inner / f"{split}_ims.npy", numbers(images, number, "float16"))
        lines(inner / f"{split}_ids.txt", [str(31 * i + number) for i in range(images)])
        for shift, tokenizer in enumerate(sizes):
            rows = [
                ",".join(str(4 + (i + j + shift) % 5) for j in range(3 + i % 3)) + "," for i in range(images)
            ]
            lines(inner / f"{split}_caps_{tokenizer}.txt", rows)
    return folder


FLICKR8K = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1] + "/tests")
from support import flickr8k_miniature
flickr8k_miniature.make(Path("from/flickr8k"))
"""
"""Flickr8K in its published layout, as the base's tests draw it."""


def prepare() -> dict[str, Any]:
    """Miniature downloads, prepared and opened; and a dataset of one's own."""
    for name in ("flickr30k", "coco", "cc152k", "now"):
        DATASETS[name] = replace(DATASETS[name], images=IMAGES, n_regions=3, feature_dim=4)
    makers = {"cc152k": cc152k_download, "now": now_download}
    found: dict[str, Any] = {}
    for name in ("flickr30k", "coco", "cc152k", "now"):
        place = Path("from") / name
        makers[name](place) if name in makers else scan_download(place, name)
        found[name] = {
            "check": command("prepare", name, "--from", place, "--check"),
            "prepare": command("prepare", name, "--from", place, "--to", "data"),
            "again": command("prepare", name, "--from", place, "--to", "data"),
            "open": {
                split: refused(lambda n=name, s=split: opened(n, split=s, root="data")) for split in SPLITS
            },
            "noisy": refused(
                lambda n=name: opened(
                    n, root="data", **({} if n in ("cc152k", "now") else {"noise_ratio": 0.4})
                )
            ),
        }
    for tokenizer in NOW_TOKENIZERS:
        found[f"now, {tokenizer}"] = refused(lambda t=tokenizer: opened("now", root="data", tokenizer=t))
    found["half precision"] = command(
        "prepare", "coco", "--from", "from/coco", "--to", "data2", "--dtype", "float16"
    )
    found["half precision, open"] = refused(lambda: opened("coco", split="test", root="data2"))
    subprocess.run(
        [sys.executable, "-c", FLICKR8K, str(BASE)], env=os.environ | {"PYTHONPATH": str(BASE)}, check=True
    )
    DATASETS["flickr8k"] = replace(DATASETS["flickr8k"], images=IMAGES)
    found["flickr8k"] = {
        "prepare": command("prepare", "flickr8k", "--from", "from/flickr8k", "--to", "data"),
        "open": {
            split: refused(lambda s=split: opened("flickr8k", split=s, root="data")) for split in SPLITS
        },
    }
    lines(Path("from/coco/dev_caps.txt"), ["too few"])
    found["refusals"] = {
        "short": command("prepare", "coco", "--from", "from/coco", "--to", "data3"),
        "nowhere": command("prepare", "coco", "--from", "missing", "--to", "data3"),
        "no folder": command("prepare", "coco", "--from", "from/coco"),
        "nothing written": Path("data3").exists(),
    }
    found["own"] = own()
    return found


def own() -> dict[str, Any]:
    """A dataset of one's own from features and a table of captions."""
    folder = Path("own")
    folder.mkdir()
    random = np.random.default_rng(3)
    names = [f"image{number:02}" for number in range(40)]
    for name in names:
        np.save(folder / f"{name}.npy", random.standard_normal((3, 4)).astype(np.float32))
    with Path("own.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "en"])
        writer.writerows([name, caption(n)] for n, name in enumerate(names))
    made = command(
        "datasets",
        "new",
        "pets",
        "--features",
        folder,
        "--captions",
        "own.csv",
        "--to",
        "owned",
        "--dev",
        8,
        "--test",
        8,
    )
    found: dict[str, Any] = {"new": made}
    code = (
        "import json, sys; sys.path.insert(0, '.'); from pathlib import Path; from ncl_bench import load_dataset; "
        "import pets; import numpy as np; "
        "print(json.dumps({s: [load_dataset('pets', split=s, root='owned').fingerprint, "
        "load_dataset('pets', split=s, root='owned').read(np.arange(3)).caption_tokens.tolist()] "
        "for s in ('train', 'dev', 'test')}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    found["open"] = done.stdout or done.stderr[-500:]
    return found


PARTS = {"data": data, "noise": noise, "prepare": prepare}
