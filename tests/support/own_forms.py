"""The same pictures and captions in every form that people have them in."""

import gzip
import io
import json

import datasets
import numpy as np
import pandas as pd
from support.drawings import drawing
from support.shaded import shard

N = 12
NAMES = [f"{number:03}.png" for number in range(N)]
TEXTS = [f"the drawing of number {number}" for number in range(N)]
ORDER = np.random.default_rng(1).permutation(N).tolist()
"""Rows are in this order, so that none is found by its place."""


def png(number):
    stream = io.BytesIO()
    drawing(number).save(stream, "PNG")
    return stream.getvalue()


SAMPLE = {"png": png, "txt": lambda n: TEXTS[n].encode()}
"""Ending of a file of a shard to its content."""


def photos(folder, names):
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png(number))
    return folder


def frame(image="image", caption="caption", names=NAMES):
    return pd.DataFrame({image: [names[n] for n in ORDER], caption: [TEXTS[n] for n in ORDER]})


def table(folder, name):
    path, rows = folder / name, frame()
    if name.endswith(".parquet"):
        rows.to_parquet(path)
    elif name.endswith(".jsonl"):
        rows.to_json(path, orient="records", lines=True)
    elif name.endswith(".json"):
        rows.to_json(path, orient="records")
    else:
        rows.to_csv(path, index=False, sep="\t" if ".tsv" in name else ",")
    return path


def beside(name):
    return lambda folder: (table(folder, name), photos(folder / "photos", NAMES))


def written(name, text):
    def make(folder):
        (folder / name).write_text(text)
        return folder / name, photos(folder / "photos", NAMES)

    return make


def karpathy():
    images = [{"filename": NAMES[n], "sentences": [{"raw": TEXTS[n]}]} for n in ORDER]
    splits = ["test", "val", *["train"] * (N - 2)]
    return json.dumps({"images": [each | {"split": s} for each, s in zip(images, splits, strict=True)]})


def coco():
    images = [{"id": n, "file_name": NAMES[n]} for n in range(N)]
    return json.dumps(
        {"images": images, "annotations": [{"image_id": n, "caption": TEXTS[n]} for n in ORDER]}
    )


def metadata(folder):
    photos(folder / "set", NAMES)
    frame("file_name", "text").to_csv(folder / "set" / "metadata.csv", index=False)
    return folder / "set", None


def two_folders(folder):
    """Files of the same names in two folders."""
    half = N // 2
    for start, place in ((0, "one"), (half, "two")):
        names = [f"{n}.png" for n in range(half)]
        (folder / "set" / place).mkdir(parents=True)
        for n, name in enumerate(names):
            (folder / "set" / place / name).write_bytes(png(start + n))
        rows = pd.DataFrame({"file_name": names, "text": TEXTS[start : start + half]})
        rows.to_csv(folder / "set" / place / "metadata.csv", index=False)
    return folder / "set", None


def texts(folder):
    photos(folder / "set", NAMES)
    for name, text in zip(NAMES, TEXTS, strict=True):
        (folder / "set" / name).with_suffix(".txt").write_text(text)
    return folder / "set", None


def shards(folder):
    for number in range(2):
        files = ((f"{n:05}.{end}", of(n)) for n in ORDER[number::2] for end, of in SAMPLE.items())
        shard(folder / "set" / f"{number:05}.tar", files)
    return folder / "set", None


def in_parquet(folder):
    cells = [{"bytes": png(n), "path": None} for n in ORDER]
    pd.DataFrame({"image": cells, "text": [TEXTS[n] for n in ORDER]}).to_parquet(folder / "pairs.parquet")
    return folder / "pairs.parquet", None


def parts(folder):
    (folder / "set" / "data").mkdir(parents=True)
    for number in range(2):
        rows = {"image": [png(n) for n in ORDER[number::2]], "text": [TEXTS[n] for n in ORDER[number::2]]}
        pd.DataFrame(rows).to_parquet(folder / "set" / "data" / f"train-0000{number}-of-00002.parquet")
    return folder / "set", None


def saved(folder):
    cells = [{"bytes": png(n), "path": None} for n in ORDER]
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    rows = {"image": cells, "text": [TEXTS[n] for n in ORDER]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder / "set"))
    return folder / "set", None


def urls(folder):
    """Files are named by the number of their row."""
    lines = [f"{TEXTS[n]}\thttps://example.org/{n}.png" for n in range(N)]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    return folder / "pairs.tsv", photos(folder / "photos", [f"{n:09}.png" for n in range(N)])


def keys(folder):
    """As img2dataset writes them, in order of completion."""
    rows = frame("key", names=[f"{n:09}" for n in range(N)])
    rows["url"] = [f"https://example.org/{n}.png" for n in ORDER]
    rows.to_parquet(folder / "pairs.parquet")
    return folder / "pairs.parquet", photos(folder / "photos", [f"00000/{n:09}.png" for n in range(N)])


def packed(folder):
    path = table(folder, "captions.csv")
    (folder / "captions.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return folder / "captions.csv.gz", photos(folder / "photos", NAMES)


FORMS = {
    "`captions.csv`": beside("captions.csv"),
    "`captions.csv.gz`": packed,
    "`captions.tsv`": beside("captions.tsv"),
    "`pairs.jsonl`": beside("pairs.jsonl"),
    "`pairs.json`, a list of objects": beside("pairs.json"),
    "`pairs.parquet` with paths": beside("pairs.parquet"),
    "`pairs.parquet` with pictures": in_parquet,
    "a folder of Parquet parts, as the Hub has them": parts,
    "a folder with `metadata.csv`": metadata,
    "a folder with `metadata.csv` in each subfolder": two_folders,
    "a folder of pictures, each with a text beside it": texts,
    "`captions.txt` of Kaggle": beside("captions.txt"),
    "`results.token`: `name.jpg#0`, tab, caption": written(
        "results.token", "".join(f"{NAMES[n]}#0\t{TEXTS[n]}\n" for n in ORDER)
    ),
    "`dataset_*.json` of Karpathy": written("dataset_own.json", karpathy()),
    "`captions_*.json` of COCO": written("captions_own.json", coco()),
    "WebDataset shards": shards,
    "a folder that `datasets` saved": saved,
    "captions and URLs, files named by row": urls,
    "the table of img2dataset, with `key`": keys,
}
"""What docs/own-pairs.md calls a form, to what writes it: the source, and the folder for ``--images``."""
