"""PairedDataset: what survives taking, sharding and batching."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncl_bench.data.paired import LeadingImages, PairedDataset, TokenTable
from ncl_bench.data.vocabulary import build_vocabulary
from ncl_bench.errors import DataError
from ncl_bench.noise.draw import NoiseRecord


def dataset(n_images: int = 6, per_image: int = 5) -> PairedDataset:
    """Caption c has the text ``c`` and 2 + c % 4 tokens, all of them c."""
    n = n_images * per_image
    lengths = 2 + np.arange(n) % 4
    return PairedDataset(
        name="small",
        split="train",
        image_features=np.arange(n_images * 6, dtype=np.float32).reshape(n_images, 2, 3),
        image_ids=np.array([f"image {i}" for i in range(n_images)]),
        caption_to_image=np.arange(n) // per_image,
        pair_ids=np.arange(n),
        tokens=TokenTable(
            np.repeat(np.arange(n), lengths).astype(np.int32), np.concatenate([[0], np.cumsum(lengths)])
        ),
        captions=[str(c) for c in range(n)],
        vocabulary=build_vocabulary([]),
        captions_per_image=per_image,
        noise=NoiseRecord(None, 0.0, None, "", 0.0),
        fingerprint="f",
    )


def captions_agree(part: PairedDataset, whole: PairedDataset) -> None:
    """Every pair of a part is the pair of the whole that its id names."""
    tokens, lengths = part.tokens.padded(np.arange(len(part)))
    for row, pair in enumerate(part.pair_ids.tolist()):
        assert part.captions[row] == str(pair)
        assert lengths[row] == 2 + pair % 4
        assert tokens[row, : lengths[row]].tolist() == [pair] * lengths[row]
        assert not tokens[row, lengths[row] :].any()
        own = part.image_features[part.caption_to_image[[row]]]
        np.testing.assert_array_equal(own, whole.image_features[whole.caption_to_image[[pair]]])


@given(st.lists(st.integers(0, 29), max_size=40))
def test_ids_survive_subsetting_in_any_order(rows):
    whole = dataset()
    part = whole.subset(np.array(rows, np.int64))
    assert part.pair_ids.tolist() == rows
    captions_agree(part, whole)
    again = part.subset(np.arange(len(part))[::-1])
    assert again.pair_ids.tolist() == rows[::-1]
    captions_agree(again, whole)


@given(st.integers(1, 40))
def test_shards_are_a_partition_in_order(n_shards):
    whole = dataset()
    shards = [whole.shard(n_shards, i) for i in range(n_shards)]
    assert np.concatenate([shard.pair_ids for shard in shards]).tolist() == list(range(30))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    captions_agree(shards[-1], whole)


@pytest.mark.parametrize("index", [-1, 3])
def test_a_shard_that_does_not_exist_is_refused(index):
    with pytest.raises(DataError, match=f"shard index is {index}, expected 0 to 2 for 3 shards"):
        dataset().shard(3, index)


def test_first_images_keep_their_captions_and_only_them():
    whole = dataset()
    part = whole.first_images(2)
    assert part.n_images == 2
    assert part.image_ids.tolist() == ["image 0", "image 1"]
    assert part.pair_ids.tolist() == list(range(10))
    captions_agree(part, whole)
    assert whole.first_images(100).n_images == 6


def test_first_images_follow_a_noisy_pairing():
    whole = dataset()
    noisy = replace(whole, caption_to_image=whole.caption_to_image[::-1].copy())
    assert noisy.first_images(1).pair_ids.tolist() == [25, 26, 27, 28, 29]


def test_leading_images_read_nothing_beyond_them():
    features = LeadingImages(dataset().image_features, 2)
    assert features.shape == (2, 2, 3)
    with pytest.raises(IndexError):
        features[np.array([2])]


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_batches_visit_every_pair_once(seed):
    whole = dataset()
    batches = list(whole.batches(7, seed=seed))
    visited = np.concatenate([batch.pair_ids for batch in batches])
    assert sorted(visited.tolist()) == list(range(30))
    assert [len(batch) for batch in batches] == [7, 7, 7, 7, 2]
    assert (visited.tolist() == list(range(30))) == (seed is None)
    for batch in batches:
        np.testing.assert_array_equal(batch.image_features, whole.image_features[batch.pair_ids // 5])
        np.testing.assert_array_equal(batch.caption_tokens[:, 0], batch.pair_ids)
        np.testing.assert_array_equal(batch.caption_lengths, 2 + batch.pair_ids % 4)


def test_reading_rows_of_a_subset_gives_the_pairs_that_its_ids_name():
    whole = dataset()
    noisy = replace(whole, caption_to_image=np.random.default_rng(0).permutation(whole.caption_to_image))
    pairs = noisy.subset(np.arange(5, 30)).read(range(8))
    assert pairs.pair_ids.tolist() == [5, 6, 7, 8, 9, 10, 11, 12]
    assert pairs.caption_tokens[:, 0].tolist() == pairs.pair_ids.tolist()
    assert pairs.image_lengths.tolist() == [2] * 8
    expected = whole.image_features[noisy.caption_to_image[5:13]]
    np.testing.assert_array_equal(pairs.image_features, expected)


def test_equal_seeds_give_equal_batches():
    first, second = ([b.pair_ids.tolist() for b in dataset().batches(8, seed=3)] for _ in range(2))
    assert first == second


def test_to_torch_holds_writable_copies():
    torch = pytest.importorskip("torch")
    whole = dataset()
    tensors = whole.to_torch()
    assert tensors["image_features"].dtype == torch.float32
    assert tensors["caption_tokens"].shape == (30, 5)
    tensors["image_features"].zero_()
    assert whole.image_features.any()
    assert whole.to_torch(np.array([4]))["pair_ids"].tolist() == [4]


def test_in_ram_holds_the_same_rows():
    whole = replace(dataset(), image_features=LeadingImages(dataset().image_features, 6))
    loaded = whole.in_ram()
    assert isinstance(loaded.image_features, np.ndarray)
    np.testing.assert_array_equal(loaded.image_features, dataset().image_features)


def test_no_captions_stay_no_captions():
    assert replace(dataset(), captions=None).subset(np.array([1])).captions is None


def test_a_dataset_is_shown_in_one_line():
    clean = dataset()
    assert repr(clean) == (
        "<PairedDataset small/train: 30 captions, 6 images of 2 x 3 features (float32), no synthetic noise>"
    )
    assert "40% of captions moved" in repr(replace(clean, noise=NoiseRecord("caption", 0.4, 1, "", 0.39)))
