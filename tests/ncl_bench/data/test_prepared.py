"""Opening a prepared folder: mapped from disk, in any order, and finding damage."""

import json
import os
import pickle
import shutil
import sys
from dataclasses import replace

import datasets
import numpy as np
import pytest
from support import miniatures
from support.processes import python
from support.refusals import refused

from ncl_bench.data.layout import read_manifest
from ncl_bench.data.load import refuse_damage
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import damage, load_prepared
from ncl_bench.data.tokenizers import tokenizer
from ncl_bench.errors import DataError

SPEC = miniatures.SPECS["flickr30k"]


@pytest.fixture
def root(tmp_path):
    """A prepared miniature of Flickr30K."""
    prepare("flickr30k", miniatures.make_scan(tmp_path / "from", "flickr30k"), tmp_path / "root")
    return tmp_path / "root"


def test_a_dataset_in_memory_needs_its_folder_no_more(root):
    dataset = load_prepared(root / "flickr30k", SPEC, "train").in_ram()
    shutil.rmtree(root)
    np.testing.assert_array_equal(dataset.image_features[np.arange(12)], miniatures.features(12, 0))


def test_tokens_are_the_encoded_captions_in_the_order_asked_for(root):
    train = load_prepared(root, SPEC, "train")
    rows = [59, 0, 6, 7, 7, -1]
    padded, lengths = train.tokens.padded(rows)
    assert padded.dtype == lengths.dtype == np.int64
    for tokens, length, row in zip(padded, lengths, rows, strict=True):
        encoded = train.vocabulary.encode(tokenizer("word")(train.captions[row]))
        assert tokens[:length].tolist() == encoded
        assert not tokens[length:].any()


def test_ids_are_read_when_they_are_asked_for(root):
    ids = load_prepared(root, SPEC, "train").image_ids
    expected = [str(7 * i) for i in range(12)]
    assert list(ids) == ids.tolist() == np.asarray(ids).tolist() == expected
    assert (len(ids), ids[3], ids[np.int64(3)], ids[-1]) == (12, expected[3], expected[3], expected[-1])
    assert ids[2:9:3].tolist() == expected[2:9:3]
    assert ids.take([5, 5, -2]).tolist() == [expected[row] for row in (5, 5, -2)]
    assert pickle.loads(pickle.dumps(ids)).tolist() == expected


def manifest(**changes):
    """Other values in the manifest."""

    def rewrite(path):
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return rewrite


def array(change):
    """Another array in its file."""
    return lambda path: np.save(path, change(np.load(path)))


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("manifest.json", lambda path: path.write_text("{")),
        ("manifest.json", manifest(dtype="int8")),
        ("manifest.json", manifest(more=1)),
        ("manifest.json", manifest(layout_version=1)),
        ("manifest.json", manifest(name="coco")),
        ("manifest.json", manifest(feature_dim=5)),
        ("features/train.npy", lambda path: path.unlink()),
        ("tokens/train/word.npy", lambda path: os.truncate(path, 200)),
        ("features/train.npy", lambda path: path.write_bytes(b"x" * path.stat().st_size)),
        ("features/train.npy", array(lambda numbers: numbers.astype(np.int32))),
        ("tokens/train/word.npy", array(lambda ids: ids - 5)),
        ("tokens/train/word_offsets.npy", array(lambda offsets: offsets[::-1])),
    ],
)
def test_a_damaged_folder_is_refused_with_the_command_to_prepare_again(root, name, harm):
    harm(root / "flickr30k" / name)
    with refused(DataError) as error:
        load_prepared(root, SPEC, "train")
    assert "ncl-bench prepare flickr30k --from" in str(error.value)


def test_a_flipped_bit_anywhere_is_found(root):
    folder = root / "flickr30k"
    assert list(damage(folder)) == []
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert {record.name for record in read_manifest(folder).files} == {*names} - {
        "manifest.json",
        "manifest.json.sha256",
    }
    random = np.random.default_rng(0)
    for name in names:
        whole = (folder / name).read_bytes()
        for position in random.integers(0, len(whole), 3):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << int(random.integers(8))
            (folder / name).write_bytes(flipped)
            try:
                (sentence,) = damage(folder)
            except DataError as error:  # the manifest itself can no longer be read
                sentence = str(error)
            assert str(folder / name.removesuffix(".sha256")) in sentence
            assert "ncl-bench prepare flickr30k --from DOWNLOADS" in sentence
        (folder / name).write_bytes(whole)


