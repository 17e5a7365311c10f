"""Recipes: every shipped one loads, everything else is refused with one sentence."""

import json
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter
from support.refusals import refused

from baselines.backbones import BACKBONES
from baselines.methods import METHODS
from baselines.recipes import recipe_names, written
from baselines.training.recipe import Recipe, own_name, shipped_name, with_settings
from ncl_bench.data import DATASETS
from ncl_bench.errors import RecipeError
from ncl_bench.evaluation.submission import RecipeName

SHIPPED = recipe_names()
RESOLVED = Path(__file__).with_name("resolved.json")
GOOD = {"dataset": "digits", "backbone": {"name": "vse_infinity"}, "method": {"name": "ncr"}}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipe_loads_and_is_where_its_name_says(name):
    recipe = Recipe.load(name)
    folder, stem = name.split("/")
    assert recipe.method["name"] == folder
    assert stem.startswith(f"{recipe.dataset}_{recipe.backbone['name']}")
    spec = DATASETS[recipe.dataset]
    assert recipe.language is None or recipe.language in spec.languages
    assert isinstance(recipe.method_config, METHODS[folder].Config)
    assert isinstance(recipe.backbone_config, BACKBONES[recipe.backbone["name"]].Config)
    assert shipped_name(recipe) == name
    TypeAdapter(RecipeName).validate_python(name)  # a submission states it


def test_a_name_means_the_same_training_as_ever():
    """A default that changes must not change what a known name trains; a new option is a new key, and may come."""
    known = json.loads(RESOLVED.read_text("utf-8"))
    assert known.keys() <= set(SHIPPED)
    for name, content in known.items():
        resolved = Recipe.load(name).model_dump(mode="json")
        for section in ("backbone", "method"):
            assert content[section].items() <= resolved.pop(section).items(), name
        given = {key: value for key, value in resolved.items() if value is not None}
        assert given == {k: x for k, x in content.items() if k not in ("backbone", "method")}, name


@pytest.mark.parametrize("like", ["vse_infinity_tuned", "sgr"])
def test_a_recipe_like_another_has_its_options_on_another_dataset(like):
    other = Recipe.load(f"rcl/pictograms_{like}")
    recipe = Recipe.load(f"rcl/flickr8k_{like.removesuffix('_tuned')}")
    assert recipe.model_copy(update={"dataset": "pictograms"}) == other
    note = written(f"rcl/flickr8k_{like.removesuffix('_tuned')}")["note"]
    assert note == f"Its options are those of rcl/pictograms_{like}."


@pytest.mark.parametrize("backbone", ["saf", "sgr", "vse_infinity"])
@pytest.mark.parametrize(
    ("group", "of_the_paper"),
    [
        ("gsc/coco", {"intra_modal_weight": 0.01, "lr_update": 15}),
        ("gsc_plus/coco", {"intra_modal_weight": 0.01}),
        ("gsc_plus/cc152k", {"intra_modal_weight": 0.01, "lr_update": 15}),
        ("pc2/coco", {"warmup_epochs": 10}),
    ],
)
def test_a_recipe_whose_option_differs_from_the_paper_says_so(group, of_the_paper, backbone):
    name = f"{group}_{backbone}" if group != "pc2/coco" else "pc2/coco_sgr"
    options, note = Recipe.load(name).method, written(name)["note"]
    for option, paper in of_the_paper.items():
        assert options[option] != paper
        assert f"{options[option]:g}" in note
        assert f"{paper:g}" in note


def test_a_recipe_holds_every_option_however_it_was_written():
    recipe = Recipe.from_dict(GOOD)
    spelled_out = {**GOOD, "method": {"name": "ncr", "margin": 0.2}}
    assert Recipe.from_dict(spelled_out) == recipe
    assert Recipe.from_dict(json.loads(recipe.model_dump_json())) == recipe
    assert recipe.method["epochs"] == recipe.method_config.epochs


def test_a_method_without_shipped_recipes_has_its_defaults_on_every_dataset(
    monkeypatch,
):
    monkeypatch.setitem(METHODS.data, "mine", METHODS["triplet"])
    recipe = Recipe.load("mine/digits_sgr")
    assert recipe.method_config == METHODS["mine"].Config()
    assert recipe.backbone == Recipe.load("triplet/digits_sgr").backbone
    assert recipe.batch_size == 32
    assert shipped_name(recipe) is None
    for wrong in ("mine/digits", "mine/digits_sgr_clean", "mine/mnist_sgr", "mine/digits_resnet", "mine"):
        with refused(RecipeError):
            Recipe.load(wrong)


def test_a_dataset_without_shipped_recipes_has_the_defaults_of_every_method(
    monkeypatch,
):
    monkeypatch.setitem(DATASETS.data, "pets", DATASETS["digits"])
    recipe = Recipe.load("ncr/pets_vse_infinity")
    assert recipe.dataset == "pets"
    assert recipe.method_config == METHODS["ncr"].Config()
    assert recipe.backbone_config == BACKBONES["vse_infinity"].Config()
    for wrong in ("ncr/pets", "ncr/pets_sgr_clean", "ncrr/pets_sgr"):
        with refused(RecipeError):
            Recipe.load(wrong)


def test_a_method_of_ones_own_is_known_by_its_name_and_settings(monkeypatch):
    monkeypatch.setitem(METHODS.data, "mine", METHODS["triplet"])
    recipe = Recipe.load("mine/digits_sgr")
    assert own_name(recipe) == "mine/digits_sgr"
    changed, settings = with_settings(recipe, ["method.epochs=3", "batch_size=16"])
    assert own_name(changed) is None
    assert own_name(changed, settings) == "mine/digits_sgr"


def test_every_method_and_every_backbone_has_a_recipe_on_digits():
    assert {name.split("/")[0] for name in SHIPPED if "/digits_" in name} == set(METHODS)
    trained = {name for name in BACKBONES if not BACKBONES[name].closed_form}
    assert {f"triplet/digits_{name}" for name in trained} <= set(SHIPPED)


def test_clean_recipes_see_clean_pairs_alone():
    assert [name for name in SHIPPED if Recipe.load(name).clean_only] == [n for n in SHIPPED if "_clean" in n]


def changed(**changes):
    return {**GOOD, **changes}


@pytest.mark.parametrize(
    "content",
    [
        *(
            changed(**each)
            for each in (
                {"epocs": 3},
                {"method": {"name": "ncr", "marginn": 0.1}},
                {"backbone": {"name": "vse_infinity", "sim_dim": 8}},
                {"method": {"name": "nrc"}},
                {"method": {"margin": 0.2}},
                {"backbone": {"name": "resnet"}},
                {"method": {"name": "ncr", "margin": -1}},
                {"method": {"name": "pc2", "borrow_by": "name"}},
                {"batch_size": 1},
                {"gradient_clip": 0},
                {"clean_only": True, "dataset": "now"},
                {"method": "ncr"},
            )
        ),
        *(
            changed(method={"name": method}, backbone={"name": backbone})
            for backbone, methods in (("imram", ("gsc", "gsc_plus")), ("sgr", ("in2r", "npc", "osa")))
            for method in methods
        ),
        {key: GOOD[key] for key in ("dataset", "method")},
    ],
)
def test_wrong_content_is_refused_with_one_sentence(content, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    with refused(RecipeError) as refusal:
        Recipe.load(path)
    sentence = str(refusal.value)
    assert str(path) in sentence
    assert "\n" not in sentence
