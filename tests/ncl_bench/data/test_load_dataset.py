"""load_dataset: names, noise on train alone, noise files, prepared folders, the hidden truth."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from support.refusals import refused

import ncl_bench
from ncl_bench.data import DATASETS, true_correspondence
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError
from ncl_bench.noise.draw import noise_sha256

DIGITS = DATASETS["digits"]


def test_clean_data_says_so():
    for split in ("train", "dev", "test"):
        dataset = load_dataset("digits", split=split)
        np.testing.assert_array_equal(dataset.caption_to_image, np.arange(len(dataset)) // 5)
        assert (dataset.noise.unit, dataset.noise.ratio, dataset.noise.realised_ratio) == (None, 0.0, 0.0)
        assert dataset.noise.sha256 == noise_sha256(dataset.caption_to_image)
        assert (dataset.name, dataset.split, len(dataset)) == ("digits", split, DIGITS.n_captions(split))


@pytest.mark.parametrize("unit", ["caption", "image"])
def test_noise_is_that_of_the_standard_seed(unit):
    dataset = load_dataset("digits", noise_ratio=0.4, noise_unit=unit)
    expected, record = DIGITS.draw_noise(noise_ratio=0.4, noise_unit=unit, seed=0)
    np.testing.assert_array_equal(dataset.caption_to_image, expected)
    assert dataset.noise == record
    assert dataset.noise.seed == 0
    clean = load_dataset("digits")
    assert dataset.fingerprint == clean.fingerprint
    assert list(dataset.captions) == list(clean.captions)
    other = load_dataset("digits", noise_ratio=0.4, noise_unit=unit, noise_seed=1)
    assert other.noise.sha256 != dataset.noise.sha256


def test_a_ratio_of_zero_takes_the_settings_of_the_other_ratios():
    clean = load_dataset("digits", noise_ratio=0.0, noise_unit="image", noise_seed=3)
    assert clean.noise == load_dataset("digits").noise


def test_noise_file_is_used_and_recorded(tmp_path):
    path = tmp_path / "index.npy"
    expected, drawn = DIGITS.draw_noise(noise_ratio=0.6, noise_unit="caption", seed=77)
    np.save(path, expected)
    for ratio in (0.0, 0.6):
        dataset = load_dataset("digits", noise_file=path, noise_ratio=ratio)
        np.testing.assert_array_equal(dataset.caption_to_image, expected)
        assert dataset.noise == replace(drawn, unit="file", seed=None, source=str(path))


REFUSED = [
    "f30k",
    "digits split=val",
    "digits language=de",
    "digits tokenizer=spaces",
    "digits preload=gpu",
    "digits noise_ratio='0.4'",
    "digits noise_ratio=true",
    "digits noise_ratio=1",
    "digits noise_ratio=0.4 noise_seed=zero",
    "digits noise_ratio=0.4 noise_seed=-1",
    "digits noise_unit=captions",
    "digits noise_unit=image",
    "digits noise_seed=3",
    "digits split=dev noise_seed=3",
    "digits split=dev noise_ratio=0.2",
    "digits split=test noise_ratio=0.2",
    "digits split=dev noise_file=index.npy",
    "digits split=test noise_file=index.npy",
    "cc152k noise_ratio=0.2",
    "now noise_ratio=0.2",
    "digits noise_file=index.npy noise_ratio=0.4",
    "digits noise_file=index.npy noise_seed=3",
    "digits noise_file=index.npy noise_unit=image",
    "digits noise_file=absent.npy",
    "digits noise_file=[0,1]",
    "flickr30k",
    "flickr30k root=.",
    "flickr30k root=absent",
]


@pytest.mark.parametrize("call", REFUSED)
def test_what_cannot_be_loaded_is_one_sentence(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    np.save("index.npy", DIGITS.draw_noise(noise_ratio=0.6, noise_unit="caption", seed=77)[0])
    name, *options = call.split()
    with refused():
        load_dataset(
            name, **{key: yaml.safe_load(x) for key, _, x in (each.partition("=") for each in options)}
        )


def test_truth_agrees_with_the_realised_ratio_and_survives_subsetting():
    dataset = load_dataset("digits", noise_ratio=0.6)
    truth = true_correspondence(dataset)
    assert truth.dtype == np.bool_
    assert 1 - truth.mean() == pytest.approx(dataset.noise.realised_ratio)
    np.testing.assert_array_equal(truth, dataset.caption_to_image == np.arange(10_000) // 5)
    rows = np.random.RandomState(0).permutation(10_000)[:300]
    np.testing.assert_array_equal(true_correspondence(dataset.subset(rows)), truth[rows])
    np.testing.assert_array_equal(true_correspondence(dataset.shard(4, 3)), truth[7_500:])
    part = dataset.first_images(50)
    np.testing.assert_array_equal(true_correspondence(part), truth[part.pair_ids])


def test_truth_of_natural_noise_is_unknown():
    dataset = load_dataset("digits", split="dev")
    assert true_correspondence(replace(dataset, name="now")).all()
    with refused(DataError):
        true_correspondence(replace(dataset, name="now", split="train"))


def test_every_public_name_is_there():
    for name in ncl_bench.__all__:
        assert getattr(ncl_bench, name) is not None
        assert name in dir(ncl_bench)
    with pytest.raises(AttributeError, match="has no attribute 'load'"):
        _ = ncl_bench.load  # type: ignore[attr-defined]
