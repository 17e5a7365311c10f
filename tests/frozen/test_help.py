"""Every option of every command is in its help, with its sentence, however the help is laid out."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ncl_bench.cli import app

COMMANDS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("help.json").read_text("utf-8"))
"""By command: its own sentence under "", and that of each option or argument."""


def squeezed(text: str) -> str:
    """Without blanks, line ends and what draws boxes."""
    return re.sub(r"[\s─-╿]", "", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str) -> None:
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*command.split(), "--help"])
    assert shown.exit_code == 0
    text = squeezed(shown.output)
    for option, sentence in COMMANDS[command].items():
        assert squeezed(option) in text or not option.startswith("-")
        assert squeezed(sentence.removesuffix(".")) in text, option  # a default may follow
