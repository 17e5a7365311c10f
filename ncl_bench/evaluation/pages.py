"""Pages and pictures of a result: worst failures, histograms of ranks, and resampled differences."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.embedded import MadeImages
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.pictures import read_thumbnail
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.decoding import decoded
from ncl_bench.errors import DataError, NclBenchError, named
from ncl_bench.evaluation.protocol import Sides, local_split, protocols_of, ranks_under
from ncl_bench.evaluation.ranks import Counted, Ranks
from ncl_bench.extras import require
from ncl_bench.files import atomic_path, write_text
from ncl_bench.html import environment
from ncl_bench.npy import Float64Array

SHOWN = 5
THUMBNAIL = 240
"""Length of a thumbnail's longer side, in pixels."""
TEMPLATE = Path(__file__).parent / "examples.html.j2"


@dataclass(frozen=True)
class Item:
    """An image or a caption on the page.

    Attributes:
        label: its number, with its id or text if known.
        picture: data URI of a thumbnail, or empty.
        true: whether it is a true match of the query.
    """

    label: str
    picture: str = ""
    true: bool = False


@dataclass(frozen=True)
class Failure:
    """A query whose best true item has a high rank.

    Attributes:
        direction: ``i2t`` or ``t2i``.
        rank: rank of the best true item.
        query: the query.
        truth: the true items.
        retrieved: the top results.
    """

    direction: str
    rank: int
    query: Item
    truth: tuple[Item, ...]
    retrieved: tuple[Item, ...]


class Gallery:
    """Make the items of a split that a page shows.

    Args:
        spec: the dataset.
        content: the split, or None if it is not prepared here.
    """

    def __init__(self, spec: DatasetSpec, content: PairedDataset | None) -> None:
        self.spec, self.content = spec, content

    def image(self, number: int, *, true: bool = False) -> Item:
        """An image: its id, and its picture if the dataset has one."""
        if self.content is None:
            # scores alone are enough to evaluate, so a page has numbers then
            return Item(f"image {number}", true=true)
        return Item(f"image {number} ({self.content.image_ids[number]})", self.picture(number), true)

    def picture(self, number: int) -> str:
        """Thumbnail of an image as a data URI; empty if the dataset has no pictures."""
        images = None if self.content is None else self.content.images
        if isinstance(images, MadeImages):  # small, and from this package
            return _data_uri("png", images[number])
        return "" if images is None else thumbnail(images[number])

    def caption(self, number: int, *, true: bool = False) -> Item:
        """A caption: its text if the dataset has it."""
        captions = None if self.content is None else self.content.captions
        return Item(f"{number}" + ("" if captions is None else f": {captions[number]}"), true=true)


