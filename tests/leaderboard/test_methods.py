import re
from pathlib import Path

import pytest

from baselines.methods import METHODS
from baselines.recipes import recipe_names
from baselines.training.recipe import Recipe, with_settings
from leaderboard.entries import Condition
from leaderboard.read_entries import THE_CODES_FAULT, commands, own_key, read_measured, read_published
from leaderboard.site import family_recipes
from ncl_bench.papers import read_families

CONDITION = Condition(dataset="flickr30k", protocol="1k", noise_unit="image", noise_ratio=0.2)


def given(method, backbone, networks, cell=CONDITION, family=""):
    families = read_families()
    return commands(families[family or method.split("-")[0].lower()], method, backbone, networks, cell)


def test_one_network_is_trained_scored_and_evaluated():
    assert given("CRCL-SGR", "SGR", "single") == (
        "ncl-bench train crcl/flickr30k_sgr --noise-ratio 0.2 --noise-unit image --to runs/crcl-flickr30k_sgr",
        "ncl-bench score runs/crcl-flickr30k_sgr --to submissions/crcl-flickr30k-1k-image-20",
        "ncl-bench evaluate submissions/crcl-flickr30k-1k-image-20",
    )


def test_sgraf_is_two_runs_scored_together():
    lines = given("CRCL-SGRAF", "SGRAF", "ensemble")
    assert len(lines) == 4
    assert lines[2].startswith("ncl-bench score runs/crcl-flickr30k_sgr runs/crcl-flickr30k_saf --to ")


def of_now(text):
    return Condition(dataset="now", protocol="1k", noise_unit="natural", noise_ratio=None, text=text)


@pytest.mark.parametrize(
    ("row", "options", "recipe"),
    [
        (("GSC-SGR", "SGR", "ensemble"), {}, "gsc_plus/flickr30k_sgr"),
        (("GSC-SGR (single network)", "SGR", "single"), {}, "gsc/flickr30k_sgr"),
        (("SGR-C", "SGR", "single"), {"family": "sgraf"}, "triplet/flickr30k_sgr_clean"),
        (("NCR", "SGR", "ensemble"), {"cell": of_now("bert")}, "ncr/now_sgr_bert"),
        (("NCR", "SGR", "ensemble"), {"cell": of_now("jieba")}, "ncr/now_sgr"),
        (("SGR+CLIP", "SGR", "single"), {"family": "sgraf"}, None),
        (("NCR (without warm-up)", "SGR", "ensemble"), {"family": "ncr"}, None),
        (("NCR-single", "SGR", "single"), {}, None),
        (("CRCL-SGR", "VSRN", "single"), {}, None),
    ],
)
def test_networks_variants_and_tokenizer_choose_the_recipe_or_none(row, options, recipe):
    trained = [line.split()[2] for line in given(*row, **options) if " train " in line]
    assert trained[:1] == ([recipe] if recipe else [])


def test_printed_rows_on_images_are_trained_with_a_file_that_no_seed_draws():
    printed = read_published(read_families())
    on_images = [entry for entry in printed if entry.condition.noise_unit == "image" and entry.command]
    assert on_images
    for entry in on_images:
        trained = [line for line in entry.command.splitlines() if line.startswith("ncl-bench train ")]
        assert all(" --noise-file FILE --noise-unit image --" in line for line in trained)


@pytest.mark.parametrize(("dataset", "warm_up"), [("flickr30k", 2), ("coco", 1)])
def test_decl_warms_up_for_fewer_epochs_at_60_and_80_percent(dataset, warm_up):
    printed = [
        e for e in read_published(read_families()) if e.family == "decl" and e.condition.dataset == dataset
    ]
    commands = {e.condition.noise_ratio: e.command for e in printed if e.command}
    assert {
        ratio for ratio, text in commands.items() if f" --set method.warmup_epochs={warm_up} --to " in text
    } == {0.6, 0.8}
    assert "--set" not in commands[0.2]


