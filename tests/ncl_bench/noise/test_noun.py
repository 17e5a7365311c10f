"""The unit ``noun`` against its definition, on every way to it, and its refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import flickr8k_miniature as miniature
from support.command import invoke
from support.refusals import refused

from ncl_bench.data import DATASETS
from ncl_bench.data.load import load_dataset
from ncl_bench.data.prepare import prepare
from ncl_bench.errors import NoiseError
from ncl_bench.noise.draw import Noise, chosen_captions, inject_noise, noise_sha256
from ncl_bench.noise.files import read_index
from ncl_bench.noise.noun import DETERMINERS, FOLLOWERS, find_nouns, pair_by_noun

SENTENCES = [
    "A dog runs with the cat .",
    "the DOG is on a red-hot stove",
    "cat, dog",
    "a few of the dogs",
    "some cat",
]


def definition(order, captions, each, random):
    """Item 3 and 4 of docs/protocol.md, caption by caption."""
    nouns, paired = find_nouns(captions), [c // each for c in range(len(captions))]
    for c in order:
        candidates = {
            noun: [o for o in range(len(captions)) if o // each != c // each and noun in nouns[o]]
            for noun in nouns[c]
        }
        known = sorted(noun for noun in candidates if candidates[noun])
        if known:
            of_noun = candidates[known[random.randint(len(known), dtype=np.int64)]]
            paired[c] = of_noun[random.randint(len(of_noun), dtype=np.int64)] // each
    return paired


@given(st.integers(1, 3), st.integers(4, 12), st.integers(0, 9), st.data())
def test_it_equals_the_definition(each, n_images, seed, data):
    n = each * n_images
    captions = data.draw(st.lists(st.sampled_from(SENTENCES), min_size=n, max_size=n))
    order = chosen_captions(n, 0.6, seed)
    expected = definition(order.tolist(), captions, each, np.random.RandomState(seed))
    kept = sum(expected[c] == c // each for c in order.tolist())
    given = order, captions, np.arange(n) // each, np.random.RandomState(seed)
    if kept > len(order) // 10:
        with pytest.raises(
            NoiseError, match=f"^{kept} of {len(order)} drawn captions have no noun in common"
        ):
            pair_by_noun(*given)
    else:
        assert pair_by_noun(*given).tolist() == expected


def test_nouns_are_found_by_the_words_around_them():
    captions = [
        "A dog on the beach .",
        "two dogs are on a Beach",
        "A dog is near the beach",
        "the dog",
        "a red shirt",
        "the red and a red shirt",
        "a few of the many",
    ]
    assert find_nouns(captions) == [
        {"dog", "beach"},
        {"beach"},
        {"dog", "beach"},
        {"dog"},
        set(),
        set(),
        set(),
    ]
    # in one of fifty occurrences, and no less often
    seldom = ["the stand"] * 3 + ["they stand still"] * 147
    assert find_nouns(seldom)[0] == {"stand"}
    assert find_nouns([*seldom, "they stand still"])[0] == set()
    assert not DETERMINERS & FOLLOWERS - {"that"}


HASHES = {
    0.2: "82fd1341bf4d8c526996b90ae7259944bf1bffd33873bd3eef4c4c9897508268",
    0.4: "567a077286ec2237764352c3717c4c261cc6fb599fd4b08cf11b7f8ebee1e3a7",
    0.6: "fa754b80fa3807b3e944cccb86c13e6bbe8a214555242b6995f34a40fba00147",
    0.8: "a92b40794c33fe87d30aa81a645d435eaa9346b4d4f75a47092993889dab65a6",
}


@pytest.mark.parametrize("ratio", HASHES)
def test_the_standard_draws_of_digits_have_these_hashes(ratio):
    index, record = DATASETS["digits"].draw_noise(noise_ratio=ratio, noise_unit="noun")
    assert record.sha256 == noise_sha256(index) == HASHES[ratio]
    clean = np.arange(len(index)) // DATASETS["digits"].captions_per_image
    assert set(np.flatnonzero(index != clean)) <= set(chosen_captions(len(index), ratio, 0))
    assert 0.98 * ratio < record.realised_ratio < ratio


def test_a_loaded_dataset_and_a_sweep_carry_it():
    train = load_dataset("digits", noise_ratio=0.4, noise_unit="noun")
    assert train.noise.sha256 == HASHES[0.4]
    assert "40% of captions moved to a common noun" in repr(train)
    assert Noise.parse("noun-40") == Noise("noun", 0.4)


@pytest.mark.parametrize(
    "captions",
    [
        None,
        ["un chien sur la plage"] * 40,
        ["a dog on it"] * 2 + ["red"] * 38,
    ],
)
def test_sentences_are_needed(captions):
    options = {"noise_ratio": 0.5, "noise_unit": "noun", "seed": 0, "captions_per_image": 1}
    with refused(NoiseError):
        inject_noise(np.arange(40), captions=captions, **options)


def test_keywords_are_refused():
    with refused(NoiseError):
        load_dataset("pictograms", noise_ratio=0.4, noise_unit="noun")


def test_a_prepared_dataset_reads_its_captions(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS.data, "flickr8k", miniature.SPEC)
    prepare("flickr8k", miniature.make(tmp_path / "download"), tmp_path / "data")
    drawn = load_dataset("flickr8k", noise_ratio=0.4, noise_unit="noun", root=tmp_path / "data")
    to = tmp_path / "noun.npy"
    command = ["noise", "make", "flickr8k", "--unit", "noun", "--ratio", "0.4", "--to", str(to)]
    with refused():
        invoke(*command)
    invoke(*command, "--root", tmp_path / "data")
    np.testing.assert_array_equal(read_index(to), drawn.caption_to_image)
