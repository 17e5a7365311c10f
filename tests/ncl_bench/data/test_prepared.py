"""Opening a prepared folder: zero copy, in any order, and damage told apart."""

import json
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from support import miniatures

from ncl_bench.data import DATASETS, write
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.write import PrepareOptions
from ncl_bench.errors import DataError

SPEC = miniatures.SPECS["flickr30k"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A prepared miniature of Flickr30K whose train features lie in several files and record batches."""
    monkeypatch.setattr(write, "BLOCK_ROWS", 2)
    monkeypatch.setattr(write, "SHARD_BYTES", 200)
    monkeypatch.setattr(write, "CAPTION_ROWS", 7)
    prepare("flickr30k", miniatures.make_scan(tmp_path / "from", "flickr30k"), tmp_path / "root")
    return tmp_path / "root"


@pytest.mark.parametrize("rows", [[0, 11, 5, 5, 2], [], [-1, 3]])
def test_rows_come_in_the_order_asked_for(root, rows):
    features = load_prepared(root, SPEC, "train").image_features
    index = np.array(rows, np.int64)
    np.testing.assert_array_equal(features[index], miniatures.features(12, 0)[index])


def test_rows_can_be_masks_and_slices(root):
    features = load_prepared(root, SPEC, "train").image_features
    mask = np.arange(12) % 3 == 0
    np.testing.assert_array_equal(features[mask], miniatures.features(12, 0)[mask])
    np.testing.assert_array_equal(features[2:9], miniatures.features(12, 0)[2:9])


def test_a_row_that_does_not_exist_is_an_index_error(root):
    with pytest.raises(IndexError):
        load_prepared(root, SPEC, "train").image_features[np.array([12])]


def test_rows_are_writable_copies(root):
    features = load_prepared(root, SPEC, "train").image_features
    rows = features[np.array([3])]
    rows[:] = 0
    assert features[np.array([3])].any()


def test_opening_does_not_read_the_features(tmp_path, monkeypatch):
    spec = miniatures.SPECS["flickr30k"]
    wide = type(spec)(**{**vars(spec), "n_regions": 36, "feature_dim": 2048})
    monkeypatch.setitem(miniatures.SPECS, "flickr30k", wide)
    monkeypatch.setitem(DATASETS, "flickr30k", wide)
    source = miniatures.make_scan(tmp_path / "from", "flickr30k")
    for prefix, rows in (("train", 12), ("dev", 20), ("test", 15)):
        np.save(source / f"{prefix}_ims.npy", np.ones((rows, 36, 2048), np.float32))
    prepare("flickr30k", source, tmp_path / "root")
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    dataset = load_prepared(tmp_path / "root", wide, "train")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + pa.total_allocated_bytes() - before < 36 * 2048 * 4 * 12 / 4
    assert dataset.image_features[np.array([11])].sum() == 36 * 2048


def test_preload_reads_everything_into_memory(root):
    dataset = load_prepared(root, SPEC, "train", preload="ram")
    shutil.rmtree(root)
    np.testing.assert_array_equal(dataset.image_features[np.arange(12)], miniatures.features(12, 0))


def test_the_dataset_folder_itself_can_be_given(root):
    assert len(load_prepared(root / "flickr30k", SPEC, "dev")) == 20


def test_captions_are_a_sequence(root):
    captions = load_prepared(root, SPEC, "dev").captions
    assert len(captions) == 20
    assert list(captions[3:5]) == [captions[3], captions[4]]
    assert captions[-1] == captions[19]


def caption_file(root):
    return root / "flickr30k" / "captions" / "train" / "data-00000-of-00001.arrow"


def token_lists(root):
    """Token ids of every caption, as Arrow itself reads them."""
    with caption_file(root).open("rb") as stream:
        return pa.ipc.open_stream(stream).read_all()["tokens_word"].to_pylist()


@pytest.mark.parametrize("rows", [range(60), [59, 0, 6, 7, 7, 13, 14], [], [-1, 3]])
def test_tokens_come_from_every_record_batch_in_the_order_asked_for(root, rows):
    lists, tokens = token_lists(root), load_prepared(root, SPEC, "train").tokens
    index = np.array(rows, np.int64)
    for found in (tokens.padded(index), tokens.take(index).padded(np.arange(len(index)))):
        padded, lengths = found
        assert padded.dtype == lengths.dtype == np.int64
        assert lengths.tolist() == [len(lists[row]) for row in rows]
        assert padded.shape == (len(rows), max(map(len, (lists[row] for row in rows)), default=0))
        for caption, row in zip(padded, rows, strict=True):
            assert caption[: len(lists[row])].tolist() == lists[row]
            assert not caption[len(lists[row]) :].any()
    assert len(tokens) == 60
    assert tokens.lengths.tolist() == [len(own) for own in lists]
    assert tokens.take(index).lengths.tolist() == [len(lists[row]) for row in rows]


def test_a_caption_that_does_not_exist_is_an_index_error(root):
    tokens = load_prepared(root, SPEC, "train").tokens
    for row in (60, -61):
        with pytest.raises(IndexError, match=f"row {row} does not exist"):
            tokens.padded(np.array([row]))


def rewritten_captions(root, **options):
    """The captions table in a file of the same kind that is written in another way."""
    path = caption_file(root)
    with path.open("rb") as stream:
        table = pa.ipc.open_stream(stream).read_all()
    with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_table(table)
    manifest = root / "flickr30k" / "manifest.json"
    content = json.loads(manifest.read_text())
    for record in content["splits"]["train"]["files"]:
        if record["name"].startswith("captions/"):
            record["bytes"] = path.stat().st_size
    manifest.write_text(json.dumps(content))


def test_captions_that_cannot_be_mapped_are_refused(root):
    rewritten_captions(root)
    assert len(load_prepared(root, SPEC, "train").tokens) == 60
    rewritten_captions(root, compression="zstd")
    with pytest.raises(DataError, match=r"token ids cannot be read .*; prepare the dataset again"):
        load_prepared(root, SPEC, "train")


def test_ids_are_read_when_they_are_asked_for(root):
    ids = load_prepared(root, SPEC, "train").image_ids
    expected = [str(7 * i) for i in range(12)]
    assert list(ids) == ids.tolist() == np.asarray(ids).tolist() == expected
    assert (len(ids), ids[3], ids[np.int64(3)], ids[-1]) == (12, expected[3], expected[3], expected[-1])
    assert ids[2:9:3].tolist() == expected[2:9:3]
    assert ids[np.array([5, 5, -2])].tolist() == [expected[row] for row in (5, 5, -2)]


def test_a_pair_costs_its_index_entries_and_no_more(tmp_path, monkeypatch):
    """Ids, texts, tokens and features stay in the files: what is kept for a pair is its image and its id."""
    n = 6_000
    large = replace(SPEC, images={"train": n, "dev": 4, "test": 3})
    monkeypatch.setitem(miniatures.IMAGES, "train", n)
    monkeypatch.setitem(DATASETS, "flickr30k", large)
    prepare("flickr30k", miniatures.make_scan(tmp_path / "from", "flickr30k"), tmp_path / "root")
    load_prepared(tmp_path / "root", large, "dev")  # what is imported stays
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    dataset = load_prepared(tmp_path / "root", large, "train")
    kept, _ = tracemalloc.get_traced_memory()
    shard = dataset.shard(4, 3)
    kept_with_shard, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pa.total_allocated_bytes() == before
    assert kept - 16 * len(dataset) < 100_000
    assert kept_with_shard - kept < 24 * len(shard) + 10_000
    assert shard.captions[0] == dataset.captions[len(dataset) * 3 // 4]


def test_no_noise_is_recorded_as_none(root):
    noise = load_prepared(root, SPEC, "train").noise
    assert (noise.unit, noise.ratio, noise.realised_ratio) == (None, 0.0, 0.0)


def rewritten(root, **changes):
    path = root / "flickr30k" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda root: shutil.rmtree(root / "flickr30k"),
            "is not a prepared dataset .*run `ncl-bench prepare`",
        ),
        (lambda root: (root / "flickr30k" / "manifest.json").write_text("{"), "manifest.json is damaged"),
        (lambda root: rewritten(root, dtype="int8"), r"manifest.json is damaged \(dtype"),
        (lambda root: rewritten(root, more=1), r"manifest.json is damaged \(more"),
        (lambda root: rewritten(root, layout_version=9), "layout version 9, this tool reads 1"),
        (lambda root: rewritten(root, name="coco"), "name is coco, flickr30k has flickr30k"),
        (lambda root: rewritten(root, feature_dim=5), "feature_dim is 5, flickr30k has 4"),
    ],
)
def test_damaged_manifests_are_refused(root, damage, message):
    damage(root)
    with pytest.raises(DataError, match=message):
        load_prepared(root, SPEC, "train")


def feature_file(root):
    return min((root / "flickr30k" / "images" / "train").glob("*.arrow"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"data-00000-of-\d+\.arrow is missing, expected \d+ bytes"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), r"has \d+ bytes, expected \d+ bytes"),
        (lambda path: path.write_bytes(b"x" * path.stat().st_size), "is not a readable Arrow file"),
    ],
)
def test_damaged_tables_are_refused(root, damage, message):
    damage(feature_file(root))
    with pytest.raises(DataError, match=message):
        load_prepared(root, SPEC, "train")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"tokenizer": "jieba"}, "prepared without tokenizer 'jieba' for language 'en', only with: word"),
        ({"language": "zh"}, "unknown language of flickr30k 'zh'; choose one of: en"),
    ],
)
def test_choices_that_were_not_prepared_are_refused(root, choice, message):
    with pytest.raises(DataError, match=message):
        load_prepared(root, SPEC, "train", **choice)


def test_an_unknown_split_is_refused(root):
    with pytest.raises(DataError, match="unknown split of flickr30k 'val'; choose one of: dev, test, train"):
        load_prepared(root, SPEC, "val")


def test_parquet_is_for_uploading_only(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "flickr30k")
    prepare("flickr30k", source, tmp_path / "root", PrepareOptions(file_format="parquet"))
    with pytest.raises(DataError, match="prepared as parquet, for uploading; prepare it with --format arrow"):
        load_prepared(tmp_path / "root", SPEC, "train")