def thumbnail(encoded: bytes | Path) -> str:
    """Thumbnail of a stored image file; empty if its pixels cannot be decoded."""
    (picture,) = decoded(read_thumbnail, [("the image", encoded)], THUMBNAIL)
    return "" if isinstance(picture, DataError) else _data_uri("jpeg", picture)


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def worst_failures(ranks: Ranks, sides: Sides, gallery: Gallery, n: int) -> list[Failure]:
    """Queries of both directions with the highest ranks, worst first.

    Args:
        ranks: ranks of the split among all items.
        sides: the scores.
        gallery: makes the items to show.
        n: queries per direction.
    """
    each, failures = gallery.spec.captions_per_image, []
    for direction, rank_of, asked, shown in (
        ("i2t", ranks.i2t, gallery.image, gallery.caption),
        ("t2i", ranks.t2i, gallery.caption, gallery.image),
    ):
        for query in map(int, _first(rank_of, n)):
            if rank_of[query] == 1:
                break
            if direction == "i2t":
                own, line = range(query * each, (query + 1) * each), sides[0].rows(query, query + 1)[0]
            else:
                own, line = range(query // each, query // each + 1), sides[1].column(query)
            top = map(int, _first(line.astype(np.float64), SHOWN))
            failures.append(
                Failure(
                    direction,
                    int(rank_of[query]),
                    asked(query),
                    tuple(shown(item) for item in own),
                    tuple(shown(item, true=item in own) for item in top),
                )
            )
    return failures


def _first(values: NDArray[Any], n: int) -> NDArray[np.intp]:
    """Places of the ``n`` largest values, the largest first."""
    return np.argsort(-values, kind="stable")[:n]  # stable: the same page on every run


def write_examples(path: Path, failures: list[Failure], title: str) -> None:
    """Write the page as one file without scripts or links.

    Args:
        path: the ``.html`` file.
        failures: failures to show, in order.
        title: title of the page.
    """
    template = environment(TEMPLATE.parent).get_template(TEMPLATE.name)
    write_text(path, template.render(title=title, failures=failures))


PICTURES = (".svg", ".png", ".pdf")
COLOURS = {"i2t": "#0072b2", "t2i": "#d55e00"}


def plot_ranks(path: Path, ranks: Ranks, title: str) -> None:
    """Write a histogram of ranks as SVG: percentage of queries per doubling of the rank.

    Args:
        path: the ``.svg`` file.
        ranks: ranks of one split.
        title: title above the picture.
    """
    figure, axes = _figure(title)
    deepest = int(max(ranks.i2t.max(), ranks.t2i.max()))
    # ranks spread over three decades; equal bins would put nearly all into the first
    edges = 2.0 ** np.arange(int(np.ceil(np.log2(deepest + 1))) + 1)
    for direction, colour in COLOURS.items():
        of_direction = getattr(ranks, direction)
        share = 100 * np.histogram(of_direction, edges)[0] / len(of_direction)
        axes.stairs(
            share, edges, color=colour, label=f"{direction} ({len(of_direction):,} queries)", linewidth=1.5
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("rank of the best true item")
    axes.set_ylabel("queries (%)")
    axes.legend(frameon=False)
    save_figure(figure, path)


def check_picture(path: Path) -> None:
    """Refuse a file name with an ending not in ``PICTURES``, or any picture if matplotlib is missing."""
    require("leaderboard", "matplotlib", needed_by=named("plot"))
    if path.suffix.lower() not in PICTURES:
        raise NclBenchError(f"{path} has no ending of a picture; end it with one of: {', '.join(PICTURES)}")


def plot_difference(path: Path, samples: Float64Array, names: Sequence[str]) -> None:
    """Plot the bootstrap distribution of a difference of rSum.

    Args:
        path: a file with an ending of ``PICTURES``.
        samples: float64 ``(n,)``.
        names: names of the two submissions.
    """
    figure, axes = _figure(f"rSum of {names[0]} minus rSum of {names[1]}, resampled images")
    axes.hist(samples, bins=40, color=COLOURS["i2t"])
    axes.axvline(0.0, color="black", linewidth=1)
    axes.set_xlabel("difference of rSum")
    axes.set_ylabel("resamples")
    save_figure(figure, path)


def plot_runs(path: Path, r_sums: Sequence[Float64Array], names: Sequence[str]) -> None:
    """Plot the rSum of every training run of two sides as points, with their means.

    Args:
        path: a file with an ending of ``PICTURES``.
        r_sums: float64 ``(n_runs,)`` per side.
        names: names of the two sides.
    """
    figure, axes = _figure("rSum of every training run, and the mean")
    for place, (sums, colour) in enumerate(zip(r_sums, COLOURS.values(), strict=True)):
        axes.plot(np.full(len(sums), place), sums, "o", color=colour, alpha=0.6)
        axes.hlines(sums.mean(), place - 0.2, place + 0.2, color=colour)
    axes.set_xticks([0, 1], [f"{name} ({len(sums)})" for name, sums in zip(names, r_sums, strict=True)])
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylabel("rSum")
    save_figure(figure, path)


def _figure(title: str) -> tuple[Any, Any]:
    figure, (axes,) = new_figure(7, 4)
    # no mathematics: a method's name may hold a dollar sign
    axes.set_title(title, fontsize=11, parse_math=False)
    return figure, axes


def new_figure(width: float, height: float, panels: int = 1) -> tuple[Any, Any]:
    """An empty figure of matplotlib and the axes of its panels, side by side; sizes in inches."""
    # without pyplot, which would look for a display and keep every figure
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure; the same figure gives the same bytes."""
    import matplotlib as mpl

    with (
        # ids of an SVG are random otherwise; text stays text, which is smaller and can be searched
        mpl.rc_context({"svg.hashsalt": "ncl-bench", "svg.fonttype": "none"}),
        atomic_path(path) as temporary,
    ):
        kind = path.suffix.lower().removeprefix(".")
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)  # same bytes on every run
        figure.savefig(temporary, format=kind, metadata=metadata, dpi=150)


class Pages:
    """Pages of an evaluation, drawn when the ranks are known and written when everything is computed.

    Args:
        to: output folder.
        plot: draw histograms of ranks.
        examples: worst failures to show per direction; 0 for no page.
        root: folder of prepared datasets, for pictures and captions of the examples.
    """

    def __init__(self, to: Path, *, plot: bool, examples: int, root: Path | None = None) -> None:
        self.to, self.plot, self.examples, self.root = to, plot, examples, root
        self._drawn: dict[Path, Callable[[Path], None]] = {}
        if examples:
            require("leaderboard", "jinja2", needed_by=named("examples"))
        if plot:
            require("leaderboard", "matplotlib", needed_by=named("plot"))

    def draw(
        self, name: str, sides: Sides, counted: Counted, spec: DatasetSpec, split: str, language: str
    ) -> None:
        """Draw the pages of a split; ``name`` begins their titles."""
        title = f"{name} on {spec.title}, {split}"
        if self.examples:
            gallery = Gallery(spec, local_split(spec, split, self.root, language))
            failures = worst_failures(counted.whole, sides, gallery, self.examples)
            self._drawn[self.to / f"examples_{split}.html"] = partial(
                write_examples, failures=failures, title=f"{title}: worst failures"
            )
        for protocol in protocols_of(spec, split) if self.plot else ():
            self._drawn[self.to / f"ranks_{split}_{protocol}.svg"] = partial(
                plot_ranks,
                ranks=ranks_under(counted, protocol),
                title=title if protocol == split else f"{title} ({protocol})",
            )

    def write(self) -> list[Path]:
        """Write the pages; return their paths."""
        for path, write in self._drawn.items():
            write(path)
        return list(self._drawn)
