"""The comments above a recipe: what it is, its command, and the numbers as printed."""

import csv
import re
from itertools import product

import pytest
import yaml
from support.command import invoke

from baselines.recipes import TABLES, ablations, recipe_names, split_name
from baselines.training.grids import AND, Grid
from baselines.training.printed import comments, described, printed_row
from baselines.training.recipe import Recipe
from leaderboard.read_entries import read_published
from ncl_bench.data import DATASETS
from ncl_bench.noise.draw import Noise
from ncl_bench.papers import PUBLISHED, base_name, printed_sum, read_families, read_papers, rows_by_recipe

SHIPPED = recipe_names()
ROWS = rows_by_recipe()


def above(name, folder=None):
    """The comments of a shipped recipe, from the numbers in a folder."""
    return comments(name, Recipe.load(name), ROWS if folder is None else rows_by_recipe(folder))


def published(folder, *rows, rules=None):
    """A folder of published numbers with these rows and remarks."""
    facts = {"dataset": "flickr30k", "backbone": "SGR", "table": "Table 1", "protocol": "1k", "tokenizer": ""}
    facts |= {"noise_unit": "caption", "noise_ratio": "0.2", "r_sum": ""}
    facts |= dict.fromkeys(("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10"), "10.1")
    full = [facts | row for row in rows]
    with (folder / "results.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, full[0])
        writer.writeheader()
        writer.writerows(full)
    paper = {"authors": "A", "title": "T", "venue": "V", "year": 2021, "read_from": "the paper"}
    sources = {
        "ncr2021": {"short": "NCR, NeurIPS 2021", "method": "ncr", "code": "https://ncr.example"} | paper,
        "other": {"short": "Other", "method": "x", "code": "https://other.example"} | paper,
    }
    (folder / "sources.yaml").write_text(yaml.safe_dump(sources))
    (folder / "notes.yaml").write_text(yaml.safe_dump({"rules": rules or []}))
    return folder


@pytest.mark.parametrize(
    "name",
    [
        name
        if name.endswith(("/flickr30k_sgr", "/digits_vse_infinity", "_clean"))
        else pytest.param(name, marks=pytest.mark.slow)
        for name in SHIPPED
    ],
)
def test_a_shown_recipe_says_its_command_and_is_the_recipe(name, tmp_path):
    text = described(name)
    first, command = text.splitlines()[:2]
    assert first.startswith("# ")
    assert command.startswith(f"# ncl-bench train {name} ")
    own = tmp_path / "own.yaml"
    own.write_text(text, "utf-8")
    assert Recipe.load(own) == Recipe.load(name)


def test_a_shown_recipe_has_every_option():
    content = yaml.safe_load(described("gsc/flickr30k_sgr"))
    for section in ("backbone", "method"):
        config = getattr(Recipe.load("gsc/flickr30k_sgr"), f"{section}_config")
        assert content[section].keys() == {"name", *config.model_dump()}


def test_recipes_are_listed_and_shown_on_the_command_line():
    assert invoke("recipes").stdout.split() == SHIPPED
    listed = invoke("recipes", "--match", "coco_sgr").stdout.split()
    assert listed == [name for name in SHIPPED if "coco_sgr" in name]
    assert invoke("recipes", "show", "ncr/coco_sgr").stdout == described("ncr/coco_sgr") + "\n"


def test_a_recipe_file_is_shown_without_the_numbers_of_papers(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("dataset: coco\nbackbone: {name: sgr}\nmethod: {name: ncr, margin: 0.3}\n")
    assert yaml.safe_load(described(str(own)))["method"]["margin"] == 0.3
    assert "#" not in described(str(own))


def test_comments_of_a_real_cell_shows_the_printed_numbers():
    """NCR, Table 1: Flickr30K at 20 %."""
    lines = above("ncr/flickr30k_sgr").splitlines()
    line = next(line for line in lines if "captions 20 %" in line)
    expected = "75.0 93.9 97.5 58.3 83.0 89.0 496.7 NCR, NeurIPS 2021; Table 1"
    assert " ".join(line.split()[5:]) == expected


def test_own_paper_comes_before_others_and_unknown_units_are_left_out(tmp_path):
    folder = published(
        tmp_path,
        {"source": "other", "method": "NCR", "i2t_r1": "50.0"},
        {"source": "ncr2021", "method": "NCR", "i2t_r1": "60.0"},
        {"source": "other", "method": "NCR", "noise_ratio": "0.4", "i2t_r1": "40.0"},
        {"source": "other", "method": "NCR", "noise_unit": "unknown", "noise_ratio": "0.6", "i2t_r1": "30.0"},
        {"source": "other", "method": "NCR", "backbone": "SAF", "noise_ratio": "0.8", "i2t_r1": "20.0"},
    )
    text = above("ncr/flickr30k_sgr", folder)
    assert [n for n in ("60.0", "40.0", "50.0", "30.0", "20.0") if n in text] == ["60.0", "40.0"]


def test_sum_is_as_printed_or_added_up_and_missing_numbers_are_dashes(tmp_path):
    folder = published(
        tmp_path,
        {"source": "ncr2021", "method": "NCR", "noise_ratio": "0.2"},
        {"source": "ncr2021", "method": "NCR", "noise_ratio": "0.4", "r_sum": "61.5"},
        {"source": "ncr2021", "method": "NCR", "noise_ratio": "0.6", "i2t_r5": ""},
    )
    lines = above("ncr/flickr30k_sgr", folder).splitlines()[-3:]
    assert [line.split()[11] for line in lines] == ["60.6", "61.5", "-"]
    assert "-" in lines[2].split()[5:11]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("triplet/flickr30k_sgr", "results of SGR:"),
        ("triplet/flickr30k_sgr_warmup", "results of SGR*:"),
        ("triplet/flickr30k_saf_clean", "results of SAF-C:"),
        ("triplet/flickr30k_saf_clean", "truly clean pairs only"),
        ("crcl/coco_vse_infinity", "results of CRCL-VSE∞:"),
        ("crcl/coco_sgr", "Averaged with crcl/coco_saf, as CRCL-SGRAF:"),
        ("gsc_plus/cc152k_sgr", "results of GSC-SGR:"),
        ("pc2/now_sgr_bert", "poster, NoW with bert"),
        ("info_nce/flickr30k_sgr", "No published result with a known noise unit."),
        ("info_nce/cc152k_sgr", "No published result."),
        ("decl/flickr30k_sgr", "results of DECL-SGR:"),
        ("bicro/flickr30k_sgr", "Averaged with bicro/flickr30k_saf, as BiCro:"),
        ("mscn/flickr30k_sgr", "results of MSCN:"),
        ("npc/flickr30k_clip", "results of NPC:"),
        ("osa/coco_clip", "results of CLIP+OSA:"),
    ],
)
def test_each_recipe_is_compared_with_the_rows_of_its_name(name, expected):
    assert expected in above(name)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("rcl/flickr30k_sgr", "--noise-file FILE --noise-unit image "),
        ("ncr/flickr30k_sgr", "--noise-ratio 0.2 --noise-unit caption "),
        ("ncr/cc152k_sgr", ""),
    ],
)
def test_commands_take_the_noise_of_the_published_rows(name, noise):
    assert f"ncl-bench train {name} {noise}--to runs/{name.replace('/', '-')}" in above(name)


