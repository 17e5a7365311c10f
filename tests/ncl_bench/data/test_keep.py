"""Pairs to keep: a subset after the noise, refused for other data."""

import json
import pickle

import numpy as np
import pytest
from support.refusals import refused

from ncl_bench.data.keep import Kept, write_keep
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError
from ncl_bench.noise.draw import noise_sha256

IDS = np.array([1, 4, 9_999])


@pytest.fixture
def folder(tmp_path):
    """Three pairs of digits at 40 % noise."""
    noisy = load_dataset("digits", noise_ratio=0.4)
    kept = Kept(
        dataset="digits",
        fingerprint=noisy.fingerprint,
        noise=noisy.noise,
        n_pairs=len(noisy),
        n_kept=len(IDS),
        sha256=noise_sha256(IDS),
        chosen_by="clean_probability",
        threshold=0.5,
        runs=("runs/ncr",),
    )
    write_keep(tmp_path / "cleaned", IDS, kept)
    return tmp_path / "cleaned"


def test_it_is_a_subset_after_the_noise_and_can_be_pickled(folder):
    noisy, kept = (load_dataset("digits", noise_ratio=0.4, keep=keep) for keep in (None, folder))
    for again in (kept, pickle.loads(pickle.dumps(kept))):
        assert again.pair_ids.tolist() == IDS.tolist()
        np.testing.assert_array_equal(again.caption_to_image, noisy.caption_to_image[IDS])
        assert (again.noise, again.fingerprint) == (noisy.noise, noisy.fingerprint)


NOISY = {"name": "digits", "noise_ratio": 0.4}


@pytest.mark.parametrize(
    ("options", "stated", "ids"),
    [
        ({"name": "digits"}, {}, IDS),
        (NOISY | {"noise_seed": 1}, {}, IDS),
        (NOISY | {"name": "pictograms"}, {}, IDS),
        ({"name": "digits", "split": "dev"}, {}, IDS),
        (NOISY | {"keep": 3}, {}, IDS),
        (NOISY, {"fingerprint": "0123456789abcdef" * 4}, IDS),
        (NOISY, {"sha256": "0" * 64}, IDS),
        (NOISY, {}, [1, "four"]),
        (NOISY, {"dataset": None}, IDS),
        (NOISY, {"n_kept": 2}, IDS),
        (NOISY, {"n_kept": 9_000}, IDS),
        (NOISY, {"n_pairs": 2}, IDS),
        (NOISY, {"n_pairs": 10_001}, IDS),
        (NOISY, {}, [1, 4, 10_000]),
        (NOISY, {}, [1, 4, 4]),
        (NOISY, {"n_kept": 2}, [1, 4, 4]),
    ],
)
def test_a_list_of_other_data_and_a_damaged_one_are_refused(folder, options, stated, ids):
    numbers = np.array([each for each in ids if isinstance(each, int | np.integer)])
    said = json.loads((folder / "keep.json").read_text()) | {"sha256": noise_sha256(numbers)} | stated
    (folder / "keep.json").write_text(json.dumps(said))
    (folder / "keep.csv").write_text("pair_id\n" + "".join(f"{pair}\n" for pair in ids))
    with refused(DataError):
        load_dataset(**{"keep": folder} | options)


def test_an_existing_folder_is_not_overwritten(folder):
    said = Kept.model_validate(json.loads((folder / "keep.json").read_text()))
    with refused():
        write_keep(folder, IDS, said)
