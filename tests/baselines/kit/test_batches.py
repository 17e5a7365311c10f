"""Batches: what they hold, and orders that depend on seed, epoch and purpose alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paired import paired_dataset
from support.refusals import refused

from baselines.kit.batches import TrainingBatches, collate, in_blocks


def dataset(n_images=6, captions_per_image=2, *, split="train"):
    """Images that hold their own number; captions of 3 to 5 tokens that hold theirs."""
    pairs = np.arange(n_images * captions_per_image)
    lengths = 3 + pairs % 3
    features = np.arange(n_images, dtype=np.float16)[:, None, None] * np.ones((1, 4, 3), np.float16)
    images, each = np.roll(pairs // captions_per_image, 1), {"captions_per_image": captions_per_image}
    return paired_dataset(features, np.repeat(pairs + 10, lengths), lengths, images, 40, split=split, **each)


def batches_of(batch_size=4, seed=0, **options):
    return TrainingBatches(dataset(), batch_size=batch_size, seed=seed, **options)


def orders(batches, *purpose, **options):
    return [batch.pair_ids.tolist() for batch in batches.shuffled(*purpose, **options)]


def test_a_batch_holds_the_image_each_caption_is_paired_with():
    data = dataset()
    rows = np.array([3, 0, 11])
    batch = collate(data, rows)
    assert batch.image_features.dtype == torch.float32
    assert batch.image_features[:, 0, 0].tolist() == data.caption_to_image[rows].tolist()
    assert batch.image_lengths.tolist() == [4, 4, 4]
    assert batch.caption_lengths.tolist() == [3, 3, 5]
    assert batch.caption_tokens.tolist() == [[13] * 3 + [0] * 2, [10] * 3 + [0] * 2, [21] * 5]
    assert batch.pair_ids.tolist() == [3, 0, 11]
    assert len(batch) == 3
    batch.image_features.fill_(99)  # of a copy
    assert data.image_features.max() < 99
    moved = replace(data, pair_ids=np.arange(12) + 100)
    assert collate(moved, np.array([2, 4])).pair_ids.tolist() == [102, 104]  # in the full split


def test_a_batch_moves_and_leaves_its_lengths_on_the_cpu():
    moved = collate(dataset(), np.arange(3)).to(torch.device("meta"))
    stayed = {name for name, tensor in vars(moved).items() if tensor.device.type == "cpu"}
    assert stayed == {"image_lengths", "caption_lengths"}


@given(st.integers(2, 13), st.integers(0, 5))
@settings(max_examples=30)
def test_a_covering_pass_leaves_no_pair_out(batch_size, seed):
    batches = batches_of(batch_size, seed)
    seen = [batch.pair_ids.tolist() for batch in batches.covering("divide")]
    assert sorted(i for ids in seen for i in ids) == list(range(12))
    assert min(map(len, seen)) > 1
    assert {len(ids) for ids in seen[:-1]} <= {batch_size}
    assert len(seen[-1]) <= batch_size + 1


@given(st.integers(2, 13), st.integers(0, 5))
@settings(max_examples=30)
def test_a_pass_visits_every_pair_once_but_a_single_left_over(batch_size, seed):
    visited = orders(batches_of(batch_size, seed), "train")
    assert all(2 <= len(batch) <= batch_size for batch in visited)
    seen = sorted(pair for batch in visited for pair in batch)
    assert len(seen) == len(set(seen)) == 12 - (12 % batch_size == 1)


def test_orders_depend_on_seed_epoch_and_purpose_alone():
    first, again, other = (batches_of(5, seed) for seed in (0, 0, 1))
    reference = orders(first, "train", 0)
    np.random.seed(3)
    torch.manual_seed(3)
    assert orders(again, "train", 0) == reference
    assert orders(first, "train", 0) == reference
    assert orders(other, "train", 0) != reference
    assert orders(first, "train", 1) != reference
    first.epoch_key = (0, "train", 1)
    assert orders(first, "train", 0) != reference


def test_a_pass_over_some_pairs_visits_no_other():
    batches = batches_of(3)
    visited = orders(batches, "clean", pair_ids=torch.tensor([7, 1, 4, 9]))
    assert sorted(pair for batch in visited for pair in batch) in ([1, 4, 7], [1, 4, 9], [1, 7, 9], [4, 7, 9])


def test_an_order_does_not_depend_on_where_its_pairs_lie_in_memory():
    batches = batches_of()
    ids = torch.arange(12)[::2]
    assert orders(batches, "x", pair_ids=ids) == orders(batches, "x", pair_ids=ids.clone())


def test_endless_passes_restart_in_another_order():
    batches = batches_of()
    stream = batches.endless("noisy", 0, pair_ids=torch.arange(8))
    passes = [[next(stream).pair_ids.tolist() for _ in range(2)] for _ in range(4)]
    for visited in passes:
        assert sorted(pair for batch in visited for pair in batch) == list(range(8))
    assert any(visited != passes[0] for visited in passes[1:])


def test_endless_passes_over_one_pair_are_refused():
    batches = batches_of()
    with refused(ValueError):
        next(batches.endless("noisy", pair_ids=torch.tensor([3])))


@pytest.mark.parametrize("split", ["dev", "test"])
def test_only_the_training_split_is_read(split):
    with refused(ValueError):
        TrainingBatches(dataset(split=split), batch_size=4, seed=0)


def test_only_the_given_pairs_are_visited_by_default():
    rows = np.array([0, 2, 5, 6])
    batches = batches_of(2, pair_rows=rows)
    assert batches.pair_ids.tolist() == [0, 2, 5, 6]
    assert sorted(pair for batch in orders(batches, "train") for pair in batch) == [0, 2, 5, 6]


def test_progress_counts_the_pairs_handed_out():
    counted = []
    batches = batches_of(5, on_batch=counted.append)
    assert [len(batch) for batch in batches.shuffled("train")] == counted == [5, 5, 2]


def test_blocks_cover_all_rows_in_order():
    blocks = list(in_blocks(np.arange(7), 3))
    assert [block.tolist() for block in blocks] == [[0, 1, 2], [3, 4, 5], [6]]
