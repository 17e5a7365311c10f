"""ECCV Caption and CxC against the package that defines them, and ties against the definition."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused

from ncl_bench.data import DATASETS
from ncl_bench.data.coco import read_labels
from ncl_bench.data.spec import Labels, LabelSource, Matches
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation import protocol
from ncl_bench.evaluation.eccv import metrics_of
from ncl_bench.evaluation.results import Evaluation
from ncl_bench.evaluation.scores import ArrayRows, EmbeddingRows
from ncl_bench.extras import install_command

DEEPEST = 60
"""No query has more true matches, so that the package needs no longer rankings."""
N, EACH = 5_000, 5


@pytest.fixture(scope="module")
def package():
    """The package's own metrics, quietly."""
    module = pytest.importorskip("eccv_caption")
    return module.Metrics()


@pytest.fixture(scope="module")
def image_ids(package):
    return [package.coco_gts["t2i"][caption][0] for caption in package.coco_ids[::EACH].tolist()]


def embeddings():
    """Of images and captions that find their own image often, and other true matches sometimes."""
    random = np.random.default_rng(7)
    images = random.normal(size=(N, 6)).astype(np.float32)
    captions = random.normal(size=(N * EACH, 6)).astype(np.float32)
    return images, captions * 0.3 + np.repeat(images, EACH, axis=0)


def best(queries, items):
    """The best items of each query, best first, as the similarities of the same numbers give them."""
    rows, found = EmbeddingRows(queries, items, "cosine"), []
    for start in range(0, len(queries), 250):
        block = rows.rows(start, start + 250)
        top = np.argpartition(-block, DEEPEST, axis=1)[:, :DEEPEST]
        order = np.argsort(-np.take_along_axis(block, top, axis=1), axis=1)
        found.append(np.take_along_axis(top, order, axis=1))
    return np.concatenate(found)


def test_the_numbers_are_those_of_the_package(package, image_ids):
    images, captions = embeddings()
    caption_ids, ids = package.coco_ids, np.array(image_ids)
    i2t = dict(zip(image_ids, caption_ids[best(images, captions)].tolist(), strict=True))
    t2i = dict(zip(caption_ids.tolist(), ids[best(captions, images)].tolist(), strict=True))
    wanted = ("eccv_map_at_r", "eccv_rprecision", "eccv_r1", "cxc_recalls")
    expected = package.compute_all_metrics(i2t, t2i, target_metrics=wanted, Ks=(1, 5, 10))
    rows = EmbeddingRows(images, captions, "cosine")
    found, recalls = metrics_of(read_labels(image_ids), rows, rows)
    names = {"map_at_r": "eccv_map_at_r", "r_precision": "eccv_rprecision", "r1": "eccv_r1"}
    for side in ("i2t", "t2i"):
        for ours, theirs in names.items():
            assert found[f"{side}_{ours}"] == pytest.approx(100 * expected[theirs][side], abs=1e-9), ours
        for k in (1, 5, 10):
            assert recalls[f"{side}_r{k}"] == pytest.approx(100 * expected[f"cxc_r{k}"][side], abs=1e-9), k
    assert found["i2t_map_at_r"] > 10


def test_two_labelled_captions_lie_outside_the_split_and_count_as_never_found(image_ids):
    i2t, t2i = read_labels(image_ids).eccv
    assert (len(i2t.total), int(i2t.total.sum()), len(i2t.item)) == (1_261, 22_550, 22_548)
    assert (len(t2i.total), int(t2i.total.sum()), len(t2i.item)) == (1_332, 11_279, 11_279)
    assert int(max(i2t.total.max(), t2i.total.max())) < DEEPEST


def test_images_in_another_order_are_refused(image_ids):
    with refused(ScoresError):
        read_labels([*image_ids[:3], image_ids[4], image_ids[3], *image_ids[5:]])


