"""``--set``: options of a recipe that are set otherwise, and a result that says so."""

import json

import pytest
import yaml
from rich.console import Console
from support.command import invoke
from support.few_digits import TINY, InThisProcess
from support.refusals import refused

from baselines.training.grids import jobs_of
from baselines.training.job import TrainingJob
from baselines.training.recipe import Recipe, shipped_name, with_settings
from baselines.training.run_folder import RunFolder
from baselines.training.statement import stated_settings
from baselines.training.submit import submit
from baselines.training.sweep import sweep
from ncl_bench.errors import RecipeError

NAME = "triplet/digits_vse_infinity"


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        (["batch_size=32"], {"batch_size": 32}),
        (["method.epochs=3", "backbone.embed_size=16"], {"method.epochs": 3, "backbone.embed_size": 16}),
        (["method.learning_rate=1e-3"], {"method.learning_rate": 0.001}),
        (["method.epochs=3", "method.epochs=4"], {"method.epochs": 4}),
        (["clean_only=true"], {"clean_only": True}),
        (["tokenizer=word"], {"tokenizer": "word"}),
        ([f"method.epochs={Recipe.load(NAME).method['epochs']}"], {}),
    ],
)
def test_a_setting_is_typed_and_what_it_changes_is_known(given, changed):
    recipe, found = with_settings(Recipe.load(NAME), given)
    assert found == changed
    assert all(type(found[name]) is type(changed[name]) for name in changed)
    assert (recipe == Recipe.load(NAME)) == (not changed)


@pytest.mark.parametrize(
    "given",
    [
        "epochs=3",
        "method.epoch=3",
        "method.epochs=many",
        "method.epochs=0",
        "method.epochs=true",
        "steps=true",
        "method.name=nrc",
        "method.epochs",
        "method.epochs=&a [*a]",
        "method.epochs=!!python/object:os.x 1",
        "method.epochs={a: 1, a: 2}",
        "batch_size=[",
        f"batch_size={'9' * 4_000}",
        f"batch_size={'[' * 3_000}",
        "steps=10000001",
        "method.learning_rate=.inf",
        "method.margin=1e999",
        "gradient_clip=.nan",
        "backbone=sgr",
    ],
)
def test_a_setting_that_is_refused_is_one_sentence(given):
    with refused(RecipeError) as caught:
        with_settings(Recipe.load(NAME), [given])
    assert len(str(caught.value)) < 1_200  # names of options are listed


def test_another_method_starts_from_its_defaults():
    recipe, changed = with_settings(Recipe.load(NAME), ["method.temperature=0.1", "method.name=info_nce"])
    assert recipe.method == Recipe.load("info_nce/digits_vse_infinity").method | {
        "temperature": 0.1,
        "epochs": 40,
        "learning_rate": 2e-4,
        "lr_update": 30,
    }
    assert changed == {"method.name": "info_nce", "method.temperature": 0.1}


def test_a_changed_recipe_is_named_with_its_settings_and_a_stock_one_without():
    changed, settings = with_settings(Recipe.load(NAME), ["batch_size=32"])
    assert shipped_name(changed) is None
    assert shipped_name(changed, settings) == NAME
    assert stated_settings([TrainingJob(changed, settings=settings)]) == {"batch_size": 32}
    stock, settings = with_settings(Recipe.load("ncr/digits_vse_infinity"), ["method.label_shape=paper"])
    assert settings == {"method.label_shape": "paper"}
    assert stated_settings([TrainingJob(stock, settings=settings)]) == {}
    rounds, settings = with_settings(Recipe.load("crcl/digits_vse_infinity"), ["method.rounds=[1, 2]"])
    assert stated_settings([TrainingJob(rounds, settings=settings)]) == {"method.rounds": "[1, 2]"}


@pytest.mark.usefixtures("few_pairs")
def test_a_run_its_submission_and_its_sweep_say_what_was_set(tmp_path):
    small = [f"backbone.{name}={value}" for name, value in TINY.items() if name != "name"]
    given = ["method.epochs=1", "method.warmup_epochs=0", "batch_size=500", *small]
    options = [part for setting in given for part in ("--set", setting)]
    run = tmp_path / "run"
    invoke("train", NAME, "--device", "cpu", "--to", run, *options)
    wanted = {"method.epochs": 1, "method.warmup_epochs": 0, "batch_size": 500}
    wanted |= {f"backbone.{name}": value for name, value in TINY.items() if name != "name"}
    assert json.loads((run / "run.json").read_text())["settings"] == wanted
    stated = submit([run], tmp_path / "submission", device="cpu", console=Console(quiet=True))
    assert stated.recipes == (NAME,)
    assert stated.training.settings == wanted
    # the same as a recipe file is the same run
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(yaml.safe_dump(RunFolder(run).read_run().recipe.model_dump(mode="json")))
    again = invoke("train", recipe, "--device", "cpu", "--to", run)
    assert "is already finished" in again.stdout, again.output


def test_a_sweep_does_not_take_over_results_of_other_settings(tmp_path, monkeypatch):
    monkeypatch.setattr("baselines.training.sweep.worker_pool", InThisProcess)
    small = ["method.epochs=1", "method.warmup_epochs=0", "batch_size=1000", "backbone.embed_size=4"]
    cells = jobs_of(tmp_path, [NAME], ["none"], [0], settings=small)
    sweep(tmp_path, cells, at_once=1, device="cpu")
    assert f"{NAME} method.epochs=1 method.warmup_epochs=0" in (tmp_path / "table.csv").read_text()
    with refused():
        sweep(tmp_path, jobs_of(tmp_path, [NAME], ["none"], [0]), at_once=1, device="cpu")
