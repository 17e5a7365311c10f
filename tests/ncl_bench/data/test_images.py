"""Images beside the features: copied whole, in the order of the features, and refused with a sentence."""

import io
import os
from itertools import chain

import datasets
import numpy as np
import pytest
from PIL import Image
from support.command import invoke
from support.miniatures import IMAGES, SPECS
from support.refusals import refused

from ncl_bench.data.images import add_images
from ncl_bench.data.load import load_dataset
from ncl_bench.data.prepared import damage
from ncl_bench.errors import DataError

SPEC = SPECS["flickr30k"]


def drawn(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 9, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def root(prepared, tmp_path):
    """Where a miniature of Flickr30K is prepared, without images."""
    prepared("flickr30k", "dev")
    return tmp_path / "root"


@pytest.fixture
def photos(root, tmp_path):
    """A file per image in ``tmp_path/photos``, by its id."""
    (tmp_path / "photos").mkdir()
    splits = [load_dataset("flickr30k", split=split, root=root).image_ids for split in IMAGES]
    content = {str(image_id): drawn(number) for number, image_id in enumerate(chain(*splits))}
    for image_id, photo in content.items():
        (tmp_path / "photos" / f"{image_id}.png").write_bytes(photo)
    return content


def test_every_image_is_found_by_the_row_of_its_features_and_opens_with_the_hugging_face_library(
    root, photos, tmp_path
):
    before = {split: load_dataset("flickr30k", split=split, root=root).fingerprint for split in IMAGES}
    add_images(SPEC, tmp_path / "photos", root)
    for split, n in IMAGES.items():
        dataset = load_dataset("flickr30k", split=split, root=root)
        assert len(dataset.images) == n
        for row, image_id in enumerate(dataset.image_ids):
            assert dataset.images[row] == photos[str(image_id)]
        assert dataset.fingerprint == before[split]
    assert not list((root / "flickr30k").glob(".*"))
    opened = datasets.load_from_disk(str(root / "flickr30k" / "image_files" / "dev" / "part-00000"))
    assert opened["image_id"][:] == load_dataset("flickr30k", split="dev", root=root).image_ids.tolist()
    shown = opened.cast_column("image", datasets.Image())[0]
    expected = Image.open(io.BytesIO(photos[shown["image_id"]]))
    np.testing.assert_array_equal(np.asarray(shown["image"]), np.asarray(expected))


def test_a_table_may_say_which_file_is_which(root, photos, tmp_path):
    lines = ["file,image_id"]
    for number, image_id in enumerate(photos):
        (tmp_path / "photos" / f"{image_id}.png").rename(tmp_path / "photos" / f"photo-{number}")
        lines.append(f"photo-{number},{image_id}")
    (tmp_path / "names.csv").write_text("\n".join(lines))
    arguments = ["add-images", "flickr30k", "--from", str(tmp_path / "photos"), "--to", str(root)]
    invoke(*arguments, "--names", tmp_path / "names.csv")
    test = load_dataset("flickr30k", split="test", root=root)
    assert [test.images[row] for row in range(3)] == [photos[str(image_id)] for image_id in test.image_ids]


def test_a_file_is_found_whatever_its_unicode_form_and_serves_one_image(root, photos, tmp_path):
    source, (first, second, *_), names = tmp_path / "photos", photos, tmp_path / "names.csv"
    (source / f"{first}.png").rename(source / "cafe\u0301.png")
    files = {image: f"{image}.png" for image in photos} | {first: "caf\u00e9.png"}

    def add(changed):
        rows = [f"{image},{file}" for image, file in {**files, **changed}.items()]
        names.write_text("\n".join(["image_id,file", *rows]), "utf-8")
        add_images(SPEC, source, root, names=names)

    with refused(DataError):
        add({second: "cafe\u0301.png"})
    with refused(DataError):
        add({second: "../names.csv"})
    add({})
    assert load_dataset("flickr30k", split="train", root=root).images[0] == photos[first]


def test_a_stopped_copy_goes_on_where_it_was(root, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("ncl_bench.data.images.PART", 5)
    *_, last = photos
    damaged = tmp_path / "photos" / f"{last}.png"
    damaged.write_bytes(b"no image")
    with refused(DataError):
        add_images(SPEC, tmp_path / "photos", root)
    assert load_dataset("flickr30k", split="test", root=root).images is None
    partial = root / "flickr30k" / ".image_files.partial" / "result"
    done = {path.relative_to(partial): path.stat().st_ino for path in partial.rglob("*.arrow")}
    assert len(done) == 4  # three of train, one of dev
    damaged.write_bytes(photos[last])
    add_images(SPEC, tmp_path / "photos", root)
    target = root / "flickr30k" / "image_files"
    assert {path: (target / path).stat().st_ino for path in done} == done
    test = load_dataset("flickr30k", split="test", root=root)
    assert test.images[2] == photos[last]


def test_a_part_holds_few_bytes_and_nothing_that_a_worker_refused(root, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("ncl_bench.data.images.PART_BYTES", 2 * max(map(len, photos.values())))
    *_, last = photos
    with (tmp_path / "photos" / f"{last}.png").open("r+b") as stream:
        stream.truncate(5 * 10**8)  # a hole, which takes no room on the disk
        stream.write(b"no picture")
    read = []
    monkeypatch.setattr(
        "ncl_bench.data.images.picture_bytes", lambda path: read.append(path) or path.read_bytes()
    )
    with refused(DataError):
        add_images(SPEC, tmp_path / "photos", root)
    assert len(read) == len(photos) - 1  # the refused one is in a part of its own
    (tmp_path / "photos" / f"{last}.png").write_bytes(photos[last])
    add_images(SPEC, tmp_path / "photos", root)
    parts = [*(root / "flickr30k" / "image_files" / "train").iterdir()]
    assert IMAGES["train"] / len(parts) <= 3
    train = load_dataset("flickr30k", split="train", root=root)
    assert [train.images[row] for row in range(train.n_images)] == [
        photos[str(own)] for own in train.image_ids
    ]


def test_what_cannot_be_added_is_one_sentence(root, photos, tmp_path):
    source, first, names = tmp_path / "photos", next(iter(photos)), tmp_path / "names.tsv"

    def check(to=root, **options):
        with refused(DataError):
            add_images(SPEC, source, to, **options)

    names.write_text("image_id\tpath\n")
    check(names=names)
    names.write_text(f"image_id\tfile\n{first}\t{first}.png\n")
    check(names=names)
    (tmp_path / "private.png").write_bytes(photos[first])
    for path in ("../private.png", "sub/../../private.png", str(tmp_path / "private.png")):
        names.write_text("image_id\tfile\n" + "".join(f"{image_id}\t{path}\n" for image_id in photos))
        check(names=names)
    check(tmp_path)
    (source / f"{first}.png").rename(source / "elsewhere.png")
    check()
    assert not (root / "flickr30k" / "image_files").exists()
    (source / "elsewhere.png").rename(source / f"{first}.png")
    add_images(SPEC, source, root)
    leftover = root / "flickr30k" / ".image_files.partial"
    leftover.mkdir()
    check()
    assert not leftover.exists()


def test_damaged_images_are_refused(root, photos, tmp_path):
    add_images(SPEC, tmp_path / "photos", root)
    folder = root / "flickr30k" / "image_files"
    table = folder / "dev" / "part-00000" / "data-00000-of-00001.arrow"
    assert list(damage(root / "flickr30k")) == []
    good = table.read_bytes()
    own = load_dataset("flickr30k", split="dev", root=root).image_ids[0].encode()
    table.write_bytes(good.replace(own, own[::-1]))
    (sentence,) = damage(root / "flickr30k")
    command = f"ncl-bench add-images flickr30k --from IMAGES --to {root}"
    assert sentence.endswith(f"delete {folder} and run `{command}`")
    for path, content in ((table, good[:-8]), (folder / "manifest.json", b"{")):
        path.write_bytes(content)
        with refused(DataError):
            load_dataset("flickr30k", split="dev", root=root)
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")  # reading a pipe would wait forever
    with refused(DataError):
        load_dataset("flickr30k", split="dev", root=root)
