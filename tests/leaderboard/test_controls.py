"""Controls as rows: closed forms beside every backbone, and averages of independent seeds of one recipe."""

import re
from dataclasses import replace

import pytest
from support.refusals import refused
from test_measured_tables import NOISY, RECIPE, training

from leaderboard.board import read_content
from leaderboard.figures import epoch_curves, forest
from leaderboard.measured_tables import measured_tables
from leaderboard.site import _judged
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.training_record import TrainingCurve


@pytest.fixture(scope="module")
def content(tmp_path_factory, put):
    """Three seeds of CRCL, three averages of two, and one result of a closed form, all with a budget of 30 steps."""
    root = tmp_path_factory.mktemp("controls")
    facts = {"ratio": 0.6, "training": training(0, 0.6)}
    for seed in range(3):
        put(root, difficulty=1.6, seed=seed, recipes=(RECIPE,), **facts)
        put(
            root,
            difficulty=1.2,
            seed=10 + seed,
            networks=2,
            training_seeds=(2 * seed, 2 * seed + 1),
            recipes=(RECIPE, RECIPE),
            **facts | {"training": training(seed, 0.6, curve=None, found=None)},
        )
        for networks, method, difficulty in (
            (2, "NCR", 1.0),
            (1, "CRCL (clean pairs only)", 1.1),
            (1, "Triplet (warm-up, hardest)", 2.5),
        ):
            fallen = TrainingCurve(steps=(10, 20, 30), dev=(300.0, 80.0, 260.0))
            put(
                root,
                difficulty=difficulty,
                seed=20 + seed,
                method=method,
                networks=networks,
                training_seeds=(seed,),
                **facts | {"training": training(seed, 0.6, curve=fallen)},
            )
    curve = TrainingCurve(steps=(0, 0), dev=(450.0, 440.0), auroc=(0.7, 0.9), average_precision=(0.7, 0.9))
    for ratio in (0.6, 0.4):
        put(
            root,
            difficulty=0.8 + ratio,
            method="CCA",
            backbone="linear",
            recipes=("cca/digits_linear",),
            **facts | {"ratio": ratio, "training": training(0, 0.6, steps=0, curve=curve)},
        )
    return read_content(root, published=False)


def closed_form(content):
    return next(row for row in content.rows if row.closed_form and row.condition.slug == NOISY.slug)


def test_averages_of_one_recipe_are_named_and_ranked_among_averages(content):
    row = next(row for row in content.rows if row.runs == ("0+1", "2+3", "4+5"))
    assert row.method == "CRCL (mean of two seeds)"
    assert row.family == "crcl"
    assert row.file == "digits/crcl/vse-infinity-2net-caption-60-30steps"
    assert (row.category, row.rank, row.n_seeds) == ("ensemble", 2, 3)
    assert row.command.splitlines()[:3] == [
        "ncl-bench train crcl/digits_vse_infinity --noise-ratio 0.6 --noise-unit caption --set steps=30 "
        "--to runs/crcl-digits_vse_infinity-seed0",
        "ncl-bench train crcl/digits_vse_infinity --noise-ratio 0.6 --noise-unit caption --set steps=30 --seed 1 "
        "--to runs/crcl-digits_vse_infinity-seed1",
        "ncl-bench score runs/crcl-digits_vse_infinity-seed0 runs/crcl-digits_vse_infinity-seed1 "
        "--to submissions/crcl-digits-200-caption-60",
    ]


def test_a_closed_form_joins_the_table_of_a_backbone_and_needs_one_result_for_a_rank(
    content,
):
    table, _ = measured_tables(content)
    assert table.title == "Digits, 200 test images, VSE∞, 30 steps per network"
    assert [line.title for line in table.lines] == [
        "NCR",
        "CRCL (clean pairs only)",
        "CRCL (mean of two seeds)",
        "CCA",
        "CRCL",
        "Triplet (warm-up, hardest)",
    ]
    row = closed_form(content)
    assert (row.category, row.n_seeds, row.preliminary) == ("single", 1, False)
    assert row.rank == 1


def test_a_closed_form_under_a_noise_of_its_own_has_a_table_of_its_own(content):
    _, alone = measured_tables(content)
    assert alone.title == "Digits, 200 test images, linear, 30 steps per network"
    assert [condition.noise_ratio for condition in alone.conditions] == [0.4]
    (row,) = (row for row in content.rows if row.condition.noise_ratio == 0.4)
    assert row.rank is None  # of no trained row with a rank is it first


def test_a_closed_form_is_a_level_in_the_figures(content):
    table, _ = measured_tables(content)
    ((_, dev),) = epoch_curves(table.places[NOISY.slug], "dev")
    assert str(dev).count('class="curve control"') == 1
    ((_, auroc),) = epoch_curves(table.places[NOISY.slug], "auroc")
    assert str(auroc).count('class="curve control"') == 1
    drawn = str(forest(table.places[NOISY.slug], table.groups[NOISY.slug], title="rSum"))
    row = closed_form(content)
    assert f"<title>CCA: {row.r_sum:.1f}</title>" in drawn.split('class="curve control"')[1]


