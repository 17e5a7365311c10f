"""Arguments of public calls: converted, or refused in one sentence before anything is read."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from support.submission_folders import embeddings

import baselines
import leaderboard
import ncl_bench
from baselines.audit import find_wrong_pairs
from ncl_bench.arguments import Count, Seed, checked_arguments
from ncl_bench.errors import NclBenchError
from ncl_bench.options import PairColumns

IMAGES, CAPTIONS = embeddings()
SCORES = IMAGES @ CAPTIONS.T
RECIPE = "ncr/digits_vse_infinity"
ROOMS = (ncl_bench, baselines, leaderboard)
TEST = ncl_bench.load_dataset("digits", split="test")
OWNER = {
    "ncl_bench.PairedDataset": TEST,
    "baselines.Run": baselines.Run("run"),
    "baselines.Sweep": baselines.Sweep(Path("to"), []),
}


@checked_arguments()
def echo(
    ratio: float | None = None,
    seed: Seed = 0,
    seeds: Sequence[int] | None = None,
    word: Literal["cosine", "32-true"] = "cosine",
    plain: bool = False,
    count: Count = 1,
    path: str | Path | None = None,
) -> list[Any]:
    return [ratio, seed, seeds, word, plain, count, path]


def test_numbers_of_numpy_become_pythons_and_words_have_any_case():
    found = echo(np.float32(0.4), np.int64(3), np.arange(2), "COSINE", np.bool_(True), np.uint8(7), Path("x"))
    assert found == [0.4, 3, [0, 1], "cosine", True, 7, Path("x")]
    assert [type(value) for value in found[:2]] == [float, int]
    assert echo(np.float16(0.1), path="x") == [0.1, 0, None, "cosine", False, 1, "x"]
    assert echo(1, seeds=range(2))[:3] == [1.0, 0, [0, 1]]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *(("ratio", value, "a number or None") for value in ("0.4", True, [0.4], 1j, np.ones(2))),
        *(("seed", value, "a whole number from 0 to 4294967295") for value in (-1, 2**32, 1.0, "0", None, False)),
        *(("seeds", value, "a list of which each is a whole number or None") for value in (3, "01", {1: 2}, [1.5])),
        *(("word", value, "one of: cosine, 32-true") for value in ("l2", None, 3, "cosine ", "", ["cosine"])),
        *(("plain", value, "True or False") for value in (1, "yes", None)),
        *(("count", value, "a whole number from 1 to 2147483647") for value in (0, -1, 2.0, np.float32(1))),
        *(("path", value, "a path or None") for value in (5, b"x", ["x"], np.ones(2), "a" * 300)),
    ],
)  # fmt: skip
def test_another_value_is_refused_with_what_is_expected(name, value, expected):
    with pytest.raises(NclBenchError, match=f"^{name} is .+, expected {expected}$") as caught:
        echo(**{name: value})
    assert "\n" not in str(caught.value)


NOT_CHECKED = {
    "pairs",
    "image_embeddings",
    "caption_embeddings",
    "scores",
    "t2i",
    "similarities",
    "to_bank_of_captions",
    "to_bank_of_images",
    "rows",
    "options",
}
"""Arguments of too many forms for an annotation: their readers check them, see below."""
VALID = {
    "name": "digits",
    "recipe": RECIPE,
    "recipes": RECIPE,
    "table": "digits",
    "runs": "run",
    "image_embeddings": IMAGES,
    "caption_embeddings": CAPTIONS,
    "to_bank_of_captions": IMAGES,
    "to_bank_of_images": CAPTIONS,
    "images": IMAGES,
    "captions": CAPTIONS,
    "pairs": "captions.csv",
    "features": "features",
    "model": None,
    "folder": "submission",
    "to": "to",
    "path": "path",
    "first": "a",
    "second": "b",
    "dataset": "digits",
    "noise": "none",
    "caption_to_image": np.arange(4),
    "noise_ratio": 0.5,
    "noise_unit": "caption",
    "captions_per_image": 1,
    "kind": "expert",
    "n_shards": 2,
    "index": 0,
    "batch_size": 8,
    "seed": 0,
    "scores": "scores",
    "similarities": IMAGES,
    "columns": "caption",
    "n_images": 1,
}


def public_calls():
    """All functions of ``__all__``, and the methods of its classes that take an argument."""
    found = {f"{room.__name__}.{name}": getattr(room, name) for room in ROOMS for name in room.__all__}
    classes = {
        name: each for name, each in found.items() if isinstance(each, type) and each is not NclBenchError
    }
    calls = {name: each for name, each in found.items() if inspect.isfunction(each)}
    for name, each in classes.items():
        methods = {
            key: value for key, value in vars(each).items() if inspect.isfunction(value) and key[0] != "_"
        }
        calls |= {f"{name}.{key}": value for key, value in methods.items()}
    calls["baselines.Run"] = baselines.Run
    return calls


CALLS = public_calls()
ARGUMENTS = [
    (call, name)
    for call, function in CALLS.items()
    for name in inspect.signature(function).parameters
    if name not in NOT_CHECKED | {"self"}
    and (call, name)
    not in {
        ("ncl_bench.evaluate_embeddings", "images"),
        ("ncl_bench.evaluate_embeddings", "captions"),
        ("ncl_bench.new_dataset_of_features", "captions"),
        ("ncl_bench.evaluate_model", "model"),
        ("ncl_bench.PairedDataset.pickled_as", "again"),
    }
]


def test_every_room_has_public_calls():
    assert {name.partition(".")[0] for name in CALLS} == {room.__name__ for room in ROOMS}
    assert {"ncl_bench.load_dataset", "ncl_bench.PairedDataset.shard", "baselines.Run.score"} <= CALLS.keys()


@pytest.mark.parametrize(("call", "name"), ARGUMENTS)
def test_no_public_call_lets_a_wrong_argument_in(call, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = CALLS[call]
    needed = {
        key: VALID[key]
        for key, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and key in VALID and key != name
    }
    self = {"self": OWNER[call.rpartition(".")[0]]} if call.rpartition(".")[0] in OWNER else {}
    for wrong in (object(), pd.DataFrame({"a": ["b"]})):
        with pytest.raises(NclBenchError, match=f"^{name} is .+, expected ") as caught:
            function(**self, **needed, **{name: wrong})
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def scored(**options):
    return ncl_bench.evaluate_embeddings(
        IMAGES, CAPTIONS, **({"dataset": "digits", "intervals": False} | options)
    )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: scored(similarity="l2"), "similarity is 'l2', expected one of: cosine, dot"),
        (lambda: scored(similarity=None), "similarity is None, expected one of: cosine, dot"),
        (lambda: baselines.Execution(precision="half"), "precision is 'half', expected one of: 32-true"),
        (lambda: TEST.subset([[1], [2, 3]]), r"rows \[\[1\], \[2, 3\]\] cannot be read .*; give one list"),
        (lambda: TEST.read("ab"), "rows are .* of shape"),
        (lambda: ncl_bench.evaluate(SCORES, dataset="digits", t2i=5), r"t2i \(images as rows\) has dtype int64"),
        (lambda: ncl_bench.evaluate((), dataset="digits"), r"scores has shape \(0,\)"),
        (lambda: ncl_bench.write_scores("x.npy", 5), r"similarities have shape \(\)"),
        (lambda: ncl_bench.write_scores("x.npy", [[object()]]), "similarities have shape .* and dtype object"),
        (lambda: find_wrong_pairs(5), "pairs are int, expected a path"),
        (
            lambda: baselines.find_wrong_embeddings(CAPTIONS, CAPTIONS, columns=PairColumns(caption_column="text")),
            "images= and the columns are for a table of pairs",
        ),
        (lambda: ncl_bench.new_dataset("mine", 5, to="x"), "pairs are int, expected a path"),
        (lambda: find_wrong_pairs(image_embeddings=5, caption_embeddings=5), "image embeddings holds int64 of shape"),
    ],
)  # fmt: skip
def test_every_call_checks_its_arguments_first(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NclBenchError, match=f"^(?:{sentence})"):
        call()
    assert list(tmp_path.iterdir()) == []


def test_a_word_of_another_case_is_the_same_word():
    assert scored(similarity="Cosine").recalls() == scored().recalls() != scored(similarity="DOT").recalls()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ncl_bench.load_dataset("coco"), r"run `ncl-bench prepare coco`, .* with root= or NCL_BENCH_DATA"),
        (lambda: baselines.score([], to="x"), r"runs is \[\], expected a finished run at least"),
        (lambda: baselines.sweep(RECIPE, seeds=[]), "^seeds is empty; name one at least"),
        (lambda: baselines.sweep(RECIPE, noises=()), "^noises is empty; name one at least"),
        (lambda: baselines.sweep([]), "^expected recipes or a table to train"),
        (lambda: ncl_bench.load_dataset("Digit"), r"registers it with --plugin \(in Python: import it\)"),
        (lambda: ncl_bench.evaluate(SCORES, dataset="digits", similarity="dot"), "^similarity= does not apply to one"),
        (lambda: ncl_bench.evaluate(SCORES, "digits"), "add dataset=NAME$"),
        (lambda: ncl_bench.load_dataset("digits", noise_ratio=0.4, noise_unit="file"), "its file with noise_file=, or"),
    ],
)  # fmt: skip
def test_python_is_told_of_arguments_and_a_terminal_of_options(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    with pytest.raises(NclBenchError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("call", "replaced_by"),
    [
        (lambda: ncl_bench.evaluate(IMAGES, CAPTIONS, dataset="digits"), "evaluate_embeddings"),
        (lambda: ncl_bench.evaluate((IMAGES, CAPTIONS), dataset="digits"), "evaluate_embeddings"),
        (lambda: ncl_bench.evaluate(object(), encode=encode, dataset="digits"), "evaluate_model"),
        (lambda: ncl_bench.evaluate(Model(), dataset="digits"), "evaluate_model"),
        (lambda: baselines.sweep(table="digits", to="x", plan=True), "Sweep.of"),
        (lambda: baselines.sweep(RECIPE, to="x", plan=True), "Sweep.of"),
    ],
)
def test_a_form_of_the_last_release_works_with_a_warning(call, replaced_by, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(DeprecationWarning, match=replaced_by):
        assert len(call()) if "Sweep" in replaced_by else call().r_sum > 0


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: baselines.train(RECIPE), "'to'"),
        (lambda: baselines.find_wrong_pairs(), "'pairs'"),
        (lambda: baselines.find_wrong_pairs(to="x"), "'pairs'"),
        (lambda: baselines.sweep(seeds=[0]), "'recipes'"),
        (lambda: baselines.train(RECIPE, to="x", sed=3), "'sed'"),
        (lambda: baselines.score("x"), "'to'"),
        (lambda: baselines.score("x", to="x", precision="tf32"), "'precision'"),
        (lambda: baselines.score("x", to="x", hub=1), "'hub'"),
        (lambda: baselines.sweep(RECIPE, noise=["none"]), "'noise'"),
        (lambda: baselines.find_wrong_pairs("x", image="x"), "'image'"),
        (lambda: ncl_bench.new_dataset("x", "x"), "'to'"),
        (lambda: ncl_bench.new_dataset("x", "x", to="x", split=3), "'split'"),
        (lambda: ncl_bench.new_dataset("x", clean="x"), "'pairs'|'to'"),
        (lambda: ncl_bench.evaluate(SCORES, dataset="digits", interval=False), "'interval'"),
        (lambda: ncl_bench.evaluate_submission("x", dataset="digits"), "'dataset'"),
        (
            lambda: ncl_bench.compare("a", "b", dataset="digits"),
            r"^compare\(\) got an unexpected .* 'dataset'$",
        ),
        (lambda: ncl_bench.load_dataset(), r"^load_dataset\(\) missing a required argument: 'name'$"),
    ],
)
def test_a_name_that_no_release_had_is_refused_as_python_does(call, argument):
    with pytest.raises(TypeError, match=argument):
        call()


class Model:
    """Embeds by chance."""

    def encode_images(self, batch):
        return np.random.default_rng(0).normal(size=(len(batch), 4))

    encode_captions = encode_images


def encode(model, kind, batch):
    return Model().encode_images(batch)


@pytest.mark.parametrize(
    "given",
    [{"similarity": "dot"}, {"pictures": True}, {"batch_size": 3}],
    ids=["similarity", "pictures", "batch"],
)
def test_an_argument_of_another_form_is_no_argument(given):
    with pytest.raises((TypeError, NclBenchError)):
        ncl_bench.evaluate(SCORES, dataset="digits", **given)


def test_scores_need_a_dataset_and_a_submission_has_one(tmp_path):
    (tmp_path / "submission.yaml").touch()
    with pytest.raises(NclBenchError):
        ncl_bench.evaluate(tmp_path, dataset="digits")
    np.save(tmp_path / "s.npy", SCORES)
    with pytest.raises(NclBenchError, match=r"add dataset=NAME$"):
        ncl_bench.evaluate(tmp_path / "s.npy", split="dev")
