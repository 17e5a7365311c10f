"""Rows that make a library hang, swell or crash, and good rows that earlier guards refused."""

import gzip
import io
import json
import os
import tarfile
from functools import cache

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.refusals import refused

from ncl_bench import decoding
from ncl_bench.data.pairs.rows import read_rows
from ncl_bench.errors import DataError

TABLE = "image,caption\na.jpg,A dog runs\n"


@cache
def zeros():
    """More of them than there is memory, packed."""
    return gzip.compress(bytes(4 * 10**6), 1) * 100


def shard_that_states(size, kind=tarfile.REGTYPE, name="0.jpg"):
    """A packed shard whose only member states a size, and holds zeros."""
    return gzip.compress(entry(name, size, kind)) + zeros()


def parquet_of_one_text(length, rows):
    """One long text in all rows, which is stored once."""
    stream = io.BytesIO()
    indices = pa.array(np.zeros(rows, np.int32))
    table = pa.table({"caption": pa.DictionaryArray.from_arrays(indices, pa.array(["x" * length]))})
    pq.write_table(table, stream, compression="zstd")
    # without the schema of Arrow every row becomes a text of its own
    plain = pq.read_table(io.BytesIO(stream.getvalue())).replace_schema_metadata(None)
    stream = io.BytesIO()
    pq.write_table(plain, stream, compression="zstd", store_schema=False)
    return stream.getvalue()


def saved(folder):
    datasets.disable_progress_bars()
    rows = {"image": [f"{n}.jpg" for n in range(50)], "caption": [f"a dog {n}" for n in range(50)]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def with_bytes(old, new):
    """A saved folder with other bytes in its Arrow file."""

    def make(folder):
        path = next(saved(folder).glob("*.arrow"))
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new))
        return path.parent

    return make


def naming(name):
    """A saved folder whose index names another file."""

    def make(folder):
        (folder / "outside").mkdir()
        file = next(saved(folder / "outside").glob("*.arrow"))
        path = saved(folder) / "state.json"
        state = json.loads(path.read_bytes())
        state["_data_files"] = [{"filename": name.format(file)}]
        path.write_text(json.dumps(state))
        return path.parent

    return make


def split_outside(folder):
    (folder / "outside").mkdir()
    saved(folder / "outside")
    (folder / "dict").mkdir()
    (folder / "dict" / "dataset_dict.json").write_text(json.dumps({"splits": ["../outside/saved"]}))
    return folder / "dict"


def written(name, content):
    def make(folder):
        (folder / name).write_bytes(content())
        return folder / name

    return make


