"""The picture, the caption and the index of a row are those that the table names."""

import csv
import json

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.refusals import refused
from support.shaded import photos, picture, shade, shard

from ncl_bench.data.own_tables import read_captions
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pairs.pictures import find_pictures
from ncl_bench.data.pairs.write import save
from ncl_bench.errors import DataError
from ncl_bench.tables import as_csv, separator_of


def shades(source, images, work, **columns):
    """The red of each row's picture; None where it has none."""
    pairs = read_pairs(source, **columns)
    found = find_pictures(pairs, images, work / "work")
    red = [shade(file) for file in found.files.values()]
    return [red[image] if image >= 0 else None for image in found.image_of.tolist()]


def table(folder, **columns):
    pd.DataFrame(columns).to_csv(folder / "captions.csv", index=False)
    return folder / "captions.csv"


URLS = [f"https://example.org/{n}" for n in "abcd"]
TEXTS = ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    "more",
    [
        *(
            {"status": "success", column: [f"{n:09d}" for n in (2, 0, 3, 1)]}
            for column in ("key", "stored_as")
        ),
        {"key": [2, 0, 3, 1]},  # read as a number
    ],
)
def test_a_column_that_names_the_files_decides_for_urls(more, tmp_path):
    images = photos(tmp_path / "photos", [f"00000/{n:09d}.jpg" for n in range(4)])
    assert shades(table(tmp_path, url=URLS, caption=TEXTS, **more), images, tmp_path) == [2, 0, 3, 1]


@pytest.mark.parametrize("numbers", [[0, 1, 3], [1, 2, 3, 4], [0, 1, 2, 3, 4]])
def test_urls_without_names_are_refused_unless_every_row_has_its_number(numbers, tmp_path):
    images = photos(tmp_path / "photos", [f"{n:09d}.jpg" for n in numbers])
    with refused(DataError):
        shades(table(tmp_path, url=URLS, caption=TEXTS), images, tmp_path)


def test_urls_with_a_number_for_every_row(tmp_path):
    images = photos(tmp_path / "photos", [f"{n:09d}.jpg" for n in range(4)])
    source = table(tmp_path, url=URLS, caption=TEXTS)
    with refused(DataError):
        shades(source, images, tmp_path)
    assert shades(source, images, tmp_path, rows_in_order=True) == [0, 1, 2, 3]
    assert read_pairs(source, rows_in_order=True).remarks == (
        "Pictures belong to the rows by their order alone, as rows_in_order says.",
    )


@pytest.mark.parametrize(
    ("files", "names", "right"),
    [
        (["test/0.jpg", "train/1.jpg"], ["train/0.jpg", "test/0.jpg", "train/1.jpg"], [None, 0, 1]),
        (["test/0.jpg", "train/1.jpg"], ["train/0.jpg", "train/1.jpg"], [None, 1]),
        (["x/0.jpg", "1.jpg"], ["0.jpg", "x/0.jpg", "1.jpg"], [None, 0, 1]),
        (["0.JPG", "1.jpg"], ["0.jpg", "1.jpg"], [0, 1]),
        (["A.jpg", "b.jpg"], ["a.jpg", "A.jpg", "b.jpg"], [None, 0, 1]),
        (["sub/0.jpg", "sub/1.jpg"], ["photos/0.jpg", "photos/1.jpg"], [0, 1]),
        (["0.bmp", "1.tiff"], ["0", "1"], [0, 1]),
        # of another machine
        (["a/0.jpg", "b/0.jpg"], ["/home/me/set/a/0.jpg", "/home/me/set/b/0.jpg"], [0, 1]),
        (["a/0.jpg", "b/0.jpg"], ["C:\\me\\set\\b\\0.jpg", "C:\\me\\set\\a\\0.jpg"], [1, 0]),
        (["a/0.jpg", "0.jpg"], ["/home/me/set/a/0.jpg", "/home/me/set/b/0.jpg"], [0, None]),
        # a URL is no name of a file
        (["0.png", "1.png"], ["https://example.org/0.png", "1.png"], [None, 1]),
    ],
)
def test_a_file_serves_the_row_that_names_it(files, names, right, tmp_path):
    images = photos(tmp_path / "photos", files)
    source = table(tmp_path, image=names, caption=TEXTS[: len(names)])
    assert shades(source, images, tmp_path) == right


