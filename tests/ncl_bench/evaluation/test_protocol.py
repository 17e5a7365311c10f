"""What is evaluated on which split, and what comes out."""

import json
from dataclasses import replace

import numpy as np
import pytest
from oracles.ranks import metrics_by_definition, ranks_by_definition
from support.processes import python
from support.refusals import refused

import ncl_bench
from ncl_bench.data import DATASETS
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.call import evaluate
from ncl_bench.evaluation.protocol import check_matrix, expected_shape, protocols_of, selection_images
from ncl_bench.evaluation.results import Evaluation


def trained_scores(n_images=200, each=5, seed=0):
    random = np.random.default_rng(seed)
    scores = random.normal(size=(n_images, n_images * each)).astype(np.float32)
    captions = np.arange(n_images * each)
    scores[captions // each, captions] += 2.5
    return scores


@pytest.fixture(scope="module")
def result():
    return evaluate(trained_scores(), dataset="digits")


def test_intervals_surround_the_recalls(result):
    for direction in (result.default.i2t, result.default.t2i):
        for name, (low, high) in direction.intervals.items():
            assert low < getattr(direction, name) < high
    assert result.default.r_sum_interval[0] < result.r_sum < result.default.r_sum_interval[1]
    without = evaluate(trained_scores(), dataset="digits", intervals=False).default
    assert (without.i2t.intervals, without.r_sum_interval) == (None, None)


def test_a_result_converts_and_is_shown(result):
    assert Evaluation.model_validate(json.loads(result.to_json())) == result
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()
    frame = result.to_pandas()
    assert frame["direction"].tolist() == ["i2t", "t2i"]
    assert frame["r1"].tolist() == [result.default.i2t.r1, result.default.t2i.r1]
    assert f"{result.r_sum:.1f}" in str(result)
    assert [*frame.loc[0, ["r_sum_low", "r_sum_high"]]] == [*result.default.r_sum_interval]
    first, second = repr(result).splitlines()
    low, high = result.default.r_sum_interval or (0, 0)
    assert first == f"<Evaluation digits/test, protocol 200: rSum {result.r_sum:.1f} ({low:.1f}–{high:.1f}),"
    assert second.startswith(f" i2t R@1 {result.default.i2t.r1:.1f}, R@5 ")
    shown = result.model_copy(update={"notes": ("a < b",)})._repr_html_()
    assert f"<td>{result.r_sum:.1f} (" in shown
    assert shown.count("<tr") == 3
    assert shown.endswith("<p>a &lt; b</p>")


def test_coco_is_folded_and_whole_from_one_matrix(monkeypatch):
    small = replace(DATASETS["coco"], images={"test": 40, "dev": 10, "train": 10})
    monkeypatch.setitem(DATASETS.data, "coco", small)
    monkeypatch.setitem(ncl_bench.evaluation.protocol.IMAGES_PER_FOLD, "5fold-1k", 8)
    scores = trained_scores(40)
    result = evaluate(scores, dataset="coco")
    assert list(result.protocols) == ["5fold-1k", "5k"]
    whole = metrics_by_definition(*ranks_by_definition(scores.tolist(), 5))
    assert result.protocols["5k"].r_sum == pytest.approx(whole["r_sum"])
    blocks = [scores[8 * f : 8 * f + 8, 40 * f : 40 * f + 40] for f in range(5)]
    folds = [metrics_by_definition(*ranks_by_definition(block.tolist(), 5)) for block in blocks]
    found = result.protocols["5fold-1k"]
    assert found.folds == 5
    for name, value in found.recalls().items():
        assert value == pytest.approx(np.mean([fold[name] for fold in folds])), name
    assert found.i2t.median_rank == pytest.approx(np.mean([fold["i2t_median_rank"] for fold in folds]))
    assert result.r_sum == found.r_sum


def test_flickr30k_dev_is_its_first_1000_images():
    assert selection_images(DATASETS["flickr30k"]) == 1000
    assert expected_shape(DATASETS["flickr30k"], "dev") == (1000, 5000)
    assert expected_shape(DATASETS["coco"], "test") == (5000, 25000)
    assert expected_shape(DATASETS["digits"], "dev") == (200, 1000)
    result = evaluate(trained_scores(1000), dataset="flickr30k", split="dev", intervals=False)
    assert list(result.protocols) == ["dev"]
    assert result.default.images == 1000
    with refused(ScoresError):
        check_matrix((1014, 5070), np.dtype("f4"), DATASETS["flickr30k"], "dev")


@pytest.mark.parametrize("name", DATASETS)
def test_folds_divide_the_test_split(name):
    spec = DATASETS[name]
    for protocol in protocols_of(spec, "test"):
        size = ncl_bench.evaluation.protocol.fold_size(protocol, spec.images["test"])
        assert spec.images["test"] % size == 0


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros((1000, 200), np.float32),
        np.zeros((1000, 1000), np.float32),
        np.zeros((200, 999), np.float32),
        np.zeros(200, np.float32),
        np.zeros((200, 1000), np.int64),
        np.zeros((200, 1000), np.longdouble),
        np.zeros((200, 1000), np.complex64),
        np.ma.masked_all((200, 1000), np.float32),
        [[1.0], [1.0, 2.0]],
    ],
)
def test_wrong_scores_are_refused(scores):
    with refused(ScoresError):
        evaluate(scores, dataset="digits")


def test_evaluating_leaves_torch_unloaded():
    code = (
        "import sys, numpy, ncl_bench; ncl_bench.evaluate(numpy.zeros((200, 1000), 'f4'), dataset='digits'); "
        "print(sorted({'torch', 'pandas', 'matplotlib', 'sklearn'} & set(sys.modules)))"
    )
    assert python(code).stdout == "[]\n"
