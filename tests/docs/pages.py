"""The documents as lists of blocks: what a reader would type, and what stands there only to be looked at.

A fence's first word is its language. ``bash`` and ``python`` blocks run; further words change that:

* ``no-run``: shown only (it needs a GPU, a cluster, the Hub, or minutes);
* a file name: the block is written to that file in the reader's folder.

A comment ``<!-- given: name -->`` before a block stands for what a reader has and a test makes (see ``givens.py``).
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *ROOT.glob("docs/*.md")})

_PART = re.compile(
    r"^<!-- given: (?P<given>.+?) -->$|^```(?P<info>\S.*)\n(?P<text>(?:.*\n)*?)```$", re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """One fence, or one given.

    Attributes:
        place: file and line.
        language: ``bash``, ``python``, ...; ``given`` for a given.
        words: what follows the language.
        text: between the fences.
    """

    place: str
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def shown_only(self):
        """It is not meant to be run here."""
        return "no-run" in self.words


def blocks_of(page):
    """Every fence and given of a page, in order."""
    content = page.read_text("utf-8")
    found = []
    for part in _PART.finditer(content):
        place = f"{page.relative_to(ROOT)}:{content.count(chr(10), 0, part.start()) + 1}"
        language, *words = ["given", part["given"]] if part["given"] else part["info"].split()
        found.append(Block(place, language, tuple(words), part["text"] or ""))
    return found


def commands_of(text):
    """Lines of a shell block, with continued lines joined and comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    stripped = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in lines)
    return [line for line in stripped if line]