def test_every_command_names_a_recipe_that_exists():
    families = read_families()
    lines = [entry.command for entry in read_published(families)]
    lines += [line for family in families.values() for _, recipe in family_recipes(family) for line in recipe]
    named = set(re.findall(r"ncl-bench train (\S+)", "\n".join(lines)))
    assert len(named) > 20
    assert named <= set(recipe_names())


@pytest.mark.parametrize("name", ["SCAN", "VSRN", "IMRAM"])
def test_a_plain_model_is_trained_by_the_recipes_of_its_backbone_alone(name):
    families = read_families()
    printed = [
        entry
        for entry in read_published(families)
        if entry.method == name and entry.condition.noise_unit in ("none", "caption", "image")
    ]
    assert {entry.condition.dataset for entry in printed} >= {"flickr30k", "coco"}
    for entry in printed:
        assert f"ncl-bench train triplet/{entry.condition.dataset}_{name.lower()} " in entry.command
    listed = [recipe for recipe, _ in family_recipes(families[name.lower()])]
    assert f"triplet/flickr30k_{name.lower()}" in listed
    assert all(f"_{name.lower()}" in recipe for recipe in listed)


def test_every_method_with_recipes_has_a_page():
    families = read_families().values()
    assert {name.split("/")[0] for name in recipe_names()} <= {
        method for family in families for method in (family.recipes, family.ensemble_recipes)
    }


def test_no_two_families_claim_a_name():
    names = [name for key, family in read_families().items() for name in {*family.names, key}]
    assert len(names) == len(set(names))


def test_no_two_methods_share_a_page():
    """``OK+`` and ``OK plus``, and all names without an ASCII letter, shared one."""
    names = ["OK+", "OK plus", "OK-plus", "OK", "方法", "別法", "∞"]
    keys = {own_key(name) for name in names}
    assert len(keys) == len(names)
    assert own_key("mine2") == own_key("Mine2") == "own-mine2"
    assert all(re.fullmatch(r"own-[a-z0-9-]+", key) for key in keys)


@pytest.mark.parametrize(("method", "named"), [("BiCro", True), ("BiCro (the code's faults)", False)])
def test_a_row_says_what_it_repairs_in_the_authors_code(put, tmp_path, method, named):
    recipes = ("bicro/digits_vse_infinity",)
    put(tmp_path / "board", method=method, recipes=recipes)
    (entry,), *_ = read_measured(tmp_path / "board", read_families())
    assert any(note.startswith("Repairs the authors' code (the surest") for note in entry.notes) == named


def test_every_method_with_an_option_for_faults_says_what_it_repairs():
    methods = Path(__file__).parents[2] / "baselines" / "methods"
    # the shared schedule of fine-tuning is DCL's
    reads = {path.stem for path in methods.glob("*.py") if "faults: published" in path.read_text("utf-8")}
    reads |= {path.stem for path in methods.glob("*.py") if ".faults" in path.read_text("utf-8")}
    assert reads == {family.recipes for family in read_families().values() if family.repaired}


@pytest.mark.parametrize("name", [name for name, family in read_families().items() if family.repaired])
def test_a_row_of_the_published_code_is_a_line_of_its_method(put, tmp_path, name):
    families = read_families()
    recipe, changed = with_settings(
        Recipe.load(f"{families[name].recipes}/flickr8k_vse_infinity"), ["method.faults=published"]
    )
    method = METHODS[recipe.method["name"]]
    names = [method.title_of(recipe.method_config), families[name].names[0]]
    assert changed == {"method.faults": "published"}
    assert THE_CODES_FAULT in names[0]
    for number, method in enumerate(names):
        put(tmp_path / "board", seed=number, method=method)
    entries, *_ = read_measured(tmp_path / "board", families)
    assert {entry.family for entry in entries} == {name}
    assert len({entry.file for entry in entries}) == 2
