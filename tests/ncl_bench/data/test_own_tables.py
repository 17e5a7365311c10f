"""People's tables: which columns are captions, where a fault is, and that no cell swallows or cuts a row."""

import json
from pathlib import Path

import pytest
from support.refusals import refused

from ncl_bench.data.own_tables import read_captions, read_images
from ncl_bench.errors import DataError, NclBenchError
from ncl_bench.tables import read_table


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(text, name="captions.csv"):
    path = Path(name)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("head", "row", "languages", "captions", "ignored"),
    [
        ("id,image,caption", "0,a.jpg,a dog", ("en",), ("a dog",), ("id",)),
        ("id,image,en", "7,a.jpg,a dog", ("en",), ("a dog",), ("id",)),
        (",image,caption", "0,a.jpg,a dog", ("en",), ("a dog",), ("",)),
        ("image,comment_number,caption", "a.jpg,0,a dog", ("en",), ("a dog",), ("comment_number",)),
        ("width,image,url,zh,en", "9,a.jpg,u,狗,a dog", ("zh", "en"), ("狗", "a dog"), ("width", "url")),
        ("image, caption", "a.jpg,a dog", ("en",), ("a dog",), ()),
        (" Image ,Caption", "a.jpg,a dog", ("en",), ("a dog",), ()),
        ("image,caption,no", "a.jpg,a dog,1", ("en",), ("a dog",), ("no",)),
        ("image,zh-cn,English", "a.jpg,狗,a dog", ("zh-CN", "en"), ("狗", "a dog"), ()),
        ("image;en;de", "a.jpg;a dog, wet;ein Hund", ("en", "de"), ("a dog, wet", "ein Hund"), ()),
    ],
)
def test_captions_are_the_columns_named_by_languages(head, row, languages, captions, ignored):
    found = read_captions(written(f"{head}\n{row}\n"))
    assert (found.languages, found.ignored) == (languages, ignored)
    assert found.captions == {"a.jpg": [captions]}


@pytest.mark.parametrize(
    ("head", "asked", "languages", "caption"),
    [
        ("image,text,width", ["en=text"], ("en",), ("one",)),
        ("image,caption,width", ["de"], ("de",), ("one",)),
        ("image,en,zh", ["zh"], ("zh",), ("two",)),
        ("image,en,zh", ["zh", "en"], ("zh", "en"), ("two", "one")),
        ("image,id,en", ["id"], ("id",), ("one",)),
        ("image,caption,Chinese", ["en=caption", "zh"], ("en", "zh"), ("one", "two")),
    ],
)
def test_captions_are_the_columns_asked_for(head, asked, languages, caption):
    found = read_captions(written(f"{head}\na.jpg,one,two\n"), asked)
    assert (found.languages, found.captions) == (languages, {"a.jpg": [caption]})


