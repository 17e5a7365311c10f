"""The only function that opens a picture: formats, size, whole files, and where a table's paths may lead."""

import io
import os
import stat
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, features

from ncl_bench.data import pictures
from ncl_bench.data.pictures import FORMATS, as_seen, open_picture, picture_path
from ncl_bench.errors import DataError

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


def encoded(kind: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 12, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize((120, 100)).save(stream, kind)
    return stream.getvalue()


def refused(source: Path | bytes, words: str) -> None:
    with pytest.raises(DataError, match=words), open_picture(source, "it"):
        pytest.fail("opened")


KINDS = {kind: encoded(kind) for kind in FORMATS if kind != "AVIF" or features.check("avif")}


@pytest.mark.skipif(os.name == "nt", reason="the stand-in of Ghostscript is a shell script")
def test_postscript_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, program = tmp_path / "started", tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", str(program))
    (tmp_path / "photo.jpg").write_bytes(EPS)
    with pytest.raises(OSError), Image.open(tmp_path / "photo.jpg") as picture:  # noqa: PT011 (Pillow's own)
        picture.load()
    assert started.exists()
    started.unlink()
    for source in (tmp_path / "photo.jpg", EPS):
        refused(source, "it is not an image of")
    assert not started.exists()


@pytest.mark.parametrize("kind", ["ICNS", "ICO", "TGA", "PDF"])
def test_other_formats_are_refused(kind: str) -> None:
    refused(encoded(kind), r"it is not an image of a known format \(JPEG, .*; fetch it again or convert")


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_decoded_whole_or_refused(kind: str) -> None:
    with open_picture(KINDS[kind], "it") as picture:
        assert picture.size == (120, 100)
    for kept in (0.2, 0.5, 0.9):
        refused(KINDS[kind][: int(kept * len(KINDS[kind]))], r"^it is (damaged|not an image)")


@pytest.mark.parametrize(
    ("mode", "kind", "channels"),
    [
        ("L", "PNG", 3),
        ("1", "PNG", 3),
        ("I;16", "PNG", 3),
        ("RGB", "PNG", 3),
        ("LA", "PNG", 4),
        ("RGBA", "PNG", 4),
        ("RGBA", "WEBP", 4),
        ("CMYK", "TIFF", 4),
    ],
)
def test_the_limit_counts_channels_before_it_decodes(
    mode: str, kind: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    Image.new(mode, (200, 100)).save(stream, kind)
    monkeypatch.setattr(pictures, "LARGEST", 200 * 100 * channels)
    with open_picture(stream.getvalue(), "it") as picture:
        assert as_seen(picture).size == (200, 100)
    monkeypatch.setattr(pictures, "LARGEST", 200 * 100 * channels - 1)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", None)  # nothing is decoded
    refused(stream.getvalue(), r"it takes more than .* when decoded; save it smaller")


def test_a_tile_larger_than_its_picture_counts_whole() -> None:
    tags = {256: 64, 257: 64, 258: 8, 259: 8, 262: 1, 277: 1, 322: 40_000, 323: 40_000, 324: 134, 325: 0}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    tiff = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    refused(tiff, "it takes more than 300 MB")


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder, expected an image")
    refused(tmp_path / "gone", "does not exist, expected an image")


@pytest.mark.parametrize("name", ["a.png", "sub/a.png", "sub/../a.png", "..a.png", "a..png"])
def test_a_path_may_stay_in_its_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, Path(), Path("sub"), Path("../elsewhere")):
        assert picture_path(folder, name, "t.csv").name == Path(name).name


@pytest.mark.parametrize("name", ["..", "../a.png", "sub/../../a.png", "/etc/a.png"])
def test_a_path_may_not_leave_its_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, Path(), Path("sub"), Path("../elsewhere")):
        with pytest.raises(DataError, match=r"t\.csv line 3 names .*, which is outside"):
            picture_path(folder, name, "t.csv line 3")


@pytest.mark.skipif(os.name == "nt", reason="Windows gives links to administrators")
def test_a_link_in_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(KINDS["PNG"])
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").symlink_to(tmp_path / "elsewhere")
    with open_picture(picture_path(tmp_path / "photos", "a.png", "t.csv")) as picture:
        assert picture.size == (120, 100)
