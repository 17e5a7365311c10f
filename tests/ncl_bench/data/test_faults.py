"""Damaged and dangerous downloads: a sentence that names file and row, and nothing written."""

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support import miniatures
from support.damaged import JSON, NPY, ZIP, assert_damage_is_refused, assert_refused, npy, npy_header
from support.refusals import refused

from ncl_bench.data.download import Download
from ncl_bench.data.features import open_features, scan
from ncl_bench.data.prepare import check, prepare
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.verify import inspect, verify
from ncl_bench.errors import DataError
from ncl_bench.progress import silent


def refuse(name, source, tmp_path, to="root"):
    """Both commands refuse in one sentence, and nothing is left."""
    for attempt in (lambda: check(name, source), lambda: prepare(name, source, tmp_path / to)):
        with refused(DataError):
            attempt()
    assert not (tmp_path / to / name).exists()


def content(change):
    """Change the bytes of a file."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def lines(change):
    """Change the lines of a text file."""
    return lambda path: path.write_text("\n".join(change(path.read_text().split("\n"))))


def line(number, text):
    """Put another line in the place of one, counted from 1."""
    return lines(lambda old: [*old[: number - 1], text, *old[number:]])


def array(change):
    """Change the array of a feature file."""
    return lambda path: np.save(path, change(np.load(path)))


def value(rows, number):
    """Put a number into a feature file."""

    def change(features):
        features[rows] = number
        return features

    return array(change)


def pickled_array(path):
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)


class Bomb:
    """Does harm when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("harm",))


