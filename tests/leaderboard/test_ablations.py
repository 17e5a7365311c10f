"""The page of ablations: which rows stand on it, what they lose here and in print, and where they do not stand."""

import pytest

from baselines.recipes import ablations
from leaderboard.board import read_content
from leaderboard.build import build
from leaderboard.measured_tables import ablation_tables, measured_tables
from ncl_bench.evaluation.training_record import Training


def training(**settings):
    return Training(precision="32-true", torch="2", device="CPU", budget=600, steps=600, settings=settings)


@pytest.fixture(scope="module")
def root(tmp_path_factory, put):
    """NCR whole and without two of its parts at 50 %, and at 60 % beside CRCL."""
    root = tmp_path_factory.mktemp("ablations")
    for number, (method, ratio, settings) in enumerate(
        (
            ("NCR", 0.5, {}),
            ("NCR", 0.5, {"method.co_rectify": False}),
            ("NCR", 0.5, {"method.co_divide": False}),
            ("NCR", 0.6, {"method.co_divide": False}),  # not the paper's noise, so ranked with three seeds
            ("NCR", 0.6, {}),
            ("CRCL", 0.6, {}),
        )
    ):
        for seed in range(3 if number == 3 else 2):
            put(
                root,
                difficulty=1.0 + number,
                seed=10 * number + seed,
                ratio=ratio,
                method=method,
                training_seeds=(seed,),
                recipes=(f"{method.lower()}/digits_vse_infinity",),
                training=training(**settings),
            )
    return root


def test_rows_stand_beside_the_printed_ones_and_take_no_rank(root, tmp_path):
    content = read_content(root, published=False)
    (table,) = ablation_tables(content)
    assert table.title == "NCR: Digits, 200 test images, 50 % caption noise, VSE∞, 600 steps per network"
    lines = table.lines
    assert [line.row.title for line in lines if line.entry] == [
        "full",
        "without co-rectify",
        "without co-divide",
    ]
    sums = [line.entry.r_sum for line in lines if line.entry]
    assert lines[1].drop == pytest.approx(100 * (sums[0] - sums[1]) / sums[0])
    assert [round(line.printed_drop, 1) for line in lines] == [0.0, 0.8, 60.0, 99.2]
    assert lines[2].differs is True
    apart = content.significantly_different([line.entry for line in lines if line.entry])
    assert [line.differs for line in lines[1:3]] == apart[0, 1:].tolist()
    for line in lines[1:3]:
        assert sum(line.drop_interval) / 2 == pytest.approx(line.drop)
    assert sum(lines[0].entry.interval) / 2 == pytest.approx(sums[0])
    assert lines[3].drop_interval is None
    ranks = {(row.condition.noise_ratio, row.settings): row.rank for row in content.rows}
    without = ("method.co_divide=false",)
    assert ranks[0.5, without] is None
    assert ranks[0.5, ()] is None  # nothing to be compared with
    assert ranks[0.6, without] is not None
    (measured,) = measured_tables(content)
    assert [cell.percent for cell in measured.conditions] == ["60"]
    build(root, tmp_path, published=False)
    page = (tmp_path / "ablations.html").read_text("utf-8")
    assert "without co-divide" in page
    for low, high in (lines[0].entry.interval, lines[1].drop_interval, lines[2].drop_interval):
        assert f"{low:.1f} to {high:.1f}" in page
    assert "A drop whose interval contains 0 proves nothing" in page
    assert "ncl-bench sweep --table ablation_ncr --dataset digits --to ablation_ncr" in page


def test_the_printed_sums_are_those_of_the_papers():
    """CRCL and PC2 print them; GSC and NCR are added up, GSC's as printed beside."""
    found = {name: [round(sum(row.printed), 1) for row in table.rows] for name, table in ablations().items()}
    assert found["ablation_crcl"] == [476.1, 471.2, 471.6, 267.2, 451.7, 451.3, 451.3]
    assert found["ablation_pc2"] == [493.8, 489.8, 479.8, 476.9, 471.1]
    assert found["ablation_gsc"] == pytest.approx([497.3, 491.1, 482.9, 489.0], abs=0.11)
    assert found["ablation_ncr"] == [482.8, 478.8, 192.9, 3.7]
