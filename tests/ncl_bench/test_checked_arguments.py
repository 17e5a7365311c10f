"""Arguments of public calls: converted, or refused in one sentence before anything is read."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from support.refusals import refused
from support.submission_folders import embeddings

import baselines
import leaderboard
import ncl_bench
from baselines.audit import find_wrong_pairs
from ncl_bench.arguments import AnyPath, Count, Seed, checked_arguments
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
    path: AnyPath | None = None,
) -> list[Any]:
    return [ratio, seed, seeds, word, plain, count, path]


def test_numbers_of_numpy_become_pythons_and_words_have_any_case():
    found = echo(np.float32(0.4), np.int64(3), np.arange(2), "COSINE", np.bool_(True), np.uint8(7), Path("x"))
    assert found == [0.4, 3, [0, 1], "cosine", True, 7, Path("x")]
    assert [type(value) for value in found[:2]] == [float, int]
    assert echo(np.float16(0.1), path="x") == [0.1, 0, None, "cosine", False, 1, "x"]
    assert echo(1, seeds=range(2))[:3] == [1.0, 0, [0, 1]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("ratio", value) for value in ("0.4", True, [0.4], 1j, np.ones(2))),
        *(("seed", value) for value in (-1, 2**32, 1.0, "0", None, False)),
        *(("seeds", value) for value in (3, "01", {1: 2}, [1.5])),
        *(("word", value) for value in ("l2", None, 3, "cosine ", "", ["cosine"])),
        *(("plain", value) for value in (1, "yes", None)),
        *(("count", value) for value in (0, -1, 2.0, np.float32(1))),
        *(("path", value) for value in (5, b"x", ["x"], np.ones(2), "a" * 300)),
    ],
)  # fmt: skip
def test_another_value_is_refused_with_what_is_expected(name, value):
    with refused():
        echo(**{name: value})


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
    "call",
    [
        lambda: scored(similarity="l2"),
        lambda: scored(similarity=None),
        lambda: baselines.Execution(precision="half"),
        lambda: TEST.subset([[1], [2, 3]]),
        lambda: TEST.read("ab"),
        lambda: ncl_bench.evaluate(SCORES, dataset="digits", t2i=5),
        lambda: ncl_bench.evaluate((), dataset="digits"),
        lambda: ncl_bench.write_scores("x.npy", 5),
        lambda: ncl_bench.write_scores("x.npy", [[object()]]),
        lambda: find_wrong_pairs(5),
        lambda: baselines.find_wrong_embeddings(CAPTIONS, CAPTIONS, columns=PairColumns(caption_column="text")),
        lambda: ncl_bench.new_dataset("mine", 5, to="x"),
        lambda: find_wrong_pairs(image_embeddings=5, caption_embeddings=5),
    ],
)  # fmt: skip
def test_every_call_checks_its_arguments_first(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused():
        call()
    assert list(tmp_path.iterdir()) == []


def test_a_word_of_another_case_is_the_same_word():
    assert scored(similarity="Cosine").recalls() == scored().recalls() != scored(similarity="DOT").recalls()


@pytest.mark.parametrize(
    "call",
    [
        lambda: ncl_bench.load_dataset("coco"),
        lambda: baselines.score([], to="x"),
        lambda: baselines.sweep(RECIPE, seeds=[]),
        lambda: baselines.sweep(RECIPE, noises=()),
        lambda: baselines.sweep([]),
        lambda: ncl_bench.load_dataset("Digit"),
        lambda: ncl_bench.evaluate(SCORES, dataset="digits", similarity="dot"),
        lambda: ncl_bench.evaluate(SCORES, "digits"),
        lambda: ncl_bench.load_dataset("digits", noise_ratio=0.4, noise_unit="file"),
    ],
)  # fmt: skip
def test_python_is_told_of_arguments_and_a_terminal_of_options(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    with refused():
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
    with refused():
        ncl_bench.evaluate(tmp_path, dataset="digits")
    np.save(tmp_path / "s.npy", SCORES)
    with refused():
        ncl_bench.evaluate(tmp_path / "s.npy", split="dev")
