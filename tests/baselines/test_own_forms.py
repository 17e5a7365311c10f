"""Every form of a user's pairs goes through every command, and each caption stays with its picture."""

import io
import json
import re
from functools import wraps
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.audit_page import data_of
from support.command import invoke
from support.drawings import drawing, tiny_encoder
from support.own_forms import FORMS, NAMES, TEXTS, N, photos, png
from support.refusals import refused
from support.shaded import shard

import baselines.encoders
import baselines.features
from baselines.audit import apply_audit
from baselines.audit.judge import Judged
from ncl_bench import load_dataset, new_dataset
from ncl_bench.data import DATASETS
from ncl_bench.data.pairs.cells import picture
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pairs.write import save
from ncl_bench.errors import DataError, TrainingError

PAGE = Path(__file__).parents[2] / "docs" / "own-pairs.md"
WRONG = {3, 7}
"""Pictures whose captions the judge of these tests calls wrong."""


def judged(features, image_of, captions, **_):
    numbers = [int(text.rpartition(" ")[2]) for text in captions]
    score = np.array([10.0 + number if number in WRONG else -number for number in numbers])
    table = pd.DataFrame({"score": score, "probability": 1 / (1 + np.exp(-score))})
    table = table.assign(similarity=-score, lemon=-score, reason="")
    return Judged(table, len(WRONG) / N, 0.1, 0.3, "By hand.", np.full((len(score), 3), -1))


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """A tiny encoder, a judge that knows, few pictures, and an empty folder and registry."""
    # the command makes its options of the signature
    tiny = wraps(baselines.encoders.load_encoder)(lambda *_: tiny_encoder())
    monkeypatch.setattr("baselines.encoders.load_encoder", tiny)
    monkeypatch.setattr("baselines.audit.judge.judge_pairs", judged)
    monkeypatch.setattr("baselines.audit.find.FEWEST_PICTURES", 2)
    monkeypatch.chdir(tmp_path)
    before = dict(DATASETS)
    yield
    DATASETS.clear()
    DATASETS.update(before)


def run(*arguments):
    return invoke(*arguments).stdout


def given(form, folder):
    source, images = FORMS[form](folder)
    return source, [] if images is None else ["--images", images]


