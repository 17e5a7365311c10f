"""Methods at several budgets: their figures, and the column at equal cost."""

from pathlib import Path

import pytest
from test_measured_tables import training

from leaderboard.board import read_content
from leaderboard.figures import budget_curves
from leaderboard.measured_tables import budgets, measured_pages, measured_tables
from leaderboard.site import site_files

ROWS = {  # difficulty and cost per step, by budget
    "GSC": {30: (1.5, 1.0), 60: (1.2, 1.0), 120: (1.1, 1.0)},
    "SPS": {30: (1.3, 4.0), 60: (1.0, 4.0)},
    "DECL": {30: (1.9, 2.0), 60: (1.8, None)},
    "RCL": {30: (1.4, 2.0)},
}


@pytest.fixture(scope="module")
def content(tmp_path_factory, put):
    board = tmp_path_factory.mktemp("budgets")
    seed = 0
    for method, rows in ROWS.items():
        for budget, (difficulty, cost) in rows.items():
            seed += 1
            record = training(0, 0.6, budget=budget, steps=budget, cost=cost)
            given = {"difficulty": difficulty, "seed": seed, "ratio": 0.6, "training_seeds": (0,)}
            put(board, method=method, training=record, **given)
    record = training(0, 0.6, steps=0, cost=None, curve=None, found=None)
    facts = {"method": "CCA", "backbone": "linear", "ratio": 0.6, "seed": 99, "training": record}
    put(board, **facts)
    return read_content(board, published=False)


def test_the_row_of_nearest_cost_stands_in_the_column(content):
    (one,) = budgets(measured_tables(content))
    assert one.steps == [30, 60, 120]
    assert {line: list(rows) for line, rows in one.rows.items()} == {
        "GSC": [30, 60, 120],
        "SPS": [30, 60],
        "DECL": [30, 60],
    }
    assert [row.method for row in one.levels] == ["CCA"]
    # at 30 steps GSC costs 30, DECL and RCL 60, SPS 120
    assert one.reference == 60
    # SPS's nearest costs 120, twice as much
    assert {line: row.budget for line, row in one.at_cost.items()} == {"GSC": 60, "DECL": 30}


def test_the_figures_show_rows_of_several_budgets(content):
    (one,) = budgets(measured_tables(content))
    charts = budget_curves(one.rows, one.levels, one.title)
    (of_steps, steps), (of_cost, cost) = ((caption, str(drawn)) for caption, drawn in charts)
    assert (of_steps, of_cost) == ("rSum against steps per network", "rSum against cost, plain triplet steps")
    assert all(name in steps for name in ("GSC", "SPS", "DECL", "CCA"))
    # DECL has one row with a recorded cost, and RCL one budget
    assert "DECL" not in cost
    assert "RCL" not in steps + cost


def test_the_page_shows_them(content):
    page = site_files(
        content,
        measured_pages(content, measured_tables(content)),
        Path(__file__).parents[2] / "dataset_cards",
    )["measured.html"]
    assert "Several budgets: Digits" in page
    assert page.count("not trained") == 2  # in SPS's line, and where the words are explained
