"""Files that once made a reader fall, or would have filled the memory."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from campaigns.fuzz.readers import READERS
from support.miniatures import SPECS

from ncl_bench.data import DATASETS
from ncl_bench.errors import NclBenchError


def npy_header(text: str, version: bytes = b"\x01\x00") -> bytes:
    width = 2 if version == b"\x01\x00" else 4
    return b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text.encode()


def with_local_header_broken(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        offset = archive.getinfo("h5100k_precomp/train_ims.npy").header_offset
    return content[:offset] + b"XXXX" + content[offset + 4 :]


def with_more_than_there_is(content: bytes) -> bytes:
    entry = content.index(b"PK\x01\x02")
    return content[: entry + 20] + (2**31).to_bytes(4, "little") + content[entry + 24 :]


def without_a_name(content: bytes) -> bytes:
    lengths = content.index(b"PK\x01\x02") + 28  # of name, extra field and comment
    name = content[lengths : lengths + 2]
    return content[:lengths] + b"\0\0\0\0" + name + content[lengths + 6 :]  # it becomes the comment


def vocabulary_of(idx: object) -> bytes:
    words = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3}
    return json.dumps(
        {"word2idx": words | {"dog": 10**12}, "idx2word": {str(10**12): "dog"}, "idx": idx}
    ).encode()


def with_name(content: bytes, name: str) -> bytes:
    manifest = json.loads(content)
    manifest["tokenizations"][0]["name"] = name
    return json.dumps(manifest).encode()


EMPTY_TEXT = "{'descr': '<U0', 'fortran_order': False, 'shape': (999999999999,)}"
NO_ROWS = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999)}"
NEGATIVE = "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}"
NOT_UNICODE = np.full(12, 0xFFFFFFFF, "<u4").tobytes()

FOUND: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a header of 4 GB": ("npy scores", lambda _: b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "header is too long"),
    "a header with no end": (
        "feature file",
        lambda _: npy_header("{'descr': (\n"),
        "is not a numpy array file",
    ),
    "a trillion empty texts": ("npy ids", lambda _: npy_header(EMPTY_TEXT), "holds empty text"),
    "no rows, endless columns": ("npy scores", lambda _: npy_header(NO_ROWS), "no array has this shape"),
    "negative sizes": ("npy scores", lambda _: npy_header(NEGATIVE) + bytes(24), "no array has this shape"),
    "text beyond Unicode": (
        "npy ids",
        lambda _: npy_header("{'descr': '<U1', 'fortran_order': False, 'shape': (12,)}") + NOT_UNICODE,
        "is not Unicode",
    ),
    "a tag that fits no value": ("yaml", lambda _: b"a: !!timestamp x\n", "tags are not allowed"),
    "an empty number": ("yaml", lambda _: b"a: !!int ''\n", "tags are not allowed"),
    "a number in base 60": ("yaml", lambda _: b"a: 1" + b":00" * 400 + b".5\n", "is not plain YAML"),
    "aliases in a recipe": ("recipe", lambda _: b"a: &a [x]\nb: [*a, *a]\n", "aliases are not allowed"),
    "a number of thousands of digits": (
        "submission",
        lambda content: content.replace(b"networks: 1", b"networks: 0x" + b"f" * 5_000),
        "networks",
    ),
    "a line end in a file name": (
        "submission",
        lambda content: content.replace(b"file: test.npy", b'file: "a\\e[2J\\nb"'),
        "must be an .npy file",
    ),
    "a zip member under another name": ("zip download", with_local_header_broken, "cannot be read"),
    "an lzma member that asks for gigabytes": ("zip download", lambda content: content, "is packed by LZMA"),
    "a member larger than its archive": (
        "zip download",
        with_more_than_there_is,
        "claims 2147483648 compressed bytes, more than the archive has",
    ),
    "a member without a name": ("zip download", without_a_name, "has no name"),
    "a trillion words": ("vocabulary", lambda _: vocabulary_of(10**12 + 1), "expected at most 2000000"),
    "half a character": (
        "vocabulary",
        lambda content: content.replace(b'"dog"', b'"\\ud800"'),
        "not in the published format",
    ),
    "a tokenizer without its unknown word": (
        "tokenizer.json",
        lambda content: content.replace(b'"unk_token":"<unk>"', b'"unk_token":"<uni>"'),
        "cannot tokenize 'A dog runs",
    ),
    "a manifest that leads out": (
        "manifest",
        lambda content: with_name(content, "../../../etc/passwd"),
        "must be a path below the folder",
    ),
    "a manifest with a language of its own": (
        "manifest",
        lambda content: content.replace(b'"texts": {\n    "en"', b'"texts": {\n    "[[["'),
        "texts has language '[[[', flickr30k has en",
    ),
    "a deep manifest": ("manifest", lambda _: b"[" * 100_000, "is damaged"),
    "a run without a recipe": (
        "run folder",
        lambda _: b'{"seed": 0}',
        "key 'recipe' is missing; train again into a new folder",
    ),
    "a run of nothing": ("run folder", lambda _: b"", "run.json is damaged"),
    "an empty checkpoint": ("checkpoint", lambda _: b"", "cannot be read by torch"),
}


@pytest.mark.parametrize("fault", FOUND)
def test_what_once_fell_is_refused(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for dataset, spec in SPECS.items():
        monkeypatch.setitem(DATASETS, dataset, spec)
    name, damage, sentence = FOUND[fault]
    reader = READERS[name](tmp_path)
    seed = reader.seeds[2] if "lzma" in fault else reader.seeds[0]
    with pytest.raises(NclBenchError) as error:
        reader.read(damage(seed))
    assert sentence in str(error.value)
    assert str(error.value).isprintable()
