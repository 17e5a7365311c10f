"""Draw synthetic noise, read noise files, and identify them by hash (docs/protocol.md, Synthetic noise).

A unit says what a draw moves. Each has its own file, such as ``caption``, and is registered here; ``draw`` draws any of
them. ``files`` reads noise from a file, ``identify`` says what a file holds.
"""

import re

from ncl_bench.errors import NoiseError
from ncl_bench.noise import caption, files, image, noun, similar
from ncl_bench.noise.unit import UNITS as UNITS
from ncl_bench.noise.unit import Task as Task
from ncl_bench.noise.unit import Unit as Unit
from ncl_bench.noise.unit import choose as choose
from ncl_bench.noise.unit import unit_of as unit_of
from ncl_bench.plugins import registered


def register(unit: Unit) -> Unit:
    """Register a unit of noise under its name; also a user's own, in a file given with ``--plugin``."""
    if not re.fullmatch("[a-z]{1,20}", unit.name) or unit.name in _OTHERS:
        raise NoiseError(
            f"name of a noise unit is {unit.name!r}, expected small letters, and none of: "
            f"{', '.join([*UNITS, *_OTHERS])}"
        )
    UNITS[unit.name] = unit
    registered(unit.name)
    return unit


_OTHERS = ("none", "natural", "unknown")
"""What a result states in place of a unit."""

# not by `register`, which records the units of plugins; in the order of the tables
for _unit in (caption.CAPTION, image.IMAGE, similar.SIMILAR, noun.NOUN, files.FILE):
    UNITS[_unit.name] = _unit
