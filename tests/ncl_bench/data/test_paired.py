"""PairedDataset: what survives taking, sharding and batching."""

import pydoc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused

from ncl_bench.data.columns import TokenTable
from ncl_bench.data.load import load_dataset
from ncl_bench.data.paired import PairedDataset, collate
from ncl_bench.data.vocabulary import build_vocabulary
from ncl_bench.errors import DataError, RowError
from ncl_bench.noise.draw import Noise


def dataset(n_images=6, per_image=5):
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
        vocabulary=build_vocabulary({}),
        captions_per_image=per_image,
        noise=Noise(None, 0.0, None, "", 0.0),
        fingerprint="f",
    )


def captions_agree(part, whole):
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


MASK = np.arange(30) % 7 == 2
READERS = {
    "read": lambda whole, rows: whole.read(rows),
    "subset": lambda whole, rows: whole.subset(rows).read(np.arange(len(whole.subset(rows)))),
    "of a subset": lambda whole, rows: whole.subset(np.arange(30)).read(rows),
    "to_torch": lambda whole, rows: SimpleNamespace(
        **{name: tensor.numpy() for name, tensor in whole.to_torch(rows).items()}
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (MASK, [2, 9, 16, 23]),
        (MASK.tolist(), [2, 9, 16, 23]),
        (np.zeros(30, bool), []),
        ([], []),
        ([-1, -2, 0], [29, 28, 0]),
        (slice(26, None), [26, 27, 28, 29]),
        (np.array([3, 3], np.uint8), [3, 3]),
    ],
)
def test_every_reader_chooses_rows_alike(reader, rows, expected):
    if reader == "to_torch":
        pytest.importorskip("torch")
    found, whole = READERS[reader](dataset(), rows), dataset()
    assert found.pair_ids.tolist() == expected
    assert found.caption_lengths.tolist() == [2 + pair % 4 for pair in expected]
    assert [row[0] for row in found.caption_tokens.tolist()] == expected
    images = whole.image_features[[pair // 5 for pair in expected]] if expected else np.empty((0, 2, 3))
    np.testing.assert_array_equal(found.image_features, images)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "rows",
    [
        np.ones(10, bool),
        [1.5],
        ["1"],
        [30],
        [0, -31],
        3,
        [[1, 2]],
    ],
)
def test_rows_that_do_not_exist_are_refused(reader, rows):
    with refused(RowError):
        READERS[reader](dataset(), rows)
    assert issubclass(RowError, DataError)
    assert issubclass(RowError, IndexError)


@pytest.mark.parametrize(
    "call",
    [
        lambda whole: whole.first_images(-1),
        lambda whole: whole.first_images(True),
        lambda whole: whole.shard(0, 0),
        lambda whole: whole.shard(3, -1),
        lambda whole: whole.shard(3, 3),
        lambda whole: whole.batches(-4),
        lambda whole: whole.batches(8, seed="zero"),
    ],
)
def test_numbers_that_choose_nothing_are_refused_at_once(call):
    with refused(DataError):
        call(dataset())


def test_one_pair_and_all_pairs_one_by_one():
    whole = dataset()
    last = whole[-1]
    assert (last["pair_ids"], last["caption_lengths"], last["image_lengths"]) == (29, 3, 2)
    assert last["caption_tokens"].tolist() == [29, 29, 29]
    np.testing.assert_array_equal(last["image_features"], whole.image_features[5])
    assert [pair["pair_ids"] for pair in whole] == list(range(30))
    with pytest.raises(IndexError):
        whole[30]
    for row in (1.5, True, slice(3), MASK):
        with refused(RowError):
            whole[row]


@pytest.mark.parametrize("options", [{}, {"collate_fn": collate}])
def test_a_data_loader_over_the_dataset_gives_batches(options):
    torch = pytest.importorskip("torch")
    whole = dataset()
    batches = list(torch.utils.data.DataLoader(whole, batch_size=8, **options))
    assert [len(batch["pair_ids"]) for batch in batches] == [8, 8, 8, 6]
    for number, batch in enumerate(batches):
        expected = whole.to_torch(range(8 * number, min(8 * number + 8, 30)))
        assert list(batch) == list(expected)
        for name, tensor in expected.items():
            assert batch[name].dtype == tensor.dtype
            assert torch.equal(batch[name], tensor)
    both = torch.utils.data.ConcatDataset([whole, whole.subset([4, 5])])
    (batch,) = torch.utils.data.DataLoader(both, batch_size=32, collate_fn=collate)
    assert torch.equal(batch["caption_tokens"], whole.to_torch([*range(30), 4, 5])["caption_tokens"])


def changed(**values):
    """A pair with other values; a name whose value is ``...`` is left out."""
    return {name: value for name, value in {**dataset()[1], **values}.items() if value is not ...}


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "a dog",
        {},
        changed(caption_tokens=...),
        changed(caption_tokens=None),
        changed(caption_tokens=np.ones((2, 3))),
        changed(pair_ids="seven"),
        changed(pair_ids=np.longdouble(1)),
        changed(image_features=[[1.0], [1.0, 2.0]]),
        changed(image_features=np.ones((5, 3))),
    ],
)
def test_a_pair_that_does_not_fit_the_others_is_named(odd):
    pytest.importorskip("torch")
    with refused(DataError):
        collate([dataset()[0], odd])