TRAIN, DEV, TEST = "train_ims.npy", "dev_ims.npy", "test_ims.npy"
FAULTS = {
    "truncated": (TRAIN, content(lambda x: x[:-7])),
    "too long": (TRAIN, content(lambda x: x + b"x")),
    "float64": (DEV, array(np.float64)),
    "big-endian": (DEV, array(lambda a: a.astype(">f4"))),
    "column-major": (DEV, array(np.asfortranarray)),
    "nan": (TRAIN, value((7, 1, 2), np.nan)),
    "infinite": (TRAIN, value((11, 1, 2), -np.inf)),
    "zero rows": (TRAIN, value([4, 9], 0.0)),
    "repeats differ": (DEV, value((13, 1, 2), 9.0)),
    "wrong shape": (TEST, array(lambda a: a[:, :2])),
    "wrong rows": (TEST, array(lambda a: a[:14])),
    "pickled array": (TRAIN, pickled_array),
    "pickle": (TRAIN, content(lambda _: pickle.dumps(Bomb()))),
    "no train": (TRAIN, Path.unlink),
    "missing split": (DEV, Path.unlink),
    "missing ids": ("test_ids.txt", Path.unlink),
    "too few captions": ("train_caps.txt", lines(lambda x: x[:-2])),
    "blank line": ("train_caps.txt", line(5, " ")),
    "not UTF-8": ("train_caps.txt", content(lambda x: x.replace(b"\n", b" caf\xe9\n", 3))),
    "duplicate id": ("train_ids.txt", line(9, "14")),
    "ids out of order": ("dev_ids.txt", line(5, "1007")),
    "ids too few": ("dev_ids.txt", lines(lambda x: x[:-3])),
    "id in two splits": (
        "dev_ids.txt",
        content(lambda _: b"".join(b"%d\n" % image * 5 for image in range(4))),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_flickr30k_is_refused(fault, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    name, damage = FAULTS[fault]
    damage(source / name)
    refuse("flickr30k", source, tmp_path)
    assert not (tmp_path / "harm").exists()


def test_numbers_that_the_type_cannot_hold_are_refused(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "coco")
    value((3, 1, 2), 70_000.0)(source / TRAIN)
    with refused(DataError):
        prepare("coco", source, tmp_path / "root", dtype="float16")
    prepare("coco", source, tmp_path / "root")
    source = miniatures.make_now(tmp_path / "now")
    for features in source.glob("*/*_ims.npy"):
        array(np.float64)(features)
    value((3, 1, 2), 1e39)(source / "h5100k_precomp" / DEV)
    refuse("now", source, tmp_path)


def test_a_link_is_followed_within_the_folder_alone(tmp_path, source):
    (source / DEV).rename(source / "other.npy")
    (source / DEV).symlink_to("other.npy")
    assert len(check("flickr30k", source).files) == 9
    (source / DEV).unlink()
    (source / "other.npy").rename(tmp_path / "elsewhere.npy")
    (source / DEV).symlink_to(tmp_path / "elsewhere.npy")
    refuse("flickr30k", source, tmp_path)


def test_a_source_is_one_folder_or_zip(tmp_path):
    (tmp_path / "note.txt").write_text("hello")
    refuse("flickr30k", tmp_path / "note.txt", tmp_path)
    refuse("flickr30k", tmp_path / "absent", tmp_path)
    source = miniatures.make_now(tmp_path / "from")
    (source / "vocab").rename(tmp_path / "vocab")
    miniatures.make_now(source, "now100k_precomp")
    refuse("now", source, tmp_path)
    for name in ("../a", "/a"):
        with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
            archive.write(source / "h5100k_precomp" / "train_ims.npy", f"{name}/train_ims.npy")
        refuse("now", tmp_path / "out.zip", tmp_path)
    shutil.rmtree(source / "h5100k_precomp")
    (source / "vocab" / "now100k_precomp_vocab_bert.json").unlink()
    refuse("now", source, tmp_path)


TABLE, IDS = "train_caps.tsv", "h5100k_precomp/train_caps_bert.txt"


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("cc152k", TABLE, "no tab here"),
        ("cc152k", TABLE, "0002_4\t"),
        ("cc152k", TABLE, "0000_0\ta dog"),
        ("now", IDS, "4,12,5"),
        ("now", IDS, "4,-1,5"),
        ("now", IDS, "[1, 508]"),
        ("now", IDS, "4,dog"),
    ],
)
def test_a_damaged_caption_is_named(name, file, text, tmp_path):
    source = miniatures.make(tmp_path / "from", name)
    line(2, text)(source / file)
    refuse(name, source, tmp_path)


@pytest.mark.parametrize(
    ("member", "compression"),
    [
        ("h5100k_precomp/train_ims.npy", zipfile.ZIP_DEFLATED),
        ("h5100k_precomp/train_caps_bpe.txt", zipfile.ZIP_STORED),
    ],
)
def test_a_damaged_zip_member_is_refused(member, compression, tmp_path):
    source = miniatures.make_now(tmp_path / "from")
    archive = miniatures.zipped(source, tmp_path / "NoW.zip", compression)
    with zipfile.ZipFile(archive) as members:
        info = members.getinfo(member)
    content = bytearray(archive.read_bytes())
    content[info.header_offset + 30 + len(member) + 10] ^= 0xFF
    archive.write_bytes(content)
    refuse("now", archive, tmp_path)


def test_too_little_space_is_told_before_anything_is_written(tmp_path, monkeypatch, source):
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with refused(DataError):
        prepare("flickr30k", source, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_damaged_feature_files_are_read_or_refused(tmp_path):
    source = miniatures.make_scan(tmp_path, "flickr30k")
    path, spec = source / "dev_ims.npy", miniatures.SPECS["flickr30k"]

    def read(content):
        path.write_bytes(content)
        file = open_features(Download(source), "dev_ims.npy", spec, "dev")
        scan(file, dtype="float16", advance=lambda done: None)

    assert_damage_is_refused([path.read_bytes(), npy(miniatures.features(4, 0))], read, NPY)
    assert_refused(read, npy_header("{'descr': (\n"), "dev_ims.npy cannot be read")


def test_damaged_archives_are_read_or_refused(tmp_path):
    source, path, spec = miniatures.make_now(tmp_path / "from"), tmp_path / "now.zip", miniatures.SPECS["now"]
    kinds = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
    seeds = [miniatures.zipped(source, path, kind).read_bytes() for kind in kinds]

    def read(content):
        path.write_bytes(content)
        verify(inspect(spec, path), spec, dtype="float16", journal=None, progress=silent)

    assert_damage_is_refused(seeds, read, ZIP)
    good = seeds[0]
    assert_refused(read, seeds[2], "is compressed by LZMA")
    path.write_bytes(good)
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("h5100k_precomp/train_ims.npy").header_offset
    assert_refused(read, good[:offset] + b"XXXX" + good[offset + 4 :], "cannot be read")


@pytest.mark.parametrize(
    "damaged",
    [
        "manifest.json",
        "captions/dev/data-00000-of-00001.arrow",
        "captions/dev/state.json",
        "captions/dev/dataset_info.json",
        "features/dev.npy",
        "tokens/dev/word.npy",
        "tokens/dev/word_offsets.npy",
    ],
)
def test_damaged_prepared_folders_are_read_or_refused(damaged, tmp_path):
    prepare("flickr30k", miniatures.make_scan(tmp_path / "from", "flickr30k"), tmp_path / "root")
    place = tmp_path / "root" / "flickr30k"
    manifest = place / "manifest.json"
    described, path = json.loads(manifest.read_text()), manifest
    if damaged != manifest.name:
        record, path = next(x for x in described["files"] if x["name"] == damaged), place / damaged
    good = path.read_bytes()

    def read(content):
        path.write_bytes(content)
        if path != manifest:
            record["bytes"] = len(content)
            manifest.write_text(json.dumps(described))
        dataset = load_prepared(tmp_path / "root", miniatures.SPECS["flickr30k"], "dev")
        dataset.tokens.padded(np.arange(len(dataset)))
        list(dataset.captions or ())
        dataset.image_ids.tolist()
        dataset.image_features[np.arange(4)].sum()

    assert_damage_is_refused([good], read, (*JSON, b"../../../etc/passwd", b"/etc/passwd"))
    if path == manifest:
        described["tokenizations"][0]["name"] = "../../../etc/passwd"
        assert_refused(read, json.dumps(described).encode(), "must be a path below the folder")
        assert_refused(read, b"[" * 100_000, "cannot be read")
