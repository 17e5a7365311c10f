"""The stock Hugging Face library opens a prepared folder: copied, mapped and streamed."""

import numpy as np
import pytest
from support import miniatures

from ncl_bench.data import write
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.write import PrepareOptions

datasets = pytest.importorskip("datasets")


@pytest.fixture(params=["arrow", "parquet"])
def folder(request, tmp_path, monkeypatch):
    """A prepared miniature of MS-COCO whose train features lie in three files."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(write, "BLOCK_ROWS", 4)
    monkeypatch.setattr(write, "SHARD_BYTES", 1)
    source = miniatures.make_scan(tmp_path / "from", "coco")
    return prepare("coco", source, tmp_path / "root", PrepareOptions(file_format=request.param))


def opened(folder, table, split, **options):
    return datasets.load_dataset(
        str(folder), table, split=split, cache_dir=str(folder.parent / "cache"), **options
    )


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_load_dataset_opens_both_tables(folder, split):
    images, captions = opened(folder, "images", split), opened(folder, "captions", split)
    number = list(miniatures.IMAGES).index(split)
    expected = miniatures.features(miniatures.IMAGES[split], number)
    found = np.array(images.with_format("numpy")["image_features"][:])
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    assert captions["caption_id"][:] == list(range(5 * len(images)))
    assert captions["image_row"][:] == [c // 5 for c in range(5 * len(images))]
    assert captions["image_id"][7] == images["image_id"][1]
    assert captions["caption"][6] == miniatures.caption(100 * number + 6)
    assert captions.features["tokens_word"] == datasets.List(datasets.Value("int32"))


def test_captions_are_the_default_table(folder):
    assert "caption" in opened(folder, None, "dev").column_names


def test_shards_are_streamed_one_by_one(folder):
    stream = opened(folder, "images", "train", streaming=True)
    assert stream.num_shards == 3
    ids = [row["image_id"] for i in range(3) for row in stream.shard(num_shards=3, index=i)]
    assert ids == opened(folder, "images", "train")["image_id"][:]
    assert [row["image_id"] for row in stream.shard(num_shards=3, index=1)] == ids[4:8]


def test_arrow_folders_are_mapped_without_a_copy(folder):
    if not list(folder.rglob("*.arrow")):
        assert not list(folder.rglob("state.json"))
        return
    images = datasets.load_from_disk(str(folder / "images" / "train"))
    assert images.split == "train"
    assert images.cache_files == [
        {"filename": str(path)} for path in sorted((folder / "images" / "train").glob("*.arrow"))
    ]
    own = load_prepared(folder.parent, miniatures.SPECS["coco"], "train")
    np.testing.assert_array_equal(
        np.array(images[5]["image_features"], np.float32).reshape(3, 4),
        own.image_features[np.array([5])][0],
    )
    single = datasets.Dataset.from_file(images.cache_files[1]["filename"])
    assert single["image_id"][:] == images["image_id"][4:8]


def test_float16_survives(tmp_path):
    source = miniatures.make_now(tmp_path / "from")
    folder = prepare("now", source, tmp_path / "root")
    images = datasets.load_from_disk(str(folder / "images" / "dev"))
    assert images.features["image_features"].feature == datasets.Value("float16")
    column = images.with_format("arrow")[:]["image_features"]
    np.testing.assert_array_equal(
        column.chunk(0).flatten().to_numpy().reshape(4, 3, 4), miniatures.features(4, 1, "float16")
    )
