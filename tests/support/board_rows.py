"""Rows of the leaderboard that no file holds."""

from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.entries import Entry
from ncl_bench.evaluation.metrics import RECALLS

CONDITION = {"dataset": "flickr30k", "protocol": "1k", "noise_unit": "caption", "noise_ratio": 0.4}


def row(recalls: float | Sequence[float] | Mapping[str, float], **fields: Any) -> Entry:
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
