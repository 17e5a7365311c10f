"""A refusal names arguments to who calls from Python, and options to who types a command."""

import pickle

import pytest
from support.refusals import refused

import baselines
import ncl_bench
from baselines.calls import Search, score_zero_shot
from ncl_bench.errors import NclBenchError, named, option_of

RECIPE = "ncr/digits_vse_infinity"
BOTH = {
    "train, a value": (
        lambda: baselines.train(RECIPE, to="x", noise_ratio=float("nan")),
        ["train", RECIPE, "--to", "x", "--noise-ratio", "nan"],
    ),
    "train, a forgotten argument": (
        lambda: baselines.train(RECIPE, to="x", noise_unit="image"),
        ["train", RECIPE, "--to", "x", "--noise-unit", "image"],
    ),
    "train, a device": (
        lambda: baselines.train(RECIPE, to="x", device="gpu"),
        ["train", RECIPE, "--to", "x", "--device", "gpu"],
    ),
    "train, a card that is not there": (
        lambda: baselines.train(RECIPE, to="x", device="cuda"),
        ["train", RECIPE, "--to", "x", "--device", "cuda"],
    ),
    "train, a setting": (
        lambda: baselines.train(RECIPE, to="x", settings={"method.epoch": 1}),
        ["train", RECIPE, "--to", "x", "--set", "method.epoch=1"],
    ),
    "score, a setting of a training": (
        lambda: score_zero_shot("info_nce/pictograms_clip", to="x", settings=["method.epochs=3"]),
        ["score", "--zero-shot", "info_nce/pictograms_clip", "--set", "method.epochs=3", "--to", "x"],
    ),
    "sweep, too many at once": (
        lambda: baselines.sweep(RECIPE, to="x", jobs=2**31),
        ["sweep", RECIPE, "--to", "x", "--jobs", str(2**31)],
    ),
    "tune, a table without tuning": (
        lambda: Search.of(table="ablation_ncr", to="x"),
        ["tune", "--table", "ablation_ncr", "--to", "x"],
    ),
    "prepare, no files": (
        lambda: ncl_bench.prepare("flickr30k", to="x"),
        ["prepare", "flickr30k", "--to", "x"],
    ),
    "prepare, no folder": (
        lambda: ncl_bench.prepare("digits"),
        ["prepare", "digits"],
    ),
    "new_dataset, no pairs": (
        lambda: ncl_bench.new_dataset("mine", to="x"),
        ["datasets", "new", "mine", "--to", "x"],
    ),
    "find_wrong_pairs, one side": (
        lambda: baselines.find_wrong_pairs(image_embeddings="a.npy"),
        ["audit", "pairs", "--image-embeddings", "a.npy"],
    ),
}


@pytest.mark.parametrize("case", BOTH)
def test_each_door_has_its_words(case, run, tmp_path, monkeypatch):
    call, command = BOTH[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with refused():
        call()
    run(*command).assert_refused()


@pytest.mark.parametrize(
    "command",
    [
        ("noise", "make", "digits", "--ratio", "0.4", "--seed", "-1", "--to", "x.npy"),
        ("score", "--to", "x"),
        ("score", "run", "--to", "x", "--set", "steps=3"),
        ("sweep", "--to", "x"),
        ("sweep", RECIPE, "--to", "x", "--dataset", "digits"),
        ("sweep", RECIPE, "--paper", "NCR"),
        ("sweep", RECIPE, "--slurm", "partition=gpu"),
        ("tune", "--table", "pictograms", "--trials", "3"),
        ("features", ".", "--split", "train=a", "--to", "x"),
    ],
)
def test_a_command_names_its_own_options(command, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(*command).assert_refused()


def test_what_a_user_wrote_is_as_it_was():
    refusal = NclBenchError(
        f"{named('noise_seed')} is 3; {named('noise_unit', 'image')} has `noise_seed`: 'x_y'"
    )
    refusal.options = {"noise_seed": "--seed", "noise_unit": "--unit"}
    assert str(refusal) == "--seed is 3; --unit image has `noise_seed`: 'x_y'"
    refusal.options = None
    assert str(refusal) == "noise_seed is 3; noise_unit='image' has `noise_seed`: 'x_y'"


def test_a_refusal_is_data():
    refusal = NclBenchError(argument="to", got=5, expected="a path", fix="name one")
    assert (refusal.argument, str(refusal)) == ("to", "--to is 5, expected a path; name one")
    assert (NclBenchError("no argument").argument, str(pickle.loads(pickle.dumps(refusal)))) == (
        "",
        str(refusal),
    )


def test_an_option_is_made_from_the_argument():
    assert option_of("noise_ratio") == "--noise-ratio"
    assert option_of("settings") == "--set"
    assert option_of("seeds", repeatable=True) == "--seed"
