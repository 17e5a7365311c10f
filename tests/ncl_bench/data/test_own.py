"""``ncl-bench datasets new``: from a folder of features and a table of captions to a dataset that loads and trains."""

import os
import unicodedata
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command import invoke
from support.refusals import refused

from ncl_bench import load_dataset, new_dataset, new_dataset_of_features
from ncl_bench.data import DATASETS, register
from ncl_bench.data.own import Columns, SplitDraw
from ncl_bench.data.prepare import prepare
from ncl_bench.data.spec import protocol_images
from ncl_bench.errors import DataError
from ncl_bench.plugins import load_plugins

SIZES = {"train": 6, "dev": 3, "test": 4}
IDS = {split: [f"{split}/{i}.jpg" for i in range(n)] for split, n in SIZES.items()}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, no_plugins):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arrays(*shape, dtype="float32"):
    random = np.random.default_rng(0)
    return {split: random.random((n, *shape)).astype(dtype) + 1 for split, n in SIZES.items()}


def split_files(features, *, ids=True):
    Path("features").mkdir()
    for split, array in features.items():
        np.save(f"features/{split}.npy", array)
        if ids:
            Path(f"features/{split}_ids.txt").write_text("\n".join(IDS[split]) + "\n")


def image_files(features):
    for split, array in features.items():
        Path("features", split).mkdir(parents=True)
        for row, image in zip(array, IDS[split], strict=True):
            np.save(f"features/{image}.npy", row)


def table(head, row, each=2):
    rows = [f"{row(image, c)},{split}" for split, ids in IDS.items() for image in ids for c in range(each)]
    Path("captions.csv").write_text("\n".join([f"{head},split", *rows]) + "\n", "utf-8")


def english(image, caption):
    return f'{image},"a pet, {image} seen {caption} times"'


def new(**options):
    new_dataset("pets", captions="captions.csv", features="features", to="data", **options)


@pytest.mark.parametrize("shape", [(512,), (3, 8)])
@pytest.mark.parametrize("files", [split_files, image_files])
@pytest.mark.parametrize("each", [1, 5])
def test_features_and_captions_become_a_dataset(shape, files, each):
    features = arrays(*shape)
    files(features)
    table("image,caption", english, each)
    new()
    for split, ids in IDS.items():
        dataset = load_dataset("pets", split=split, root="data")
        regions = features[split].reshape(len(ids), -1, shape[-1])
        np.testing.assert_array_equal(dataset.image_features[np.arange(len(ids))], regions)
        assert dataset.image_ids.tolist() == ids
        assert list(dataset.captions) == [f"a pet, {i} seen {c} times" for i in ids for c in range(each)]
        assert dataset.captions_per_image == each


def test_the_module_registers_the_same_dataset_elsewhere(place):
    split_files(arrays(4, dtype="float16"))
    table("image,caption", english)
    new()
    made = DATASETS.pop("pets")
    load_plugins([str(place / "pets.py")])
    assert DATASETS["pets"] == made
    assert load_dataset("pets", root="data", noise_ratio=0.5).image_features.dtype == np.float16


def test_a_module_written_by_hand_reads_one_vector_per_image(place):
    split_files(arrays(4))
    table("image,caption", english)
    new()
    register(replace(DATASETS["pets"], name="others"))
    (place / "from").mkdir()
    for split, vectors in arrays(4).items():
        np.save(f"from/{split}_ims.npy", vectors)
        Path(f"from/{split}_ids.txt").write_text("\n".join(IDS[split]) + "\n")
        Path(f"from/{split}_caps.txt").write_text("a pet\n" * 2 * SIZES[split])
    prepare("others", place / "from", place / "data")
    features = load_dataset("others", root="data").image_features
    np.testing.assert_array_equal(features[np.arange(6)], arrays(4)["train"][:, None])


