"""Measured tables: what stands in one, which rows are joined, what noise takes away, and what methods detect."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.board_rows import row, rows_on

from leaderboard.board import board_of, read_content
from leaderboard.build import build
from leaderboard.entries import Condition, Row, title_of
from leaderboard.figures import epoch_curves, forest, mean_curve, recorded
from leaderboard.measured_tables import (
    alike,
    cost_chart,
    measured_pages,
    measured_tables,
    noise_left,
    printed_drops,
)
from leaderboard.significance import SignificanceTest
from leaderboard.site import site_files
from ncl_bench.data.pair_labels import read_pair_labels
from ncl_bench.data.pictograms import WEB
from ncl_bench.evaluation.training_record import DetectedPairs, Training, TrainingCurve
from ncl_bench.papers import Paper, read_families, read_printed_detection

RECIPE, NCR = "crcl/digits_vse_infinity", "ncr/digits_vse_infinity"
CLEAN = Condition(dataset="digits", protocol="200", noise_unit="none", noise_ratio=0.0)
NOISY = Condition(dataset="digits", protocol="200", noise_unit="caption", noise_ratio=0.6)


def training(seed, ratio, **fields):
    auroc = (0.6 + seed / 100, 0.8 + seed / 100, 0.7 + seed / 100) if ratio else ()
    found = DetectedPairs(
        threshold=0.5,
        accuracy=0.61,
        precision=0.5 + seed / 100,
        recall=0.62,
        f1=0.63,
        average_precision_wrong=0.64,
        precision_at={50: 0.9, 200: 0.86},
    )
    content = {
        "precision": "32-true",
        "torch": "2",
        "device": "CPU",
        "budget": 30,
        "steps": 30,
        "curve": TrainingCurve(steps=(10, 20, 30), dev=(100, 300, 200), auroc=auroc, average_precision=auroc),
        "found": found if ratio else None,
        "pairs_seen": 3000.0,
        "cost": 1.5 + seed,
        "last_epoch": 400.0 - seed,
    }
    return Training.model_validate(content | fields)


@pytest.fixture(scope="module")
def root(tmp_path_factory, put):
    """A leaderboard of two methods on two noises with two seeds, and one row without a number of steps."""
    root = tmp_path_factory.mktemp("measured")
    for ratio in (0.0, 0.6):
        for seed in (0, 1):
            for method, difficulty, recipe in (("CRCL", 1.0, RECIPE), ("NCR", 2.0, NCR)):
                put(
                    root,
                    difficulty=difficulty + ratio,
                    seed=seed,
                    ratio=ratio,
                    method=method,
                    training_seeds=(seed,),
                    recipes=(recipe,),
                    training=training(seed, ratio if method == "CRCL" else 0.0),
                )
    put(root, difficulty=1.2, seed=9, ratio=0.6, training_seeds=(0,), recipes=(RECIPE,))
    return root


@pytest.fixture(scope="module")
def content(root):
    return read_content(root, published=False)


def test_a_table_holds_the_rows_of_one_number_of_steps_best_first(content):
    (table,) = measured_tables(content)
    assert table.title == "Digits, 200 test images, VSE∞, 30 steps per network"
    assert table.conditions == [CLEAN, NOISY]
    assert [line.title for line in table.lines] == ["CRCL", "NCR"]
    assert len(content.rows) == 5
    best = table.lines[0]
    assert best.cost == 2.0
    assert best.pairs_seen == 3000.0
    assert best.rows[NOISY.slug].last_epoch == 399.5
    assert best.rows[NOISY.slug].seeds == (0, 1)
    assert best.rows[NOISY.slug].rank is None, "two seeds are preliminary"


def with_seeds(row, n):
    """The row as if it had ``n`` seeds."""
    return row.model_copy(update={"runs": tuple("01234"[:n])})


def test_a_preliminary_line_stands_below_ranked_ones_and_under_no_bar(content):
    """CRCL is far better here, and has two seeds; NCR has three."""
    rows = [with_seeds(row, 3) if row.method == "NCR" else row for row in content.rows]
    answers = {(row.file, run, "200"): Answers(np.arange(9.0) + int(run)) for row in rows for run in "012"}
    changed = replace(content, rows=rows, significantly_different=SignificanceTest(answers, rows))  # type: ignore[arg-type]
    (table,) = measured_tables(changed)
    assert [line.title for line in table.lines] == ["NCR", "CRCL"]
    assert [(row.rank, row.method) for row in table.places[NOISY.slug]] == [
        (1, "NCR"),
        (None, "CRCL"),
    ]
    assert table.groups[NOISY.slug] == []


def test_an_interval_covers_the_mean_over_other_seeds_and_images_in_about_95_per_cent():
    """Drawn with an effect of the seed, one of the image, and one of both; the mean of all is 0."""
    random = np.random.RandomState(0)
    covered = 0
    for _ in range(400):
        seeds, images, both = (random.randn(*shape) for shape in ((5, 1), (1, 100), (5, 100)))
        parts = 0.5 * seeds + 3 * images + 2 * both
        hits = {("digits/m/x", str(n), "200"): Answers(row) for n, row in enumerate(parts)}
        interval = SignificanceTest(hits, ()).interval(  # type: ignore[arg-type]
            entry(300, file="digits/m/x", runs=tuple("01234"))
        )
        covered += interval[0] <= 0 <= interval[1]
    assert 0.92 < covered / 400 < 0.98


class Answers:
    """In the place of Hits."""

    def __init__(self, parts):
        self.images_per_fold = len(parts)
        self._parts = parts

    def parts(self):
        """What each image adds."""
        return self._parts


def test_rows_of_other_steps_are_rows_of_their_own(tmp_path, put):
    plain = {"difficulty": 1.5, "ratio": 0.6, "training_seeds": (0,), "recipes": (RECIPE,)}
    other = tmp_path / "root"
    (other / "results").mkdir(parents=True)
    for number, fields in enumerate(({}, {"budget": 31}, {"budget": None})):
        put(other, seed=number, training=training(0, 0.6, **fields), **plain)
    shown = {row.label: row.command for row in rows_on(other)}
    assert shown.keys() == {"CRCL", "CRCL (30 steps)", "CRCL (31 steps)"}
    assert "--set steps=31 " in shown["CRCL (31 steps)"]


def test_the_pages_show_tables_pictures_and_detection(root, tmp_path):
    build(root, tmp_path, published=False)
    measured = (tmp_path / "measured.html").read_text("utf-8")
    assert "Digits, 200 test images, VSE∞, 30 steps per network" in measured
    assert "last epoch 399.5" in measured
    assert measured.count('class="figure"') == 4  # for each noise, the rows and the epochs
    found = (tmp_path / "detection.html").read_text("utf-8")
    assert ">CRCL</a>" in found
    assert ">NCR</a>" not in found
    assert ">70.5<" in found  # of the last epoch, mean of two seeds
    assert ">80.5<" in found
    assert "wrong pairs found at the method's own threshold" in found
    row = found.split("Precision at 50</th>")[1].split("</tr>")[1]
    values = re.findall(r'<td class="n">(.*?)</td>', row)
    # precision: mean of two seeds
    assert values == ["61.0", "50.5", "62.0", "29.1", "63.0", "64.0", "90.0", "86.0", "–"]


def test_a_cell_holds_one_number_and_controls_stand_apart(whole_board):
    """Cells held rank, interval, last epoch and dev beside rSum; draws and clean pairs stood between methods."""
    table = measured_tables(whole_board)[0]
    cells = re.findall(r'<td class="n(?: muted)?" data-v="[^"]*"[^>]*>(.*?)</td>', page_of(whole_board))
    assert all(
        re.fullmatch(r'[\d.]+( <span class="soft">±[\d.]+</span>)?( <span class="badge.*)?', cell)
        for cell in cells
    )
    assert len(cells) > 400
    groups = {line.title: line.group for line in table.lines}
    assert groups["CCA, filtered"] == groups["CRCL (mean of two seeds) (tuned on pictograms)"] == "Controls"
    assert groups["CRCL (tuned on pictograms)"] == groups["CREAM"] == "Methods"
    names = {line.title: line.name for line in table.lines}
    assert table.options == "tuned on pictograms"
    assert (names["CRCL (tuned on pictograms)"], names["CREAM"]) == ("CRCL", "CREAM (default options)")
    assert names["CCA"] == "CCA"
    assert all(
        len({line.name for line in one.lines}) == len(one.lines) for one in measured_tables(whole_board)
    )


def page_of(content):
    tables = measured_tables(content)
    return site_files(content, measured_pages(content, tables), Path("cards"))["measured.html"]


def test_the_figure_of_cost_shows_methods_and_controls_with_their_numbers(whole_board):
    tables = measured_tables(whole_board)
    root = ElementTree.fromstring(cost_chart(tables, whole_board.rows, standalone=True))
    shown = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert shown[0] == "rSum against cost, Flickr8K, 1K test, 40 % caption noise"
    rows = {
        line.name: line.rows["flickr8k-1k-caption-40"]
        for line in tables[0].lines
        if "flickr8k-1k-caption-40" in line.rows
    }
    sps, cca = rows["SPS"], rows["CCA"]
    assert f"SPS: {sps.plain_steps:.1f}, {sps.r_sum:.1f}" in shown
    assert f"CCA: {cca.r_sum:.1f}" in shown
    corrected = next(row for row in whole_board.rows if row.file == f"{cca.file}-csls")
    assert f"CCA, CSLS: {corrected.r_sum:.1f}" in shown
    assert not any("draws" in title for title in shown)
    assert cost_chart([], []) == ""


def test_what_papers_print_of_detection_stands_apart(root, tmp_path):
    build(root, tmp_path, published=True)
    found = (tmp_path / "detection.html").read_text("utf-8")
    printed = read_printed_detection()
    assert found.count("LEMoN (searched)") == sum(row.method == "LEMoN (searched)" for row in printed) > 0
    assert "0.98" in found
    labels = Counter(read_pair_labels(WEB.pair_labels, WEB).values())
    assert f"{labels.total():,} training pairs are labelled, {labels['wrong']} of them wrong" in found
    for other in ("index", "measured"):
        assert "LEMoN" not in (tmp_path / f"{other}.html").read_text("utf-8")


def test_without_such_rows_the_pages_say_how_to_train_them(tmp_path):
    (tmp_path / "root" / "results").mkdir(parents=True)
    build(tmp_path / "root", tmp_path / "site", published=False)
    for name in ("measured", "detection"):
        assert "sweep --table digits" in (tmp_path / "site" / f"{name}.html").read_text("utf-8")


def entry(r_sum, **fields):
    return row(
        r_sum, **{"family": "m", "condition": NOISY, "status": "reproduced", "source": "submission"} | fields
    )


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0, 40))
def test_bars_are_the_longest_runs_without_a_significant_difference(sums, reach):
    ordered = np.array(sorted(sums, reverse=True))
    apart = np.abs(ordered[:, None] - ordered) > reach

    def joined(first, last):
        return not apart[first : last + 1, first : last + 1].any()

    n = len(ordered)
    runs = {(i, j) for i in range(n) for j in range(i + 1, n) if joined(i, j)}
    longest = {(i, j) for i, j in runs if not any((a, b) != (i, j) and a <= i and j <= b for a, b in runs)}
    assert set(alike(apart)) == longest


def test_tuned_lines_stand_beside_those_of_the_recipes_as_they_are(content):
    budgeted = [row for row in content.rows if row.budget]
    tuned = [
        with_seeds(row, 3).model_copy(update={"recipe": "tuned"}) for row in budgeted if row.method == "CRCL"
    ]
    fewer = [row for row in budgeted if (row.method, row.condition) != ("NCR", NOISY)]
    (table,) = measured_tables(replace(content, rows=[*fewer, *tuned]))
    assert {(line.title, title_of(line.first, tuned=False), line.seeds) for line in table.lines} == {
        ("CRCL", "CRCL", "2"),
        ("CRCL (tuned)", "CRCL", "3"),
        ("NCR", "NCR", "2"),
    }
    (found,) = table.drops  # NCR lacks the noise
    assert (found.title, found.printed) == ("CRCL", [])
    assert found.here == found.tuned == table.lines[0].drop
    kinds = [kind for kind, _ in epoch_curves(table.places[NOISY.slug], "auroc")]
    assert kinds == ["default recipes", "tuned recipes"]
    mixed = [with_seeds(row, 2 + (row.condition == NOISY)) for row in budgeted]
    (plain,) = measured_tables(replace(content, rows=mixed))
    assert [kind for kind, _ in epoch_curves(plain.places[NOISY.slug], "dev")] == ["default recipes"]
    assert {line.seeds for line in plain.lines} == {"2–3"}


def test_printed_drops_name_their_papers_once_and_leave_doubtful_rows_out():
    flickr = {"dataset": "flickr30k", "protocol": "1k"}
    clean = Condition(**flickr, noise_unit="none", noise_ratio=0.0)
    noisy = Condition(**flickr, noise_unit="caption", noise_ratio=0.6)
    facts = {"method": "m", "authors": "A", "title": "T", "venue": "V", "year": 2020, "read_from": "x"}
    papers = {key: Paper(short=f"{key}, 2020", **facts) for key in ("one", "two", "three")}
    rows = [
        entry(r_sum, condition=cell, status="reported", source=source, backbone="SGR", doubts=doubts)
        for source, doubts in (("one", ()), ("two", ()), ("three", ("odd",)))
        for r_sum, cell in ((500.0, clean), (450.0, noisy))
    ]
    encoder = {"features": "pretrained", "encoder": "CLIP", "backbone": "CLIP"}
    rows += [
        entry(r_sum, condition=cell, status="reported", source="one", **encoder)
        for r_sum, cell in ((540.0, clean), (530.0, noisy))
    ]
    ours = entry(300.0)
    found = printed_drops(ours, board_of(rows, SignificanceTest({}, ())), papers)
    assert found == [("Flickr30K, 1K test, SGR, caption noise (one, two)", 10.0)]


def detected(wrong, missed, mistaken, n, **by_epoch):
    """What a division says of ``n`` pairs; of ``wrong`` ones some are missed, and right ones are called wrong."""
    called = wrong - missed + mistaken
    return DetectedPairs(
        threshold=0.5,
        accuracy=1 - (missed + mistaken) / n,
        precision=(wrong - missed) / called if called else 0.0,
        recall=1 - missed / wrong,
        f1=0.5,
        average_precision_wrong=0.5,
        precision_at={},
        **by_epoch,
    )


def test_noise_left_is_the_share_of_wrong_pairs_among_those_called_clean():
    assert noise_left(detected(40, 10, 5, 100)) == pytest.approx(10 / 65)
    assert noise_left(detected(40, 0, 60, 100)) == 0  # nothing is called clean
    assert (
        noise_left(detected(40, 40, 0, 100)) is None
    )  # what is missed, and what is mistaken, is not told apart
    assert noise_left(detected(40, 10, 5, 100, noise_left=(0.4, 0.2))) == 0.2


def test_divisions_are_drawn_where_runs_recorded_every_epoch(content):
    assert epoch_curves(measured_tables(content)[0].places[NOISY.slug], "noise_left") == []
    shares = {"noise_left": (0.4, 0.3, 0.2)}
    rows = [
        row.model_copy(update={"found": tuple(one.model_copy(update=shares) for one in row.found)})
        for row in content.rows
    ]
    (table,) = measured_tables(replace(content, rows=rows))
    ((kind, picture),) = epoch_curves(table.places[NOISY.slug], "noise_left")
    assert kind == "default recipes"
    assert "noise left, %" in str(picture)
    row = next(row for row in table.places[NOISY.slug] if row.found)
    points = mean_curve(recorded(row, "noise_left"))
    assert (points[0], points[-1]) == ((10, pytest.approx(0.4)), (30, pytest.approx(0.2)))
    for name in ("curves", "found"):  # which run the others belong to is not known
        assert recorded(row.model_copy(update={name: getattr(row, name)[:1]}), "noise_left") == []


def test_a_gain_is_the_difference_from_the_own_base_loss_with_its_interval(content, monkeypatch):
    based = {
        key: family.model_copy(update={"base": {"crcl": "NCR"}.get(key, "")})
        for key, family in content.families.items()
    }
    (table,) = measured_tables(replace(content, families=based))  # two seeds take no rank
    assert table.gains == []
    monkeypatch.setattr("leaderboard.entries.SEEDS_FOR_A_RANK", 2)
    (table,) = measured_tables(replace(content, families=based))
    (each,) = table.gains
    assert (each.line.title, each.base) == ("CRCL", "NCR")
    assert each.gains.keys() == {CLEAN.slug, NOISY.slug}
    ncr = next(line for line in table.lines if line.title == "NCR")
    for slug, (gain, low, high) in each.gains.items():
        assert gain == pytest.approx(each.line.rows[slug].r_sum - ncr.rows[slug].r_sum)
        assert low < gain < high


def test_every_base_loss_is_a_control():
    families = read_families()
    controls = {name for key in ("infonce", "triplet", "cca") for name in families[key].names}
    assert {family.base for family in families.values()} - {""} <= controls
    robust = [f for f in families.values() if f.recipes and f.recipes not in ("triplet", "info_nce", "cca")]
    assert all(family.base for family in robust)


def test_a_mean_curve_is_straight_between_epochs_and_ends_where_all_do():
    points = mean_curve([((10, 30), (100, 200), 1), ((10, 20, 30), (300, 300, 300), 0)])
    assert points[0] == (10, 200)
    assert points[-1] == (30, pytest.approx(250))
    assert all(y == pytest.approx(200 + (x - 10) * 2.5) for x, y in points)


def drawn(r_sum, line, rank=1, **facts):
    return Row.of(entry(r_sum), method=line, rank=rank, **facts)


def test_a_forest_draws_each_row_its_interval_and_its_last_epoch():
    rows = [drawn(500, "A & B", interval=(480, 520), last_epoch=450), drawn(400, "C", None)]
    root = ElementTree.fromstring(str(forest(rows, [(0, 1)], title="T <1>")))
    circles = [element for element in root.iter() if element.tag.endswith("circle")]
    assert [circle[0].text for circle in circles] == ["A & B: 500.0", "C: 400.0"]
    assert float(circles[0].get("cx", "nan")) > float(circles[1].get("cx", "nan"))
    classes = [element.get("class") for element in root.iter()]
    assert (classes.count("whisker"), classes.count("last"), classes.count("alike")) == (1, 1, 1)
    wide = forest([drawn(580, "A", interval=(400, 760))], [], title="T")
    elements = ElementTree.fromstring(str(wide)).iter()
    ticks = [element.text for element in elements if element.get("text-anchor") == "middle"]
    assert ticks[-1] == "600"  # rSum has no more, whatever the interval


def test_the_axis_of_a_forest_shows_the_better_half_and_marks_rows_below_it():
    sums = (590.0, 588.0, 585.0, 580.0, 200.0)
    rows = [drawn(value, line) for value, line in zip(sums, "ABCDE", strict=True)]
    root = ElementTree.fromstring(str(forest(rows, [], title="T")))
    titles = [element[0].text for element in root.iter() if element.tag.endswith("circle")]
    assert titles == ["A: 590.0", "B: 588.0", "C: 585.0", "D: 580.0"]
    assert [element.text for element in root.iter() if element.text == "‹"] == ["‹"]
