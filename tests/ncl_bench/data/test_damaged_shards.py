"""Shards that are damaged are refused in one sentence: none ends early in silence."""

import tarfile

import pytest
from support.refusals import refused

from ncl_bench.data.pairs.rows import read_rows
from ncl_bench.errors import DataError


def _header(name, size, kind=tarfile.REGTYPE):
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT)


def _file(name, content, kind=tarfile.REGTYPE):
    return _header(name, len(content), kind) + content + bytes(-len(content) % 512)


END = bytes(1024)
PAIR = _file("1.jpg", b"picture") + _file("1.txt", b"a dog")
DAMAGED = bytearray(PAIR + PAIR + END)
DAMAGED[2048 + 124] = ord("9")


@pytest.mark.parametrize(
    "content",
    [
        PAIR,
        PAIR + PAIR[:300],
        PAIR + _header("2.txt", 5),
        PAIR[:-100],
        bytes(DAMAGED),
        PAIR + _header("2.bin", 2**80) + END,
    ],
)
def test_a_damaged_shard_is_refused(tmp_path, content):
    shard = tmp_path / "a.tar"
    shard.write_bytes(content)
    with refused(DataError):
        read_rows(shard)


def test_a_whole_shard_is_read(tmp_path):
    shard = tmp_path / "a.tar"
    shard.write_bytes(PAIR + END)
    assert read_rows(shard).frame["caption"].tolist() == ["a dog"]