def gains_of(content, rows, **bases):
    """Base and whether it stands alone, by title of the methods that have a gain."""
    families = {
        key: family.model_copy(update={"base": bases.get(key, "")})
        for key, family in content.families.items()
    }
    table, _ = measured_tables(replace(content, rows=rows, families=families))
    return {each.line.title: (each.base, each.alone) for each in table.gains}


def test_a_gain_compares_two_networks_with_two_and_says_where_it_cannot(content):
    clean = {"CRCL (clean pairs only)": ("CRCL", False)}
    found = gains_of(content, content.rows, ncr="CRCL")
    assert found == clean | {"NCR": ("CRCL (mean of two seeds)", False)}
    without = [row for row in content.rows if row.method != "CRCL (mean of two seeds)"]
    assert gains_of(content, without, ncr="CRCL") == clean | {"NCR": ("CRCL", True)}


def test_a_loss_with_few_seeds_under_one_noise_is_a_base_under_the_others(whole_board):
    flickr8k, *others = measured_tables(whole_board)
    (pictograms,) = (table for table in others if table.slug == "pictograms-1k-vse-infinity-600")
    options = " (tuned on pictograms)", " (tuned)"
    bases = [{}, {}]
    for found, table, tuned in zip(bases, (flickr8k, pictograms), options, strict=True):
        for each in table.gains:
            if each.line.title.endswith(tuned):
                found[each.line.title.removesuffix(tuned), each.base.removesuffix(tuned)] = {*each.gains}
    # InfoNCE has two seeds without noise, and its mean three results at 40 % alone
    usual = {"flickr8k-1k-caption-40"}
    assert bases[0]["CRCL", "InfoNCE"] == bases[0]["SPS", "InfoNCE (mean of two seeds)"] == usual
    assert ("SPS", "InfoNCE") not in bases[0]
    usual = {"pictograms-1k-caption-40"}
    assert bases[1]["GSC+", "InfoNCE (mean of two seeds)"] == usual
    assert bases[1]["GSC+", "InfoNCE"] >= {"pictograms-1k-none-0", "pictograms-1k-caption-60"}
    assert not bases[1]["GSC+", "InfoNCE"] & usual


def test_nothing_is_gained_over_a_control_that_collapsed_after_its_warm_up(content):
    (row,) = [row for row in content.rows if row.method == "Triplet (warm-up, hardest)"]
    assert row.collapsed
    assert not row.model_copy(update={"method": "InfoNCE"}).collapsed, (
        "without a warm-up, a fall is memorisation"
    )
    assert "NCR" not in gains_of(content, content.rows, ncr="Triplet (warm-up, hardest)")
    held = [one.model_copy(update={"curves": ()}) if one is row else one for one in content.rows]
    assert gains_of(content, held, ncr="Triplet (warm-up, hardest)")["NCR"][1]


def test_a_control_on_clean_pairs_takes_no_rank(content):
    (row,) = [row for row in content.rows if row.kind == "clean"]
    assert (row.category, row.rank) == ("controls", None)


def test_detection_is_of_the_epoch_that_is_best_on_dev_with_the_last_one_beside_it(content):
    found = closed_form(content).detection
    assert found == {"auroc": 0.7, "average_precision": 0.7, "last_auroc": 0.9, "best_auroc": 0.9}


def test_measured_begins_with_photographs(whole_board):
    tables = measured_tables(whole_board)
    names = [table.conditions[0].dataset for table in tables]
    assert names[0] == "flickr8k"
    assert len(set(names[1:])) > 1
    # most of its rows are at 40 %, few at 60 %
    usual = [line.rows.get("flickr8k-1k-caption-40") for line in tables[0].lines]
    sums = [row.r_sum for row in usual if row is not None and not row.preliminary]
    assert len(sums) > 20
    assert sums == sorted(sums, reverse=True)


def test_closed_forms_alone_may_have_equal_scores_and_ranks(tmp_path, put):
    def added(method, steps):
        curve = TrainingCurve(steps=(steps,), dev=(450.0,))
        facts = {"ratio": 0.6, "backbone": "linear", "training": training(0, 0.6, steps=steps, curve=curve)}
        put(tmp_path / "board", difficulty=1.0, seed=0, method=method, **facts)

    added("CCA", 0)
    added("CCA, filtered", 0)
    with refused(SubmissionError):
        added("CRCL", 30)


def test_the_figure_of_people_shows_a_method_at_one_number_of_steps(whole_board):
    place = _judged(whole_board)[0]
    assert len({row.budget for row in place.rows if not row.closed_form}) > 1
    names = re.findall(r"<text[^>]*>([^<]+)<", place.figure)
    # the levels stand beside the points of the closed forms
    assert [names.count(name) for name in ("SPS", "InfoNCE", "CRCL", "CCA")] == [1, 1, 1, 2]
