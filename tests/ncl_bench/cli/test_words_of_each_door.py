"""A refusal names arguments to who calls from Python, and options to who types a command."""

import pickle

import pytest

import baselines
import ncl_bench
from baselines.calls import Search, score_zero_shot
from ncl_bench.errors import NclBenchError, named, option_of

RECIPE = "ncr/digits_vse_infinity"
BOTH = {
    "train, a value": (
        lambda: baselines.train(RECIPE, to="x", noise_ratio=float("nan")),
        ["train", RECIPE, "--to", "x", "--noise-ratio", "nan"],
        "noise_ratio='nan': expected",
        "--noise-ratio nan: expected",
    ),
    "train, a forgotten argument": (
        lambda: baselines.train(RECIPE, to="x", noise_unit="image"),
        ["train", RECIPE, "--to", "x", "--noise-unit", "image"],
        "noise_unit='image' has no effect without noise; give noise_ratio=0.4",
        "--noise-unit image has no effect without noise; give --noise-ratio 0.4",
    ),
    "train, a device": (
        lambda: baselines.train(RECIPE, to="x", device="gpu"),
        ["train", RECIPE, "--to", "x", "--device", "gpu"],
        "device is 'gpu'; choose",
        "--device is 'gpu'; choose",
    ),
    "train, a card that is not there": (
        lambda: baselines.train(RECIPE, to="x", device="cuda"),
        ["train", RECIPE, "--to", "x", "--device", "cuda"],
        "device='cuda', but torch finds no CUDA device; use device='cpu'",
        "--device cuda, but torch finds no CUDA device; use --device cpu",
    ),
    "train, a setting": (
        lambda: baselines.train(RECIPE, to="x", settings={"method.epoch": 1}),
        ["train", RECIPE, "--to", "x", "--set", "method.epoch=1"],
        "settings='method.epoch': ",
        "--set method.epoch: ",
    ),
    "score, a setting of a training": (
        lambda: score_zero_shot("info_nce/pictograms_clip", to="x", settings=["method.epochs=3"]),
        ["score", "--zero-shot", "info_nce/pictograms_clip", "--set", "method.epochs=3", "--to", "x"],
        "settings='method.epochs=3' has no effect, as nothing is trained",
        "--set method.epochs=3 has no effect, as nothing is trained",
    ),
    "sweep, too many at once": (
        lambda: baselines.sweep(RECIPE, to="x", jobs=2**31),
        ["sweep", RECIPE, "--to", "x", "--jobs", str(2**31)],
        "jobs is 2147483648, expected",
        "--jobs is 2147483648, expected",
    ),
    "tune, a table without tuning": (
        lambda: Search.of(table="ablation_ncr", to="x"),
        ["tune", "--table", "ablation_ncr", "--to", "x"],
        "table='ablation_ncr' trains its recipes as they are and has no tuning section; fix: leave table= out",
        "--table ablation_ncr trains its recipes as they are and has no tuning section; fix: leave --table out",
    ),
    "prepare, no files": (
        lambda: ncl_bench.prepare("flickr30k", to="x"),
        ["prepare", "flickr30k", "--to", "x"],
        "name them with place=",
        "name them with --from",
    ),
    "prepare, no folder": (
        lambda: ncl_bench.prepare("digits"),
        ["prepare", "digits"],
        "no output folder given; add to=DIR or set",
        "no output folder given; add --to DIR or set",
    ),
    "new_dataset, no pairs": (
        lambda: ncl_bench.new_dataset("mine", to="x"),
        ["datasets", "new", "mine", "--to", "x"],
        "or clean= with the folder of an audit",
        "or --clean with the folder of an audit",
    ),
    "find_wrong_pairs, one side": (
        lambda: baselines.find_wrong_pairs(image_embeddings="a.npy"),
        ["audit", "pairs", "--image-embeddings", "a.npy"],
        "give both image_embeddings= and caption_embeddings=",
        "give both --image-embeddings and --caption-embeddings",
    ),
}


@pytest.mark.parametrize("case", BOTH)
def test_each_door_has_its_words(case, run, tmp_path, monkeypatch):
    call, command, from_python, from_a_terminal = BOTH[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(NclBenchError) as refused:
        call()
    assert from_python in str(refused.value)
    told = run(*command)
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert from_a_terminal in told.err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("noise", "make", "digits", "--ratio", "0.4", "--seed", "-1", "--to", "x.npy"), "--seed is -1, expected"),
        (("score", "--to", "x"), "or --zero-shot and a recipe, with --set"),
        (("score", "run", "--to", "x", "--set", "steps=3"), "or --zero-shot and a recipe, with --set and --precision"),
        (("sweep", "--to", "x"), "name some, or add --table NAME"),
        (("sweep", RECIPE, "--to", "x", "--dataset", "digits"), "--dataset moves a table to another dataset; fix: add"),
        (("sweep", RECIPE, "--paper", "NCR"), "--paper selects rows of a table; fix: add --table NAME"),
        (("sweep", RECIPE, "--slurm", "partition=gpu"), "--slurm partition=gpu only applies to SLURM jobs; fix:"),
        (("tune", "--table", "pictograms", "--trials", "3"), "--table pictograms already sets --trials"),
        (("features", ".", "--split", "train=a", "--to", "x"), "--split names train=a, expected SPLIT=FILE for each"),
    ],
)  # fmt: skip
def test_a_command_names_its_own_options(
    command,
    sentence,
    run,
    tmp_path,
    monkeypatch,
):
    monkeypatch.chdir(tmp_path)
    told = run(*command)
    assert (told.code, sentence in told.err) == (2, True), told.err


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
