"""Odd results are said to be odd, good ones are left alone."""

import re

import numpy as np
import pytest
from support.submission_folders import similarities

from ncl_bench.data import DATASETS
from ncl_bench.evaluation.call import evaluate
from ncl_bench.evaluation.protocol import BEST_PUBLISHED, best_published, evaluation_of
from ncl_bench.evaluation.ranks import Counted, Ranks
from ncl_bench.evaluation.results import Evaluation
from tools import best_published as best_published_file


def notes_of(scores, dataset="digits", split="test"):
    return "\n".join(evaluate(scores, dataset=dataset, split=split, intervals=False).notes)


def test_a_good_result_gets_no_note():
    assert notes_of(similarities()) == ""
    assert notes_of(similarities(noise=2.5)) == ""


def test_scores_that_hardly_differ():
    low, high = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    assert "every similarity is 0.25" in notes_of(np.full((200, 1000), 0.25, np.float32))
    assert "nearly constant" in notes_of(np.where(similarities() > 0, high, low))


def test_a_result_at_chance():
    random = np.random.default_rng(0)
    for _ in range(5):
        notes = notes_of(random.normal(size=(200, 1000)))
        assert "at chance" in notes
        assert "another order" not in notes
    captions_by_turn = np.concatenate([similarities()[:, k::5] for k in range(5)], axis=1)
    assert "at chance" in notes_of(captions_by_turn)
    assert "another order" in notes_of(captions_by_turn)
    one_direction = similarities()
    one_direction[np.arange(1000) // 5, np.arange(1000)] += 5
    assert "at chance" not in notes_of(one_direction)


def test_the_order_of_captions_that_fits_is_named():
    scores = similarities()
    by_turn = scores[:, np.arange(1000).reshape(200, 5).T.ravel()]
    notes = notes_of(by_turn)
    evaluation = evaluate(scores, dataset="digits", intervals=False)
    recall = next(iter(evaluation.protocols.values())).i2t.r10
    assert f"i2t R@10 is {recall:.1f} if caption c belongs to image c % 200" in notes
    # the index in the note restores the order
    index = np.arange(1000).reshape(5, 200).T.ravel()
    assert "np.arange(1000).reshape(5, 200).T.ravel()" in notes
    np.testing.assert_array_equal(by_turn[:, index], scores)
    shuffled = np.random.default_rng(0).permutation(1000)
    assert "another order" not in notes_of(scores[:, shuffled])


def test_distances_instead_of_similarities():
    note = notes_of(-similarities())
    assert "are these distances?" in note
    assert "at chance" not in note
    assert "distances" not in notes_of(np.zeros((200, 1000), np.float32))


def test_directions_swapped():
    ranks = Ranks(np.repeat([1, 30], [60, 140]), np.repeat([1, 30], [600, 400]))
    counted = Counted(ranks, None, None, "int64")
    result = evaluation_of(counted, DATASETS["digits"], "test", intervals=False)
    assert "t2i R@1 60.0 is far above i2t R@1 30.0" in "\n".join(result.notes)


def test_better_than_any_published():
    perfect = np.eye(1000, dtype=np.float32)
    assert "rSum 600.0 is above every published one (163.9)" in notes_of(perfect, "now")
    assert "above every published one (385.9)" in notes_of(perfect, "cc152k", "dev")
    # of the protocol with 1,000 images per fold
    assert best_published(DATASETS["coco"], "dev") == {"dev": 543.5}
    assert "published" not in notes_of(np.repeat(np.eye(200, dtype=np.float32), 5, axis=1))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_many_ties(dtype):
    scores = (1000 + similarities() / 8).astype(np.float16).astype(dtype)
    notes = notes_of(scores)
    assert re.search(r"of 1,200 ranks depend on ties \(rSum up to \d+\.\d", notes)
    assert ("half precision is too coarse" in notes) == (dtype == "float16")


def reranked(scores, k, filler=-100.0):
    """Scores of the top ``k`` items of every row, and a number in place of the others."""
    kept = np.argsort(np.argsort(-scores)) < k
    return np.where(kept, scores, np.float32(filler))


@pytest.mark.parametrize(("filler", "low"), [(-100.0, False), (10.0, True), (-1e9, False)])
def test_pairs_without_a_score_are_counted_and_are_no_ties(filler, low):
    scores = similarities(noise=2.5)
    notes = evaluate(reranked(scores, 300, filler), dataset="digits", intervals=False).notes
    own = np.arange(1000)
    missed = int((np.argsort(np.argsort(-scores))[own // 5, own] >= 300).sum())
    assert missed > 12  # more than one in a hundred ranks depends on them
    assert notes[0].startswith(f"140,000 of 200,000 pairs hold {filler:g} and were not scored; no true match")
    assert f"of 200 images and {missed} of 1,000 captions; " in notes[0]
    assert ("some scores are lower: give pairs" in notes[0]) == low
    assert len(notes) == 1


def test_rounding_beside_pairs_without_a_score_is_named_too():
    scores = reranked(np.round(similarities(noise=2.5)), 300)
    first, second = evaluate(scores, dataset="digits", intervals=False).notes
    assert "140,000 of 200,000 pairs hold -100" in first
    assert "scores were rounded" in second


@pytest.mark.parametrize("matrix", ["i2t", "t2i"])
def test_a_matrix_per_direction_keeps_its_notes(matrix):
    given = {"i2t": similarities(), "t2i": similarities().T}
    given[matrix] = reranked(given[matrix], 20)
    notes = evaluate(given["i2t"], t2i=given["t2i"], dataset="digits", intervals=False).notes
    assert "a submission holds one matrix, so this result cannot be submitted" in notes[0]
    n, items = {"i2t": (196_000, "200 images"), "t2i": (180_000, "1,000 captions")}[matrix]
    said = f"{matrix}: {n:,} of 200,000 pairs hold -100 and were not scored; no true match was scored for "
    assert notes[1].startswith(said)
    assert notes[1].endswith(items)
    assert len(notes) == 2


def test_the_best_published_numbers_are_those_that_papers_print():
    best = {name: dict(best_published(spec, "test")) for name, spec in DATASETS.items()}
    assert {name: numbers for name, numbers in best.items() if numbers} == {
        "now": {"1k": 163.9},
        "coco": {"5fold-1k": 543.5, "5k": 470.4},
        "flickr30k": {"1k": 551.3},
        "cc152k": {"1k": 385.9},
    }
    assert BEST_PUBLISHED.read_text() == best_published_file.content()


def test_notes_are_part_of_the_result():
    result = evaluate(np.zeros((200, 1000), np.float32), dataset="digits")
    assert len(result.notes) == 3
    assert Evaluation.model_validate_json(result.to_json()).notes == result.notes
    assert "note: every similarity is 0" in str(result)
