"""Concepts and splits: pictures that show or name the same thing are in one split."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.pictograms.items import SourceItem

NEAR = 0.95
"""Minimum cosine of two pictures' mean features to count as the same."""
SEED = 2021
KINDS = {
    "openclipart": "clip art",
    "noto": "emoji",
    "fluent": "emoji",
    "lucide": "icons",
    "phosphor": "icons",
}
QUOTAS = {
    "test": {"clip art": 400, "emoji": 300, "icons": 300},
    "dev": {"clip art": 160, "emoji": 120, "icons": 120},
}
"""Images of each kind; the other concepts are train."""
LARGEST_HELD_OUT = 4
"""Maximum pictures of a concept in dev or test, which use one of them; the others are in no split, so few are lost."""
_FILLERS = {
    "a",
    "an",
    "and",
    "icon",
    "button",
    "flag",
    "man",
    "of",
    "person",
    "sign",
    "symbol",
    "the",
    "with",
    "woman",
}


@dataclass(frozen=True)
class Splits:
    """Split of each picture.

    Attributes:
        checked: split of each picture with a checked text; empty where a concept of dev or test has more pictures.
        web: split of each picture of OpenClipart with its original text.
    """

    checked: Mapping[str, str]
    web: Mapping[str, str]


def concept(name: str) -> str:
    """Meaningful words of a name, in alphabetical order: ``up arrow`` and ``arrow up 2`` are one."""
    words = set(re.findall(r"[^\W\d_]+", name.split("(")[0].lower()))
    return " ".join(sorted(words - _FILLERS or words)) or name


def near_pairs(vectors: NDArray[np.float32], threshold: float = NEAR) -> list[tuple[int, int]]:
    """Rows whose cosine is above the threshold, each pair once.

    Args:
        vectors: ``(n, d)``, none of them zero.
        threshold: in [-1, 1].
    """
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found: list[tuple[int, int]] = []
    for start in range(0, len(units), 512):
        close = units[start : start + 512] @ units[start:].T > threshold
        found += [
            (start + row, start + column)
            for row, column in zip(*np.nonzero(close), strict=True)
            if row < column
        ]
    return found


def clusters(names: Sequence[str], pairs: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Concept of each picture, int64 ``(n,)``; equal names and near pictures are connected.

    Args:
        names: names of the concepts; empty if a text names none.
        pairs: pairs of near pictures.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first: dict[str, int] = {}
    edges = [(first.setdefault(name, row), row) for row, name in enumerate(names) if name] + list(pairs)
    rows, columns = np.array(edges, np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(names), len(names)))
    labels: NDArray[np.int64] = connected_components(graph, directed=False)[1].astype(np.int64)
    return labels


def divide(items: Sequence[SourceItem], labels: NDArray[np.int64], dropped: Collection[str] = ()) -> Splits:
    """Draw the splits.

    Args:
        items: items with a picture each.
        labels: concept of each item.
        dropped: ids of items whose text was found wrong; another item replaces each, and no other item moves.
    """
    random = np.random.RandomState(SEED)
    small = np.bincount(labels) <= LARGEST_HELD_OUT
    order = np.arange(len(items))
    random.shuffle(order)
    taken: dict[int, str] = {}
    checked: dict[str, str] = {}
    texts: set[str] = set()
    for split, quotas in QUOTAS.items():
        left = dict(quotas)
        for row in order.tolist():
            item, label = items[row], int(labels[row])
            told = item.caption and item.id not in dropped
            new = small[label] and told and item.caption not in texts and label not in taken
            if new and left[KINDS[item.source]]:
                left[KINDS[item.source]] -= 1
                taken[label] = checked[item.id] = split
                texts.add(item.caption)
    for item, label in zip(items, labels.tolist(), strict=True):
        told = item.caption and item.id not in dropped
        if told and item.id not in checked and label not in taken and item.caption not in texts:
            checked[item.id] = "train"
    clip_art = [
        (item, int(label)) for item, label in zip(items, labels, strict=True) if item.source == "openclipart"
    ]
    web = {item.id: "train" for item, label in clip_art if item.as_it_comes and label not in taken}
    web |= {item.id: checked[item.id] for item, _ in clip_art if checked.get(item.id) in QUOTAS}
    return Splits(checked, web)