@pytest.mark.parametrize(
    ("files", "name"),
    [(["1.jpg", "1.png"], "1"), (["1.JPG", "1.Jpg"], "1.jpg"), (["a/1.jpg", "b/1.jpg"], "1.jpg")],
)
def test_two_files_that_fit_a_name_are_refused(files, name, tmp_path):
    images = photos(tmp_path / "photos", files)
    with refused(DataError):
        shades(table(tmp_path, image=[name], caption=["one"]), images, tmp_path)


def test_a_picture_outside_the_folder_is_not_read(tmp_path):
    images = photos(tmp_path / "photos", ["0.png", "deep/1.png"])
    (tmp_path / "secret.png").write_bytes(picture(99))
    names = [str(tmp_path / "secret.png"), "../secret.png", str(images / "deep" / "1.png"), "0.png"]
    source = table(tmp_path, image=names, caption=TEXTS)
    assert shades(source, images, tmp_path) == [None, None, 1, 0]
    cells = [{"bytes": None, "path": name} for name in names]
    pd.DataFrame({"image": cells, "caption": TEXTS}).to_parquet(tmp_path / "rows.parquet")
    assert shades(tmp_path / "rows.parquet", images, tmp_path) == [None, None, 1, 0]


def test_pictures_in_rows_are_chosen_by_name_and_other_bytes_are_none(tmp_path):
    frame = pd.DataFrame(
        {
            "hash": [b"\x00\x01hash"] * 4,
            "thumbnail": [picture(50)] * 4,
            "image": [picture(n) for n in range(4)],
            "sound": [{"bytes": b"RIFX", "path": "a.wav"}] * 4,
            "caption": TEXTS,
        }
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    assert shades(tmp_path / "rows.parquet", None, tmp_path) == [0, 1, 2, 3]
    assert shades(frame, None, tmp_path, image_column="thumbnail") == [50] * 4
    with refused(DataError):
        read_pairs(frame.rename(columns={"image": "depth"}))


@pytest.mark.parametrize(
    "members",
    [
        {"0.jpg": picture(0), "0.txt": b"one", "1.png": picture(1), "1.txt": b"two"},
        {
            "0.input.jpg": picture(0),
            "0.caption.txt": b"one",
            "1.input.jpg": picture(1),
            "1.caption.txt": b"two",
        },
        {
            "0.bmp": picture(0),
            "0.json": b'{"caption": "one"}',
            "1.tiff": picture(1),
            "1.json": b'{"caption": "two"}',
        },
        {"a/0.gif": picture(0), "a/0.txt": b"one", "b/0.gif": picture(1), "b/0.txt": b"two"},
        {
            "0.jpg": picture(0),
            "0.txt": b"one",
            "0.pth": b"x",
            "1.jpg": picture(1),
            "1.txt": b"two",
            "1.txt.gz": b"x",
        },
    ],
)
def test_shards(members, tmp_path):
    source = shard(tmp_path / "shards" / "deep" / "0.tar", members.items())
    assert read_pairs(source).captions == ["one", "two"]
    assert shades(source, None, tmp_path) == [0, 1]
    assert shades(tmp_path / "shards", None, tmp_path) == [0, 1]


def test_a_sample_without_a_picture_and_shards_without_any(tmp_path):
    source = shard(tmp_path / "0.tar", [("0.txt", b"one"), ("1.jpg", picture(1)), ("1.txt", b"two")])
    assert shades(source, None, tmp_path) == [None, 1]
    source = shard(tmp_path / "1.tar", [("0.txt", b"one"), ("0.cls", b"1")])
    with refused(DataError):
        read_pairs(source)


def test_captions_in_a_list_are_several_captions(tmp_path):
    rows = [{"image": "0.png", "captions": ["one", "two"]}, {"image": "1.png", "captions": ["three"]}]
    images = photos(tmp_path / "photos", ["0.png", "1.png"])
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    found = read_pairs(tmp_path / "rows.json")
    assert (found.captions, found.row_of.tolist()) == (["one", "two", "three"], [0, 0, 1])
    assert shades(tmp_path / "rows.json", images, tmp_path) == [0, 0, 1]
    rows = pd.DataFrame({"image": [picture(0), picture(1)], "caption": [["one", "two"], ["three"]]})
    assert shades(rows, None, tmp_path) == [0, 0, 1]


def test_a_parquet_file_whose_text_is_not_utf8_is_refused(tmp_path):
    content = pa.array([b"a dog", b"\xff\xfe"])
    text = pa.StringArray.from_buffers(2, *content.buffers()[1:])
    pq.write_table(pa.table({"image": ["a", "b"], "caption": text}), tmp_path / "rows.parquet")
    with refused(DataError):
        read_pairs(tmp_path / "rows.parquet")


def test_columns_of_one_name_are_refused():
    frame = pd.DataFrame([["a", "one", "two"]], columns=["image", "caption", "caption"])
    with refused(DataError):
        read_pairs(frame)
    frame.columns = ["image", "caption", "Caption"]
    for read in (read_pairs, read_captions):
        with refused(DataError):
            read(frame)


FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd", "@SUM(A1)", "'=1", "＝1", '=HYPERLINK("http://a")')


def _lists(folder):
    """One table in each form that is written as cells, with formulas as captions, image names and column names."""
    frame = pd.DataFrame(
        {"image": [f"{text} {n}.png" for n, text in enumerate(FORMULAS)], "caption": FORMULAS}
    )
    frame["=more"] = pd.Categorical(FORMULAS)
    rows = frame.astype(str).values.tolist()
    texts = {
        "a.csv": as_csv([list(frame), *rows]),
        "b.csv": as_csv([list(frame), *rows], ";"),
        "a.tsv": as_csv([list(frame), *rows], "\t"),
        "numbered.token": as_csv([[f"{row[0]}#0", row[1]] for row in rows], "\t"),
        "urls.tsv": as_csv([[row[1], f"http://a/{n}.jpg"] for n, row in enumerate(rows)], "\t"),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return {"frame": frame} | {name: folder / name for name in texts}


@pytest.mark.parametrize("form", ["frame", "a.csv", "b.csv", "a.tsv", "numbered.token", "urls.tsv"])
def test_a_list_of_rows_holds_no_formula_and_reads_back(form, tmp_path):
    source = read_pairs(_lists(tmp_path)[form])
    assert list(source.captions) == list(FORMULAS)
    written = save(source, tmp_path / "clean", np.arange(len(FORMULAS)))
    delimiter = separator_of(written, written.read_text("utf-8"))
    lines = written.read_text("utf-8").splitlines()
    cells = (
        [line.split("\t") for line in lines] if delimiter == "\t" else csv.reader(lines, delimiter=delimiter)
    )
    assert not [cell for row in cells for cell in row if cell.startswith(("=", "+", "-", "@", "＝"))]
    again = read_pairs(written)
    assert list(again.captions) == list(source.captions)
    assert list(again.images) == list(source.images)
    assert list(again.table) == list(source.table)


def test_a_row_of_csv_begins_only_where_a_row_ends(tmp_path):
    frame = pd.DataFrame({"image": ["a.png", "b.png"], "caption": ["a dog\r=1+1", "\t=1"], "n": [-1.5, None]})
    written = save(read_pairs(frame), tmp_path / "clean", np.arange(2))
    assert written.read_bytes() == (b'image,caption,n\na.png,"a dog\r=1+1",-1.5\nb.png,\'\xe2\x81\xa0\t=1,\n')


def test_a_column_of_numbers_is_not_taken_for_names_of_files_by_chance(tmp_path):
    images = photos(tmp_path / "photos", [f"{n}.jpg" for n in range(4)])
    few = table(tmp_path, url=URLS, caption=TEXTS, score=[1, 1, 2, 2])
    assert shades(few, images, tmp_path, rows_in_order=True) == [0, 1, 2, 3]
    ambiguous = table(tmp_path, url=URLS, caption=TEXTS, width=[3, 2, 1, 0])
    with refused(DataError):
        shades(ambiguous, images, tmp_path)
    assert shades(ambiguous, images, tmp_path, image_column="width") == [3, 2, 1, 0]
    two = table(tmp_path, url=URLS, caption=TEXTS, a=list("3210"), b=[f"{n}.jpg" for n in (1, 0, 2, 3)])
    assert shades(two, images, tmp_path) == [1, 0, 2, 3]
    two = table(tmp_path, url=URLS, caption=TEXTS, a=[f"{n}.jpg" for n in (3, 2, 1, 0)], b=["0.jpg", *"123"])
    with refused(DataError):
        shades(two, images, tmp_path)


@pytest.mark.parametrize("form", ["frame", "parquet", "dataset"])
def test_numbers_with_a_gap_stay_whole(form, tmp_path):
    big = 2**53 + 1
    numbers = [0, 1, None, 3] if form == "frame" else [big, big + 1, None, big + 3]
    images = photos(tmp_path / "photos", [f"{n}.jpg" for n in numbers])
    frame = pd.DataFrame({"image": pd.array(numbers, "float" if form == "frame" else "Int64"), "text": TEXTS})
    source = frame
    if form == "parquet":
        source = tmp_path / "rows.parquet"
        frame.to_parquet(source)
    elif form == "dataset":
        source = datasets.Dataset.from_pandas(frame)
    assert shades(source, images, tmp_path) == [0, 1, None, 3]


def bitmaps(kind=None):
    """Pictures of the same number of bytes, as an Arrow array."""
    cells = [picture(n, "BMP") for n in range(3)]
    return pa.array([cells[2], None, cells[0], cells[1]], kind or pa.binary(len(cells[0])))


@pytest.mark.parametrize(
    ("images", "captions"),
    [
        (bitmaps(), pa.array(TEXTS)),
        (bitmaps().dictionary_encode(), pa.array(TEXTS)),
        (
            pa.StructArray.from_arrays([bitmaps(), pa.nulls(4, pa.string())], ["bytes", "path"]),
            pa.array(TEXTS),
        ),
        (bitmaps(pa.large_binary()), pa.array(TEXTS, pa.large_string())),
        (bitmaps(pa.binary_view()), pa.array(TEXTS, pa.string_view())),
        (bitmaps(), pa.array([[text] for text in TEXTS], pa.large_list(pa.string_view()))),
        (bitmaps(), pa.array([[text] for text in TEXTS], pa.list_(pa.string_view(), 1))),
    ],
    ids=["fixed", "dictionary", "structure", "large", "views", "large lists", "fixed lists"],
)
def test_pictures_and_texts_are_the_same_in_every_arrow_type(images, captions, tmp_path):
    number = pa.array([n.to_bytes(16, "big") for n in range(4)], pa.binary(16))
    rows = pa.table({"image": images, "caption": captions, "uuid": number})
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert shades(tmp_path / "rows.parquet", None, tmp_path) == [2, None, 0, 1]
    assert read_pairs(tmp_path / "rows.parquet").captions == TEXTS


def test_a_frame_of_pictures_may_name_some_by_their_files(tmp_path):
    images = photos(tmp_path / "photos", ["0.png", "1.png"])
    frame = pd.DataFrame({"image": [picture(70), "1.png", picture(90)], "caption": TEXTS[:3]})
    assert shades(frame, images, tmp_path) == [70, 1, 90]


def test_a_format_of_a_dataset_hides_nothing(tmp_path):
    cells = [{"bytes": picture(n), "path": None} for n in range(4)]
    features = datasets.Features({"image": datasets.Image(), "caption": datasets.Value("string")})
    found = datasets.Dataset.from_dict({"image": cells, "caption": TEXTS}, features=features)
    for source in (found.with_format("numpy", columns=["caption"]), found.with_transform(lambda rows: rows)):
        assert shades(source.select([2, 0]), None, tmp_path) == [2, 0]


def test_a_picture_without_a_text_is_a_row(tmp_path):
    images = photos(tmp_path / "photos", ["0.jpg", "1.JPG", "2.png"])
    (images / "0.txt").write_text("one")
    (images / "1.TXT").write_text("two")
    (images / "readme.txt").write_text("not a caption")
    assert read_pairs(images).captions == ["one", "two", ""]
    assert shades(images, None, tmp_path) == [0, 1, 2]
    (images / "1.png").write_bytes(picture(9))
    with refused(DataError):
        read_pairs(images)


@pytest.mark.parametrize(("columns", "given"), [(("file_name", "image"), None), (("photo",), "photo")])
def test_metadata_of_subfolders_names_their_own_pictures(columns, given, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "0.png").write_bytes(picture(9))
    for red, place in enumerate(("train", "test")):
        (tmp_path / "set" / place).mkdir(parents=True)
        (tmp_path / "set" / place / "0.png").write_bytes(picture(red))
        rows = pd.DataFrame({**{name: ["0.png"] for name in columns}, "text": [place]})
        rows.to_csv(tmp_path / "set" / place / "metadata.csv", index=False)
    captions = read_pairs(tmp_path / "set", given).captions
    assert dict(zip(captions, shades(tmp_path / "set", None, tmp_path, image_column=given), strict=True)) == {
        "train": 0,
        "test": 1,
    }


def test_lists_in_json_lines_have_numbers_for_columns(tmp_path):
    (tmp_path / "a.jsonl").write_text('["0.png", "a dog"]\n["1.png", "a cat"]\n')
    assert read_pairs(tmp_path / "a.jsonl", "0", "1").captions == ["a dog", "a cat"]


def test_captions_in_bytes_are_texts():
    frame = pd.DataFrame({"image": ["0.png", "1.png"], "caption": ["Zürich".encode(), None]})
    assert read_pairs(frame).captions == ["Zürich", ""]