@pytest.mark.parametrize("name", SHIPPED)
def test_rows_on_images_name_the_files_that_no_seed_draws(name):
    """The files of DECL and RCL; an image-unit noise that is drawn is another one."""
    lines = [line[2:] for line in above(name).splitlines()]
    assert not any("--noise-ratio" in line and "--noise-unit image" in line for line in lines)
    text = " ".join(lines)
    on_images = re.search(r", images \d+ %", text) is not None
    assert on_images == ("give one with --noise-file FILE --noise-unit image." in text)
    assert on_images == ("Without a file, --noise-unit image draws other noise" in text)


def test_the_files_are_those_of_the_papers_that_printed_the_rows(tmp_path):
    by_image = {"noise_unit": "image", "method": "NCR"}
    folder = published(
        tmp_path,
        {"source": "ncr2021", "noise_ratio": "0.2", **by_image},
        {"source": "other", "noise_ratio": "0.4", **by_image},
    )
    text = above("ncr/flickr30k_sgr", folder)
    assert "files of https://ncr.example and https://other.example, which" in text.replace("\n# ", " ")


def test_notes_of_the_files_are_shown_where_they_hold():
    said = "# The published code documents no schedule for CC152K; this is the one for Flickr30K.\n"
    for name in SHIPPED:
        if name.startswith("rcl/"):
            assert (said in described(name)) == name.startswith("rcl/cc152k_"), name
    assert "https://github.com/penghu-cs/RCL" in described("l2rm/flickr30k_sgr")


def test_a_mean_has_the_row_of_the_papers_ensemble():
    """CRCL, Table 1 and Table 6: Flickr30K at 40 %."""
    single, mean = (
        printed_row(name, "caption", 0.4, ROWS)
        for name in ("crcl/flickr30k_sgr", "crcl/flickr30k_sgr + crcl/flickr30k_saf")
    )
    assert [(printed.row.method, printed_sum(printed.row)) for printed in (single, mean)] == [
        ("CRCL-SGR", 496.6),
        ("CRCL-SGRAF", 505.2),
    ]
    assert printed_row("crcl/flickr30k_sgr", "image", 0.4, ROWS) is None


