"""Pictures of every kind: as people see them, or a sentence with the file's name."""

import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features
from support.drawings import drawing
from support.refusals import refused

from ncl_bench.data.pictures import PICTURE_FORMATS, read_picture
from ncl_bench.decoding import decode
from ncl_bench.errors import DataError

RED_ON_WHITE = (255, 127, 127)


def colour(path):
    """The one colour of a picture."""
    found = decode(read_picture, path, 8, "bilinear")
    assert found.shape == (8, 8, 3)
    assert found.dtype == np.uint8
    assert (found == found[0, 0]).all()
    return tuple(found[0, 0].tolist())


def of_mode(mode, value):
    return Image.new(mode, (10, 6), value)


def palette_with_a_hole():
    image = Image.new("P", (10, 6), 1)
    image.putpalette([0, 0, 0, 9, 9, 9])
    image.info["transparency"] = 1
    return image


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (of_mode("RGB", (1, 2, 3)), (1, 2, 3)),
        (of_mode("L", 77), (77, 77, 77)),
        (of_mode("1", 1), (255, 255, 255)),
        (of_mode("I;16", 77 * 256 + 3), (77, 77, 77)),
        (of_mode("LA", (10, 0)), (255, 255, 255)),
        (of_mode("RGBA", (255, 0, 0, 128)), RED_ON_WHITE),
        (of_mode("RGBA", (1, 2, 3, 255)), (1, 2, 3)),
        (palette_with_a_hole(), (255, 255, 255)),
    ],
    ids=lambda x: x.mode if isinstance(x, Image.Image) else "",
)
def test_every_kind_of_colour_becomes_rgb_on_white(image, expected, tmp_path):
    path = tmp_path / "picture.png"
    image.save(path, transparency=image.info.get("transparency"))
    assert colour(path) == expected


def test_colours_for_print_become_rgb(tmp_path):
    of_mode("CMYK", (0, 0, 0, 0)).save(tmp_path / "print.jpg")
    assert colour(tmp_path / "print.jpg") == (255, 255, 255)


def test_the_whole_picture_is_seen(tmp_path):
    wide = Image.new("RGB", (400, 10), "black")
    wide.paste((255, 255, 255), (0, 0, 100, 10))
    wide.save(tmp_path / "wide.png")
    found = decode(read_picture, tmp_path / "wide.png", 8, "bilinear")
    assert found[:, 0].min() > 250
    assert found[:, 4:].max() < 5


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".webp"])
def test_the_orientation_of_a_camera_is_followed(suffix, tmp_path):
    upright, exif = drawing(1), Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    turned, plain = tmp_path / f"turned{suffix}", tmp_path / "upright.png"
    upright.transpose(Image.Transpose.ROTATE_90).save(turned, exif=exif, lossless=True)
    upright.save(plain)
    found, expected = (decode(read_picture, path, 20, "bicubic") for path in (turned, plain))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png", ".tiff"])
def test_the_first_picture_of_an_animation_counts(suffix, tmp_path):
    first, second = Image.new("RGB", (10, 6), "black"), Image.new("RGB", (10, 6), "white")
    first.save(tmp_path / f"moving{suffix}", save_all=True, append_images=[second], lossless=True)
    assert colour(tmp_path / f"moving{suffix}") == (0, 0, 0)


def test_a_large_photograph_is_decoded_at_a_fraction_of_its_size(tmp_path):
    seen = []
    for side in (2048, 64):
        drawing(3, (side, side * 3 // 4)).save(tmp_path / "photograph.jpg", quality=95)
        seen.append(decode(read_picture, tmp_path / "photograph.jpg", 32, "bicubic").astype(int))
    assert np.abs(seen[0] - seen[1]).mean() < 3


def png_that_claims(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


@pytest.mark.parametrize(
    "name", ["large.png", "bomb.png", "empty.jpg", "text.jpg", "eps.jpg", "gone.png", "depth.tiff"]
)
def test_what_is_no_picture_is_refused(name, tmp_path):
    """A bomb before it is decoded."""
    content = {
        "large.png": png_that_claims(60_000, 60_000),
        "bomb.png": png_that_claims(7_501, 10_000),
        "empty.jpg": b"",
        "text.jpg": b"a caption\n",
        "eps.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    }
    if name in content:
        (tmp_path / name).write_bytes(content[name])
    Image.new("F", (4, 4), 0.5).save(tmp_path / "depth.tiff")
    with refused(DataError):
        decode(read_picture, tmp_path / name, 8, "bilinear")


def encoded(kind):
    stream = io.BytesIO()
    drawing(5).save(stream, kind)
    return stream.getvalue()


KINDS = {kind: encoded(kind) for kind in PICTURE_FORMATS if kind != "AVIF" or features.check("avif")}


@settings(max_examples=150)
@given(kind=st.sampled_from(sorted(KINDS)), data=st.data())
def test_damaged_bytes_give_a_picture_or_a_sentence(kind, data, tmp_path_factory):
    whole = bytearray(KINDS[kind])
    places = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=4))
    for place in places:
        whole[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with contextlib.suppress(DataError):  # and no other error
        assert decode(read_picture, path, 8, "bicubic").shape == (8, 8, 3)
