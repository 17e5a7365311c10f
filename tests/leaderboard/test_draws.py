"""Several draws of the noise: how a sweep trains on them, and their row on the board."""

import numpy as np
import pytest
from support.refusals import refused
from test_measured_tables import RECIPE, training

from baselines.calls import Sweep
from leaderboard.board import read_content
from leaderboard.measured_tables import measured_tables
from ncl_bench.data import DATASETS

PAIR = f"{RECIPE} + {RECIPE}"


def test_a_sweep_draws_the_noise_of_each_seed(tmp_path):
    table = tmp_path / "table.yaml"
    table.write_text(
        f"title: T\nrecipes: [{RECIPE}]\ncontrols: [{PAIR}]\nnoises: [none, caption-40]\nseeds: [0, 1]\n"
    )
    drawn = Sweep.of(table=str(table), draws=True).jobs
    assert [(job.noise, job.seed, job.draw) for job in drawn if job.recipe == RECIPE] == [
        ("none", 0, None),
        ("caption-40", 0, 0),
        ("none", 1, None),
        ("caption-40", 1, 1),
    ]
    # both networks of a mean see the same pairs
    members = [(job.training.seed, job.training.noise_seed) for job in drawn[-1].members]
    assert (drawn[-1].recipe, members) == (PAIR, [(2, 1), (3, 1)])
    plain = Sweep.of(table=str(table)).jobs
    assert not {job.name for job in plain if job.noise != "none"} & {job.name for job in drawn}


def test_draws_beside_noise_files_are_refused():
    with refused():
        Sweep.of(RECIPE, seeds=[0], draws=True, noises=["caption-40"], noise_files="f")


def noise_of(seed):
    _, drawn = DATASETS["digits"].draw_noise(noise_ratio=0.6, noise_unit="caption", seed=seed)
    facts = {name: getattr(drawn, name) for name in ("seed", "sha256", "realised_ratio")}
    return {"unit": "caption", "ratio": 0.6, **facts}


def test_a_row_joins_one_result_of_each_draw(put, tmp_path):
    board = tmp_path / "board"
    standard = noise_of(DATASETS["digits"].standard_seed("caption", 0.6))["seed"]
    assert standard == 0
    # three seeds of the standard draw, and one each of two other draws
    for seed, draw in [(0, 0), (1, 0), (2, 0), (1, 1), (2, 2)]:
        put(
            board,
            seed=10 * draw + seed,
            training_seeds=(seed,),
            noise=noise_of(draw),
            recipes=(RECIPE,),
            training=training(seed, 0.6),
        )
    content = read_content(board, published=False)
    rows = {row.method: row for row in content.rows}
    joined = rows.pop("CRCL (draws 0, 1, 2)")
    assert list(rows) == ["CRCL"]
    assert rows["CRCL"].seeds == joined.seeds == (0, 1, 2)
    assert (joined.kind, joined.rank, joined.ranked) == ("draws", None, False)
    assert joined.noise == "one noise draw per seed; intervals are over seeds and draws"
    sums = [entry.r_sum for entry in content.seeds if entry.file == joined.file]
    assert len(sums) == 3
    assert joined.r_sum == pytest.approx(np.mean(sums), rel=1e-12)
    low, high = joined.intervals["r_sum"]
    assert low < joined.r_sum < high
    assert (low, high) == content.significantly_different.interval(joined)
    (table,) = measured_tables(content)
    assert {line.title for line in table.lines} == {"CRCL", "CRCL (draws 0, 1, 2)"}
