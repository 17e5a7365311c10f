"""The only function that opens a picture: formats, size, whole files, and where a table's paths may lead."""

import hashlib
import io
import os
import stat
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, features

from ncl_bench.data import pictures
from ncl_bench.data.pictures import PICTURE_FORMATS, as_seen, open_picture, picture_path
from ncl_bench.errors import DataError
from ncl_bench.files import sha256_of_file

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


def encoded(kind: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 12, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize((120, 100)).save(stream, kind)
    return stream.getvalue()


def refused(source: Path | bytes, words: str) -> None:
    with pytest.raises(DataError, match=words), open_picture(source, "it"):
        pytest.fail("opened")


KINDS = {kind: encoded(kind) for kind in PICTURE_FORMATS if kind != "AVIF" or features.check("avif")}


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
    ("mode", "kind", "bytes_per_pixel"),
    [
        ("L", "PNG", 8),
        ("1", "PNG", 8),
        ("I;16", "PNG", 8),
        ("RGB", "PNG", 8),
        ("LA", "PNG", 16),
        ("RGBA", "PNG", 16),
        ("RGBA", "WEBP", 24),
        ("RGB", "WEBP", 16),
        ("RGB", "JPEG2000", 20),
        ("RGBA", "JPEG2000", 25),
        ("CMYK", "TIFF", 8),
    ],
)
def test_the_limit_counts_decoder_and_conversion_before_either(
    mode: str, kind: str, bytes_per_pixel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    Image.new(mode, (200, 100)).save(stream, kind)
    content = stream.getvalue()
    needed = 200 * 100 * bytes_per_pixel + len(content)
    monkeypatch.setattr(pictures, "LARGEST_IMAGE", needed)
    with open_picture(content, "it") as picture:
        assert as_seen(picture).size == (200, 100)
    monkeypatch.setattr(pictures, "LARGEST_IMAGE", needed - 1)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", None)  # nothing is decoded
    refused(content, r"it takes more than .* when decoded; save it smaller")


def jpeg(picture: Image.Image, **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "JPEG", **options)
    return stream.getvalue()


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"optimize": True}], ids=str)
@pytest.mark.parametrize("at_least", [None, 30])
def test_a_jpeg_that_was_cut_before_an_end_marker_is_damaged(
    mode: str, options: dict[str, object], at_least: int | None
) -> None:
    whole = jpeg(Image.open(io.BytesIO(KINDS["PNG"])).resize((240, 200)).convert(mode), **options)
    with open_picture(whole, at_least=at_least):
        pass
    for kept in (0.3, 0.5):
        for end in (b"\xff\xd9", b"\0\xff\xd9"):
            cut = whole[: int(kept * len(whole))] + end
            with pytest.raises(DataError, match="damaged"), open_picture(cut, at_least=at_least):
                pass
    grey = Image.new(mode, (120, 100), 128 if mode == "L" else (128,) * len(mode))
    with open_picture(jpeg(grey, **options), at_least=at_least) as picture:  # the colour of missing data
        assert set(np.asarray(picture).ravel().tolist()) <= {127, 128}


def test_scans_and_pixels_of_a_jpeg_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = jpeg(Image.new("RGB", (120, 100), "red"), progressive=True)
    last = whole.rindex(b"\xff\xda")
    many = whole[:last] + whole[last:-2] * 91 + whole[-2:]
    monkeypatch.setattr(pictures, "MOST_WORK", 100 * 120 * 100)
    with open_picture(many, "it") as picture:  # 9 scans, and 91 of the tenth
        assert picture.size == (120, 100)
    monkeypatch.setattr(pictures, "MOST_WORK", 100 * 120 * 100 - 1)
    refused(many, "it is a JPEG of 100 scans; save it again with fewer")


def test_the_codestream_of_a_jpeg_2000_counts_not_its_header() -> None:
    content = bytearray(KINDS["JPEG2000"])
    size = content.index(b"\xff\x4f\xff\x51") + 8
    content[size : size + 8] = struct.pack(">II", 40_000, 40_000)
    refused(bytes(content), "it takes more than 600 MB")


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="only Linux has files without a size")
def test_a_file_of_the_kernel_is_read_as_long_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to("/proc/self/maps")
    assert pictures.picture_bytes(tmp_path / "a.png") == b""
    assert sha256_of_file(tmp_path / "a.png") == hashlib.sha256().hexdigest()
    refused(tmp_path / "a.png", "it is not an image of a known format")


def test_large_pictures_are_decoded_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "ALONE_FROM", 1)
    opened, second = threading.Event(), threading.Thread(target=lambda: open_one())

    def open_one() -> None:
        with open_picture(KINDS["PNG"]):
            opened.set()

    with open_picture(KINDS["PNG"]), open_picture(KINDS["JPEG"]):  # one thread may hold several
        second.start()
        assert not opened.wait(0.05)
    second.join()
    assert opened.is_set()


def test_a_tile_larger_than_its_picture_counts_whole() -> None:
    tags = {256: 64, 257: 64, 258: 8, 259: 8, 262: 1, 277: 1, 322: 40_000, 323: 40_000, 324: 134, 325: 0}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    tiff = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    refused(tiff, "it takes more than 600 MB")


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