def test_names_that_all_pairs_have_are_stacked_too():
    torch = pytest.importorskip("torch")
    tokens = torch.tensor([7])
    pairs = [
        {**dataset()[0], "weight": np.array(0.5, ">f4"), "caption_tokens": tokens},
        changed(weight=np.array(2, ">f4")),
    ]
    batch = collate(pairs)
    assert torch.equal(batch["weight"], torch.tensor([0.5, 2.0]))
    assert torch.equal(batch["caption_tokens"][0].nonzero(), torch.tensor([[0]]))


def test_first_images_keep_their_captions_and_only_them():
    whole = dataset()
    part = whole.first_images(2)
    assert part.n_images == 2
    assert part.image_ids.tolist() == ["image 0", "image 1"]
    assert part.pair_ids.tolist() == list(range(10))
    captions_agree(part, whole)
    assert whole.first_images(100).n_images == 6
    noisy = replace(whole, caption_to_image=whole.caption_to_image[::-1].copy())
    assert noisy.first_images(1).pair_ids.tolist() == [25, 26, 27, 28, 29]


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_batches_visit_every_pair_once(seed):
    whole = dataset()
    batches = list(whole.batches(7, seed=seed))
    visited = np.concatenate([batch.pair_ids for batch in batches])
    assert sorted(visited.tolist()) == list(range(30))
    assert [len(batch) for batch in batches] == [7, 7, 7, 7, 2]
    assert (visited.tolist() == list(range(30))) == (seed is None)
    again = np.concatenate([batch.pair_ids for batch in whole.batches(8, seed=seed)])
    assert again.tolist() == visited.tolist()
    for batch in batches:
        np.testing.assert_array_equal(batch.image_features, whole.image_features[batch.pair_ids // 5])
        np.testing.assert_array_equal(batch.caption_tokens[:, 0], batch.pair_ids)
        np.testing.assert_array_equal(batch.caption_lengths, 2 + batch.pair_ids % 4)


def test_to_torch_holds_writable_copies():
    torch = pytest.importorskip("torch")
    whole = dataset()
    tensors = whole.to_torch()
    assert tensors["image_features"].dtype == torch.float32
    assert tensors["caption_tokens"].shape == (30, 5)
    tensors["image_features"].zero_()
    assert whole.image_features.any()
    assert whole.to_torch(np.array([4]))["pair_ids"].tolist() == [4]


def test_a_dataset_is_shown_in_two_lines_and_in_a_notebook_as_a_table():
    clean = dataset()
    assert repr(clean) == (
        "<PairedDataset small/train: 30 captions, 6 images,\n 2 x 3 features (float32), no synthetic noise>"
    )
    moved = np.where(np.arange(30) < 12, (clean.caption_to_image + 1) % 6, clean.caption_to_image)
    noisy = replace(clean, noise=Noise("caption", 0.4, 1, "", 0.4), caption_to_image=moved)
    assert repr(noisy).endswith("40% of captions moved, 40.0% of captions wrong>")
    assert repr(noisy.subset(range(16))).endswith("75.0% of captions wrong>")  # 12 of its 16
    table = replace(clean, captions=["<b>bold</b>", *clean.captions[1:]])._repr_html_()
    assert "<td>no synthetic noise</td>" in table
    assert "<td>&lt;b&gt;bold&lt;/b&gt;</td>" in table
    assert "<td>no text</td>" in replace(clean, captions=None)._repr_html_()


def test_a_batch_holds_the_columns_that_are_asked_for():
    train = load_dataset(
        "digits", noise_ratio=0.4, columns=("caption", "image", "image_id", "row", "pair_ids")
    )
    part = train.subset([5, 7])
    torch = pytest.importorskip("torch")
    (batch,) = torch.utils.data.DataLoader(part, batch_size=2)
    assert batch["caption"] == [train.captions[5], train.captions[7]]
    assert batch["row"].tolist() == [0, 1]
    assert batch["pair_ids"].tolist() == [5, 7]
    assert batch["image"][0] == train.images[train.caption_to_image[5]]
    assert batch["image_id"][1] == train.image_ids[train.caption_to_image[7]]
    assert list(part[0]) == ["caption", "image", "image_id", "row", "pair_ids"]


def test_an_unknown_column_is_refused():
    with refused(DataError):
        load_dataset("digits", columns=("captions",))


def test_help_begins_with_a_sentence():
    first = pydoc.render_doc(PairedDataset, renderer=pydoc.plaintext).splitlines()[3]
    assert first.startswith(" |  Images, captions, and the image each caption")
