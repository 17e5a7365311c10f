"""Labels of training pairs under natural noise: whether a caption fits its picture."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import DataError, shorten, shown
from ncl_bench.foreign import whole_number
from ncl_bench.tables import read_table

SHARED_BY = 5
"""Captions that begin with a title, from which on the title counts as shared."""

FEWEST = 30
"""Wrong pairs, and matching ones, that a score of labelled pairs needs."""
LABELS: Mapping[str, str] = {
    "matches": "The caption names what the picture shows; further words may be general.",
    "partly": "No false subject, but the caption only names a kind or a collection, or one detail is wrong.",
    "wrong": "The caption names another subject than the picture shows, or nothing in it fits.",
    "cannot say": "The picture cannot be recognised, or the caption cannot be understood.",
}
"""Each label and its definition."""

Stratum = Literal["shared", "own"]


def strata(captions: Sequence[str]) -> list[Stratum]:
    """Whether at least ``SHARED_BY`` captions begin with the same title (the words before the first comma)."""
    titles = [caption.split(",")[0] for caption in captions]
    count = Counter(titles)
    return ["shared" if count[title] >= SHARED_BY else "own" for title in titles]


def read_pair_labels(
    path: Path, spec: DatasetSpec, image_ids: Mapping[int, str] | None = None
) -> dict[int, str]:
    """Read a CSV file with the columns ``pair_id`` and ``label``; other columns are ignored, but for ``image_id``.

    Args:
        path: path of the file.
        spec: dataset with the train split of these pairs.
        image_ids: pair id to image id; the column ``image_id`` must agree if there is one.

    Returns:
        Pair id to label, in the order of the file.

    Raises:
        DataError: the file is missing or not CSV, a column is missing, a label or pair is unknown, a pair appears
            twice, or its image is another one.
    """
    n_pairs = spec.n_captions("train")
    expected = "a CSV file with the columns pair_id and label"
    _, rows = read_table(path, DataError, ("pair_id", "label"), expected=expected)
    label_of: dict[int, str] = {}
    for where, row in rows:
        pair, label = whole_number(row["pair_id"]), row["label"]
        if pair is None or pair >= n_pairs or label not in LABELS:
            raise DataError(
                f"{where}: pair_id is {shorten(row['pair_id'])} and label {shorten(label)}, expected a pair from 0 to "
                f"{n_pairs - 1} and one of: {', '.join(LABELS)}"
            )
        if pair in label_of:
            raise DataError(f"{where}: pair {pair} has a label already; keep one line for each pair")
        theirs, ours = row.get("image_id") or "", (image_ids or {}).get(pair)
        # pair ids are plain numbers: labels of other data would fit them too
        if theirs and ours and theirs != ours:
            raise DataError(
                f"{where}: pair {pair} has the image {shown(theirs)}, but {ours} in {spec.name}; give labels of "
                "this dataset"
            )
        label_of[pair] = label
    if not label_of:
        raise DataError(f"{path} holds no labels, expected {expected}")
    return label_of
