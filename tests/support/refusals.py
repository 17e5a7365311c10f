"""The wording of every refusal stands once, in ``tests/golden/refusals.json``.

``NCL_FREEZE=refusals pytest tests/...`` writes the sentences of the tests that run anew; review their diff.
"""

import json
import os
import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from ncl_bench.errors import NclBenchError

LIST = Path(__file__).parents[1] / "golden" / "refusals.json"
FREEZE = os.environ.get("NCL_FREEZE") == "refusals"
OURS = (
    r"it|key |no |unknown |token id |the hub |KeyError |line \d+: (?:aliases|the key)|"
    r"[\w.]+(?: and \w+)?:? (?:is|holds|declares|lacks|unknown|disagree)\b"
)
"""Begin of a reason in our words; those of other libraries differ from version to version."""
_seen: list[str] = []


@cache
def listed():
    """Id of a test to the sentences of what it sees refused, in their order."""
    return json.loads(LIST.read_text("utf-8"))


@contextmanager
def refused(error=NclBenchError, words=""):
    """Like ``pytest.raises``; the sentence must be that of the golden list, and hold these words."""
    with pytest.raises(error) as caught:
        yield caught
    assert words in saw(caught.value)


def saw(sentence):
    """Compare this sentence with the golden list when the test ends; return it."""
    _seen.append(str(sentence).strip())
    return _seen[-1]


@contextmanager
def compared(test, folder):
    """Compare what a test sees refused with the golden list.

    Args:
        test: its id.
        folder: temporary folder of all tests.
    """
    _seen.clear()
    known = listed().get(test, [])  # read before a test replaces how files are read
    yield
    found = [*dict.fromkeys(_everywhere(sentence, str(folder)) for sentence in _seen)]
    if FREEZE and found != known:
        write(test, found)
    lines = "\n".join([*found, "instead of, in tests/golden/refusals.json,", *known])
    assert FREEZE or found == known, f"{lines}\nNCL_FREEZE=refusals pytest writes the list anew"


def write(test, sentences):
    """Write what a test sees refused to the golden list; without a refusal it has no entry."""
    listed.cache_clear()
    kept = {name: each for name, each in (listed() | {test: sentences}).items() if each}
    listed.cache_clear()
    with LIST.open("w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def _everywhere(sentence, folder):
    """The same sentence on every machine: without its folders, their separators, and words of other libraries."""

    def quoted(path):  # quoted values are cut where they are long
        cut = path[1].endswith("...") and folder.startswith(path[1][:-3])
        return "'TMP*'" if path[1].startswith(folder) or cut else path[0]

    sentence = re.sub(r"'((?:/|[A-Z]:)[^']*?(?:\.\.\.|(?=')))'?", quoted, sentence.replace("\\\\", "\\"))
    sentence = re.sub(re.escape(folder) + r"[\\/][^\\/\s'\",;:)]*", "TMP", sentence)
    sentence = sentence.replace(str(LIST.parents[2]), "CLONE").replace("\\", "/")
    for fixed, varying in (
        ("", r"\b[0-9a-f]{12,64}\b"),  # hashes of computed numbers
        (r"\.arrow has ", r"\d+ bytes, expected \d+ bytes"),
        ("invalid JSON: ", r".*?(?=\)(?:[;,]|$)|; )"),
        (r"unknown (?:dataset|method|backbone|noise unit) .* one of: ", "[^;]*"),  # plugins add to it
        (r"known format \(", r"[^)]*"),  # Pillow may come without some
        (r"(?:OpenCLIP .*|none) of: ", "[^;]*"),
        (r"of which about ", "[^;]*"),  # an estimate
        (r"pip install ", r".*(?=\[\w+\]')"),
        (r"refers to numpy\.", r"[\w.]*"),
        (r"cannot be read \(", rf"(?!{OURS}).*?(?=\)(?:;|, expected|$))"),
        (r"takes more than ", r"[\d.]+(?= MB)"),
        (r"created next to it \(", r".*(?=\))"),
        (r"cannot write \S+: ", "[^;]*"),
    ):
        sentence = re.sub(f"({fixed}){varying}", r"\1...", sentence)
    return sentence
