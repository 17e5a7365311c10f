"""Shards that are damaged, or that ask for more memory than they should, are refused in one sentence."""

import io
import tarfile
from pathlib import Path

import pytest

from ncl_bench.data.pairs import shards
from ncl_bench.errors import DataError


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT)


def _file(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    return _header(name, len(content), kind) + content + bytes(-len(content) % 512)


END = bytes(1024)
PAIR = _file("1.jpg", b"picture") + _file("1.txt", b"a dog")
DAMAGED = bytearray(PAIR + PAIR + END)
DAMAGED[2048 + 124] = ord("9")


def _sparse_pax() -> bytes:
    records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
    return _file("pax", records, tarfile.XHDTYPE) + _file("2.txt", b"1\n0\n1\n".ljust(512, b"\0")) + END


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (PAIR, "cut short or damaged"),
        (PAIR + PAIR[:300], "cut short or damaged"),
        (PAIR + _header("2.txt", 5), "unexpected end of data"),
        (PAIR[:-100], "unexpected end of data"),
        (bytes(DAMAGED), "cut short or damaged"),
        (PAIR + _header("2.txt", -1) + END, "states -1 bytes"),
        (PAIR + _header("2.bin", 2**80) + END, "cannot be read"),
        (PAIR + _header("pax", 50_000_000, tarfile.XHDTYPE) + END, "states 50,000,000 bytes"),
        (PAIR + _header("long", 50_000_000, tarfile.GNUTYPE_LONGNAME) + END, "states 50,000,000 bytes"),
        (PAIR + _header("2.txt", 0, tarfile.GNUTYPE_SPARSE) + END, "sparse"),
        (PAIR + _sparse_pax(), "sparse"),
    ],
)
def test_a_damaged_shard_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    shard = tmp_path / "a.tar"
    shard.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as a WebDataset shard") as refused:
        shards.shards_form(tmp_path, [shard])
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_whole_shard_is_read(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    shard.write_bytes(PAIR + END)
    assert shards.shards_form(tmp_path, [shard]).table["caption"].tolist() == ["a dog"]


def test_zeros_and_many_texts_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = tmp_path / "zeros.tar.gz"
    with tarfile.open(zeros, "w:gz") as archive:
        archive.fileobj.write(bytes(1_000_000))  # type: ignore[union-attr]
    with pytest.raises(DataError, match="no picture"):
        shards.shards_form(tmp_path, [zeros])
    monkeypatch.setattr(shards, "_LARGEST_TEXTS", 1_000)
    texts = tmp_path / "texts.tar.gz"
    with tarfile.open(texts, "w:gz") as archive:
        for number in range(20):
            entry = tarfile.TarInfo(f"{number}.txt")
            entry.size = 100
            archive.addfile(entry, io.BytesIO(b"a" * 100))
    with pytest.raises(DataError, match="over 1,000 bytes"):
        shards.shards_form(tmp_path, [texts])


def test_a_shard_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = tmp_path / "a.tar"
    shard.write_bytes(PAIR + _file("2.jpg", b"picture") + _file("2.txt", b"a cat") + END)
    monkeypatch.setattr(shards, "_MOST_MEMBERS", 3)
    with pytest.raises(DataError, match="has more than 3 files; split it"):
        shards.shards_form(tmp_path, [shard])


def test_a_chain_of_long_headers_is_refused(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    shard.write_bytes(_file("pax", b"9 a=bcde\n", tarfile.XHDTYPE) * 3_000 + PAIR + END)
    with pytest.raises(DataError, match="cannot be read as a WebDataset shard"):
        shards.shards_form(tmp_path, [shard])