@pytest.mark.parametrize(
    ("head", "asked"),
    [
        ("image,comment_number,legend", []),
        ("image,caption,zh", []),
        ("image,zh,Chinese", []),
        ("image,en,en", []),
        ("image,en, EN", []),
        ("image,split, split", []),
        ("image,legend,width", ["en"]),
        ("image,en,zh", ["en=image"]),
        ("image,en,zh", ["klingon"]),
        ("image,en,zh", ["en", "en"]),
    ],
)
def test_columns_that_are_unclear_are_refused_by_name(head, asked):
    with refused(DataError):
        read_captions(written(f"{head}\na.jpg,one,two\n"), asked)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (
            b'image,en\n1.jpg,"x\n' + b"2.jpg,y\n" * 90_000,
            "a.csv",
        ),
        (
            b"image,en\n" + b"1.jpg,x\n" * 9_000 + b"2.jpg,\xff\n",
            "a.csv",
        ),
        (b"image\ten\n\n1.jpg\tx\n2.jpg\n", "a.tsv"),
        (b'image,en\n1.jpg,"two\nlines"\n2.jpg,\n', "a.csv"),
        (b'{"images": [\n{]}', "a.json"),
        (
            b'{"images": [{"filename": "a.jpg"}]}',
            "a.json",
        ),
        (b"[" * 100_000, "a.json"),
        (b"PAR1", "a.parquet"),
        (b'{"image": "a.jpg"}', "a.jsonl"),
        *(
            (first + b"\nb.jpg,a cat\n", "a.csv")
            for first in (b"a.jpg,a dog runs", b"https://example.org/a,dog", b"17,a dog runs")
        ),
        (b"a.jpg\ta bus\n", "a.tsv"),
        *(
            (f"image,en\n005.jpg,fine\n{rows}".encode(), "a.csv")
            for rows in (
                '006.jpg,"Hello\n007.jpg,A dog\n008.jpg,A cat"\n',
                '006.jpg,"Hello\r\n007.jpg,A dog"\r\n',
                '6,"Hello\n7,A dog"\n',
                '6,"Hello\nrex,A dog"\n',
                '"Hello,001.jpg\nA dog",002.jpg\n',
                '006.jpg,"你好\n007.jpg,狗"\n',
            )
        ),
        (b'[{"image": "a", "en": "\\ud800"}]', "a.json"),
        (b"image,caption\n0.png,\"['a' 'b']\"\n", "c.csv"),
        (b"image,caption\n0.png,17\n1.png,\n", "c.csv"),
        (b"image,caption\n0.png,101 2003 102\n", "c.csv"),
        (b"17\ta dog\thttps://example.org/a\n", "c.tsv"),
        (b"", "c.csv"),
        (b'{"image": "0.png", "caption": {"en": "a"}}\n', "c.jsonl"),
    ],
)
def test_a_fault_is_named_with_its_line(content, name):
    Path(name).write_bytes(content)
    with refused(DataError):
        read_captions(Path(name))


KARPATHY = {
    "dataset": "flickr30k",
    "images": [
        {
            "filename": "1.jpg",
            "split": "train",
            "sentences": [{"raw": "A dog.", "sentid": 0}, {"raw": "Wet,\ndog"}],
        },
        {
            "filename": "2.jpg",
            "filepath": "val2014",
            "split": "restval",
            "sentences": [{"tokens": ["a", "cat"]}],
        },
        {"filename": "3.jpg", "split": "val", "sentences": [{"raw": "Third"}]},
        {"filename": "4.jpg", "split": "test", "sentences": [{"raw": "Fourth"}]},
    ],
}


def test_a_fault_is_named_with_its_line_where_a_repeated_pair_was_left_out():
    Path("set").mkdir()
    written("image,caption,split\na.jpg,a dog,train\n", "set/test.csv")
    written("image,caption,split\na.jpg,a dog,train\nb.jpg,,train\n", "set/train.csv")
    with refused(DataError, "train.csv row 2: caption is empty"):
        read_captions(Path("set"))


def test_the_json_of_karpathys_split_is_read():
    path = written(json.dumps(KARPATHY), "dataset_flickr30k.json")
    found = read_captions(path)
    assert found.captions == {
        "1.jpg": [("A dog.",), ("Wet, dog",)],
        "val2014/2.jpg": [("a cat",)],
        "3.jpg": [("Third",)],
        "4.jpg": [("Fourth",)],
    }
    assert found.splits == {"train": ["1.jpg", "val2014/2.jpg"], "dev": ["3.jpg"], "test": ["4.jpg"]}
    assert (found.languages, read_captions(path, ["de"]).languages) == (("en",), ("de",))
    assert read_images(path).splits == found.splits


def test_an_error_is_short_whatever_it_quotes():
    sentence = str(NclBenchError(f"start {'x' * 10_000} end"))
    assert (sentence[:7], sentence[-5:], len(sentence)) == ("start x", "x end", 2_005)


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_rare_line_ends_cut_no_row(name, end):
    separator = "," if name == "a.csv" else "\t"
    path = written(f"pair_id{separator}label\n1{separator}a{end}b\n2{separator}c\n", name)
    _, rows = read_table(path, DataError, ("pair_id", "label"))
    assert list(rows) == [
        (f"{name} line 2", {"pair_id": "1", "label": f"a{end}b"}),
        (f"{name} line 3", {"pair_id": "2", "label": "c"}),
    ]