def test_the_files_of_one_split_are_compared_alone(root):
    folder = root / "flickr30k"
    for name, belongs in (
        ("features/train.npy", True),
        ("captions/train/data-00000-of-00001.arrow", True),
        ("tokens/train/word.npy", True),
        ("vocab/word.json", True),
        ("features/test.npy", False),
        ("captions/dev/data-00000-of-00001.arrow", False),
    ):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        if belongs:
            with refused(DataError):
                refuse_damage("flickr30k", root, "train")
        else:
            refuse_damage("flickr30k", root, "train")
        (folder / name).write_bytes(whole)
    refuse_damage("digits", None, "train")  # an embedded dataset


def test_choices_that_were_not_prepared_are_refused(root):
    with refused(DataError):
        load_prepared(root, SPEC, "train", tokenizer="jieba")
    with refused(DataError):
        load_prepared(root, SPEC, "train", language="zh")


def test_the_folder_opens_without_ncl_bench(root):
    captions = datasets.load_from_disk(str(root / "flickr30k" / "captions" / "dev"))
    assert captions["caption_id"][:] == list(range(20))
    assert captions["image_row"][:] == [c // 5 for c in range(20)]
    assert captions["image_id"][7] == "1007"
    assert captions["caption"][6] == miniatures.caption(106)
    features = np.load(root / "flickr30k" / "features" / "dev.npy", mmap_mode="r")
    np.testing.assert_array_equal(features, miniatures.features(4, 1))


def test_what_the_library_caches_beside_a_table_is_no_part_of_it(root):
    captions = list(load_prepared(root / "flickr30k", SPEC, "train").captions)
    other = next((root / "flickr30k" / "captions" / "dev").glob("data-*.arrow"))
    shutil.copy(other, root / "flickr30k" / "captions" / "train" / "cache-0123456789abcdef.arrow")
    assert list(load_prepared(root / "flickr30k", SPEC, "train").captions) == captions


@pytest.mark.parametrize("name", ["flickr30k", "now"])
def test_pairs_become_a_dataset_of_the_library_with_features_in_their_shape(name, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    prepare(name, miniatures.make(tmp_path / "from", name), tmp_path / "root")
    opened = load_prepared(tmp_path / "root", miniatures.SPECS[name], "train")
    noisy = replace(opened, caption_to_image=opened.caption_to_image[::-1].copy())
    for pairs in (opened, noisy.subset([3, 11, 1])):
        table, expected = pairs.to_hf(), pairs.read(np.arange(len(pairs)))
        kind = datasets.Array2D((3, 4), str(opened.image_features.dtype))
        assert table.features["image_features"] == kind
        np.testing.assert_array_equal(table["image_features"][:], expected.image_features)
        assert table["pair_id"][:].tolist() == expected.pair_ids.tolist()
        for row in range(len(pairs)):
            length = expected.caption_lengths[row]
            assert table[row]["caption_tokens"].tolist() == expected.caption_tokens[row, :length].tolist()
            assert table[row]["image_id"] == opened.image_ids[int(pairs.caption_to_image[row])]
        assert ("caption" in table.column_names) == (pairs.captions is not None)
        if pairs.captions is not None:
            assert list(table["caption"][:]) == list(pairs.captions)


def test_reading_needs_neither_the_library_nor_pandas(root):
    code = f"""
import sys
import ncl_bench
from support import miniatures
from pathlib import Path
from ncl_bench.data.prepared import load_prepared
train = load_prepared(Path({str(root)!r}), miniatures.SPECS["flickr30k"], "train")
train.read([3, 1])
assert not {{"datasets", "pandas", "pyarrow"}} & set(sys.modules)
assert train.captions[3], train.image_ids[1]
assert "pyarrow" in sys.modules
assert not {{"datasets", "pandas"}} & set(sys.modules)
"""
    path = {"PYTHONPATH": ":".join(sys.path)}
    python(code, env=path)
