"""Damaged and dangerous downloads: a sentence that names file and row, and nothing written."""

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support import miniatures
from support.damaged import JSON, NPY, ZIP, assert_damage_is_refused, assert_refused, npy, npy_header

from ncl_bench.data.download import FolderDownload
from ncl_bench.data.features import open_features, scan
from ncl_bench.data.prepare import PrepareOptions, check, prepare
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.verify import inspect, verify
from ncl_bench.errors import DataError
from ncl_bench.progress import silent


def refused(name: str, source: Path, tmp_path: Path, message: str) -> None:
    """Both commands refuse, and nothing is left."""
    for attempt in (lambda: check(name, source), lambda: prepare(name, source, tmp_path / "root")):
        with pytest.raises(DataError, match=message) as error:
            attempt()
        assert "\n" not in str(error.value)
    assert not (tmp_path / "root" / name).exists()


def edit(path: Path, change) -> None:
    """Change the lines of a text file."""
    lines = path.read_text().split("\n")
    path.write_text("\n".join(change(lines)))


def resave(path: Path, change) -> None:
    """Change the array of a feature file."""
    np.save(path, change(np.load(path)))


def with_value(row: int, value: float):
    def change(array):
        array[row, 1, 2] = value
        return array

    return change


def with_rows_of(rows: list[int], value: float):
    def change(array):
        array[rows] = value
        return array

    return change


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def pickled_array(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)


