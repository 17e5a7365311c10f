"""Options that many commands take: ratios are finite, and noise options need a ratio."""

import pytest
from support.command import invoke
from support.refusals import refused

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
        invoke(*given)
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
        invoke(*command, *given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [("--noise-unit", "image"), ("--noise-seed", "0"), ("--noise-ratio", "0")])
def test_a_run_records_its_noise(given):
    with refused():
        invoke("audit", "run", "--to", "to", *given)


@pytest.mark.parametrize(
    "command", [(), ("train",), ("datasets", "show"), ("submission", "init")], ids=" ".join
)
def test_help_shows_no_type_behind_flags(command):
    shown = invoke(*command, "--help").output
    assert "--help" in shown
    assert "<bool>" not in shown