def zeros_of_zstd(size):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        for _ in range(size // 10**6):
            packed.write(bytes(10**6))
    return sink.getvalue().to_pybytes()


def entry(name, size, kind=tarfile.REGTYPE):
    head = tarfile.TarInfo(name)
    head.size, head.type = size, kind
    return head.tobuf(tarfile.GNU_FORMAT)


def facts_before(facts, name, content=b"a dog"):
    """A shard whose one file has these facts in a header of its own."""
    lines = b"".join(facts)
    head = entry("facts", len(lines), tarfile.XHDTYPE) + lines.ljust(-(-len(lines) // 512) * 512, b"\0")
    return head + entry(name, len(content)) + content.ljust(512, b"\0") + bytes(1024)


SPARSE = (
    b"22 GNU.sparse.major=1\n",
    b"22 GNU.sparse.minor=0\n",
    b"36 GNU.sparse.realsize=9999999999999\n",
    b"25 GNU.sparse.name=0.txt\n",
)


def holding(table):
    """A saved folder whose Arrow file holds another table."""

    def make(folder):
        path, content = next(saved(folder).glob("*.arrow")), table()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as stream:
            stream.write_table(content)
        return path.parent

    return make


def outside_the_dictionary():
    indices = pa.array([10**9] * 50, pa.int32())
    return pa.table({"caption": pa.DictionaryArray.from_arrays(indices, pa.array(["a dog"]), safe=False)})


def views_outside():
    views = pa.py_buffer(np.array([[100, 0, 5, 10**9]] * 50, "<i4").tobytes())
    try:
        texts = pa.Array.from_buffers(pa.string_view(), 50, [None, views, pa.py_buffer(b"x")])
    except ValueError:  # before pyarrow 19
        pytest.skip("this pyarrow makes no views of buffers")
    return pa.table({"caption": texts})


def with_a_footer_of_4_gb():
    stream = io.BytesIO()
    pq.write_table(pa.table({"image": ["a.jpg"], "caption": ["a dog"]}), stream)
    content = stream.getvalue()
    return content[:-8] + (2**32 - 16).to_bytes(4, "little") + content[-4:]


OFFSETS = np.arange(51, dtype="<i4")
HOSTILE = {
    "a packed table that swells": written("a.csv.gz", zeros),
    "a table packed twice": written("a.csv.gz.gz", lambda: gzip.compress(zeros())),
    "packed JSON Lines that swell": written("a.jsonl.gz", zeros),
    "a picture of 50 GB in a shard": written("a.tar.gz", lambda: shard_that_states(50 * 10**9)),
    "a text of 50 GB in a shard": written("b.tgz", lambda: shard_that_states(50 * 10**9, name="0.txt")),
    "a long name of 50 GB in a shard": written(
        "c.tar.gz", lambda: shard_that_states(50 * 10**9, tarfile.GNUTYPE_LONGNAME)
    ),
    "headers of 50 GB in a shard": written(
        "d.tar.gz", lambda: shard_that_states(50 * 10**9, tarfile.XHDTYPE)
    ),
    "one long text in all rows": written("a.parquet", lambda: parquet_of_one_text(10**6, 1_000)),
    "offsets outside the text": with_bytes(
        np.cumsum([0, *(len(f"{n}.jpg") for n in range(50))]).astype("<i4").tobytes(),
        (OFFSETS * 40_000_000).astype("<i4").tobytes(),
    ),
    "negative offsets": with_bytes(
        np.cumsum([0, *(len(f"{n}.jpg") for n in range(50))]).astype("<i4").tobytes(), (-OFFSETS).tobytes()
    ),
    "bytes that are not UTF-8": with_bytes(b"a dog 7", b"a \xff\xfeg 7"),
    "a file outside by its path": naming("{}"),
    "a file outside by dots": naming("../outside/saved/data-00000-of-00001.arrow"),
    "a set outside by dots": split_outside,
    "an index that is no JSON": written("dataset_dict.json", lambda: b"{"),
    "a table of zstd that swells": written("a.csv.zst", lambda: zeros_of_zstd(4 * 10**8)),
    "a header that states 1 TB": written(
        "a.tar", lambda: entry("facts", 10**12, tarfile.XGLTYPE) + bytes(2048)
    ),
    "a size of 1 TB in a header": written(
        "a.tar", lambda: facts_before([b"22 size=999999999999\n"], "0.jpg")
    ),
    "a text of 10 TB of holes": written("a.tar", lambda: facts_before(SPARSE, "0.txt", b"1\n0\n0\n")),
    "a chain of long names": written(
        "a.tar", lambda: (entry("long", 4, tarfile.GNUTYPE_LONGNAME) + b"abc".ljust(512, b"\0")) * 5_000
    ),
    "a number outside the dictionary": holding(outside_the_dictionary),
    "views outside the text": holding(views_outside),
    "two billion empty rows": holding(lambda: pa.table({"caption": pa.nulls(2**31 - 1)})),
    "a footer of 4 GB": written("a.parquet", with_a_footer_of_4_gb),
    "a number of a million digits": written(
        "a.jsonl", lambda: b'{"image": "a.jpg", "caption": ' + b"9" * 10**6 + b"}\n"
    ),
    "lists in lists": written("a.json", lambda: b"[" * 10**6),
    "a name of 300 letters": lambda folder: folder / f"{'a' * 300}.csv",
    "a lone surrogate in a key": written(
        "a.json", lambda: b'[{"image": "a.jpg", "cap\\ud800tion": "a dog"}]'
    ),
    "a lone surrogate in a caption": written(
        "a.jsonl", lambda: b'{"image": "a.jpg", "caption": "a \\udfff"}\n'
    ),
    "a lone surrogate in a list": written("a.jsonl", lambda: b'{"image": "a.jpg", "caption": ["\\ud800"]}\n'),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_rows_are_one_sentence(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "MEMORY", 3 * 10**8)
    path = HOSTILE[kind](tmp_path)
    # which library refuses a key depends on its version
    expected = pytest.raises(DataError) if kind == "a lone surrogate in a key" else refused(DataError)
    with expected as caught:
        read_rows(path.parent if path.name == "dataset_dict.json" else path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["\ud800", ["a", "\udfff"]], ids=["text", "list"])
def test_a_lone_surrogate_in_a_frame_is_one_sentence(text):
    frame = pd.DataFrame({"image": ["a.jpg"], "caption": pd.Series([text], dtype=object)})
    with refused(DataError):
        read_rows(frame)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_good_encodings_of_parquet_are_read(encoding, version, tmp_path):
    table = pa.table({"image": ["a.jpg", "b.jpg"], "caption": ["a dog", "a cat"]})
    options = {"use_dictionary": False, "column_encoding": dict.fromkeys(table.column_names, encoding)}
    pq.write_table(table, tmp_path / "a.parquet", data_page_version=version, **options)
    assert read_rows(tmp_path / "a.parquet").frame["caption"].tolist() == ["a dog", "a cat"]


def test_the_limits_of_a_saved_folder_count_its_files(tmp_path, monkeypatch):
    pictures = [os.urandom(10**6) for _ in range(100)]
    rows = {"image": pictures, "caption": [f"a dog {n}" for n in range(100)]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"))
    monkeypatch.setattr(decoding, "MEMORY", 10**8)
    assert len(read_rows(tmp_path / "saved").frame) == 100


def test_good_rows_are_read(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    assert read_rows(tmp_path / "a.csv.gz").frame["caption"].tolist() == ["A dog runs"]
    assert len(read_rows(saved(tmp_path)).frame) == 50
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name, content in (("0.jpg", b"\xff\xd8\xff"), ("0.txt", b"a dog")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    assert read_rows(tmp_path / "a.tar.gz").frame["caption"].tolist() == ["a dog"]