class Bomb:
    """Does harm when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("harm",))


FAULTS = {
    "truncated": (
        truncated,
        "train_ims.npy",
        r"train_ims\.npy has 697 bytes, its header promises 704: the download was cut short",
    ),
    "too long": (
        lambda p: p.write_bytes(p.read_bytes() + b"x"),
        "train_ims.npy",
        r"705 bytes, its header promises 704: it is too long",
    ),
    "float64": (
        lambda p: resave(p, lambda a: a.astype(np.float64)),
        "dev_ims.npy",
        r"dev_ims\.npy holds float64 numbers, expected row-major little-endian float32",
    ),
    "float16": (lambda p: resave(p, lambda a: a.astype(np.float16)), "dev_ims.npy", "holds float16 numbers"),
    "big-endian": (lambda p: resave(p, lambda a: a.astype(">f4")), "dev_ims.npy", "holds >f4 numbers"),
    "column-major": (lambda p: resave(p, np.asfortranarray), "dev_ims.npy", "float32, column-major numbers"),
    "nan": (
        lambda p: resave(p, with_value(7, np.nan)),
        "train_ims.npy",
        r"train_ims\.npy row 7 holds nan, expected finite numbers",
    ),
    "infinite": (lambda p: resave(p, with_value(11, -np.inf)), "train_ims.npy", "row 11 holds -inf"),
    "zero rows": (
        lambda p: resave(p, with_rows_of([4, 9], 0.0)),
        "train_ims.npy",
        r"train_ims\.npy holds only zeros in 2 of 12 rows, the first is row 4: "
        "the download is incomplete; download it again",
    ),
    "preallocated": (
        lambda p: resave(p, np.zeros_like),
        "dev_ims.npy",
        r"dev_ims\.npy holds only zeros in 20 of 20 rows, the first is row 0",
    ),
    "repeats differ": (
        lambda p: resave(p, with_value(13, 9.0)),
        "dev_ims.npy",
        r"dev_ims\.npy rows 10 and 13 differ, expected each image 5 times in a row",
    ),
    "wrong shape": (
        lambda p: resave(p, lambda a: a[:, :2]),
        "test_ims.npy",
        r"test_ims\.npy has shape \(15, 2, 4\), expected \(rows, 3, 4\)",
    ),
    "flat": (lambda p: resave(p, lambda a: a.reshape(len(a), -1)), "test_ims.npy", r"shape \(15, 12\)"),
    "wrong rows": (
        lambda p: resave(p, lambda a: a[:14]),
        "test_ims.npy",
        r"holds 14 rows, flickr30k/test has 3 images \(or 15, one per caption\)",
    ),
    "pickled array": (
        pickled_array,
        "train_ims.npy",
        r"train_ims\.npy holds pickled Python objects, which are never",
    ),
    "pickle": (
        lambda p: p.write_bytes(pickle.dumps(Bomb())),
        "train_ims.npy",
        "is not a numpy array file",
    ),
    "empty": (lambda p: p.write_bytes(b""), "train_ims.npy", "is not a numpy array file"),
    "no train": (
        Path.unlink,
        "train_ims.npy",
        r"holds no train_ims\.npy, neither itself nor in f30k_precomp/",
    ),
    "missing split": (Path.unlink, "dev_ims.npy", r"dev_ims\.npy is missing"),
    "missing ids": (Path.unlink, "test_ids.txt", r"test_ids\.txt is missing"),
    "too few captions": (
        lambda p: edit(p, lambda lines: lines[:-2]),
        "train_caps.txt",
        r"train_caps\.txt has 59 captions, flickr30k/train has 60 \(12 images, 5 each\)",
    ),
    "blank line": (
        lambda p: edit(p, lambda lines: [*lines[:4], " ", *lines[5:]]),
        "train_caps.txt",
        r"train_caps\.txt line 5 is blank",
    ),
    "not UTF-8": (
        lambda p: p.write_bytes(p.read_bytes().replace(b"\n", b" caf\xe9\n", 3)),
        "train_caps.txt",
        r"train_caps\.txt line 1: byte 0xe9 is not UTF-8",
    ),
    "duplicate id": (
        lambda p: edit(p, lambda lines: [*lines[:8], lines[2], *lines[9:]]),
        "train_ids.txt",
        r"train_ids\.txt line 9: id 14 is also on line 3",
    ),
    "ids out of order": (
        lambda p: edit(p, lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]]),
        "dev_ids.txt",
        r"dev_ids\.txt line 5: id 1007 follows 1000|line 6: id 1000 is also on line 1",
    ),
    "ids too few": (
        lambda p: edit(p, lambda lines: lines[:-3]),
        "dev_ids.txt",
        r"dev_ids\.txt has 18 lines, expected 4 or 20",
    ),
    "id in two splits": (
        lambda p: p.write_text("".join("0\n" * 5 + "1\n" * 5 + "2\n" * 5 + "3\n" * 5)),
        "dev_ids.txt",
        "image id 0 is in train and in dev, expected it in one of them",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_flickr30k_is_refused(fault, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    damage, name, message = FAULTS[fault]
    source = miniatures.make_scan(tmp_path / "from", "flickr30k")
    damage(source / name)
    refused("flickr30k", source, tmp_path, message)
    assert not (tmp_path / "harm").exists()


def test_features_too_large_for_float16_are_refused(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "coco")
    resave(source / "train_ims.npy", with_value(3, 70_000.0))
    with pytest.raises(DataError, match=r"train_ims\.npy row 3 holds 70000\.0, more than float16 can"):
        prepare("coco", source, tmp_path / "root", PrepareOptions(dtype="float16"))
    prepare("coco", source, tmp_path / "root")


def test_numbers_that_float32_cannot_hold_are_refused(tmp_path):
    source = miniatures.make_now(tmp_path / "from")
    for split in miniatures.IMAGES:
        path = source / "h5100k_precomp" / f"{split}_ims.npy"
        np.save(path, np.load(path).astype(np.float64))
    resave(source / "h5100k_precomp" / "dev_ims.npy", with_value(3, 1e39))
    refused(
        "now", source, tmp_path, r"dev_ims\.npy row 3 holds 1e\+39, more than float32 can; download it again"
    )


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "flickr30k")
    (source / "dev_ims.npy").rename(tmp_path / "elsewhere.npy")
    (source / "dev_ims.npy").symlink_to(tmp_path / "elsewhere.npy")
    refused("flickr30k", source, tmp_path, r"dev_ims\.npy is a symbolic link to .*elsewhere\.npy, outside")


def test_a_link_within_the_folder_is_followed(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "flickr30k")
    (source / "dev_ims.npy").rename(source / "other.npy")
    (source / "dev_ims.npy").symlink_to("other.npy")
    assert len(check("flickr30k", source).files) == 9


@pytest.mark.parametrize("place", ["absent", "note.txt"])
def test_what_is_neither_folder_nor_zip_is_refused(place, tmp_path):
    (tmp_path / "note.txt").write_text("hello")
    refused(
        "flickr30k", tmp_path / place, tmp_path, f"{place} (does not exist|is neither a folder nor a zip)"
    )


def test_two_candidate_folders_are_refused(tmp_path):
    miniatures.make_now(tmp_path / "from", "h5100k_precomp")
    (tmp_path / "from" / "vocab").rename(tmp_path / "vocab")
    miniatures.make_now(tmp_path / "from", "now100k_precomp")
    refused("now", tmp_path / "from", tmp_path, r"more than once \(.*h5100k_precomp.*\); give one of these")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no tab here", r"line 3: expected an id, a tab and a caption, got 'no tab here'"),
        ("0002_4\t", "line 3: expected an id"),
        ("0001_1\ta dog", r"line 3: id 0001_1 is also on line 2"),
    ],
)
def test_damaged_cc152k_rows_are_refused(line, message, tmp_path):
    source = miniatures.make_cc152k(tmp_path / "from")
    edit(source / "train_caps.tsv", lambda lines: [*lines[:2], line, *lines[3:]])
    refused("cc152k", source, tmp_path, rf"train_caps\.tsv {message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("4,12,5", r"line 2: token id 12 is outside the vocabulary of 12"),
        ("4,-1,5", r"line 2: token id -1 is outside"),
        ("[1, 508, 9, 2]", r"line 2: .*got '\[1, 508, 9, 2\]'; this is an older, incompatible release"),
        ("4,dog", r"line 2: expected token ids separated by commas, got '4,dog'; download"),
    ],
)
def test_damaged_now_captions_are_refused(line, message, tmp_path):
    source = miniatures.make_now(tmp_path / "from")
    path = source / "h5100k_precomp" / "train_caps_bert.txt"
    edit(path, lambda lines: [lines[0], line, *lines[2:]])
    refused("now", source, tmp_path, rf"train_caps_bert\.txt {message}")


def test_a_missing_vocabulary_is_named(tmp_path):
    source = miniatures.make_now(tmp_path / "from")
    (source / "vocab" / "now100k_precomp_vocab_bert.json").unlink()
    refused("now", source, tmp_path, r"holds no now100k_precomp_vocab_bert\.json")


ZIP_FAULTS = {
    "leads out": (("../h5100k_precomp/x.npy", b"x", 0), "leads out of the archive"),
    "absolute": (("/etc/x.npy", b"x", 0), "leads out of the archive"),
    "link": (("h5100k_precomp/x.npy", b"/etc/passwd", 0o120777 << 16), "is a symbolic link"),
    "bomb": (("h5100k_precomp/x.npy", b"\0" * 10_000_000, 0), "claims 10000000 bytes out of"),
}


@pytest.mark.parametrize("fault", ZIP_FAULTS)
def test_dangerous_zips_are_refused(fault, tmp_path):
    (name, content, attributes), message = ZIP_FAULTS[fault]
    archive = miniatures.zipped(miniatures.make_now(tmp_path / "from"), tmp_path / "NoW.zip")
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as members:
        info = zipfile.ZipInfo(name)
        info.external_attr = attributes
        info.compress_type = zipfile.ZIP_DEFLATED
        members.writestr(info, content)
    refused("now", archive, tmp_path, f"NoW.zip: member '{name}' {message}")


def test_a_zip_with_a_name_twice_is_refused(tmp_path):
    archive = miniatures.zipped(miniatures.make_now(tmp_path / "from"), tmp_path / "NoW.zip")
    with zipfile.ZipFile(archive, "a") as members, pytest.warns(UserWarning, match="Duplicate"):
        members.writestr("h5100k_precomp/dev_ids.txt", "1\n")
    refused("now", archive, tmp_path, "holds a file name twice")


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
    refused(
        "now", archive, tmp_path, f"{member}.* (cannot be read|is not a numpy array file|holds|is not UTF-8)"
    )


def test_damaged_feature_files_are_read_or_refused(tmp_path: Path) -> None:
    source = miniatures.make_scan(tmp_path, "flickr30k")
    path, spec = source / "dev_ims.npy", miniatures.SPECS["flickr30k"]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        file = open_features(FolderDownload(source), "dev_ims.npy", spec, "dev", ("float32",))
        scan(file, dtype="float16", advance=lambda done: None)

    assert_damage_is_refused([path.read_bytes(), npy(miniatures.features(4, 0))], read, NPY)
    assert_refused(read, npy_header("{'descr': (\n"), "is not a numpy array file")


def test_damaged_archives_are_read_or_refused(tmp_path: Path) -> None:
    source, path, spec = miniatures.make_now(tmp_path / "from"), tmp_path / "now.zip", miniatures.SPECS["now"]
    kinds = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
    seeds = [miniatures.zipped(source, path, kind).read_bytes() for kind in kinds]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        verify(inspect(spec, path), spec, dtype="float16", journal=None, progress=silent)

    assert_damage_is_refused(seeds, read, ZIP)
    good, entry = seeds[0], seeds[0].index(b"PK\x01\x02")
    assert_refused(read, seeds[2], "is compressed by LZMA")
    large = good[: entry + 20] + (2**31).to_bytes(4, "little") + good[entry + 24 :]
    assert_refused(read, large, "claims 2147483648 compressed bytes, more than the archive has")
    name = good[entry + 28 : entry + 30]  # its length becomes the comment's
    nameless = good[: entry + 28] + b"\0\0\0\0" + name + good[entry + 34 :]
    assert_refused(read, nameless, "has no name")
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
def test_damaged_prepared_folders_are_read_or_refused(damaged: str, tmp_path: Path) -> None:
    prepare("flickr30k", miniatures.make_scan(tmp_path / "from", "flickr30k"), tmp_path / "root")
    place = tmp_path / "root" / "flickr30k"
    manifest = place / "manifest.json"
    described, path = json.loads(manifest.read_text()), manifest
    if damaged != manifest.name:
        record, path = next(x for x in described["files"] if x["name"] == damaged), place / damaged
    good = path.read_bytes()

    def read(content: bytes) -> None:
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
        language = good.replace(b'"texts": {\n    "en"', b'"texts": {\n    "[[["')
        assert_refused(read, language, "texts has language '[[[', flickr30k has en")
        assert_refused(read, b"[" * 100_000, "is damaged")
