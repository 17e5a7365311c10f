"""Rows of the leaderboard: all of this checkout, read once, and rows that no file holds."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import leaderboard
from leaderboard.board import compared, read_content
from leaderboard.entries import Entry
from ncl_bench.evaluation.metrics import RECALLS

CONDITION = {"dataset": "flickr30k", "protocol": "1k", "noise_unit": "caption", "noise_ratio": 0.4}


@cache
def whole_board():
    """All rows of this checkout and of the papers, which take seconds to read; nobody may change them."""
    return read_content(Path(leaderboard.__file__).parent, published=True)


@cache
def measured_board():
    """The same without the rows of papers, ranked among themselves."""
    whole = whole_board()
    seeds = tuple(entry for entry in whole.seeds if entry.status != "reported")
    test = whole.significantly_different
    rows, significantly_different = compared(seeds, test.hits, test.agreements)
    return replace(
        whole,
        seeds=seeds,
        rows=rows,
        papers={},
        printed_detection=(),
        significantly_different=significantly_different,
    )


def rows_on(root):
    """The rows of a leaderboard without those of papers."""
    return read_content(root, published=False).rows


def row(recalls, **fields):
    """A printed row of a single network.

    Args:
        recalls: six, some by name, or their sum, of which each is a sixth.
        fields: of Entry, where they differ.
    """
    if isinstance(recalls, int | float):
        recalls = [recalls / 6] * 6
    if not isinstance(recalls, Mapping):
        recalls = dict(zip(RECALLS, recalls, strict=True))
    content = {"method": "M", "family": "a", "condition": CONDITION, "recalls": recalls, "networks": "single"}
    return Entry.model_validate(content | {"status": "reported", "source": "s"} | fields)
