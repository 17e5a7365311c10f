"""A page of the worst failures: query, its true items, and what was retrieved instead."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.ranks import Ranks
from ncl_bench.files import write_text

SHOWN = 5
TEMPLATE = Path(__file__).parent / "examples.html.j2"


@dataclass(frozen=True)
class Item:
    """An image or a caption on the page.

    Attributes:
        label: its number, and its id or text where known.
        picture: data URI of a thumbnail, or empty.
        true: whether it belongs to the query.
    """

    label: str
    picture: str = ""
    true: bool = False


@dataclass(frozen=True)
class Failure:
    """One query whose true item lies deep.

    Attributes:
        direction: ``i2t`` or ``t2i``.
        rank: of the best true item.
        query: what was asked for.
        truth: what should have come first.
        retrieved: what came first.
    """

    direction: str
    rank: int
    query: Item
    truth: tuple[Item, ...]
    retrieved: tuple[Item, ...]


class Gallery:
    """Items of a split as they are shown.

    Args:
        spec: which dataset.
        content: the split, or None where this machine does not hold it.
    """

    def __init__(self, spec: DatasetSpec, content: PairedDataset | None) -> None:
        self.spec, self.content = spec, content

    def image(self, number: int, *, true: bool = False) -> Item:
        """An image: its id, and its picture where the dataset has one."""
        if self.content is None:
            return Item(f"image {number}", true=true)
        features = self.content.image_features[np.array([number])][0]
        png = self.spec.picture(str(self.content.image_ids[number]), features)
        picture = "" if png is None else f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
        return Item(f"image {number} ({self.content.image_ids[number]})", picture, true)

    def caption(self, number: int, *, true: bool = False) -> Item:
        """A caption: its text where the dataset has it."""
        captions = None if self.content is None else self.content.captions
        return Item(f"{number}" + ("" if captions is None else f": {captions[number]}"), true=true)


def worst_failures(
    ranks: Ranks, retrieved: Callable[[str, int, int], list[int]] | None, gallery: Gallery, n: int
) -> list[Failure]:
    """The queries of both directions whose true item lies deepest, deepest first.

    Args:
        ranks: of the split, among all items.
        retrieved: direction, query and a number to that many best items.
        gallery: how items are shown.
        n: queries of each direction.

    Raises:
        ScoresError: only ranks are known, not what was retrieved.
    """
    if retrieved is None:
        raise ScoresError(
            "ranks alone do not say what was retrieved, so there are no examples; "
            "submit a matrix, embeddings or rankings, or leave --examples out"
        )
    each, failures = gallery.spec.captions_per_image, []
    for query in _deepest(ranks.i2t, n):
        own = range(query * each, (query + 1) * each)
        found = retrieved("i2t", query, SHOWN)
        failures.append(
            Failure(
                "i2t",
                int(ranks.i2t[query]),
                gallery.image(query),
                tuple(gallery.caption(c) for c in own),
                tuple(gallery.caption(c, true=c in own) for c in found),
            )
        )
    for query in _deepest(ranks.t2i, n):
        found = retrieved("t2i", query, SHOWN)
        failures.append(
            Failure(
                "t2i",
                int(ranks.t2i[query]),
                gallery.caption(query),
                (gallery.image(query // each),),
                tuple(gallery.image(i, true=i == query // each) for i in found),
            )
        )
    return failures


def _deepest(ranks: NDArray[np.int64], n: int) -> list[int]:
    order = np.argsort(-ranks, kind="stable")[:n]
    return [int(query) for query in order if ranks[query] > 1]


def write_examples(path: Path, failures: list[Failure], title: str) -> None:
    """Write the page: one file without scripts or links.

    Args:
        path: the ``.html`` file.
        failures: to show, in order.
        title: of the page.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    write_text(path, template.render(title=title, failures=failures) + "\n")
