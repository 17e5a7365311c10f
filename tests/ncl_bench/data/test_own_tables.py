"""People's tables: which columns are captions, where a fault is, and that no cell swallows or cuts a row."""

import json
from pathlib import Path

import pytest

from ncl_bench.data.own_tables import read_captions, read_images
from ncl_bench.errors import DataError, NclBenchError
from ncl_bench.tables import read_table


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "captions.csv") -> Path:
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
def test_captions_are_the_columns_named_by_languages(
    head: str, row: str, languages: tuple[str, ...], captions: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    found = read_captions(written(f"{head}\n{row}\n"))
    assert (found.languages, found.ignored) == (languages, ignored)
    assert found.captions == {"a.jpg": [captions]}


def test_split_in_any_case_is_the_split() -> None:
    found = read_captions(written("image,en,Split\na,x,train\nb,y,test\n"))
    assert found.splits == {"train": ["a"], "dev": [], "test": ["b"]}
    assert found.languages == ("en",)


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
def test_captions_are_the_columns_asked_for(
    head: str, asked: list[str], languages: tuple[str, ...], caption: tuple[str, ...]
) -> None:
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
            "no column of captions of its own for --languages en, only image, legend",
        ),
        ("image,en,zh", ["en=image"], "no column of captions of its own for --languages en=image"),
        ("image,en,zh", ["klingon"], "--languages klingon is no language code"),
        ("image,en,zh", ["en", "en"], "of its own for --languages en,"),
    ],
)
def test_columns_that_are_unclear_are_refused_by_name(head: str, asked: list[str], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read_captions(written(f"{head}\na.jpg,one,two\n"), asked)


def test_a_file_without_a_header_keeps_its_first_pair() -> None:
    for text in ("a.jpg,a typical bus station\n", "a.jpg\ta bus\n"):
        for read in (read_captions, read_images):
            with pytest.raises(DataError, match="the first line holds no names of columns"):
                read(written(text))


def test_quotation_marks_are_characters_where_tabs_separate() -> None:
    rows = ['006.jpg\t"A red', "007.jpg\tA dog", '008.jpg\t"A "cat"', '009.jpg\tbye"']
    for name in ("captions.tsv", "captions.txt"):
        found = read_captions(written("\n".join(["image\ten", *rows]) + "\n", name))
        assert found.captions == {row[:7]: [(row[8:],)] for row in rows}


@pytest.mark.parametrize(
    "rows",
    [
        '006.jpg,"Hello\n007.jpg,A dog\n008.jpg,A cat"\n',
        '006.jpg,"Hello\r\n007.jpg,A dog"\r\n',
        '6,"Hello\n7,A dog"\n',
        '6,"Hello\nrex,A dog"\n',
        '"Hello,001.jpg\nA dog",002.jpg\n',
        '006.jpg,"你好\n007.jpg,狗"\n',
    ],
)
def test_a_cell_that_swallowed_rows_is_refused_with_its_line(rows: str) -> None:
    with pytest.raises(DataError, match=r"captions.csv: a quoted cell holds what looks like rows"):
        read_captions(written(f"image,en\n005.jpg,fine\n{rows}"))


def test_a_cell_with_line_ends_is_one_caption() -> None:
    found = read_captions(written('image,en\na.jpg,"A dog, brown,\nruns fast, 2,000 times."\nb.jpg,cat\n'))
    assert found.captions == {"a.jpg": [("A dog, brown, runs fast, 2,000 times.",)], "b.jpg": [("cat",)]}


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
            r"a.json holds .*, expected split in it|sentences",
        ),
        (b"[" * 100_000, "a.json", "a.json cannot be read"),
        (b"PAR1", "a.parquet", "a.parquet cannot be read"),
        (
            b'{"image": "a.jpg"}',
            "a.jsonl",
            "has the columns|only none",
        ),
    ],
)
def test_a_fault_is_named_with_its_line(content: bytes, name: str, problem: str) -> None:
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


def test_the_json_of_karpathys_split_is_read() -> None:
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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", json.dumps(KARPATHY) + "x" * 1_000_000),
        ("a.csv", ",".join(f"column{n}" for n in range(10_000))),
        ("a.csv", "image,en,split\na,b," + "x" * 100_000),
        ("a.tsv", "image\ten\tsplit\n" + "x" * 1_000_000 + "\tb\ttrain\n" + "x" * 1_000_000 + "\tb\ttest\n"),
        ("a.json", '{"images": [{"filename": "' + "x" * 1_000_000 + '"}]}'),
        ("a.json", json.dumps("x" * 1_000_000)),
        ("a.json", "x" * 1_000_000),
        ("a.csv", 'image,en\na,"' + "x" * 100_000 + '\nb,c"\n'),
    ],
)
def test_no_message_grows_with_the_file(name: str, content: str) -> None:
    with pytest.raises(DataError) as refused:
        read_captions(written(content, name))
    assert len(str(refused.value)) < 800


def test_an_error_is_short_whatever_it_quotes() -> None:
    sentence = str(NclBenchError(f"start {'x' * 10_000} end"))
    assert (sentence[:7], sentence[-5:], len(sentence)) == ("start x", "x end", 2_005)


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_rare_line_ends_cut_no_row(name: str, end: str) -> None:
    separator = "," if name == "a.csv" else "\t"
    path = written(f"pair_id{separator}label\n1{separator}a{end}b\n2{separator}c\n", name)
    _, rows = read_table(path, DataError, ("pair_id", "label"))
    assert list(rows) == [
        (f"{name} line 2", {"pair_id": "1", "label": f"a{end}b"}),
        (f"{name} line 3", {"pair_id": "2", "label": "c"}),
    ]


def test_half_a_character_is_refused() -> None:
    path = written(
        '{"images": [{"filename": "a", "split": "train", "sentences": [{"raw": "\\ud800"}]}]}', "a.json"
    )
    with pytest.raises(DataError, match=r"half a character|surrogates not allowed"):
        read_captions(path)
