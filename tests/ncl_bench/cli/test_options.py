"""Options that many commands take: ratios are finite, and noise options need a ratio."""

import pytest
from support.refusals import refused
from typer.testing import CliRunner

from ncl_bench.cli import app

RUN = ("train", "triplet/digits_vse_infinity", "--to", "to")
IMPORTED = ("import-checkpoint", "no.tar", "--method", "ncr", "--to", "to", "--dataset")
STATED = ("submission", "init", "--method", "X", "--to", "to", "--dataset")


@pytest.mark.parametrize(
    "command",
    [
        (*RUN, "--noise-ratio"),
        (*STATED, "digits", "--noise-ratio"),
        ("noise", "make", "digits", "--to", "to.npy", "--ratio"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
def test_a_ratio_is_finite(command, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [f"{each}={number}" if each == command[-1] else each for each in command]
    with refused():
        CliRunner().invoke(app, given, catch_exceptions=False)
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
    "given",
    [
        ("--noise-unit", "image"),
        ("--noise-unit", "caption"),
        ("--noise-seed", "3"),
        ("--noise-seed", "0", "--noise-unit", "similar"),
    ],
)
def test_forgotten_noise_is_not_taken_for_clean_pairs(command, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused():
        CliRunner().invoke(app, [*command, *given], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [("--noise-unit", "image"), ("--noise-seed", "0"), ("--noise-ratio", "0")])
def test_a_run_records_its_noise(given):
    done = CliRunner().invoke(app, ["audit", "run", "--to", "to", *given])
    assert "a run records its noise; leave --noise-ratio, --noise-unit and --noise-seed out" in str(
        done.exception
    )


@pytest.mark.parametrize(
    "command", [(), ("train",), ("datasets", "list"), ("submission", "init")], ids=" ".join
)
def test_help_shows_no_type_behind_flags(command):
    shown = CliRunner().invoke(app, [*command, "--help"]).output
    assert "--help" in shown
    assert "<bool>" not in shown