def by_definition(line, items, total):
    """Average precision at R, R-Precision and R@1 of a ranking in which a wrong item of the same score comes first."""
    order = sorted(range(len(line)), key=lambda item: (-line[item], item in items))
    hits = [item in items for item in order[:total]]
    precisions = [sum(hits[: r + 1]) / (r + 1) if hit else 0.0 for r, hit in enumerate(hits)]
    return sum(precisions) / total, sum(hits) / total, hits[0]


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.tuples(
            st.lists(st.lists(st.integers(0, 4), min_size=2 * n, max_size=2 * n), min_size=n, max_size=n),
            st.lists(st.sets(st.integers(0, 2 * n - 1), min_size=1), min_size=n, max_size=n),
            st.integers(0, 2),
        )
    )
)
def test_a_wrong_item_of_the_same_score_comes_first(case):
    table, chosen, missing = np.array(case[0], np.float32), case[1], case[2]
    n = len(table)
    i2t = Matches(
        np.array([image for image, items in enumerate(chosen) for _ in items]),
        np.array([item for items in chosen for item in sorted(items)]),
        np.array([len(items) + missing for items in chosen]),
    )
    captions = sorted({item for items in chosen for item in items})
    owners = {caption: {image for image in range(n) if caption in chosen[image]} for caption in captions}
    t2i = Matches(
        np.array([caption for caption in captions for _ in owners[caption]]),
        np.array([image for caption in captions for image in sorted(owners[caption])]),
        np.array([len(owners[caption]) for caption in captions]),
    )
    rows = ArrayRows(table)
    labels = Labels((i2t, t2i), (i2t, t2i))
    found, recalls = metrics_of(labels, rows, rows)
    lines = zip(table, chosen, strict=True)
    images = [by_definition(line, items, len(items) + missing) for line, items in lines]
    others = [by_definition(table[:, caption], owners[caption], len(owners[caption])) for caption in captions]
    for side, expected in (("i2t", images), ("t2i", others)):
        for name, values in zip(("map_at_r", "r_precision", "r1"), zip(*expected, strict=True), strict=True):
            assert found[f"{side}_{name}"] == pytest.approx(100 * np.mean(values))
        assert recalls[f"{side}_r1"] == found[f"{side}_r1"]


@pytest.fixture
def scores(tmp_path):
    """Files of embeddings of COCO's test split."""
    paths = [tmp_path / "images.npy", tmp_path / "captions.npy"]
    for path, array in zip(paths, embeddings(), strict=True):
        np.save(path, array[:, :2])
    return paths


def test_evaluate_reports_them_where_coco_is_prepared(package, image_ids, run, scores, monkeypatch):
    prepared = SimpleNamespace(image_ids=image_ids)
    monkeypatch.setattr(protocol, "local_split", lambda spec, split, root: prepared)
    ran = run("evaluate", *scores, "--dataset", "coco")
    lines = {line.partition(":")[0]: line for line in ran.out.splitlines()}
    assert ran.code == 0
    assert lines["ECCV Caption"].startswith("ECCV Caption: i2t mAP@R ")
    assert "; t2i mAP@R " in lines["ECCV Caption"]
    assert lines["CxC"].count("R@10") == 2
    assert "were left out" not in ran.out


def test_a_note_says_what_is_missing(monkeypatch):
    evaluation = Evaluation(protocol_version=2, dataset="coco", split="test", protocols={})
    rows = ArrayRows(np.zeros((1, 1), np.float32))

    def found(spec=DATASETS["coco"]):
        result = protocol.with_more_matches(evaluation, (rows, rows), spec, None)
        assert result.lines() == []
        return result.notes[0]

    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    assert "prepare the dataset and name its folder with --root" in found()
    elsewhere = {"test": LabelSource("no_such_package", "eccv", never)}
    note = found(replace(DATASETS["coco"], labels=elsewhere))
    assert note.endswith(f"install them with: {install_command('eccv')}")


def never(*_):
    """What a test does not come to."""
    raise AssertionError
