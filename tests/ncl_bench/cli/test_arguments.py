"""Arguments that no command should read."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("noise", "check", "", "--dataset", "digits"), "argument 3"),
        (("noise", "identify", ""), "argument 3"),
        (("evaluate", "scores.npy", "--dataset", ""), "--dataset"),
        (("evaluate", "scores.npy", "--dataset="), "--dataset"),
        (("noise", "make", "digits", "--ratio", "0.4", "--to", ""), "--to"),
        (("--plugin", "", "datasets"), "--plugin"),
        (("",), "argument 1"),
    ],
)
def test_an_empty_argument_is_named(run, arguments, name):
    ran = run(*arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(f"ncl-bench: {name} is empty; give a value, or leave it out")
