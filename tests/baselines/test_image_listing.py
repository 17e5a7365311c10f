"""Which images there are, and in which split."""

import os
import sys
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused

from baselines.features import list_images
from ncl_bench.data.own_tables import draw_splits
from ncl_bench.errors import DataError


def touched(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def table(folder, text, name="images.csv", encoding="utf-8"):
    (folder / name).write_text(text, encoding=encoding)
    return folder / name


def test_a_folder_is_listed_in_one_order_everywhere(tmp_path):
    touched(tmp_path, "b.jpg", "a/2.jpg", "a/10.jpg", "Z.jpg", ".DS_Store", ".cache/x.jpg")
    found = list_images(tmp_path)
    assert found.names == ["Z.jpg", "a/10.jpg", "a/2.jpg", "b.jpg"]
    assert (found.folder, found.splits) == (tmp_path, None)


def test_folders_that_all_name_splits_are_the_splits(tmp_path):
    found = list_images(touched(tmp_path, "train/cats/0.jpg", "Val/dogs/1.jpg", "test/2.jpg"))
    assert found.splits == {"train": ["train/cats/0.jpg"], "dev": ["Val/dogs/1.jpg"], "test": ["test/2.jpg"]}
    found = list_images(touched(tmp_path, "tram/3.jpg"))
    assert found.splits is None
    assert "is not taken for a split, as tram names none" in found.remarks[0]


def test_a_table_names_images_once_and_may_split_them(tmp_path):
    rows = "image,split,en\nb.jpg,train,one\na.jpg,dev,two\nb.jpg,train,three\nc.jpg,test,four\n"
    found = list_images(table(tmp_path, rows, encoding="utf-8-sig"))
    assert found.names == ["b.jpg", "a.jpg", "c.jpg"]
    assert found.splits == {"train": ["b.jpg"], "dev": ["a.jpg"], "test": ["c.jpg"]}
    tabs = table(tmp_path, "en\timage\none, two\tb.jpg\n", "images.tsv")
    assert list_images(tabs).names == ["b.jpg"]
    assert list_images(tabs).splits is None


@given(
    rows=st.binary(max_size=60) | st.text('image,split\ttrain\n"a', max_size=40).map(str.encode),
    kind=st.sampled_from(["csv", "tsv"]),
)
def test_any_bytes_are_a_listing_of_clean_names_or_one_sentence(rows, kind, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / f"images.{kind}"
    separator = b"," if kind == "csv" else b"\t"
    for heading in (b"", b"image\n", separator.join([b"image", b"split"]) + b"\n"):
        path.write_bytes(heading + rows)
        try:
            found = list_images(path)
        except DataError:
            continue
        assert found.names
        assert len(set(found.names)) == len(found.names)
        assert all(name == name.strip() and not {*name} & {*"\n\r"} for name in found.names)
        if found.splits is not None:
            assert sorted(chain(*found.splits.values())) == sorted(found.names)


def test_names_are_those_of_the_composed_unicode_form(tmp_path):
    photos = touched(tmp_path / "photos", "cafe\u0301.jpg", "b.jpg", "c.jpg")
    assert list_images(photos).names == ["b.jpg", "c.jpg", "caf\u00e9.jpg"]
    rows = "image,split\ncafe\u0301.jpg,train\nb.jpg,dev\nc.jpg,test\n"
    assert list_images(table(photos, rows)).names[0] == "caf\u00e9.jpg"
    names = {"train": "cafe\u0301.jpg", "dev": "b.jpg", "test": "c.jpg"}
    lists = [f"{split}={table(tmp_path, name, f'{split}.txt')}" for split, name in names.items()]
    assert list_images(photos, lists).splits["train"] == ["caf\u00e9.jpg"]


def test_lists_split_a_folder_and_leave_the_rest_out(tmp_path):
    photos = touched(tmp_path / "photos", *"abcd")
    lists = []
    for split, names in {"train": "d\nb\n", "dev": "a\n", "test": "\n c \r\n"}.items():
        lists.append(f"{split}={table(tmp_path, names, f'{split}.txt')}")
    found = list_images(photos, lists)
    assert found.splits == {"train": ["d", "b"], "dev": ["a"], "test": ["c"]}
    assert found.names == ["d", "b", "a", "c"]


@pytest.mark.parametrize(
    "text",
    [
        "name,en\na.jpg,one\n",
        "",
        "image\n",
        "image,en\n,one\n",
        "image,split\na.jpg,vali\n",
        "image,split\na.jpg,dev\na.jpg,test\n",
        'image,en\n"a.jpg,one\n',
        'image\n"a\nb.jpg"\n',
        "image\na.jpg\n../b.jpg\n",
        "image\n/etc/b.jpg\n",
        "image\nc/../../b.jpg\n",
    ],
)
def test_a_table_that_cannot_be_right_is_refused(text, tmp_path):
    with refused(DataError):
        list_images(table(tmp_path, text))


def test_other_sources_are_refused(tmp_path):
    (tmp_path / "latin.csv").write_bytes("image\nä.jpg\n".encode("latin-1"))
    with refused(DataError):
        list_images(tmp_path / "latin.csv")
    with refused(DataError):
        list_images(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with refused(DataError):
        list_images(tmp_path / "empty")


@pytest.mark.parametrize(
    "lists",
    [
        ["train=one.txt"],
        ["val=one.txt"],
        ["train=gone.txt", "dev=b.txt", "test=c.txt"],
        ["train=x.txt", "dev=b.txt", "test=c.txt"],
        ["train=b.txt", "dev=b.txt", "test=c.txt"],
    ],
)
def test_lists_that_do_not_fit_are_refused(lists, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touched(Path("photos"), *"abc")
    for name in "abcx":
        Path(f"{name}.txt").write_text(name)
    with refused(DataError):
        list_images(Path("photos"), lists)


@given(n=st.integers(3, 60), dev=st.integers(1, 20), test=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_a_draw_puts_every_image_in_one_split_and_keeps_their_order(n, dev, test, seed):
    names = [f"{i:02}" for i in range(n)]
    if dev + test >= n:
        with pytest.raises(DataError, match="would be train; choose other numbers"):
            draw_splits(names, dev, test, seed)
        return
    splits = draw_splits(names, dev, test, seed)
    assert [len(splits[split]) for split in ("train", "dev", "test")] == [n - dev - test, dev, test]
    assert sorted(chain(*splits.values())) == names
    assert all(found == sorted(found) for found in splits.values())
    assert splits == draw_splits(names, dev, test, seed)


def test_a_tenth_is_drawn_by_default_and_the_seed_matters():
    names = [f"{i:03}" for i in range(205)]
    splits = draw_splits(names, None, None, 0)
    assert [len(found) for found in splits.values()] == [165, 20, 20]
    assert splits != draw_splits(names, None, None, 1)
    with refused(DataError):
        draw_splits(names[:9], None, None, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_text_is_refused(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).touch()
    with refused(DataError):
        list_images(tmp_path)
