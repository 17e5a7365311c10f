"""Options that many commands take: numbers are finite, and noise options need a ratio."""

from collections.abc import Iterator
from inspect import unwrap
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ncl_bench.cli import app
from ncl_bench.errors import NclBenchError

RUN = ("train", "triplet/digits_vse_infinity", "--to", "to")
IMPORTED = ("import-checkpoint", "no.tar", "--method", "ncr", "--to", "to", "--dataset")
STATED = ("submission", "init", "--method", "X", "--to", "to", "--dataset")


def numbers(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of every command below, and each of its options that takes a number."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from numbers(command.get_command(None, name), *words, name)
        return
    for name, hint in get_type_hints(unwrap(command.callback), include_extras=True).items():
        kinds = get_args(hint)
        if kinds and float in (kinds[0], *get_args(kinds[0])):
            yield (*words, next(iter(kinds[1].param_decls or ()), f"--{name.replace('_', '-')}"))


NUMBERS = [*numbers(get_command(app))]


def test_there_are_options_that_take_a_number() -> None:
    assert {("train", "--noise-ratio"), ("audit", "apply", "--threshold"), ("noise", "make", "--ratio")} <= {
        *NUMBERS
    }


@pytest.mark.parametrize("words", NUMBERS, ids=" ".join)
@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
def test_a_number_is_finite(
    words: tuple[str, ...], number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, [*words[:-1], f"{words[-1]}={number}"])
    assert done.exit_code == 2
    assert f"{float(number)} is not a finite number" in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        RUN,
        (*IMPORTED, "cc152k"),
        (*STATED, "digits"),
        ("audit", "a.npy", "b.npy", "--method", "lemon", "--dataset", "digits", "--to", "to"),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--noise-unit", "image"), "noise_unit 'image' has no effect without noise; give noise_ratio"),
        (("--noise-unit", "caption"), "noise_unit 'caption' has no effect"),
        (("--noise-seed", "3"), "noise_seed 3 has no effect without noise"),
        (("--noise-seed", "0", "--noise-unit", "similar"), "noise_seed 0 has no effect"),
    ],
)
def test_forgotten_noise_is_not_taken_for_clean_pairs(
    command: tuple[str, ...],
    given: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*command, *given])
    assert isinstance(done.exception, NclBenchError)
    assert words in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [("--noise-unit", "image"), ("--noise-seed", "0"), ("--noise-ratio", "0")])
def test_a_run_records_its_noise(given: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["audit", "run", "--to", "to", *given])
    assert "a run records its noise; leave --noise-ratio, --noise-unit and --noise-seed out" in str(
        done.exception
    )
