"""The only function that opens a picture: formats, size, whole files, and where a table's paths may lead."""

import hashlib
import io
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, features
from support.refusals import refused

from ncl_bench.data import pictures
from ncl_bench.data.pictures import PICTURE_FORMATS, open_picture, picture_path
from ncl_bench.errors import DataError
from ncl_bench.files import sha256_of_file

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


def encoded(kind):
    pixels = np.random.default_rng(0).integers(0, 256, (10, 12, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize((120, 100)).save(stream, kind)
    return stream.getvalue()


def assert_refused(source):
    with refused(DataError), open_picture(source, "it"):
        pytest.fail("opened")


KINDS = {kind: encoded(kind) for kind in PICTURE_FORMATS if kind != "AVIF" or features.check("avif")}


@pytest.mark.skipif(os.name == "nt", reason="the stand-in of Ghostscript is a shell script")
def test_postscript_starts_no_program(tmp_path, monkeypatch):
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
        assert_refused(source)
    assert not started.exists()


@pytest.mark.parametrize("kind", ["ICNS", "ICO", "TGA", "PDF"])
def test_other_formats_are_refused(kind):
    assert_refused(encoded(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_decoded_whole_or_refused(kind):
    with open_picture(KINDS[kind], "it") as picture:
        assert picture.size == (120, 100)
    for kept in (0.2, 0.5, 0.9):
        cut = KINDS[kind][: int(kept * len(KINDS[kind]))]
        with pytest.raises(DataError, match=r"^it (cannot be read|is not an image)"), open_picture(cut, "it"):
            pytest.fail("opened")


def jpeg(picture, **options):
    stream = io.BytesIO()
    picture.save(stream, "JPEG", **options)
    return stream.getvalue()


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"optimize": True}], ids=str)
@pytest.mark.parametrize("at_least", [None, 30])
def test_a_jpeg_that_was_cut_before_an_end_marker_is_damaged(mode, options, at_least):
    whole = jpeg(Image.open(io.BytesIO(KINDS["PNG"])).resize((240, 200)).convert(mode), **options)
    with open_picture(whole, at_least=at_least):
        pass
    for kept in (0.3, 0.5):
        for end in (b"\xff\xd9", b"\0\xff\xd9"):
            cut = whole[: int(kept * len(whole))] + end
            with refused(DataError), open_picture(cut, "it", at_least=at_least):
                pass
    grey = Image.new(mode, (120, 100), 128 if mode == "L" else (128,) * len(mode))
    with open_picture(jpeg(grey, **options), at_least=at_least) as picture:  # the colour of missing data
        assert set(np.asarray(picture).ravel().tolist()) <= {127, 128}


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="only Linux has files without a size")
def test_a_file_of_the_kernel_is_read_as_long_as_it_says(tmp_path):
    (tmp_path / "a.png").symlink_to("/proc/self/maps")
    assert pictures.picture_bytes(tmp_path / "a.png") == b""
    assert sha256_of_file(tmp_path / "a.png") == hashlib.sha256().hexdigest()
    assert_refused(tmp_path / "a.png")


def test_what_is_no_readable_file_is_refused(tmp_path):
    assert_refused(tmp_path)
    assert_refused(tmp_path / "gone")


@pytest.mark.parametrize("name", ["a.png", "sub/a.png", "sub/../a.png", "..a.png", "a..png"])
def test_a_path_may_stay_in_its_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, Path(), Path("sub"), Path("../elsewhere")):
        assert picture_path(folder, name, "t.csv").name == Path(name).name


@pytest.mark.parametrize("name", ["..", "../a.png", "sub/../../a.png", "/etc/a.png"])
def test_a_path_may_not_leave_its_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, Path(), Path("sub"), Path("../elsewhere")):
        with refused(DataError):
            picture_path(folder, name, "t.csv line 3")


@pytest.mark.skipif(os.name == "nt", reason="Windows gives links to administrators")
def test_a_link_in_the_folder_is_followed(tmp_path):
    (tmp_path / "elsewhere").write_bytes(KINDS["PNG"])
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").symlink_to(tmp_path / "elsewhere")
    with open_picture(picture_path(tmp_path / "photos", "a.png", "t.csv")) as picture:
        assert picture.size == (120, 100)
