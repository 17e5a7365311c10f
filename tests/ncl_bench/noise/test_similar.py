"""The unit ``similar`` against its definition, on every way to it, and its refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import similar_noise as oracle
from support import flickr8k_miniature as miniature
from support.command import invoke
from support.refusals import refused

from ncl_bench.data import DATASETS, load, true_correspondence
from ncl_bench.data.load import load_dataset
from ncl_bench.data.prepare import prepare
from ncl_bench.errors import NoiseError
from ncl_bench.noise.draw import inject_noise, noise_sha256
from ncl_bench.noise.files import read_index
from ncl_bench.noise.identify import identify
from ncl_bench.noise.similar import exchange_similar, share_without_common_word, words

WORDS = ["red", "apple", "fruit", "Pear", "a_b", "水果", "苹", "x1", "dog", "cat"]


@st.composite
def splits(draw):
    """Captions, captions per image, and the order of the draw."""
    each = draw(st.integers(1, 3))
    n_images = draw(st.integers(1, 12))
    caption = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
    captions = draw(st.lists(caption, min_size=each * n_images, max_size=each * n_images))
    order = draw(st.permutations(range(len(captions))))
    return captions, each, order[: draw(st.integers(0, len(captions)))]


@given(splits())
def test_it_equals_the_definition(given):
    captions, each, order = given
    expected = oracle.exchange(order, captions, each)
    clean = np.arange(len(captions)) // each
    if isinstance(expected, int):
        with pytest.raises(NoiseError, match=f"^{expected} of {len(order)} drawn captions find no image"):
            exchange_similar(np.array(order, np.int64), captions, clean)
    else:
        found = exchange_similar(np.array(order, np.int64), captions, clean)
        assert found.tolist() == expected
        assert (found[order] != clean[order]).all()


def test_more_than_fifty_candidates_and_a_block_end():
    random = np.random.RandomState(0)
    captions = [" ".join(random.choice(["a", "b", "c", "d", *map(str, range(60))], 5)) for _ in range(400)]
    order = random.permutation(400)
    found = exchange_similar(order, captions, np.arange(400) // 2)
    assert found.tolist() == oracle.exchange(order.tolist(), captions, 2)


@pytest.mark.parametrize("caption", ["A red-hot Äpfel_kuchen 3x", "两个红苹果 and 3苹", "", "__"])
def test_words(caption):
    assert words(caption) == oracle.words(caption)


HASHES = {
    ("digits", 0.2): "58e13d1e44e3219b972dc3280d70a8c80e6bac5f70d4ba5c2ad8cb03051b8899",
    ("digits", 0.4): "b705f7d703f2bb53d52d2916c46afb7ef475d1f791169c893ea6ea9c06e0ebe9",
    ("digits", 0.6): "4bd7d880d06c1356f56f9217372bc6b52bd0336734745de5d1b24ffecd92351d",
    ("digits", 0.8): "15240e814cb358941c773911235988b54e897d58fea972365d2b1c948a7b1a06",
    ("pictograms", 0.2): "96336dc4af6916410e6518ad3b9015b73c3c78d198f5ff530b1461711f86f9df",
    ("pictograms", 0.4): "696a7f901779011492979c80dd073eaa1f4c8d44694c54058b0f5fb6cfc5a457",
    ("pictograms", 0.6): "5547408fb5a0b149236e714e09450029478a47c8d6d894a1c5fc531e56f236ce",
    ("pictograms", 0.8): "f7cf4e2f664ad50577774d4250d74774655c3c443e83c3a15f5f532e8cfb3971",
    ("pictograms-emoji", 0.2): "ade60fe33dde831494e9315dee82d8b6c27eb6f18a0b632dcfe88a2d8818b674",
    ("pictograms-emoji", 0.4): "83f9515cb5a73d14965e634e1d6011f466b07b8e72215d0664413c81ad8624a4",
    ("pictograms-emoji", 0.6): "c0bf594bbac57f142162aaa563f9e2c9a1bb75b884f78dd3eef1f0b1dd4a24c0",
    ("pictograms-emoji", 0.8): "bf233f4d1d261171d1e65261e8751bdedb4e298094d786accab7fa7beadd3d6f",
}


@pytest.mark.parametrize(("name", "ratio"), HASHES)
def test_the_standard_draws_have_these_hashes(name, ratio):
    spec = DATASETS[name]
    index, record = spec.draw_noise(noise_ratio=ratio, noise_unit="similar")
    assert record.sha256 == noise_sha256(index) == HASHES[name, ratio]
    assert record.realised_ratio == int(ratio * len(index)) / len(index)
    random, _ = spec.draw_noise(noise_ratio=ratio, noise_unit="caption")
    clean = np.arange(len(index)) // spec.captions_per_image
    assert (index != clean)[random != clean].all(), "both units choose the same captions"


def test_a_loaded_dataset_carries_it():
    train = load_dataset("pictograms", noise_ratio=0.4, noise_unit="similar")
    assert train.noise.sha256 == HASHES["pictograms", 0.4]
    assert (~true_correspondence(train)).sum() == int(0.4 * len(train))
    assert "40% of similar captions exchanged" in repr(train)


def test_the_share_of_wrong_pairs_without_a_common_word():
    captions, clean = ["red dog", "a dog", "Red cat", "水果"], np.array([0, 0, 1, 2])
    # "a dog" beside "水果"
    assert share_without_common_word(captions, clean, np.array([1, 2, 0, 2])) == 1 / 3
    assert share_without_common_word(captions, clean, clean) == 0


@pytest.mark.parametrize("seed", [0, 7])
def test_a_file_is_identified_without_its_captions(seed):
    index, _ = DATASETS["pictograms-emoji"].draw_noise(noise_ratio=0.6, noise_unit="similar", seed=seed)
    found = identify(index, [DATASETS["pictograms-emoji"]], seeds=range(10))
    assert (found.unit, found.ratio, found.seed) == ("similar", 0.6, seed)


@pytest.mark.parametrize(
    "captions",
    [
        None,
        ["a"],
        "abcdefgh",
        ["same words"] * 8,
        [""] * 8,
    ],
)
def test_captions_and_partners_are_needed(captions):
    options = {"noise_ratio": 0.5, "noise_unit": "similar", "seed": 0, "captions_per_image": 1}
    with refused(NoiseError):
        inject_noise(np.arange(8), captions=captions, **options)


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """Folder with a prepared Flickr8K of a few images."""
    monkeypatch.setitem(DATASETS.data, "flickr8k", miniature.SPEC)
    prepare("flickr8k", miniature.make(tmp_path / "download"), tmp_path / "data")
    return tmp_path / "data"


def test_a_prepared_dataset_draws_it_or_reads_its_file(prepared, monkeypatch):
    drawn = load_dataset("flickr8k", noise_ratio=0.4, noise_unit="similar", root=prepared)
    monkeypatch.setattr(load, "DRAWN_AT_ONCE", 0)
    with refused(NoiseError):
        load_dataset("flickr8k", noise_ratio=0.4, noise_unit="similar", root=prepared)
    command = ["noise", "make", "flickr8k", "--unit", "similar", "--ratio", "0.4", "--root", str(prepared)]
    done = invoke(*command)
    assert "no reference hash exists for flickr8k yet" in done.output
    read = load_dataset("flickr8k", noise_ratio=0.4, noise_unit="similar", root=prepared)
    np.testing.assert_array_equal(read.caption_to_image, drawn.caption_to_image)
    assert (read.noise.seed, read.noise.ratio) == (drawn.noise.seed, 0.4)
    np.save(prepared / "flickr8k" / "noise" / "similar-20-seed0.npy", drawn.caption_to_image)
    with refused(NoiseError):
        load_dataset("flickr8k", noise_ratio=0.2, noise_unit="similar", root=prepared)


def test_the_command_names_what_is_missing(tmp_path):
    for options in (["flickr30k", "--to", str(tmp_path / "a.npy")], ["digits"]):
        with refused():
            invoke("noise", "make", *options, "--unit", "similar", "--ratio", "0.4")
    invoke("noise", "make", "digits", "--unit", "similar", "--ratio", "0.2", "--root", tmp_path)
    assert noise_sha256(read_index(tmp_path / "digits/noise/similar-20-seed0.npy")) == HASHES["digits", 0.2]
