"""Odd results are said to be odd, good ones are left alone."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.submission_folders import similarities

from ncl_bench.data import DATASETS
from ncl_bench.evaluation.protocol import best_published, evaluate, evaluate_counted
from ncl_bench.evaluation.ranks import Counted, Ranks
from ncl_bench.evaluation.results import Evaluation

PUBLISHED = Path(__file__).parents[3] / "leaderboard" / "published" / "results.csv"


def notes_of(scores: NDArray[np.floating], dataset: str = "digits", split: str = "test") -> str:
    return "\n".join(evaluate(scores, dataset=dataset, split=split, intervals=False).notes)


def test_a_good_result_gets_no_note() -> None:
    assert notes_of(similarities()) == ""
    assert notes_of(similarities(noise=2.5)) == ""


def test_scores_that_hardly_differ() -> None:
    low, high = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    assert "every similarity is 0.25" in notes_of(np.full((200, 1000), 0.25, np.float32))
    assert "nearly constant" in notes_of(np.where(similarities() > 0, high, low))


def test_a_result_at_chance() -> None:
    random = np.random.default_rng(0)
    for _ in range(5):
        assert "at chance" in notes_of(random.normal(size=(200, 1000)))
    captions_by_turn = np.concatenate([similarities()[:, k::5] for k in range(5)], axis=1)
    assert "at chance" in notes_of(captions_by_turn)
    one_direction = similarities()
    one_direction[np.arange(1000) // 5, np.arange(1000)] += 5
    assert "at chance" not in notes_of(one_direction)


def test_distances_instead_of_similarities() -> None:
    note = notes_of(-similarities())
    assert "are these distances?" in note
    assert "at chance" not in note
    assert "distances" not in notes_of(np.zeros((200, 1000), np.float32))


def test_directions_swapped() -> None:
    ranks = Ranks(np.repeat([1, 30], [60, 140]), np.repeat([1, 30], [600, 400]))
    counted = Counted(ranks, None, None, "int64")
    result = evaluate_counted(counted, DATASETS["digits"], "test", intervals=False)
    assert "t2i R@1 60.0 is far above i2t R@1 30.0" in "\n".join(result.notes)


def test_better_than_any_published() -> None:
    perfect = np.eye(1000, dtype=np.float32)
    assert "rSum 600.0 is above every published one (163.9)" in notes_of(perfect, "now")
    assert "above every published one (383.3)" in notes_of(perfect, "cc152k", "dev")
    # of the protocol with 1,000 images per fold
    assert best_published(DATASETS["coco"], "dev") == {"dev": 543.5}
    assert "published" not in notes_of(np.repeat(np.eye(200, dtype=np.float32), 5, axis=1))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_many_ties(dtype: str) -> None:
    scores = (1000 + similarities() / 8).astype(np.float16).astype(dtype)
    notes = notes_of(scores)
    assert re.search(r"of 1,200 ranks depend on ties \(rSum up to \d+\.\d", notes)
    assert ("half precision is too coarse" in notes) == (dtype == "float16")


def test_the_best_published_numbers_are_those_of_the_leaderboard() -> None:
    best: dict[tuple[str, str], float] = {}
    with PUBLISHED.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            recalls = [row[f"{direction}_r{k}"] for direction in ("i2t", "t2i") for k in (1, 5, 10)]
            if all(recalls):
                cell = (row["dataset"], row["protocol"])
                best[cell] = max(best.get(cell, 0.0), round(sum(map(float, recalls)), 1))
    for spec in DATASETS.values():
        known = {name: best[spec.name, name] for name in spec.protocols if (spec.name, name) in best}
        assert spec.best_published == known


def test_notes_are_part_of_the_result() -> None:
    result = evaluate(np.zeros((200, 1000), np.float32), dataset="digits")
    assert len(result.notes) == 3
    assert Evaluation.model_validate_json(result.to_json()).notes == result.notes
    assert "note: every similarity is 0" in str(result)