def test_a_row_in_doubt_comes_last_and_an_unstated_unit_is_that_of_the_code(tmp_path):
    folder = published(
        tmp_path,
        {"source": "ncr2021", "method": "NCR", "r_sum": "1.0"},
        {"source": "other", "method": "NCR", "r_sum": "2.0"},
        {"source": "other", "method": "RINCE-SGR", "noise_unit": "unknown", "r_sum": "3.0"},
        rules=[{"where": {"source": ["ncr2021"], "noise_ratio": 0.2}, "doubt": "Halves exchanged."}],
    )
    rows = rows_by_recipe(folder)
    found = {
        (name, unit): printed_row(name, unit, 0.2, rows)
        for name in ("ncr/flickr30k_sgr", "rince/flickr30k_sgr")
        for unit in ("caption", "image")
    }
    sums = {key: printed_sum(printed.row) for key, printed in found.items() if printed}
    assert sums == {("ncr/flickr30k_sgr", "caption"): 2.0, ("rince/flickr30k_sgr", "caption"): 3.0}


def test_the_tables_train_what_papers_print_and_nothing_else():
    tables = [
        table
        for table in map(
            Grid.load, sorted({path.stem for path in TABLES.glob("*.yaml")} - ablations().keys())
        )
        if table.steps is None
    ]
    trained = {(name, noise) for t in tables for name, noises in t.recipes.items() for noise in noises}
    names = [name for name in SHIPPED if not DATASETS[split_name(name)[1]].embedded]
    names += [name for name in ROWS if AND in name and set(name.split(AND)) <= {*SHIPPED}]
    noises = ["none", *(f"{unit}-{percent}" for unit in ("caption", "image") for percent in (20, 40, 60, 80))]
    printed = {
        (name, noise)
        for name, noise in product(names, noises)
        if is_printed(name, Noise.parse(noise).unit or "caption", Noise.parse(noise).ratio)
        and not left_out(name, Noise.parse(noise).ratio)
    }
    assert trained == printed


def is_printed(name, unit, ratio):
    """Whether a paper prints the recipe under this noise."""
    synthetic = DATASETS[split_name(name)[1]].noise == "synthetic"
    return (synthetic or not ratio) and printed_row(name, unit, ratio, ROWS) is not None


def left_out(name, ratio):
    """Rows that stand for another recipe: SCAN's other form, DECL's other warm-up, and SGRAF rows that are SGR's."""
    heavy = name.startswith("decl/") and "cc152k" not in name
    return (
        name.endswith("_i2t_lse")
        or (heavy and ("_heavy" in name) != (ratio >= 0.6))
        or (name.startswith("triplet/") and AND in name and ratio > 0)
        or (name.endswith("_clean") and AND in name)
    )


def test_digits_recipes_get_their_command_alone():
    assert above("ncr/digits_vse_infinity").splitlines() == [
        "# NCR: a small VSE∞ on Digits, minutes on a CPU.",
        "# ncl-bench train ncr/digits_vse_infinity --noise-ratio 0.6 --to runs/ncr-digits_vse_infinity",
    ]


def test_the_page_on_reproduction_names_the_rows_that_have_a_recipe():
    page = (PUBLISHED.parents[2] / "docs" / "reproduce.md").read_text("utf-8").replace("\\*", "*")
    page = page.split("## Recipes", 1)[1]
    table = dict(re.findall(r"^\| (\w+) \| (.+) \|$", page, re.MULTILINE))
    del table["paper"]
    families, sources = read_families(), read_papers()
    methods = {name.split("/")[0] for name in SHIPPED}
    implemented = {
        key: family.title.split(",")[0]
        for key, family in families.items()
        if family.source and family.recipes in methods
    }
    assert set(table) == set(implemented.values())
    without = set()
    printed = read_published(families)
    for key, paper in implemented.items():
        rows = [row for row in printed if sources[row.source].method == key]
        assert table[paper].split(", ") == sorted({row.method for row in rows if row.command})
        known = [row for row in rows if row.condition.noise_unit != "unknown" and row.backbone]
        without |= {row.method for row in known if families[row.family].recipes and not row.command}
    ablations = {name for name in without if base_name(name) != name}
    assert ablations
    excepted = " ".join(page.split("No recipe exists for:\n\n", 1)[1].split("\n\n")[0].split())
    named = set(", ".join(re.findall(r"\(([^()]*)\)", excepted)).split(", "))
    assert {name for name in without - ablations if "with MSE" not in name} == named & {
        row.method for row in printed
    }
    assert all(name in excepted for name in without - ablations)
