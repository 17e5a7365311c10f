"""Arguments and options of commands that are made from calls."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import leaderboard
import leaderboard.cli
import ncl_bench
from ncl_bench.arguments import AnyPath, Count, Seed
from ncl_bench.cli import app
from ncl_bench.cli.from_calls import Option, made_from

Words = Literal["one", "two"]


@dataclass(frozen=True)
class Draw:
    """How splits are drawn.

    Attributes:
        dev: number of images, none by default.
    """

    dev: Count | None = None


def call(
    places: AnyPath | Sequence[AnyPath],
    word: Words = "one",
    *,
    to: AnyPath | None = None,
    settings: Mapping[str, int] | Sequence[str] = (),
    seeds: Sequence[Seed] | None = None,
    kept: bool = True,
    open: bool = False,
    report: Any = None,
    say: Callable[[str], None] = print,
    draw: Draw = Draw(),
) -> None:
    """Do it.

    Args:
        places: what ``to`` gets, in ``one step``. From Python also one place.
        word: a word.
        to, report: folder to write, which must
            not exist.
        settings: ``a=1``.
        seeds: seed.
        kept: keep the rest.
        open: whether to open it.
    """


@pytest.fixture
def command():
    alone = typer.Typer()
    got = {}

    @alone.command()
    @made_from(call, word=Option("--word"), kept=Option("--no-rest"))
    def run(loud: bool = False, **given: Any) -> None:
        """Do it here."""
        got.update(given, loud=loud)

    return alone, got


DEFAULTS = {"places": ["a"], "word": "one", "to": None, "settings": [], "seeds": None, "kept": True}
DEFAULTS |= {"open": False, "draw": Draw(), "loud": False}
GIVEN = {
    "places": ["a", "b/./c"],
    "word": "two",
    "settings": ["x=1", "y=2"],
    "seeds": [3],
    "kept": False,
    "draw": Draw(dev=3),
    "loud": True,
}


@pytest.mark.parametrize(
    ("words", "given"),
    [("a", {}), ("a b/./c --word two --set x=1 --set y=2 --seed 3 --no-rest --dev 3 --loud", GIVEN)],
)
def test_a_command_gets_what_the_call_takes_and_the_defaults_of_the_call(command, words, given):
    alone, got = command
    done = CliRunner().invoke(alone, words.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert got == DEFAULTS | given


@pytest.mark.parametrize("wrong", [["--seed", "-1"], ["--seed", str(2**32)], ["--word", "three"], []])
def test_a_value_outside_the_annotation_is_refused(command, wrong):
    alone, got = command
    assert CliRunner().invoke(alone, [*wrong, "a"] if wrong else []).exit_code == 2
    assert got == {}


def test_help_is_the_first_sentence_in_the_words_of_a_terminal(command):
    helps = {each.name: each.help for each in get_command(command[0]).params}
    assert helps["places"] == "What --to gets, in `one step`."
    assert helps["word"] == "A word."
    assert helps["to"] == "Folder to write, which must not exist."
    assert helps["settings"] == "a=1; repeatable."
    assert helps["kept"] == "Do not keep the rest."
    assert helps["dev"] == "Number of images, none by default."


def test_what_no_terminal_can_write_is_no_option(command):
    assert {"report", "say", "draw"}.isdisjoint(each.name for each in get_command(command[0]).params)


MADE = {
    "prepare": (ncl_bench.prepare, {"check"}),
    "leaderboard table": (leaderboard.table, {"form", "ranks", "as_json"}),
}
"""Command to its call, and what only a terminal has."""
DIFFERENT = {("leaderboard table", "root"): leaderboard.cli.ROOT}


def leaves(command, *path):
    """Every command below one, with its name."""
    if not hasattr(command, "list_commands"):
        yield " ".join(path), command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), *path, name)


COMMANDS = dict(leaves(get_command(app)))


@pytest.mark.parametrize("name", MADE)
def test_a_command_has_the_arguments_and_defaults_of_its_call(name):
    call, own = MADE[name]
    declared = inspect.signature(call).parameters
    shown = {each.name: each for each in COMMANDS[name].params if each.name not in own | {"help"}}
    assert set(declared) - {"progress", "console"} == set(shown)
    for argument, parameter in shown.items():
        default = declared[argument].default
        if parameter.opts[0].startswith("--no-"):
            assert (default, parameter.default) == (True, False)
        else:
            expected = DIFFERENT.get((name, argument), default)
            assert parameter.default == (None if expected is inspect.Parameter.empty else expected), argument


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_is_a_plain_sentence(name):
    for parameter in COMMANDS[name].params:
        text = parameter.help
        assert text, parameter.name
        assert text.endswith("."), parameter.name
        assert "``" not in text, parameter.name
        assert ":`" not in text, parameter.name