def test_two_languages_have_their_texts_and_tokenizers():
    split_files(arrays(4))
    table("image,en,zh", lambda image, c: f"{image},a pet {c},一只宠物{c}")
    new()
    english, chinese = (load_dataset("pets", root="data", language=language) for language in ("en", "zh"))
    assert english.captions[1] == "a pet 1"
    assert chinese.captions[1] == "一只宠物1"
    assert DATASETS["pets"].tokenizers == {"en": "word", "zh": "jieba"}


def test_rows_without_ids_are_those_of_the_table():
    split_files(arrays(4), ids=False)
    table("image,caption", english)
    with refused(DataError):
        new()
    new(rows_in_order=True)
    assert load_dataset("pets", split="dev", root="data").image_ids.tolist() == IDS["dev"]


def test_splits_are_drawn_where_nothing_gives_them():
    image_files(arrays(4))
    rows = [f"{image},a pet" for ids in IDS.values() for image in ids]
    Path("captions.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    new(dev=2, test=3, seed=7)
    found = {split: load_dataset("pets", split=split, root="data").image_ids.tolist() for split in SIZES}
    assert {split: len(ids) for split, ids in found.items()} == {"train": 8, "dev": 2, "test": 3}
    assert sorted(chain(*found.values())) == sorted(chain(*IDS.values()))


def test_the_command_says_what_it_made_and_what_comes_next():
    split_files(arrays(512))
    table("image,caption", english)
    Path("captions.csv").write_text(Path("captions.csv").read_text() + "skipped.jpg,a damaged file,train\n")
    arguments = ["--features", "features", "--captions", "captions.csv", "--to", "data"]
    found = invoke("datasets", "new", "pets", *arguments)
    assert (
        "pets: 6 / 3 / 4 images in train / dev / test, 2 caption(s) each in en, 1 region(s) of 512"
        in found.stdout
    )
    assert "left out: 1 images of captions.csv, which have no features" in found.stdout
    assert "protocol 4 ranks all 4 images and 8 captions of test" in found.stdout
    assert "next: ncl-bench --plugin pets.py train ncr/pets_vse_infinity --noise-ratio 0.4" in found.stdout
    assert {path.name for path in Path("data").iterdir()} == {"pets"}


def test_a_stopped_preparation_goes_on(monkeypatch):
    split_files(arrays(4))
    table("image,caption", english)

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ncl_bench.data.prepare._write", stop)
        with pytest.raises(KeyboardInterrupt):
            new()
    del DATASETS["pets"]
    scans = []
    monkeypatch.setattr("ncl_bench.data.verify.scan", lambda *a, **o: scans.append(a))
    new()
    assert not scans  # the journal holds them: the gathered files keep their time
    assert len(load_dataset("pets", root="data")) == 12


@pytest.mark.parametrize("changed_at", [1, 2**32], ids=["a clock set back", "a clock set forward"])
def test_a_stopped_preparation_takes_no_rows_of_another_table(changed_at, monkeypatch):
    table("image,caption", english)
    image_files(arrays(4))  # newer than the table, as encoded pictures are

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ncl_bench.data.prepare.write_manifest", stop)
        with pytest.raises(KeyboardInterrupt):
            new()
    del DATASETS["pets"]
    head, *rows = Path("captions.csv").read_text().splitlines()
    Path("captions.csv").write_text("\n".join([head, *reversed(rows)]) + "\n")  # as many bytes
    os.utime("captions.csv", (changed_at, changed_at))
    new()
    found = load_dataset("pets", split="train", root="data")
    assert found.image_ids.tolist() == IDS["train"][::-1]
    expected = [np.load(f"features/{image}.npy") for image in IDS["train"][::-1]]
    np.testing.assert_array_equal(found.image_features[:].reshape(6, 4), expected)


def text(content):
    return lambda: Path("captions.csv").write_text(content, "utf-8")


def dev(array):
    return lambda: np.save("features/dev.npy", array)


def dev_ids(*ids):
    return lambda: Path("features/dev_ids.txt").write_text("\n".join(ids) + "\n")


def without_ids():
    Path("features/dev_ids.txt").unlink()
    text("image,en\ntrain/0.jpg,a\n")()


WRONG = {
    "no table": Path("captions.csv").unlink,
    "no column image": text("id,en\na,b\n"),
    "no captions": text("image,split\na,train\n"),
    "empty": text("image,en\n"),
    "line end in an id": text('image,en\n"a\nb",c\n'),
    "empty caption": text("image,en\na,b\nb,\n"),
    "too many cells": text("image,en\na,b,c\n"),
    "two splits": text("image,en,split\na,b,train\na,c,dev\n"),
    "no split": text("image,en,split\na,b,vali\n"),
    "binary": lambda: Path("captions.csv").write_bytes(b"\xff\xff"),
    "image without caption": dev_ids("a", "b", "c"),
    "an id twice": dev_ids("dev/0.jpg", "dev/1.jpg", "dev/0.jpg"),
    "other split": dev_ids("dev/0.jpg", "dev/1.jpg", "test/0.jpg"),
    "rows and ids": dev(np.ones((2, 4), np.float32)),
    "other width": dev(np.ones((3, 5), np.float32)),
    "zeros": dev(np.zeros((3, 4), np.float32)),
    "no dev": Path("features/dev.npy").unlink,
    "no ids": without_ids,
    "no arrays": lambda: [Path(f"features/{split}.npy").unlink() for split in SIZES],
    "pickled": dev(np.array([{}, {}, {}])),
    "module": lambda: Path("pets.py").write_text("precious"),
    "prepared": lambda: Path("data/pets").mkdir(parents=True),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_one_sentence_and_leaves_no_dataset(case):
    split_files(arrays(4))
    table("image,caption", english)
    WRONG[case]()
    with refused():
        new()
    assert case == "prepared" or not Path("data/pets").exists()
    assert case == "module" or not Path("pets.py").exists()
    assert not Path("data/.pets.gathered").exists()
    assert "pets" not in DATASETS


def test_images_with_different_counts_of_captions_need_a_number():
    split_files(arrays(4))
    numbered = [(n, image) for ids in IDS.values() for n, image in enumerate(ids)]
    rows = [f"{image},a pet {c}" for n, image in numbered for c in range(2 + n % 3)]
    Path("captions.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    with refused(DataError):
        new()
    with refused(DataError):
        new(captions_per_image=3)
    new(captions_per_image=2)
    assert load_dataset("pets", split="test", root="data").captions_per_image == 2


@pytest.mark.parametrize("name", ["digits", "Pets", "my pets", "../pets", ""])
def test_a_name_is_new_and_plain(name):
    with refused(DataError):
        new_dataset(name, "captions.csv", features="features", to="data")


def test_a_protocol_is_named_after_the_images_of_test():
    names = {"1k": 1000, "5fold-1k": 5000, "5k": 5000, "200": 200}
    assert {name: protocol_images(name) for name in names} == names
    for wrong in ("5fold-2k", "k", "all"):
        with refused(DataError):
            protocol_images(wrong)


@pytest.mark.parametrize(
    "options",
    [
        {"tokenizer_file": "t.json"},
        {"tokenizers": ["bert"]},
    ],
)
def test_a_tokenizer_is_refused_before_pictures_are_encoded(options, monkeypatch):
    monkeypatch.setattr("ncl_bench.data.own._encoded", lambda *given: pytest.fail("pictures are encoded"))
    Path("a.png").touch()
    Path("captions.csv").write_text("image,caption\na.png,a dog\n")
    with refused(DataError):
        new_dataset("pets", "captions.csv", to="data", **options)
    assert not list(Path("data").glob("*"))


def test_a_split_that_nobody_states_is_drawn_from_train_alone():
    image_files(arrays(4))
    rows = [
        f"{image},a pet,{'test' if split == 'test' else 'train'}" for split in IDS for image in IDS[split]
    ]
    Path("captions.csv").write_text("\n".join(["image,caption,split", *rows]) + "\n")
    new_dataset_of_features("pets", "features", "captions.csv", to="data", splits=SplitDraw(dev=2))
    found = {split: load_dataset("pets", split=split, root="data").image_ids.tolist() for split in SIZES}
    assert {split: len(ids) for split, ids in found.items()} == {"train": 7, "dev": 2, "test": 4}
    assert found["test"] == IDS["test"]


def test_order_that_the_user_vouches_for_is_said_on_the_card():
    split_files(arrays(4), ids=False)
    table("image,caption", english)
    spec, remarks = new_dataset_of_features(
        "pets", "features", "captions.csv", to="data", columns=Columns(rows_in_order=True)
    )
    told = "Features belong to the rows by their order alone"
    assert told in " ".join(remarks)
    assert told in spec.origin.summary
    assert told in Path("data/pets/README.md").read_text()


def test_rows_of_two_configurations_are_said_on_the_card():
    split_files(arrays(4))
    for language in ("en", "fr"):
        Path("pets", language).mkdir(parents=True)
        rows = {"image": [*chain(*IDS.values())], "caption": [f"a pet in {language}"] * 13}
        pd.DataFrame(rows).to_parquet(Path("pets", language, "data.parquet"))
    spec, remarks = new_dataset_of_features("pets", "features", "pets", to="data")
    told = "The rows of en, fr are read together; if these are configurations, give the folder of one."
    assert told in remarks
    assert told in spec.origin.summary
    assert told in Path("data/pets/README.md").read_text()


def test_arguments_of_the_last_release_are_taken_with_a_warning():
    split_files(arrays(4))
    table("image,caption", english)
    with pytest.warns(DeprecationWarning, match="Use new_dataset"):
        new_dataset("pets", captions="captions.csv", features="features", to="data", tokenizers=["word"])
    assert DATASETS["pets"].tokenizers == {"en": "word"}


def command(*options):
    arguments = ["datasets", "new", "pets", "--features", "features", "--captions", "captions.csv"]
    return invoke(*arguments, "--to", "data", *options)


PETS = ("一只小狗在公园里奔跑", "一只小猫在公园里睡觉", "一只小狗在床上睡觉")


@pytest.mark.parametrize(("column", "tag"), [("zh-cn", "zh-CN"), ("cn", "zh"), ("Chinese", "zh")])
def test_chinese_under_any_of_its_names_is_cut_into_words(column, tag):
    split_files(arrays(4))
    table(f"image,{column}", lambda image, c: f"{image},{PETS[c]}")
    new()
    train = load_dataset("pets", root="data")
    assert DATASETS["pets"].languages == (tag,)
    assert "Chinese" in DATASETS["pets"].origin.summary
    assert [word for word in ("小狗", "公园", "睡觉") if word in train.vocabulary.words] == [
        "小狗",
        "公园",
        "睡觉",
    ]


def test_a_vocabulary_that_covers_nothing_is_refused_and_another_tokenizer_is_taken():
    split_files(arrays(4))
    # every caption is another sentence without blanks, so `word` sees each once
    table("image,en", lambda image, c: f"{image},{PETS[c]}{image[-5]}只")
    with refused(DataError):
        command()
    assert list(Path("data").glob("*")) == []
    command("--tokenizer", "en=jieba")
    assert DATASETS["pets"].tokenizers == {"en": "jieba"}
    assert "小狗" in load_dataset("pets", root="data").vocabulary.words


def test_unknown_words_of_dev_and_equal_rows_across_splits_are_printed():
    features = arrays(4)
    features["test"][2] = features["train"][5]
    features["dev"][1] = features["dev"][0]
    split_files(features)
    strange = "quokka numbat bilby dingo"
    table("image,en", lambda image, c: f"{image},{strange if image.startswith('dev') else 'a dog on a bed'}")
    printed = command().stderr
    assert "100.0% of the words of dev (language en) are unknown" in printed
    assert "1 of 4 images have exactly the features of an image of another split" in printed
    assert "test/2.jpg (row 2) is train/5.jpg of train" in printed
    assert "1 of 3 images have exactly the features of an earlier one (row 1 is row 0)" in printed
    assert "words of test" not in printed


def test_features_of_zeros_and_ones_that_differ_are_not_called_equal():
    bits = np.unpackbits(np.arange(1, 2001, dtype=">u2").view(np.uint8)).reshape(-1, 16)
    cuts = {"train": bits[:1800], "dev": bits[1800:1900], "test": bits[1900:]}
    Path("features").mkdir()
    rows = ["image,en,split"]
    for split, part in cuts.items():
        np.save(f"features/{split}.npy", part.astype(np.float32))
        rows += [f"{split}{n},a dog,{split}" for n in range(len(part))]
    Path("captions.csv").write_text("\n".join(rows) + "\n")
    assert "exactly the features" not in command("--rows-in-order").output


@pytest.mark.parametrize(
    "options",
    [
        ("--tokenizer", "wrod"),
        ("--tokenizer", "zh=jieba"),
        ("--tokenizer", "word", "--tokenizer", "bpe"),
        ("--tokenizer", "bert"),
        ("--tokenizer", "ids"),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(options):
    split_files(arrays(4))
    table("image,caption", english)
    with refused(DataError):
        command(*options)
    assert list(Path("data").glob("*")) == []


def one_file_per_image(images, files):
    Path("features").mkdir()
    for number, name in enumerate(files):
        np.save(f"features/{name}.npy", np.full(4, number + 1, np.float32))
    Path("captions.csv").write_text("\n".join(["image,en", *(f"{image},a dog" for image in images)]), "utf-8")


VERSIONS = [f"v1.{n}" for n in range(20)]


@pytest.mark.parametrize(
    ("images", "files"),
    [
        (VERSIONS, ["v1"]),
        (VERSIONS, [*VERSIONS[1:], "v1"]),
        (["rex.jpg", "rex.png", *VERSIONS], ["rex", *VERSIONS]),
        (["rex", "rex.jpg", *VERSIONS], ["rex", *VERSIONS]),
    ],
)
def test_one_file_serves_one_image(images, files):
    one_file_per_image(images, files)
    with refused(DataError):
        new()


def test_the_whole_id_finds_its_file_whatever_its_unicode_form():
    composed = [*VERSIONS[1:], "caf\u00e9.jpg"]
    one_file_per_image(composed, [*VERSIONS[1:], "cafe\u0301"])
    new(dev=2, test=2)
    splits = [load_dataset("pets", split=split, root="data") for split in SIZES]
    found = {
        str(i): each.image_features[np.array([n])][0, 0, 0]
        for each in splits
        for n, i in enumerate(each.image_ids)
    }
    assert found == {image: number + 1 for number, image in enumerate(composed)}


@pytest.mark.parametrize("files", [split_files, image_files])
def test_two_names_that_differ_in_their_unicode_form_are_two_images(files, monkeypatch):
    two = ["dev/\u00e9.jpg", "dev/e\u0301.jpg", "dev/2.jpg"]
    monkeypatch.setitem(IDS, "dev", two)
    files(arrays(4))
    table("image,caption", english)
    new()
    found = load_dataset("pets", split="dev", root="data")
    assert found.image_ids.tolist() == two
    np.testing.assert_array_equal(found.image_features[np.arange(3)][:, 0], arrays(4)["dev"])


def test_ids_and_captions_are_matched_in_one_unicode_form():
    split_files(arrays(4))
    for split, ids in IDS.items():
        text = "\n".join(unicodedata.normalize("NFD", f"é{i}") for i in ids)
        Path(f"features/{split}_ids.txt").write_text(text, "utf-8")
    table("image,en", lambda image, c: f"é{image},a dog")
    new()
    assert load_dataset("pets", split="dev", root="data").image_ids.tolist() == [f"é{i}" for i in IDS["dev"]]
