"""CPU seconds of a build: of this repository's rows, and of 10,000 rows that are ranked in one table."""

import time
from pathlib import Path

import numpy as np
import pytest

from leaderboard.board import boards_of
from leaderboard.build import check
from leaderboard.entries import Cell, Entry
from leaderboard.significance import ToldApart
from ncl_bench.evaluation.difference import Hits

pytestmark = pytest.mark.benchmark


def test_the_board_of_this_repository_is_built_in_8_seconds() -> None:
    started = time.process_time()
    check(Path(__file__).parents[2] / "leaderboard")
    assert time.process_time() - started < 8


def test_10_000_rows_of_one_table_are_ranked_in_a_minute() -> None:
    random = np.random.RandomState(0)
    cell = Cell(dataset="digits", protocol="200", noise_unit="caption", noise_ratio=0.4)
    hits, entries = {}, []
    for number in range(10_000):
        chance = 0.5 + 0.4 * random.rand()
        answered = random.binomial([1] * 3 + [5] * 3, chance, (200, 6))
        hits[str(number), "0", "200"] = Hits(answered, 5, 200)
        recalls = 100 * answered.mean(axis=0) / [1, 1, 1, 5, 5, 5]
        names = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")
        facts = {"method": f"M{number}", "family": "m", "cell": cell, "networks": "single", "runs": ("0",)}
        facts |= {"recalls": dict(zip(names, recalls, strict=True)), "file": str(number)}
        entries.append(Entry.model_validate(facts | {"status": "submitted", "source": "submission"}))
    started = time.process_time()
    (board,) = boards_of(entries, ToldApart(hits, entries))
    assert len(board.entries) == 10_000
    assert time.process_time() - started < 60
