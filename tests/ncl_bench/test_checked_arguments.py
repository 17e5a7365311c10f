"""Arguments of public calls: converted, or refused in one sentence before anything is read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from support.submission_folders import embeddings

import baselines
import ncl_bench
from baselines.audit import find_wrong_pairs
from ncl_bench.arguments import Count, Seed, checked_arguments
from ncl_bench.errors import NclBenchError

IMAGES, CAPTIONS = embeddings()
RECIPE = "ncr/digits_vse_infinity"


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


def test_numbers_of_numpy_become_pythons_and_words_have_any_case() -> None:
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
        *(("path", value, "a path or None") for value in (5, b"x", ["x"], np.ones(2))),
    ],
)  # fmt: skip
def test_another_value_is_refused_with_what_is_expected(name: str, value: Any, expected: str) -> None:
    with pytest.raises(NclBenchError, match=f"^{name} is .+, expected {expected}$") as refused:
        echo(**{name: value})
    assert "\n" not in str(refused.value)


def scored(**options: Any) -> Any:
    return ncl_bench.evaluate(IMAGES, CAPTIONS, **({"dataset": "digits", "intervals": False} | options))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: scored(similarity="l2"), "similarity is 'l2', expected one of: cosine, dot"),
        (lambda: scored(similarity=None), "similarity is None, expected one of: cosine, dot"),
        (lambda: scored(split="train"), "split is 'train', expected one of: test, dev"),
        (lambda: scored(dataset=["digits"]), r"dataset is \['digits'\], expected a text"),
        (lambda: scored(batch_size=0), "batch_size is 0, expected a whole number from 1"),
        (lambda: ncl_bench.compare(IMAGES, CAPTIONS), r"first is ndarray of shape \(.*\), expected a path or a list"),
        (lambda: ncl_bench.compare("a", "b", split="train"), "split is 'train', expected one of: test, dev"),
        (lambda: find_wrong_pairs("a.csv", seed=-1), "seed is -1, expected a whole number from 0"),
        (lambda: find_wrong_pairs("a.csv", images=5), "images is 5, expected a path or None"),
        (lambda: find_wrong_pairs("a.csv", labels=5), "labels is 5, expected a path or None"),
        (lambda: baselines.train(RECIPE, to="x", precision="half"), "precision is 'half', expected one of: 32-true"),
        (lambda: baselines.train(RECIPE, to="x", noise_ratio="0.4"), "noise_ratio is '0.4', expected a number or None"),
        (lambda: baselines.train(RECIPE, to=5), "to is 5, expected a path"),
        (lambda: baselines.train(RECIPE, to="x", settings=5), "settings is 5, expected names with values or a list"),
        (lambda: baselines.sweep(RECIPE, seeds=3), "seeds is 3, expected a list"),
        (lambda: baselines.sweep(RECIPE, jobs=0), "jobs is 0, expected a whole number from 1"),
        (lambda: baselines.score(5, to="x"), "runs is 5, expected a path or a list"),
    ],
)  # fmt: skip
def test_every_call_checks_its_arguments_first(
    call: Callable[[], Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NclBenchError, match=f"^(?:{sentence})"):
        call()
    assert list(tmp_path.iterdir()) == []


def test_a_word_of_another_case_is_the_same_word() -> None:
    assert scored(similarity="Cosine").recalls() == scored().recalls() != scored(similarity="DOT").recalls()
