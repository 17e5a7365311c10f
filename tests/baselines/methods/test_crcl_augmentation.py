"""Augmentation changes the shares it says, never writes to its input, and matches a loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.kit.augmentation import BLANK, blank_regions, change_words, compacted, drop_regions
from baselines.kit.batches import Batch

MASK, VOCABULARY = 99, 100


def make_batch(pairs=40, regions=36, longest=30):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, longest + 1, (pairs,), generator=generator)
    lengths[0] = longest
    tokens = torch.randint(4, MASK, (pairs, longest), generator=generator)
    valid = torch.arange(longest) < lengths[:, None]
    features = torch.rand(pairs, regions, 3, generator=generator) + 1
    return Batch(features, torch.full((pairs,), regions), tokens * valid, lengths, torch.arange(pairs))


def changed_words(batch, probability):
    return change_words(batch, probability, mask_word=MASK, vocabulary_size=VOCABULARY)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("augment", [changed_words, drop_regions, blank_regions])
def test_the_seed_decides_and_the_given_batch_is_never_written_to(augment):
    batch, same = make_batch(), augment(make_batch(), 0.0)
    before = {name: x.clone() for name, x in vars(batch).items()}
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(vars(augment(batch, 0.5)))
    for name, value in before.items():
        assert torch.equal(getattr(batch, name), value)
        assert torch.equal(getattr(same, name), value)
        assert torch.equal(found[0][name], found[1][name])
    for other in (found[2], before):
        assert any(x.shape != other[n].shape or not x.equal(other[n]) for n, x in found[0].items())


def test_shares_of_masked_replaced_and_dropped_tokens():
    """Start and end tokens are touched too."""
    pairs, longest = 4000, 30
    ones, lengths = torch.ones(pairs, dtype=torch.long), torch.full((pairs,), longest)
    tokens = torch.full((pairs, longest), 5)
    result = changed_words(Batch(torch.zeros(pairs, 1, 1), ones, tokens, lengths, torch.arange(pairs)), 0.2)
    total, places = pairs * longest, torch.arange(result.caption_tokens.shape[1])
    masked = result.caption_tokens == MASK
    foreign = (places < result.caption_lengths[:, None]) & ~masked & (result.caption_tokens != 5)
    assert 1 - result.caption_lengths.sum() / total == pytest.approx(0.08, abs=0.004)
    assert masked.sum() / total == pytest.approx(0.10 + 0.02 / VOCABULARY, abs=0.004)
    assert foreign.sum() / total == pytest.approx(0.02 * 98 / 100, abs=0.002)
    last = result.caption_tokens.gather(1, result.caption_lengths[:, None] - 1)
    for end in (result.caption_tokens[:, 0], last):
        assert 0.1 < (end != 5).float().mean() < 0.2


def test_dropped_regions_shorten_the_image_and_keep_their_order():
    batch = make_batch(pairs=500)
    batch.image_features[..., 0] = torch.arange(1, 37)
    result = drop_regions(batch, 0.2)
    assert result.image_lengths.float().mean() == pytest.approx(0.8 * 36, abs=0.4)
    assert result.image_features.shape[1] == int(result.image_lengths.max())
    for row, length in zip(result.image_features[..., 0], result.image_lengths.tolist(), strict=True):
        assert (row[:length].diff() > 0).all()
        assert (row[length:] == 0).all()


def test_blanked_regions_stay_in_place():
    batch = make_batch(pairs=500)
    result = blank_regions(batch, 0.2)
    blank = (result.image_features == torch.tensor(BLANK)).all(dim=2)
    assert blank.float().mean() == pytest.approx(0.2, abs=0.01)
    assert torch.equal(result.image_features[~blank], batch.image_features[~blank])
    assert torch.equal(result.image_lengths, batch.image_lengths)


def test_no_caption_and_no_image_ends_empty():
    batch = make_batch()
    assert changed_words(batch, 1.0).caption_lengths.min() >= 1
    dropped = drop_regions(batch, 1.0)
    assert dropped.image_lengths.tolist() == [1] * len(batch)
    assert torch.equal(dropped.image_features[:, 0], batch.image_features[:, 0])


@settings(max_examples=60)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 6), longest=st.integers(1, 9))
def test_compacted_equals_the_loop(seed, n, longest):
    generator = torch.Generator().manual_seed(seed)
    items = torch.randint(1, 1000, (n, longest), generator=generator)
    lengths = torch.randint(1, longest + 1, (n,), generator=generator)
    kept = torch.rand(n, longest, generator=generator) < 0.5
    rows = zip(items.tolist(), lengths.tolist(), kept.tolist(), strict=True)
    expected = [
        [item for item, k in zip(row[:length], keep, strict=False) if k] or row[:1]
        for row, length, keep in rows
    ]
    result, new_lengths = compacted(items, lengths, kept)
    assert new_lengths.tolist() == [len(row) for row in expected]
    assert result.shape == (n, max(map(len, expected)))
    for row, want in zip(result.tolist(), expected, strict=True):
        assert row == want + [0] * (len(row) - len(want))
    three, _ = compacted(items[..., None].expand(-1, -1, 2), lengths, kept)
    assert torch.equal(three[..., 1], result)
