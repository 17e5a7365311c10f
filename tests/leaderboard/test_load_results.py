"""All rows as a table of pandas."""

import leaderboard


def test_all_rows_stand_in_one_table(whole_board, monkeypatch):
    monkeypatch.setattr("leaderboard.board.read_content", lambda *_, **__: whole_board)
    monkeypatch.setattr("leaderboard.results_frame.read_frame", lambda _: None)
    table = leaderboard.load_results()
    assert len(table) == len(whole_board.seeds)
    assert set(table["status"]) == {"reported", "reproduced"}
    of_digits = table[(table["dataset"] == "digits") & (table["method"] == "CRCL")]
    default = of_digits[of_digits["recipe"] == "default"]
    assert {"0", "1", "2"} <= set(default["seed"])
    assert not default.duplicated(["file", "protocol", "seed"]).any()
    assert set(table[table["status"] == "reported"]["seed"]) == {""}
    assert of_digits.groupby(["file", "protocol"])["r_sum"].mean().max() > 500
    sums = [entry.r_sum for entry in whole_board.seeds if entry.status != "reported"]
    assert table[table["status"] == "reproduced"]["r_sum"].tolist() == sums
