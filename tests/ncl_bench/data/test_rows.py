"""Rows of people's files: a row's split, part and order are what its names say, and what is chosen is said."""

import base64
import bz2
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.refusals import refused
from support.shaded import photos, picture, shade, shard

from ncl_bench.data.own_tables import read_captions
from ncl_bench.data.pairs.cells import picture as to_bytes
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pairs.listing import files_below
from ncl_bench.data.pairs.pictures import find_pictures
from ncl_bench.data.pairs.write import save
from ncl_bench.errors import DataError

N = 12
OFFICIAL = {"train": 8, "dev": 2, "test": 2}
NO_DEV = {"train": 8, "dev": 0, "test": 4}
SPLIT = ["train"] * 8 + ["dev"] * 2 + ["test"] * 2
TEXTS = [f"the drawing of number {n}" for n in range(N)]
TWO_FORMS = ["\u00e9.png", "e\u0301.png"]


def pair(n):
    return {"image": {"bytes": picture(n), "path": None}, "caption": TEXTS[n]}


def rows(numbers=range(N)):
    return pd.DataFrame([pair(n) for n in numbers])


def of(split):
    return [n for n in range(N) if SPLIT[n] == split]


def written(folder, files):
    """A folder of Parquet files of these rows, of texts, or of bytes."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            rows(content).to_parquet(folder / name)
        else:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def csv(numbers, image="image", **more):
    frame = pd.DataFrame({image: [f"{n}.png" for n in numbers], "caption": [TEXTS[n] for n in numbers]})
    return frame.assign(**more).to_csv(index=False)


def frame(images, captions=TEXTS):
    return pd.DataFrame({"image": images, "caption": captions})


def each(line, head=""):
    """A line for each pair, of its number ``{n}`` and its text ``{t}``."""
    return head + "".join(line.format(n=n, t=TEXTS[n]) for n in range(N))


def beside(**endings):
    """Files of each pair, by what makes them from its number."""
    return {f"{n}.{ending}": make(n) for n in range(N) for ending, make in endings.items()}


def halves(first, second):
    return datasets.DatasetDict({first: dataset(range(8)), second: dataset(range(8, N))})


def named_splits(train, dev, test):
    """Parquet files of these names."""
    return {train: of("train"), dev: of("dev"), test: of("test")}


def dataset(numbers):
    features = datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")})
    return datasets.Dataset.from_list([pair(n) for n in numbers], features=features)


def arrays():
    features = datasets.Features(
        {"image": datasets.Array3D((4, 4, 3), "uint8"), "caption": datasets.Value("string")}
    )
    cells = [np.full((4, 4, 3), [n, 0, 0], np.uint8) for n in range(N)]
    return datasets.Dataset.from_dict({"image": cells, "caption": TEXTS}, features=features)


def class_label(name):
    kinds = {"image": datasets.Image(), "caption": datasets.Value("string")}
    features = datasets.Features(kinds | {name: datasets.ClassLabel(names=["train", "val", "test"])})
    numbers = [("train", "dev", "test").index(split) for split in SPLIT]
    return datasets.Dataset.from_list(
        [pair(n) | {name: number} for n, number in enumerate(numbers)], features=features
    )


def dataset_dict(folder):
    names = {"train": "train", "dev": "validation", "test": "test"}
    return datasets.DatasetDict({name: dataset(of(split)) for split, name in names.items()})


def saved(folder):
    dataset_dict(folder).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def image_folder(folder):
    names = {"train": "train", "dev": "validation", "test": "Test"}
    for n in range(N):
        written(folder, {f"{names[SPLIT[n]]}/{n}.png": picture(n), f"{names[SPLIT[n]]}/{n}.txt": TEXTS[n]})
    return folder


def metadata_folder(folder):
    for split, name in {"train": "train", "dev": "val", "test": "test"}.items():
        photos(folder / name, [])
        for n in of(split):
            written(folder, {f"{name}/{n}.png": picture(n)})
        written(folder, {f"{name}/metadata.csv": csv(of(split), "file_name")})
    return folder


def samples(path, numbers):
    endings = (("png", picture), ("txt", lambda n: TEXTS[n].encode()))
    return shard(path, [(f"{n:04}.{ending}", make(n)) for n in numbers for ending, make in endings])


def shards(folder):
    for split, name in {"train": "train-0", "dev": "val-0", "test": "test-0"}.items():
        samples(folder / f"{name}.tar", of(split))
    return folder


def table(text, name="captions.csv", names=None):
    def make(folder):
        photos(folder, names or [f"{n}.png" for n in range(N)])
        (folder / name).write_bytes(text.encode())
        return folder / name

    return make


def split_column(cells, column="split"):
    return table(csv(range(N), **{column: [cells[each] for each in SPLIT]}))


def linked(source, target, files):
    def make(folder):
        written(folder / "set", files)
        os.symlink(target, folder / "set" / source)
        return folder / "set"

    return make


HALVES = {"a/train-00000-of-00002.parquet": range(6), "a/train-00001-of-00002.parquet": range(6, N)}
LABEL_STUDIO = json.dumps([{"id": 1, "data": {"image": "0.png"}, "annotations": []}])


class Case(NamedTuple):
    """What a source is read as: rows, the splits' sizes, and words of remarks; or a refusal."""

    make: Any
    n: int = N
    splits: dict[str, int] | None = None
    remarks: tuple[str, ...] = ()
    refused: bool = False