def seen(name, root="data"):
    """Caption to the features of its image, of all splits."""
    found = {}
    for split in ("train", "dev", "test"):
        data = load_dataset(name, split=split, root=root)
        for row, text in enumerate(data.captions):
            found[text] = data.image_features[np.array([data.caption_to_image[row]])][0]
    return found


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Caption to the features of its drawing, each encoded alone."""
    found = {}
    folder = photos(tmp_path_factory.mktemp("right"), NAMES)
    encoder = tiny_encoder()
    for name, text in zip(NAMES, TEXTS, strict=True):
        picture = baselines.features.read_picture(folder / name, name, encoder.size, encoder.interpolation)
        found[text] = baselines.features._features(encoder, [picture], 4)[0]
    return found


def assert_right(found, right, numbers):
    assert set(found) == {TEXTS[number] for number in numbers}
    largest = max(np.abs(features).max() for features in right.values())
    for text, features in found.items():
        assert np.abs(features - right[text]).max() < 1e-2 * largest  # float16


@pytest.mark.parametrize("form", FORMS)
def test_all_commands_read_all_forms(form, tmp_path, right, monkeypatch):
    source, images = given(form, tmp_path)
    order = ["--rows-in-order"] if "named by row" in form else []
    run("audit", source, *images, *order, "--to", "audit")
    pairs = pd.read_csv("audit/pairs.csv")
    assert pairs["left_out"].isna().all()
    assert len(pairs) == N
    # lists are of the form of their source, so they can be read again; one suspect gets another caption
    card = next(card for card in data_of("audit")["cards"] if card["caption"] == TEXTS[min(WRONG)])
    label = {"version": 2, "image_id": card["image"], "caption": card["caption"], "label": "wrong"}
    pd.DataFrame([label | {"correction": "another, thing"}]).to_csv("labels.csv", index=False)
    run("audit", source, *images, *order, "--labels", "labels.csv", "--to", "audit")
    lists = [
        read_pairs(next(Path("audit").glob(f"{name}*"))).captions
        for name in ("clean", "suspects", "corrected")
    ]
    assert [*map(sorted, lists[:2])] == [
        sorted(TEXTS[n] for n in range(N) if (n in WRONG) == to) for to in (0, 1)
    ]
    assert sorted(lists[2]) == sorted([*lists[0], "another, thing"])
    draw = [] if "Karpathy" in form else ["--dev", 2, "--test", 2]
    run("features", source, *images, *draw, "--to", "features")
    run("datasets", "new", "own", source, *images, *draw, *order, "--to", "data")
    assert_right(seen("own"), right, set(range(N)))
    run(
        "datasets",
        "new",
        "two",
        "--features",
        "features",
        "--captions",
        source,
        *images,
        *order,
        "--to",
        "data",
    )
    assert {text: features.tolist() for text, features in seen("two").items()} == {
        text: features.tolist() for text, features in seen("own").items()
    }
    run("add-images", "own", "--from", source, *images, "--to", "data")
    test = load_dataset("own", split="test", root="data")
    for row, text in enumerate(test.captions):
        shown = Image.open(io.BytesIO(test.images[test.caption_to_image[row]]))
        number = int(text.rpartition(" ")[2])
        np.testing.assert_array_equal(np.asarray(shown), np.asarray(drawing(number)))
    monkeypatch.setattr(baselines.features, "decoded", None)  # no picture is encoded again
    run("datasets", "new", "cleaned", "--clean", "audit", *draw, "--to", "data")
    assert_right(seen("cleaned"), right, set(range(N)) - WRONG)


def test_the_table_of_the_page_is_that_of_the_test():
    rows = re.findall(r"^\| (.+?) \| yes \| yes \| yes \| yes \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows == list(FORMS)


def test_what_an_audit_kept_is_taken_by_threshold_as_a_file_and_with_own_features(tmp_path, monkeypatch):
    source, images = given("`captions.csv`", tmp_path)
    run("features", source, *images, "--dev", 2, "--test", 2, "--to", "features")
    run("audit", source, *images, "--to", "audit")
    with refused(TrainingError):  # a probability in place of a rank would remove nothing
        apply_audit("audit", "none", threshold=0.5)
    run("audit", "apply", "audit", "--threshold", 3, "--to", "kept")
    third = TEXTS[0]  # the least suspicious of the others has the largest number
    monkeypatch.setattr(baselines.features, "decoded", None)  # no picture is encoded again
    draw = ("--dev", 2, "--test", 2, "--to", "data")
    run("datasets", "new", "kept", "--clean", "kept", *draw)
    assert set(seen("kept")) == {text for n, text in enumerate(TEXTS) if n not in WRONG} - {third}
    run("datasets", "new", "by_file", "--clean", "audit/clean.csv", *images, *draw)
    run("datasets", "new", "own", "--clean", "audit", "--features", "features", "--to", "data")
    for name in ("by_file", "own"):
        assert set(seen(name)) == {text for n, text in enumerate(TEXTS) if n not in WRONG}
    split = load_dataset("own", split="test", root="data").image_ids.tolist()
    assert split == [i for i in Path("features/test_ids.txt").read_text().split() if int(i[:3]) not in WRONG]


def test_kept_pairs_that_changed_since_are_refused(tmp_path):
    source, images = given("`captions.csv`", tmp_path)
    run("audit", source, *images, "--to", "audit")
    source.write_text(source.read_text().replace(TEXTS[1], "another"))
    with refused(DataError):
        new_dataset("cleaned", clean="audit", to="data")
    with refused(DataError):
        new_dataset("cleaned", clean=tmp_path / "photos", to="data")
    assert not Path("data").exists()


def test_a_frame_is_read_as_a_table_and_encoded_anew_where_a_picture_changed(tmp_path, right, monkeypatch):
    source, images = given("`captions.csv`", tmp_path)
    run("audit", source, *images, "--to", "audit")
    drawing(50).save(tmp_path / "photos" / NAMES[0])
    read, decoded = [], baselines.features.decoded

    def noted(function, items, *arguments, **options):
        read.extend(path.name for _, path in items)
        return decoded(function, items, *arguments, **options)

    monkeypatch.setattr(baselines.features, "decoded", noted)
    new_dataset("cleaned", clean="audit", to="data", dev=2, test=2)
    assert read == [NAMES[0]]
    frame = pd.read_csv(source).sample(frac=1, random_state=1)
    frame["fold"] = ["train"] * (N - 2) + ["dev", "test"]
    spec, remarks = new_dataset(
        "framed", frame.rename(columns={"caption": "words", "image": "where"}), images="photos", to="data",
        image_column="where", caption_column="words", split_column="fold",
    )  # fmt: skip
    assert (spec.images, remarks) == ({"train": N - 2, "dev": 1, "test": 1}, ())
    assert load_dataset("framed", split="test", root="data").captions[0] == frame["caption"].iloc[-1]
    found = seen("framed")
    assert not np.array_equal(found.pop(TEXTS[0]), right[TEXTS[0]])
    assert_right(found, right, set(range(1, N)))


def test_rows_with_one_picture_are_one_image(tmp_path):
    cells = [{"bytes": png(n // 2), "path": f"{n}.png"} for n in range(2 * N)]
    frame = pd.DataFrame({"image": cells, "text": [f"one drawing of a thing {n}" for n in range(2 * N)]})
    new_dataset("pairs", frame, to="data", dev=1, test=1)
    train = load_dataset("pairs", root="data")
    assert (len(train.image_ids), train.captions_per_image) == (N - 2, 2)
    assert all(
        int(first.split()[-1]) + 1 == int(second.split()[-1])
        for first, second in zip(*[iter(train.captions)] * 2, strict=True)
    )
    frame.loc[3, "image"] = None
    with refused(DataError):
        new_dataset("others", frame, to="data")


def test_a_table_that_names_its_files_walks_through_no_folder(tmp_path, monkeypatch):
    names = [f"inner/{name}" for name in NAMES]
    photos(tmp_path, names)
    (tmp_path / "images.csv").write_text("image\n" + "".join(f"{name[:-4]}\n" for name in names))
    monkeypatch.setattr("os.walk", None)
    monkeypatch.setattr(Path, "rglob", None)
    found = baselines.features.list_images(Path("images.csv"), work=Path("work"))
    assert [found.file(name).resolve() for name in found.names] == [tmp_path / name for name in names]


def test_pages_in_place_of_pictures_are_named(tmp_path):
    source, images = given("`captions.csv`", tmp_path)
    for name in NAMES:
        (tmp_path / "photos" / name).write_text("\n<!DOCTYPE HTML><html><body>403 Forbidden</body></html>")
    for call in (
        ["audit", source, *images, "--to", "audit"],
        ["datasets", "new", "own", source, *images, "--to", "data", "--dev", 2, "--test", 2],
        ["features", source, *images, "--to", "features", "--dev", 2, "--test", 2],
    ):
        with refused(DataError):
            invoke(*list(map(str, call)))


def test_chinese_under_caption_needs_the_name_of_its_language(tmp_path):
    source, _ = given("`captions.csv`", tmp_path)
    source.write_text(source.read_text().replace("the drawing of number", "第几张画着两只小狗"), "utf-8")
    with refused(DataError):
        new_dataset("own", source, images="photos", to="data", dev=2, test=2)
    spec, _ = new_dataset("own", source, images="photos", to="data", dev=2, test=2, languages=["zh=caption"])
    assert (spec.languages, spec.tokenizers) == (("zh",), {"zh": "jieba"})


@pytest.mark.parametrize("form", FORMS)
def test_an_accepted_caption_is_written_in_every_form(form, tmp_path):
    own = read_pairs(FORMS[form](tmp_path)[0])
    row = own.captions.index(TEXTS[5])
    rows = np.array(sorted({row, 0, N - 1}))
    written = save(own, tmp_path / "corrected", rows, own.caption_column, {row: "a better one"})
    found = read_pairs(written, own.image_column, own.caption_column).captions
    assert found == ["a better one" if n == row else own.captions[n] for n in rows.tolist()]


def test_samples_of_one_key_in_two_shards_stay_apart(tmp_path):
    for name, number in (("a.tar", 1), ("b.tar", 2)):
        facts = json.dumps({"text": TEXTS[number], "width": 24}).encode()
        shard(tmp_path / name, [("0.png", png(number)), ("0.json", facts)])
    own = read_pairs(tmp_path)
    assert own.captions == TEXTS[1:3]
    found = read_pairs(save(own, tmp_path / "corrected", np.array([0, 1]), "text", {1: "another"}))
    assert found.captions == [TEXTS[1], "another"]
    assert [picture(cell) for cell in found.frame["image"]] == [png(1), png(2)]


def test_what_is_refused_before_encoding_leaves_nothing_and_later_keeps_what_was_encoded(
    tmp_path, monkeypatch
):
    source, _ = FORMS["`pairs.parquet` with pictures"](tmp_path)
    for options in (
        {"dev": N},
        {"captions_per_image": 2},
        {"caption_column": "image"},
        {"split_column": "fold"},
        {"tokenizers": ["wrod"]},
    ):
        with refused(DataError):
            new_dataset("own", source, to="data", **({"dev": 2, "test": 2} | options))
    (tmp_path / "own.py").write_text("other")
    with refused(DataError):
        new_dataset("own", source, to="data", dev=2, test=2)
    monkeypatch.setattr(baselines.features, "decoded", None)  # no picture is encoded again
    new_dataset("own", source, to="data", dev=3, test=2, module="mine.py")
    assert [path.name for path in Path("data").iterdir()] == ["own"]


def test_missing_files_are_refused_before_encoding_or_left_out(tmp_path):
    source, _ = given("`captions.csv`", tmp_path)
    (tmp_path / "photos" / NAMES[2]).unlink()
    options = {"images": "photos", "to": "data", "dev": 2, "test": 2}
    with refused(DataError):
        new_dataset("own", source, **options)
    assert not Path("data").exists()
    spec, remarks = new_dataset("own", source, skip_damaged=True, **options)
    assert sum(spec.images.values()) == N - 1
    assert len(remarks) == 1
    assert remarks[0].startswith("left out: photos/002.png does not exist")
