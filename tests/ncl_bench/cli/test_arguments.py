"""Arguments that no command should read."""

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        ("noise", "check", "", "--dataset", "digits"),
        ("noise", "identify", ""),
        ("evaluate", "scores.npy", "--dataset", ""),
        ("evaluate", "scores.npy", "--dataset="),
        ("noise", "make", "digits", "--ratio", "0.4", "--to", ""),
        ("--plugin", "", "datasets"),
        ("",),
    ],
)
def test_an_empty_argument_is_named(run, arguments):
    run(*arguments).assert_refused()