CASES = {
    # splits
    "a DatasetDict": Case(dataset_dict, splits=OFFICIAL),
    "a saved DatasetDict": Case(saved, splits=OFFICIAL),
    "Parquet of the Hub": Case(
        named_splits(*(f"data/{name}-00000-of-00001.parquet" for name in ("train", "validation", "test"))),
        splits=OFFICIAL,
        remarks=("3 files are read in this order", "The splits are those of the names: "),
    ),
    "Parquet of the Hub beside its facts": Case(
        {"data/a.parquet": range(N), "dataset_infos.json": "{}", "README.md": "x"}
    ),
    "Parquet in folders": Case(
        named_splits("train/0.parquet", "dev/0.parquet", "test/0.parquet"), splits=OFFICIAL
    ),
    "years": Case(named_splits("train2014.parquet", "val2014.parquet", "test2014.parquet"), splits=OFFICIAL),
    "an ImageFolder with texts": Case(image_folder, splits=OFFICIAL),
    "an ImageFolder with metadata": Case(metadata_folder, splits=OFFICIAL),
    "shards": Case(shards, splits=OFFICIAL),
    "a CSV for each split": Case(
        lambda folder: (
            photos(folder, [f"{n}.png" for n in range(N)])
            and written(folder, {f"{s}.csv": csv(of(s)) for s in ("train", "dev", "test")})
        ),
        splits=OFFICIAL,
    ),
    "folders of pictures in a table": Case(
        table(
            frame([f"{SPLIT[n]}/{n}.png" for n in range(N)]).to_csv(index=False),
            names=[f"{SPLIT[n]}/{n}.png" for n in range(N)],
        ),
        splits=OFFICIAL,
        remarks=("The splits are those of the names",),
    ),
    **{
        f"a ClassLabel {name}, {place}": Case(
            lambda folder, name=name, store=store: store(class_label(name), folder), splits=OFFICIAL
        )
        for name in ("split", "set")
        for place, store in {
            "in memory": lambda rows, _: rows,
            "saved": lambda rows, folder: rows.save_to_disk(str(folder / "saved")) or folder / "saved",
            "in Parquet": lambda rows, folder: (
                rows.to_parquet(str(folder / "a.parquet")) and folder / "a.parquet"
            ),
        }.items()
    },
    "trainset": Case(
        named_splits("trainset/0.parquet", "valSet/0.parquet", "testset/0.parquet"), splits=OFFICIAL
    ),
    "trainImages": Case(
        named_splits("trainImages.parquet", "devImages.parquet", "testImages.parquet"), splits=OFFICIAL
    ),
    "dataset_split": Case(
        split_column({"train": "train", "dev": "val", "test": "test"}, "dataset_split"), splits=OFFICIAL
    ),
    "val": Case(split_column({"train": "Train", "dev": "val", "test": "TEST"}, " Split"), splits=OFFICIAL),
    "validation": Case(
        split_column({"train": "restval", "dev": "Validation", "test": "test"}), splits=OFFICIAL
    ),
    "another column of splits": Case(
        split_column({"train": "train", "dev": "val", "test": "test"}, "subset"), splits=OFFICIAL
    ),
    "a column that is no split": Case(split_column({"train": "a", "dev": "b", "test": "c"}, "subset")),
    "an unknown split": Case(
        split_column({"train": "train", "dev": "minival", "test": "test"}), refused=True
    ),
    "one split alone": Case(
        {"train-00000-of-00001.parquet": range(N)},
        remarks=("names train alone",),
    ),
    "a class called train": Case(
        {
            f"{place}/{n}.{end}": content
            for n, place in enumerate(("bus", "train", "tram"))
            for end, content in (("png", picture(n)), ("txt", TEXTS[n]))
        },
        n=3,
        remarks=("train is not taken for a split",),
    ),
    "a DatasetDict whose names say nothing": Case(
        lambda folder: halves("tr", "te"),
        remarks=("te is not taken for a split, as tr names none",),
    ),
    "a DatasetDict with holdout": Case(
        lambda folder: halves("train", "holdout"),
        splits=NO_DEV,
    ),
    "eval beside test": Case(
        named_splits(*(f"data/{name}-00000-of-00001.parquet" for name in ("train", "eval", "test"))),
        splits=OFFICIAL,
    ),
    "eval beside test in a column": Case(
        split_column({"train": "train", "dev": "eval", "test": "test"}), splits=OFFICIAL
    ),
    "eval beside dev and test": Case(table(csv(range(N), split=["eval", *SPLIT[1:]])), refused=True),
    "trainval": Case(
        lambda folder: halves("trainval", "test"),
        splits=NO_DEV,
    ),
    # parts
    "a missing part": Case(
        {f"d-0000{n}-of-00003.parquet": [n] for n in (0, 2)},
        refused=True,
    ),
    "a missing shard": Case(
        lambda folder: samples(folder / "x-00001-of-00002.tar", range(3)).parent, refused=True
    ),
    "a gap in the numbers of shards": Case(
        lambda folder: [samples(folder / f"{n:05}.tar", range(4 * n, 4 * n + 4)) for n in (0, 2)] and folder,
        n=8,
        remarks=("00000.tar, 00002.tar. No file has the number 1.",),
    ),
    "leftovers with another number": Case(
        lambda folder: written(folder, HALVES | {"a/train-00000-of-00001.parquet": range(N)}),
        refused=True,
    ),
    "leftovers with hashes": Case(
        lambda folder: written(
            folder, HALVES | {f"a/train-0000{n}-of-00002-ab{n}.parquet": [n] for n in (0, 1)}
        ),
        refused=True,
    ),
    "leftovers without numbers": Case(
        lambda folder: written(folder, HALVES | {"a/train.parquet": range(N)}), refused=True
    ),
    "two configurations": Case(
        {f"{c}/train-00000-of-00001.parquet": range(N) for c in ("de", "en")},
        refused=True,
    ),
    "two configurations with folders of splits": Case(
        {f"{c}/{s}/0000.parquet": of(s) for c in ("de", "en") for s in ("train", "test")},
        refused=True,
    ),
    **{
        f"two configurations with {name}": Case(
            lambda folder, files=files: written(folder, files),
            remarks=(
                r"The rows of en, fr are read together; if these are configurations, give the folder of one\.",
            ),
        )
        for name, files in {
            "files of one name": {"en/data.parquet": range(6), "fr/data.parquet": range(6, N)},
            "languages in their names": {"en-0.parquet": range(6), "fr-0.parquet": range(6, N)},
        }.items()
    },
    "folders of splits, each with parts": Case(
        lambda folder: written(
            folder,
            {f"all/train/000{n}.parquet": range(4 * n, 4 * n + 4) for n in (0, 1)}
            | {"all/test/0000.parquet": range(8, N)},
        ),
        splits=NO_DEV,
    ),
    "one part of two, by its name": Case(
        lambda folder: written(folder, {"x-00000-of-00002.parquet": range(N)}) / "x-00000-of-00002.parquet",
        remarks=("is one of 2 parts; give its folder",),
    ),
    "parts that count from 1": Case({f"x-{n}-of-2.parquet": range(6 * n - 6, 6 * n) for n in (1, 2)}),
    "the same pairs in two files": Case(
        {"a.parquet": range(N), "old/b.parquet": range(N)},
        remarks=(r"12 rows of old/b\.parquet are left out: a\.parquet holds the same picture and caption",),
    ),
    "metadata at two levels": Case(
        lambda folder: written(
            photos(folder, [f"in/{n}.png" for n in range(N)]),
            {
                "metadata.csv": csv(range(N), "file_name").replace("\n", "\nin/").removesuffix("in/"),
                "in/metadata.csv": csv(range(N), "file_name"),
            },
        ),
        remarks=("12 rows of metadata.csv are left out: in/metadata.csv holds|12 rows of in/metadata.csv",),
    ),
    "a link to the folder itself": Case(linked("again", ".", {"a.parquet": range(N)})),
    "a link to a folder above": Case(linked("up", "..", {"a.parquet": range(N)})),
    "latest": Case(linked("latest", "a", HALVES)),
    "a latest that comes first": Case(linked("0latest", "a", HALVES)),
    "a link to a file": Case(linked("latest.parquet", "z.parquet", {"z.parquet": range(N)})),
    "natural order": Case(
        {f"metadata_{n}.parquet": [n] for n in range(N)},
        remarks=(r"in this order: metadata_0\.parquet, metadata_1\.parquet, metadata_2",),
    ),
    # quotation marks
    "TSV of pandas": Case(
        lambda folder: (
            table("", "x.tsv")(folder),
            pd.read_csv(io.StringIO(csv(range(N))))
            .assign(caption=[f'it says ""{n}""'[:-1] + '"' for n in range(N)])
            .to_csv(folder / "x.tsv", sep="\t", index=False),
            folder / "x.tsv",
        )[-1],
    ),
    "cells that end with a backslash": Case(
        table(each('{n}.png,"C:\\in\\","{t}"\n', "image,place,caption\n"))
    ),
    "sep=;": Case(table("sep=;\r\n" + csv(range(N)).replace(",", ";"))),
    "ids with a point": Case(
        table(each("{n}.0,{t}\n", "image,caption\n")),
    ),
    **{
        f"names in {names[0]!a} and files in {files[0]!a}": Case(
            lambda folder, names=names, files=files: table(
                "image,caption\n" + "".join(f"{name},{TEXTS[n]}\n" for n, name in enumerate(names)),
                names=files,
            )(folder),
            n=len(names),
        )
        for names, files in (
            (["\u00e9.png", "b.png"], ["e\u0301.png", "b.png"]),
            (["e\u0301.png", "b.png"], ["\u00e9.png", "b.png"]),
            # a Mac's disk holds one of them
            *([(TWO_FORMS, TWO_FORMS)] if sys.platform != "darwin" else []),
        )
    },
    "captions in several columns": Case(
        table(
            "image,caption_0,caption_1,caption_2\n"
            + "".join(f"{n}.png,a {n},b {n},{'' if n == 3 else f'c {n}'}\n" for n in range(N))
        ),
        n=35,
        remarks=("The captions are those of caption_0, caption_1, caption_2",),
    ),
    **{
        f"a count beside captions, {name}": Case(
            make, remarks=("The captions are those of caption_0; caption_1 holds none",)
        )
        for name, make in {
            "CSV": table(each("{n}.png,{t},{n}\n", "image,caption_0,caption_1\n")),
            "in a frame": lambda folder: rows().rename(columns={"caption": "caption_0"}).assign(caption_1=3),
        }.items()
    },
    "file_names of one picture": Case(
        table(
            "".join(json.dumps({"file_names": [f"{n}.png"], "text": TEXTS[n]}) + "\n" for n in range(N)),
            "metadata.jsonl",
        )
    ),
    "file_names of one picture in a subfolder": Case(
        lambda folder: written(
            folder,
            {f"in/{n}.png": picture(n) for n in range(N)}
            | {
                "in/metadata.jsonl": "".join(
                    json.dumps({"file_names": [f"{n}.png"], "text": TEXTS[n]}) + "\n" for n in range(N)
                )
            },
        )
    ),
    "file_names of two pictures": Case(
        table(json.dumps({"file_names": ["0.png", "1.png"], "text": "a"}), "metadata.jsonl"),
        refused=True,
    ),
    "numbers beside names of files": Case(
        table("image,file_name,caption\n" + "".join(f"{N - 1 - n},{n}.png,{TEXTS[n]}\n" for n in range(N))),
        remarks=("The image column is file_name, not image",),
    ),
    "splits of COCO in a column": Case(
        split_column({"train": "train2014", "dev": "val_unseen", "test": "Test set"}), splits=OFFICIAL
    ),
    "columns with blanks": Case(table(csv(range(N)).replace("image,caption", "Image Path,Caption Text"))),
    "columns of a spreadsheet without names": Case(table(csv(range(N)).replace("\n", ",,\n"))),
    "a comma in a header of semicolons": Case(table(each("{n}.png;{t};\n", "image;caption;more (a, b)\n"))),
    "names of a browser": Case(
        table(csv(range(N)).replace("png", "my%20dog.png"), names=[f"{n}.my dog.png" for n in range(N)])
    ),
    "objects in lines as .json": Case(
        table(
            "".join(json.dumps({"image": f"{n}.png", "caption": TEXTS[n]}) + "\n" for n in range(N)), "c.json"
        )
    ),
    "a list as .jsonl": Case(
        table(json.dumps([{"image": f"{n}.png", "caption": TEXTS[n]} for n in range(N)], indent=1), "c.jsonl")
    ),
    **{
        f"CSV packed as {ending}": Case(
            lambda folder, ending=ending, pack=pack: (
                table("")(folder)
                and written(folder, {f"c.csv.{ending}": pack(csv(range(N)).encode())}) / f"c.csv.{ending}"
            )
        )
        for ending, pack in {
            "bz2": bz2.compress,
            "zst": lambda content: pa.compress(content, "zstd", asbytes=True),
        }.items()
    },
    "the files of img2dataset": Case(
        lambda folder: (
            (
                photos(folder / "00000", [f"{n:09}.png" for n in range(N)])
                and pd.DataFrame(
                    {"url": "https://a.org/a.png", "key": [f"{n:09}" for n in range(N)], "caption": TEXTS}
                ).to_parquet(folder / "00000.parquet")
            )
            or written(folder, {"00000_stats.json": "{}"} | {f"00000/{n:09}.txt": "no" for n in range(N)})
        )
    ),
    "UTF-16": Case(
        lambda folder: (
            table("")(folder),
            (folder / "captions.csv").write_text(csv(range(N)), "utf-16"),
            folder / "captions.csv",
        )[-1]
    ),
    # what is no caption
    "nan": Case(
        table(csv(range(N)).replace(TEXTS[3], "nan").replace(TEXTS[4], "NONE").replace(TEXTS[5], r"\N")),
        remarks=("3 of 12 captions are a word for a missing value",),
    ),
    "marks": Case(
        table(
            csv(range(N))
            .replace("the drawing", "<start> the drawing")
            .replace("\n", " <end>\n")
            .replace("caption <end>", "caption")
        ),
        remarks=("12 of 12 captions stand between marks",),
    ),
    "marks without blanks": Case(
        table(re.sub("(the .*)", r"<|startoftext|>\1<|endoftext|>", csv(range(N)))),
        remarks=("12 of 12 captions stand between marks",),
    ),
    "dictionaries": Case(
        table(each("{n}.png,\"{{'en': 'a dog {n}'}}\"\n", "image,caption\n")),
        remarks=("12 of 12 captions are printed lists or dictionaries",),
    ),
    "names of files": Case(
        table(each("{n}.png,{n}.png\n", "image,caption\n")),
        remarks=("12 of 12 captions name a file",),
    ),
    "HTML": Case(
        table(csv(range(N)).replace("the", "a &amp; the")), remarks=("12 of 12 captions hold marks of HTML",)
    ),
    "mojibake": Case(
        table(csv(range(N)).replace("the", "Caf\u00c3\u00a9")),
        remarks=("12 of 12 captions were decoded wrongly",),
    ),
    "bytes": Case(
        table(re.sub("(the .*)", r"b'\1'", csv(range(N)))), remarks=("12 of 12 captions are printed bytes",)
    ),
    "settings of a generator": Case(
        {"0.png": picture(0), "0.txt": "a cat\nNegative prompt: dogs\nSteps: 20, Sampler: Euler"},
        n=3,
        remarks=("2 of 3 captions look like settings",),
    ),
    # forms
    "pictures that not every library opens": Case(
        {
            f"{n}.{end}": content
            for n, kind in enumerate(("png", "jfif", "jp2", "avif", "heic"))
            for end, content in ((kind, picture(n)), ("txt", TEXTS[n]))
        },
        n=5,
    ),
    "a shard of a Mac": Case(
        lambda folder: shard(
            folder / "a.tar",
            [
                (f"{place}{n}.{end}", content)
                for n in range(N)
                for place in ("", "._")
                for end, content in (("png", picture(n)), ("txt", TEXTS[n].encode()))
            ],
        )
    ),
    ".caption": Case(beside(png=picture, caption=TEXTS.__getitem__, json="{{}}".format)),
    "texts that keep the whole names of their pictures": Case(
        beside(**{"png": picture, "png.txt": TEXTS.__getitem__})
    ),
    "a picture and its twin, each with a text of its whole name": Case(
        {
            f"0.{kind}{end}": content
            for n, kind in enumerate(("png", "bmp"))
            for end, content in (("", picture(n, kind.upper())), (".caption", TEXTS[n]))
        },
        n=2,
    ),
    "a text of a shard that is not UTF-8": Case(
        lambda folder: shard(folder / "a.tar", [("0.png", picture(0)), ("0.txt", b"caf\xe9")]),
        refused=True,
    ),
    **{
        f"a list of captions in a shard, {name}": Case(
            lambda folder, name=name: shard(
                folder / "a.tar",
                beside(**{"png": picture, name: lambda n: json.dumps([f"a {n}", f"b {n}"]).encode()}).items(),
            ),
            n=2 * N,
        )
        for name in ("json", "captions.json")
    },
    "Karpathy's list of images": Case(
        table(
            json.dumps([{"filename": f"{n}.png", "sentences": [{"raw": TEXTS[n]}]} for n in range(N)]),
            "c.json",
        )
    ),
    "Karpathy without splits, captions as texts": Case(
        table(
            json.dumps({"images": [{"filename": f"{n}.png", "sentences": [TEXTS[n]]} for n in range(N)]}),
            "c.json",
        )
    ),
    "sentences with their facts": Case(
        lambda folder: (
            rows().drop(columns="caption").assign(sentences=[[{"raw": text, "sentid": 3}] for text in TEXTS])
        )
    ),
    "metadata twice": Case(
        lambda folder: written(
            photos(folder, [f"{n}.png" for n in range(N)]),
            {
                "metadata.csv": csv(range(N), "file_name"),
                "metadata.jsonl": "".join(
                    json.dumps({"file_name": f"{n}.png", "caption": TEXTS[n]}) + "\n" for n in range(N)
                ),
            },
        ),
        remarks=(r"12 rows of metadata\.jsonl are left out: metadata\.csv holds the same",),
    ),
    "base64": Case(lambda folder: frame([base64.b64encode(picture(n)).decode() for n in range(N)])),
    "base64 as a data URL in CSV": Case(
        table(
            frame(
                [f"data:image/png;base64,{base64.b64encode(picture(n)).decode()}" for n in range(N)]
            ).to_csv(index=False)
        )
    ),
    "pictures of Pillow": Case(lambda folder: frame([Image.open(io.BytesIO(picture(n))) for n in range(N)])),
    "arrays": Case(lambda folder: frame([np.full((4, 4, 3), [n, 0, 0], np.uint8) for n in range(N)])),
    "lists of one picture": Case(
        lambda folder: (
            pq.write_table(
                pa.table({"images": [[picture(n)] for n in range(N)], "caption": TEXTS}), folder / "x.parquet"
            ),
            folder / "x.parquet",
        )[-1]
    ),
    "arrays with the channels first": Case(
        lambda folder: frame(
            [np.stack([np.full((8, 8), red, np.uint8) for red in (n, 0, 0)]) for n in range(N)]
        )
    ),
    "a feature of arrays": Case(lambda folder: arrays()),
    "a feature of arrays, saved": Case(
        lambda folder: arrays().save_to_disk(str(folder / "saved")) or folder / "saved"
    ),
    "a feature of arrays in Parquet": Case(
        lambda folder: (arrays().to_parquet(str(folder / "a.parquet")), folder / "a.parquet")[-1]
    ),
    "an image id of COCO that two images have": Case(
        table(
            json.dumps(
                {
                    "images": [{"id": n // 2, "file_name": f"{n}.png"} for n in range(N)],
                    "annotations": [{"image_id": n // 2, "caption": TEXTS[n]} for n in range(N)],
                }
            ),
            "c.json",
        ),
        refused=True,
    ),
    "lists of pictures": Case(
        lambda folder: frame([[picture(n), picture(n)] for n in range(N)]),
        refused=True,
    ),
    "a sample that is stored twice": Case(
        lambda folder: samples(folder / "a.tar", [*range(N), 3]),
        remarks=("1 samples of a.tar are stored twice",),
    ),
    "image_id of COCO as text": Case(
        table(
            json.dumps(
                {
                    "images": [{"id": n, "file_name": f"{n}.png"} for n in range(N)],
                    "annotations": [{"image_id": str(n), "caption": TEXTS[n]} for n in range(N)],
                }
            ),
            "c.json",
        )
    ),
    "a text and a caption of one picture": Case(
        {"0.png": picture(0), "0.txt": "a", "0.caption": "b"},
        refused=True,
    ),
    "boxes of COCO": Case(
        table(
            json.dumps({"images": [{"id": 0, "file_name": "0.png"}], "annotations": [{"bbox": []}]}), "c.json"
        ),
        refused=True,
    ),
    "Label Studio": Case(table(LABEL_STUDIO, "c.json"), refused=True),
    "XML of CVAT": Case(table("<?xml version='1.0'?><annotations/>", "c.csv"), refused=True),
    "Excel": Case(
        lambda folder: (written(folder, {"c.csv": b"PK\x03\x04xxxx"}), folder / "c.csv")[-1],
        refused=True,
    ),
    "a name twice in JSON": Case(
        table('{"image": "0.png", "caption": "a", "caption": "b"}', "c.jsonl"), refused=True
    ),
    "an open quotation mark": Case(table('image,caption\n0.png,"a dog\n1.png,a cat"\n'), refused=True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_form_is_read_as_its_names_say(case, tmp_path):
    make, n, splits, remarks, wrong = CASES[case]
    source = written(tmp_path, make) if isinstance(make, dict) else make(tmp_path)
    if wrong:
        with refused(DataError):
            read_captions(source, work=tmp_path / ".work")
        return
    pairs = read_pairs(source)
    found = find_pictures(pairs, None, tmp_path / ".pictures")
    red = [shade(file) for file in found.files.values()]
    numbers = [
        int(text.split()[-1].strip("'\"")) for text in pairs.captions if text[-1].strip("'\"").isdigit()
    ]
    assert len(pairs.captions) == n
    if len(numbers) == n:
        assert [red[image] for image in found.image_of.tolist()] == numbers
    table_ = read_captions(source, work=tmp_path / ".work")
    assert len(table_.captions) == len(found.files)
    assert (table_.splits and {name: len(own) for name, own in table_.splits.items()}) == splits
    told = "\n".join(table_.remarks)
    for words in remarks:
        assert re.search(words, told), told
    # what is written again is read as the same pairs, with their splits
    again = save(pairs, tmp_path / ".clean" / "clean", np.arange(n))
    back = read_pairs(again)
    assert sorted(back.captions) == sorted(pairs.captions)
    if pairs.image_column in pairs.pictures:
        cells = [to_bytes(cell) for cell in back.frame[back.image_column]]
        assert sorted(cells) == sorted(to_bytes(cell) for cell in pairs.frame[pairs.image_column])
    if isinstance(splits, dict) and "folders of pictures" not in case:
        kept = read_captions(again, images=tmp_path if isinstance(source, Path) else None).splits
        assert {name: len(own) for name, own in kept.items()} == splits


@pytest.mark.parametrize(
    ("name", "text", "captions"),
    [
        # as pandas writes between tabs: a cell with a mark, a tab or a line break is quoted
        ("c.tsv", 'image\tcaption\n0.png\t"says ""stop"""\n1.png\ta "b" c\n', ['says "stop"', 'a "b" c']),
        ("c.tsv", '"image"\t"caption"\n"0.png"\t"a dog"\n', ["a dog"]),
        ("c.tsv", 'image\tcaption\n0.png\t"a\nx"\n', ["a x"]),
        ("c.txt", 'image\tcaption\n0.png\t"a, b"\n1.png\tc\n', ["a, b", "c"]),
        ("c.tsv", 'image\tcaption\n0.png\t"a, b"\n1.png\tc, d\n', ['"a, b"', "c, d"]),
        # in published files the mark is an ordinary character
        ("c.tsv", 'image\tcaption\n0.png\t"a red bus"\n1.png\tb\n', ['"a red bus"', "b"]),
        ("c.tsv", 'image\tcaption\n0.png\t"a\n1.png\t"B "c"\n', ['"a', '"B "c"']),
        ("c.csv", 'image, caption\n0.png, "one, two"\n', ["one, two"]),
        ("c.csv", "image,caption\n0.png,'@home\n1.png,'-tis\n2.png,'=)\n", ["'@home", "'-tis", "'=)"]),
        ("c.csv", "image;caption\n0.png;one, two\n", ["one, two"]),
        ("c.csv", 'image,caption\n0.png,"says \\"hi\\", and \\"ho\\""\n', ['says "hi", and "ho"']),
        ("c.csv", "image,caption\n0.png,\"('one', 'two')\"\n1.png,\"('three',)\"\n", ["one", "two", "three"]),
        ("c.csv", "image,caption\n0.png,NA\n1.png,\n2.png\n", ["NA", "", ""]),
        ("c.csv", "image,caption\n0.png,0012\n1.png,a\n,\n\n", ["0012", "a"]),
        ("c.csv", 'image,caption\r\n0.png,"a\r\nb"\r\n1.png,c\r\n', ["a b", "c"]),
        ("c.csv", 'image,caption\n0.png,"[""a"", ""b""]"\n1.png,\n2.png,"[""c""]"\n', ["a", "b", "", "c"]),
        ("c.csv", "image,caption\n0.png,\"['a, x', 'b']\"\n", ["a, x", "b"]),
        ("c.csv", "image| number| caption\n0.png| 0| a, x\n1.png| 0| b\n", ["a, x", "b"]),
        ("c.token", "\n0.png#0\ta\n0.png#1\tb\n", ["a", "b"]),
        ("c.tsv", 'image\tcaption\n0.png\t"a\n1.png\tb"\n', ['"a', 'b"']),
        ("c.csv", "image,caption\n0.png,[a dog]\n", ["[a dog]"]),
        *(
            ("c.csv", f'image,caption\n0.png,"{caption}"\n', [" ".join(caption.split())])
            for caption in (
                "calm,with 2 dogs\nnext line",
                "x\nwith,dogs",
                "with,2 dogs\nmore",
                "A dog\n\nruns,jumps,sits",
                "2,000 dogs\nrun",
                "一只狗,在跑\n白色",
                "x" * 200_000,
            )
        ),
    ],
)
def test_cells_of_text_are_what_their_writer_meant(name, text, captions, tmp_path):
    (tmp_path / name).write_bytes(text.encode())
    pairs = read_pairs(tmp_path / name)
    assert pairs.captions == captions
    assert read_pairs(save(pairs, tmp_path / "clean", np.arange(len(captions)))).captions == captions


TYPED = pa.table(
    {
        "image": ["0.png", "1.png", "2.png"],
        "captions": [["one", "two"], ["three"], ["four"]],
        "at": pa.array([0, 1, None], pa.timestamp("ns")),
        "score": pa.array([0.1234567890123456, None, 1e-300]),
        "half": pa.array([1.5, 2.5, None], pa.float32()),
        "id": pa.array([2**60 + 1, None, 3]),
        "name": pa.array(["a", "b", "a"]).dictionary_encode(),
    }
)


def test_parquet_stays_parquet_with_every_cell_in_its_type(tmp_path):
    pq.write_table(TYPED, tmp_path / "rows.parquet")
    form = read_pairs(tmp_path / "rows.parquet")
    written = pq.read_table(save(form, tmp_path / "clean", np.array([1, 2]), "captions", {1: "another"}))
    assert written["captions"].to_pylist() == ["another", "three"]
    others = written.drop_columns("captions")
    assert others.equals(TYPED.drop_columns("captions").take([0, 1]).cast(others.schema))
    assert others.schema.field("at").type == pa.timestamp("ns")
    assert others.schema.field("half").type == pa.float32()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_json_keeps_every_value(name, tmp_path):
    facts = [
        {"image": "0.png", "captions": ["one", "two"], "at": "2024-01-02", "score": 0.1234567890123456},
        {"image": "1.png", "captions": ["three"], "none": None, "deep": {"a": [1, 2.5]}, "big": 2**70},
    ]
    lines = "\n".join(map(json.dumps, facts)) if name.endswith("l") else json.dumps(facts)
    (tmp_path / name).write_text(lines)
    pairs = read_pairs(tmp_path / name)
    text = save(pairs, tmp_path / "clean", np.array([0, 2])).read_text()
    found = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)
    assert found == [facts[0] | {"captions": "one"}, facts[1] | {"captions": "three"}]


def test_parts_after_one_without_rows_are_written_back(tmp_path):
    rows = pd.DataFrame({"image": ["a.jpg", "b.jpg"], "caption": ["a dog", "a cat"]})
    (tmp_path / "pairs").mkdir()
    rows[:0].to_parquet(tmp_path / "pairs" / "part-0.parquet")
    rows.to_parquet(tmp_path / "pairs" / "part-1.parquet")
    save(read_pairs(tmp_path / "pairs"), tmp_path / "kept", np.array([1]))
    assert pd.read_parquet(tmp_path / "kept.parquet")["caption"].tolist() == ["a cat"]


def test_a_folder_that_a_link_names_too_keeps_its_own_name(tmp_path):
    for name, other in ("ab", "ba"):  # whichever the system lists first
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"")
        (tmp_path / name / "newest").symlink_to(f"../{other}")
    assert files_below(tmp_path) == [tmp_path / "a" / "1.jpg", tmp_path / "b" / "1.jpg"]
