"""Code from outside: a file registers a method or a dataset, and every process of the command knows it."""

import json
import os
import sys

import pytest
import yaml
from support.few_digits import TINY, InThisProcess
from support.refusals import refused, saw

from baselines.backbones import BACKBONES
from baselines.methods import METHODS
from ncl_bench import plugins
from ncl_bench.data import DATASETS
from ncl_bench.noise import UNITS
from ncl_bench.plugins import load_plugins
from ncl_bench.processes import worker_pool

METHOD = """
from pydantic import BaseModel

from baselines.methods import register
from baselines.methods.triplet import Triplet, TripletConfig


@register
class {name}(Triplet):
    name = "{name}"
    title = "{name}"
"""


@pytest.fixture(autouse=True)
def forgotten(tmp_path, monkeypatch, no_plugins):
    """An empty current folder; what a test's plugins register is forgotten afterwards."""
    before = dict(METHODS)
    monkeypatch.chdir(tmp_path)
    yield
    for name in METHODS.keys() - before.keys():
        METHODS.pop(name)


def recipe(path, method):
    content = {
        "dataset": "digits",
        "batch_size": 1000,
        "backbone": TINY,
        "method": {"name": method, "epochs": 1},
    }
    path.write_text(yaml.safe_dump(content))


def test_a_plugin_imports_what_lies_beside_it_and_only_once(tmp_path):
    (tmp_path / "beside_the_plugin.py").write_text("imported = []\n")
    (tmp_path / "once.py").write_text("import beside_the_plugin\nbeside_the_plugin.imported.append(1)\n")
    load_plugins([str(tmp_path / "once.py"), str(tmp_path / "once.py")])
    assert sys.modules["beside_the_plugin"].imported == [1]


def test_workers_import_the_plugins(tmp_path):
    (tmp_path / "counted.py").write_text("import os\nos.environ['COUNTED_PLUGIN'] = str(os.getpid())\n")
    load_plugins([str(tmp_path / "counted.py")])
    with worker_pool(1) as pool:
        assert pool.submit(os.getenv, "COUNTED_PLUGIN").result() == str(pool.submit(os.getpid).result())


STEP = "\n    def train_epoch(self, plan, batches, step):\n        {}\n"
TRAIN = "--plugin mine.py train mine.yaml --to run"


@pytest.mark.parametrize(
    ("content", "command"),
    [
        ("", "--plugin gone.py datasets"),
        ("", "--plugin nobody_wrote_this datasets"),
        ("", "--plugin nobody.wrote.this datasets"),
        ("", "--plugin mine.yaml datasets"),
        ("", "train mine.yaml --to run"),
        ("x = (\n", TRAIN),
        ("import torch_of_tomorrow\n", TRAIN),
        ("\n\n1 / 0\n", TRAIN),
        ("raise SystemExit\n", TRAIN),
        ("def f():\n    raise ValueError('so\\nso')\nf()", TRAIN),
        (METHOD.format(name="ncr"), TRAIN),
        (METHOD.format(name="mine") + STEP.format("unknown"), TRAIN),
        (METHOD.format(name="mine") + STEP.format("pass"), TRAIN),
    ],
)
def test_what_a_plugin_does_wrong_is_one_sentence(content, command, tmp_path, run):
    (tmp_path / "mine.py").write_text(content)
    recipe(tmp_path / "mine.yaml", "mine")
    found = run(*command.split())
    assert (found.code, "Traceback" in found.err) == (2, False)
    saw(found.err.splitlines()[-1])


def test_a_method_of_a_plugin_is_trained_in_a_sweep_and_recorded(tmp_path, run, monkeypatch):
    monkeypatch.setattr("baselines.training.sweep.worker_pool", InThisProcess)
    plugin = tmp_path / "mine.py"
    plugin.write_text(METHOD.format(name="of_a_plugin"))
    recipe(tmp_path / "mine.yaml", "of_a_plugin")
    options = ("--plugin", "mine.py")
    swept = run(*options, "sweep", "mine.yaml", "--noise", "none", "--seed", 0, "--to", "swept")
    assert swept.code == 0, swept.err
    folder = next((tmp_path / "swept" / "runs").iterdir())
    described = json.loads((folder / "run.json").read_text())
    assert [entry["name"] for entry in described["plugins"]] == ["mine.py"]

    plugin.write_text(plugin.read_text() + "# corrected\n")
    METHODS.pop("of_a_plugin")
    plugins._loaded.clear()
    (max((folder / "checkpoints").iterdir())).unlink()
    (folder / "training.json").unlink()
    again = run(*options, "train", "mine.yaml", "--to", folder)
    assert again.code == 0, again.err
    assert "was started with another version of mine.py" in again.err
    assert f"next: ncl-bench --plugin mine.py score {folder}" in again.out
    described = json.loads((folder / "run.json").read_text())
    assert [entry["name"] for entry in described["plugins"]] == ["mine.py", "mine.py"]


def test_names_of_a_plugin_are_listed_and_a_plugin_that_registers_nothing_is_told(tmp_path, run):
    (tmp_path / "nothing.py").write_text("import baselines.methods\n")
    done = run("--plugin", "nothing.py", "recipes", "--match", "ncr/digits")
    assert "--plugin nothing.py registers no method, backbone, dataset or unit of noise" in done.err
    (tmp_path / "mine.py").write_text(METHOD.format(name="mine"))
    done = run("--plugin", "mine.py", "recipes", "--match", "mine")
    assert "mine/digits_vse_infinity" in done.out.splitlines()
    assert done.err == ""


def test_nothing_replaces_what_has_a_name():
    for registry in (METHODS, BACKBONES, DATASETS, UNITS):
        name, entry = next(iter(registry.items()))
        with refused():
            registry[name] = object
        registry[name] = entry
