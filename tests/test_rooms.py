"""What holds between the rooms: imports go one way, facts stand on their dataset, a user's mistake is one sentence."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import python

from ncl_bench.data import DATASETS

ROOT = Path(__file__).parent.parent


HEAVY = {
    "torch",
    "lightning_fabric",
    "sklearn",
    "scipy",
    "pandas",
    "matplotlib",
    "pyarrow",
    "datasets",
    "nltk",
    "jieba",
}
QUICK = {
    "--help": HEAVY | {"numpy", "pydantic", "yaml"},
    "train --help": HEAVY | {"numpy", "yaml"},
    "train --sed 1": HEAVY | {"numpy", "yaml"},
    "train ncr/digits_vse_infinty --to run": HEAVY,
    "recipes": HEAVY,
    "recipes show ncr/digits_vse_infinty": HEAVY,
    "sweep ncr/digits_vse_infinty --to swept": HEAVY,
    "sweep --table digits ncrr --plan": HEAVY,
    "sweep --table nosuch --plan": HEAVY,
    "score --zero-shot clip/nosuch --to scored": HEAVY,
    "datasets": HEAVY,
    **dict.fromkeys(("leaderboard --help", "evaluate --help", "sweep --help"), HEAVY | {"numpy", "yaml"}),
    "leaderboard table --help": HEAVY | {"jinja2"},
    "datasets show flickr": HEAVY,
}
"""Commands that answer at once, and what takes too long to import for them."""


@pytest.mark.parametrize("command", QUICK)
def test_what_answers_at_once_imports_nothing_heavy(command):
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('imported', *sys.modules))\n"
        f"sys.argv = ['ncl-bench', *{command.split()!r}]\n"
        "from ncl_bench.cli import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    imported = done.stdout.rpartition("imported ")[2].split()
    assert "ncl_bench.cli.commands" in imported
    assert not QUICK[command] & set(imported)


def test_imports_go_one_way():
    """From each room to those below it, in no circle, and from ncl_bench to nothing of torch; see pyproject.toml."""
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    python(code, cwd=ROOT)


def test_training_methods_never_read_the_truth():
    for folder in ("methods", "backbones"):
        for path in (ROOT / "baselines" / folder).rglob("*.py"):
            assert "true_correspondence" not in path.read_text("utf-8")


NAMES = sorted(
    {name for spec in DATASETS.values() for name in (spec.name, spec.title)}, key=len, reverse=True
)
NAMED = re.compile(rf"(?<![a-z0-9])({'|'.join(map(re.escape, NAMES))})(?![a-z0-9])", re.IGNORECASE)
ORDINARY_WORDS = {"now", "digits"}
"""Names of datasets that are words of English too; in a text with blanks they mean the word."""


def texts_of(path):
    """Line and text of every string but docstrings, and of every import."""
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names]
            yield node.lineno, ",".join([getattr(node, "module", None) or "", *modules])


def is_of_a_dataset(path):
    """Whether a module of ``ncl_bench/data`` bears the name of a dataset, or is the one that lists them all."""
    inside = path.relative_to(ROOT).with_suffix("").parts[2:]
    return inside == ("__init__",) or NAMED.match(inside[0]) is not None


def test_a_dataset_is_named_in_its_own_module_alone():
    """All that is known of a dataset stands on its object; docstrings and comments may name it as an example."""
    data = ROOT / "ncl_bench" / "data"
    modules = [
        path for room in ("ncl_bench", "baselines", "leaderboard") for path in (ROOT / room).rglob("*.py")
    ]
    elsewhere = []
    for path in modules:
        if path.is_relative_to(data) and is_of_a_dataset(path):
            continue
        for line, text in texts_of(path):
            found = {name.lower() for name in NAMED.findall(text)} - (
                ORDINARY_WORDS if " " in text else set()
            )
            elsewhere += [f"{path.relative_to(ROOT)}:{line}: {name}" for name in sorted(found)]
    assert elsewhere == []


def test_another_package_called_baselines_takes_training_alone(tmp_path):
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "__init__.py").write_text("")
    command = [sys.executable, "-m", "ncl_bench"]
    for words, code in ((("datasets",), 0), (("leaderboard", "build", "--check"), 2)):
        done = subprocess.run([*command, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert ("another package has the same name" in done.stderr) == (code == 2)
        assert "Traceback" not in done.stderr


DIGITS = "train ncr/digits_vse_infinity --to {tmp}/run"
WRONG = [
    "datasets show flickr",
    "train ncr/flickr --to {tmp}/run",
    "train ncr/digits_vse_infinty --to {tmp}/run",
    "train mine/digits_sgr --to {tmp}/run",
    "train ncr/pets_sgr --to {tmp}/run",
    f"{DIGITS} --noise-ratio 1.0",
    f"{DIGITS} --noise-ratio -0.1",
    f"{DIGITS} --noise-unit pair",
    "leaderboard add {tmp}/absent --root {tmp}",
    "leaderboard build --root {tmp}/absent",
    "recipes --match Flickr30K",
    "score {tmp} --to {tmp}/out",
    "plot {tmp}",
    "evaluate {tmp}/absent",
    "quickstart --to {tmp}",
    "quickstart --dataset flickr30k --to {tmp}/quickstart",
]


@pytest.mark.parametrize("command", WRONG)
def test_a_mistake_is_one_sentence_and_exit_code_2(command, tmp_path, run):
    (tmp_path / "thesis.txt").write_text("precious")
    run(*command.format(tmp=tmp_path).split()).assert_refused()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--to {tmp}/run --seed -1", "greater than or equal to 0"),
        ("--to {tmp}/run --seed 11111111111111111111", "less than or equal to 4294967295"),
        ("--to {tmp}", "exists already"),
        ("--to /proc/run", "cannot write /proc/run"),
    ],
)
def test_a_mistake_may_follow_other_lines(options, words, tmp_path, run):
    (tmp_path / "thesis.txt").write_text("precious")
    ran = run("train", "ncr/digits_vse_infinity", *options.format(tmp=tmp_path).split())
    assert ran.code == 2
    assert words in " ".join(ran.err.replace("│", " ").split())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_recipe_with_an_unknown_key_is_refused(tmp_path, run):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("dataset: digits\nbackbone: {name: vse_infinity}\nmethod: {name: ncr, marginn: 0.2}\n")
    run("train", recipe, "--to", tmp_path / "run").assert_refused()
    assert not (tmp_path / "run").exists()
