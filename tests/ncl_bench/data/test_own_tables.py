"""People's tables: which columns are captions, where a fault is, and that no cell swallows or cuts a row."""

import json
from pathlib import Path

import pytest

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
    ("head", "asked", "problem"),
    [
        (
            "image,comment_number,legend",
            [],
            "has the columns comment_number, legend, and none is called caption",
        ),
        ("image,caption,zh", [], "unclear which of the columns caption, zh hold captions"),
        ("image,zh,Chinese", [], "unclear which of the columns zh, Chinese hold captions"),
        ("image,en,en", [], "has two columns en; rename one"),
        ("image,en, EN", [], "unclear which of the columns en, EN hold captions"),
        ("image,split, split", [], "has two columns split"),
        (
            "image,legend,width",
            ["en"],
            "no column of captions of its own for --languages en, only legend, width",
        ),
        ("image,en,zh", ["en=image"], "no column of captions of its own for --languages en=image"),
        ("image,en,zh", ["klingon"], "--languages klingon is no language code"),
        ("image,en,zh", ["en", "en"], "of its own for --languages en,"),
    ],
)
def test_columns_that_are_unclear_are_refused_by_name(head, asked, problem):
    with pytest.raises(DataError, match=problem):
        read_captions(written(f"{head}\na.jpg,one,two\n"), asked)


@pytest.mark.parametrize(
    ("content", "name", "problem"),
    [
        (
            b'image,en\n1.jpg,"x\n' + b"2.jpg,y\n" * 90_000,
            "a.csv",
            "a.csv cannot be read .*EOF inside string",
        ),
        (
            b"image,en\n" + b"1.jpg,x\n" * 9_000 + b"2.jpg,\xff\n",
            "a.csv",
            "a.csv line 9002: byte 0xff is not",
        ),
        (b"image\ten\n\n1.jpg\tx\n2.jpg\n", "a.tsv", "a.tsv row 2: en is empty"),
        (b'image,en\n1.jpg,"two\nlines"\n2.jpg,\n', "a.csv", "a.csv row 2: en is empty"),
        (b'{"images": [\n{]}', "a.json", "a.json cannot be read .*line 2 column 2"),
        (
            b'{"images": [{"filename": "a.jpg"}]}',
            "a.json",
            "a.json is no list of objects, nor Karpathy's",
        ),
        (b"[" * 100_000, "a.json", "a.json cannot be read"),
        (b"PAR1", "a.parquet", "a.parquet cannot be read"),
        (b'{"image": "a.jpg"}', "a.jsonl", "has the columns|only none"),
        *(
            (first + b"\nb.jpg,a cat\n", "a.csv", "the first line holds no names of columns")
            for first in (b"a.jpg,a dog runs", b"https://example.org/a,dog", b"17,a dog runs")
        ),
        (b"a.jpg\ta bus\n", "a.tsv", "the first line holds no names of columns"),
        *(
            (f"image,en\n005.jpg,fine\n{rows}".encode(), "a.csv", "a quoted cell holds what looks like rows")
            for rows in (
                '006.jpg,"Hello\n007.jpg,A dog\n008.jpg,A cat"\n',
                '006.jpg,"Hello\r\n007.jpg,A dog"\r\n',
                '6,"Hello\n7,A dog"\n',
                '6,"Hello\nrex,A dog"\n',
                '"Hello,001.jpg\nA dog",002.jpg\n',
                '006.jpg,"你好\n007.jpg,狗"\n',
            )
        ),
        (b'[{"image": "a", "en": "\\ud800"}]', "a.json", "surrogates not allowed"),
        (b"image,caption\n0.png,\"['a' 'b']\"\n", "c.csv", "expected a list of captions in JSON"),
        (b"image,caption\n0.png,17\n1.png,\n", "c.csv", "holds numbers such as 17"),
        (b"image,caption\n0.png,101 2003 102\n", "c.csv", "holds numbers such as 101 2003 102"),
        (b"17\ta dog\thttps://example.org/a\n", "c.tsv", "name the column of captions with --caption-column"),
        (b"", "c.csv", "has no rows"),
        (b'{"image": "0.png", "caption": {"en": "a"}}\n', "c.jsonl", "row 1: caption holds"),
    ],
)
def test_a_fault_is_named_with_its_line(content, name, problem):
    Path(name).write_bytes(content)
    with pytest.raises(DataError, match=problem):
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
