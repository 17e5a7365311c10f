"""Pairs to keep: a subset after the noise, refused for other data."""

import json
import pickle

import numpy as np
import pytest

from ncl_bench.data.keep import Kept, write_keep
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError, NclBenchError
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
    ("options", "stated", "ids", "message"),
    [
        ({"name": "digits"}, {}, IDS, "belongs to other data: noise is"),
        (NOISY | {"noise_seed": 1}, {}, IDS, "noise is"),
        (NOISY | {"name": "pictograms"}, {}, IDS, "dataset is 'digits', expected 'pictograms'"),
        ({"name": "digits", "split": "dev"}, {}, IDS, "keep lists pairs of train, not of dev"),
        (NOISY | {"keep": 3}, {}, IDS, "keep is 3"),
        (NOISY, {"fingerprint": "0123456789abcdef" * 4}, IDS, "fingerprint is"),
        (NOISY, {"sha256": "0" * 64}, IDS, "keep.csv does not hold the pairs"),
        (NOISY, {}, [1, "four"], "keep.csv line 3: 'four'"),
        (NOISY, {"dataset": None}, IDS, "keep.json cannot be read .*dataset"),
        (NOISY, {"n_kept": 2}, IDS, "states, 2 of 10,000: it has 3"),
        (NOISY, {"n_kept": 9_000}, IDS, "states, 9,000 of 10,000"),
        (NOISY, {"n_pairs": 2}, IDS, "states, 3 of 2"),
        (NOISY, {"n_pairs": 10_001}, IDS, "states, 3 of 10,001"),
        (NOISY, {}, [1, 4, 10_000], "10,000: it has 3"),
        (NOISY, {}, [1, 4, 4], "10,000: it has 3"),
        (NOISY, {"n_kept": 2}, [1, 4, 4], "10,000: it has 3"),
    ],
)
def test_a_list_of_other_data_and_a_damaged_one_are_refused(folder, options, stated, ids, message):
    numbers = np.array([each for each in ids if isinstance(each, int | np.integer)])
    said = json.loads((folder / "keep.json").read_text()) | {"sha256": noise_sha256(numbers)} | stated
    (folder / "keep.json").write_text(json.dumps(said))
    (folder / "keep.csv").write_text("pair_id\n" + "".join(f"{pair}\n" for pair in ids))
    with pytest.raises(DataError, match=message):
        load_dataset(**{"keep": folder} | options)


def test_an_existing_folder_is_not_overwritten(folder):
    said = Kept.model_validate(json.loads((folder / "keep.json").read_text()))
    with pytest.raises(NclBenchError, match="exists already; choose a new folder with --to"):
        write_keep(folder, IDS, said)
