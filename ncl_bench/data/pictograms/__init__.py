"""Pictograms: clip art, emoji and icons with names and keywords given by people (docs/protocol.md).

Features, captions, splits and thumbnails are next to this file; ``tools/pictograms`` makes them. Three datasets use
them: ``pictograms``; its emoji with Chinese captions, ``pictograms-emoji``; and ``pictograms-web``, which trains on the
original, unchecked texts of the clip art.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.embedded import EmbeddedDataset, MadeImages, embedded_split
from ncl_bench.data.pictures import open_picture
from ncl_bench.data.spec import SPLITS, Origin, Split
from ncl_bench.errors import DataError
from ncl_bench.npy import Float32Array
from ncl_bench.tables import read_table

FILES = Path(__file__).parent
NEAR_PAIRS = FILES / "near_pairs.csv"
"""Pictures of dev and test beside training pictures that look alike: ``dataset``, ``split``, ``image_id``,
``train_image_id`` and ``cosine`` of the two pictures' mean features, above 0.95."""
REGIONS, DIM = 16, 64
THUMBNAIL, THUMBNAILS_IN_A_LINE = 64, 40
"""Thumbnail size in pixels, and thumbnails per line of the sheet."""
SHEETS = (*SPLITS, "web")
"""Sheets of thumbnails: one per split of ``pictograms``, and one of clip art that only ``pictograms-web`` holds."""


@dataclass(frozen=True)
class ItemLine:
    """One line of ``items.tsv``.

    Attributes:
        number: number of the picture, its row of the features.
        id: source and name, such as ``noto/pear``.
        split: split in ``pictograms``; empty for clip art without a usable text.
        caption: English caption; empty if ``split`` is empty.
        chinese: Chinese caption of an emoji, else empty.
        web_split: split in ``pictograms-web``, or empty.
        as_it_comes: training caption of ``pictograms-web``, or empty.
    """

    number: int
    id: str
    split: str
    caption: str
    chinese: str
    web_split: str
    as_it_comes: str

    @property
    def sheet(self) -> str:
        """Name in ``SHEETS`` of the sheet with its thumbnail."""
        return self.split or "web"


@lru_cache
def rows() -> tuple[ItemLine, ...]:
    """Every picture, in the order of the features."""
    lines = read_table(FILES / "items.tsv", DataError)[1]
    # the columns are the fields of a line, in this order
    return tuple(ItemLine(number, *row.values()) for number, (_, row) in enumerate(lines))


@lru_cache
def sheets() -> dict[str, str]:
    """Sheet of every picture, by id, in the order of the features."""
    return {row.id: row.sheet for row in rows()}


@lru_cache
def pictured() -> frozenset[str]:
    """Sheets that are at hand; an installed wheel has neither ``train`` nor ``web``, to stay small."""
    return frozenset(sheet for sheet in SHEETS if (FILES / f"thumbnails_{sheet}.webp").is_file())


@lru_cache(maxsize=len(SHEETS))
def thumbnails(sheet: str) -> dict[str, NDArray[np.uint8]]:
    """Pictures of a sheet by id, uint8 ``(64, 64, 3)``."""
    shown = [name for name, its_sheet in sheets().items() if its_sheet == sheet]
    with open_picture(FILES / f"thumbnails_{sheet}.webp") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    # a row of pixels runs through all thumbnails of a line, so axes change places
    tiles = (
        pixels.reshape(-1, THUMBNAIL, THUMBNAILS_IN_A_LINE, THUMBNAIL, 3)
        .swapaxes(1, 2)
        .reshape(-1, THUMBNAIL, THUMBNAIL, 3)
    )
    return dict(zip(shown, tiles, strict=False))  # the last line of the sheet ends with white tiles


@lru_cache(maxsize=1_000)
def png(image_id: str) -> bytes:
    """The thumbnail of a picture on one of the sheets of :func:`pictured`."""
    from PIL import Image

    stream = BytesIO()
    Image.fromarray(thumbnails(sheets()[image_id])[image_id]).save(stream, "PNG")
    return stream.getvalue()


def _features(chosen: list[ItemLine]) -> Float32Array:
    steps = np.load(FILES / "features.npy", mmap_mode="r", allow_pickle=False)
    scales = np.load(FILES / "scales.npy", allow_pickle=False)
    features: Float32Array = steps[[row.number for row in chosen]] * scales
    return features


class Pictograms(EmbeddedDataset):
    """The pictures whose text passed the rules of ``tools/pictograms``."""

    word_threshold: ClassVar[int] = 2
    columns: ClassVar[Mapping[str, str]] = {
        "id": "Source and name of the picture.",
        "split": "Its split; empty for pictures that are not in this dataset.",
        "caption": "Its caption in English.",
    }

    @property
    def files(self) -> tuple[Path, ...]:
        """The table of pictures, their features, near pairs across splits, and the thumbnails that are at hand."""
        used = {row.sheet for row in rows() if self.split_of(row)} & pictured()
        thumbnails = (f"thumbnails_{sheet}.webp" for sheet in SHEETS if sheet in used)
        tables = ("items.tsv", "features.npy", "scales.npy", NEAR_PAIRS.name)
        return tuple(FILES / name for name in (*tables, *thumbnails))

    def split_of(self, row: ItemLine) -> str:
        """Split of a picture in this dataset, or an empty string."""
        return row.split

    def captions_of(self, chosen: list[ItemLine], split: str) -> dict[str, tuple[str, ...]]:
        """Language to captions of the chosen pictures."""
        return {"en": tuple(row.caption for row in chosen)}

    def content(self, split: str) -> Split:
        """Content of one split, made once per process."""
        return _content(self, split)

    def drawn_images(self, split: str) -> MadeImages | None:
        """The thumbnails, where every picture of the split has one."""
        ids = tuple(self.content(split).image_ids)
        return MadeImages(ids, png) if pictured() >= {sheets()[each] for each in ids} else None


class PictogramsEmoji(Pictograms):
    """The emoji of the checked part, in the same splits, with Unicode names in two languages."""

    columns: ClassVar[Mapping[str, str]] = {
        **Pictograms.columns,
        "split": "Its split, if it has a caption in Chinese; other pictures are not in this dataset.",
        "chinese": "Its caption in Chinese.",
    }

    def split_of(self, row: ItemLine) -> str:
        """Split of a picture in this dataset, or an empty string."""
        return row.split if row.chinese else ""

    def captions_of(self, chosen: list[ItemLine], split: str) -> dict[str, tuple[str, ...]]:
        """Language to captions of the chosen pictures."""
        return {
            "zh": tuple(row.chinese for row in chosen),
            "en": tuple(row.caption for row in chosen),
        }


class PictogramsWeb(Pictograms):
    """The clip art with its original texts in train; dev and test are checked."""

    columns: ClassVar[Mapping[str, str]] = {
        "id": Pictograms.columns["id"],
        "web_split": Pictograms.columns["split"],
        "caption": "Its caption in dev and test.",
        "as_it_comes": "Its caption in train.",
    }

    @property
    def files(self) -> tuple[Path, ...]:
        """As in the base class, and the labels of training pairs."""
        return (*super().files, FILES / "web_labels.csv")

    def split_of(self, row: ItemLine) -> str:
        """Split of a picture in this dataset, or an empty string."""
        return row.web_split

    def captions_of(self, chosen: list[ItemLine], split: str) -> dict[str, tuple[str, ...]]:
        """Language to captions of the chosen pictures."""
        return {"en": tuple(row.as_it_comes if split == "train" else row.caption for row in chosen)}


@lru_cache(maxsize=3 * len(SPLITS))
def _content(spec: Pictograms, split: str) -> Split:
    chosen = [row for row in rows() if spec.split_of(row) == split]
    ids = [row.id for row in chosen]
    return embedded_split(_features(chosen), ids, spec.captions_of(chosen, split))


def _origin(summary: str, noise: str) -> Origin:
    return Origin(
        summary=summary,
        homepage="https://packages.debian.org/stable/openclipart-svg",
        obtain=(
            "nothing to download: features, captions and thumbnails come with the package",
            "thumbnails of train come with the repository, not with an installed wheel",
        ),
        folders=(),
        files=(),
        licence="Public domain, Apache-2.0, MIT, ISC and Unicode-3.0, by source",
        licence_urls=(
            "https://creativecommons.org/licenses/publicdomain/",
            *(
                f"https://spdx.org/licenses/{name}.html"
                for name in ("Apache-2.0", "MIT", "ISC", "Unicode-3.0")
            ),
        ),
        published="2026",
        terms=(
            "You may use, change and share it for any purpose. Copies must keep the notices of "
            "`LICENSES.txt`, which is next to the data."
        ),
        noise=noise,
        upload=("captions", "images"),
        upload_reason="the licences ask that their notices be kept",
        citation="""@misc{openclipart2005,
  title        = {Open Clip Art Library, release 0.18},
  author       = {{The Open Clip Art Library's artists}},
  howpublished = {Debian package openclipart-svg 1:0.18+dfsg-19},
  year         = {2005}
}
@misc{unicode2026cldr,
  title        = {Unicode Common Locale Data Repository: annotations, version 48.2},
  author       = {{Unicode, Inc.}},
  howpublished = {packages cldr-annotations-full and cldr-annotations-derived-full},
  year         = {2026}
}""",
    )


_MOVED = (
    "The benchmark corrupts only train, by exchanging the images of captions. With one caption per image, all units "
    "move the same number of pairs."
)

SPEC = Pictograms(
    name="pictograms",
    title="Pictograms",
    images={"train": 7_193, "dev": 400, "test": 1_000},
    captions_per_image=1,
    n_regions=REGIONS,
    feature_dim=DIM,
    protocols=("1k",),
    order_fingerprints={
        "dev": "a36d2bc130f052f3fac5bae25f44e95b7f5277a54d3d1a76bddc3508822fd124",
        "test": "77ed1adf656104d4021104537c056990f8401941d5c781162b49a1ad5c9773ac",
    },
    origin=_origin(
        "Clip art, emoji and icons with English names and keywords that people gave them. Each image has 16 region "
        "features of a small CNN.",
        "The pairs count as clean; of 200 test pairs that were looked at, 19 are doubtful, all of them clip art. "
        f"{_MOVED}",
    ),
)

EMOJI = PictogramsEmoji(
    name="pictograms-emoji",
    title="Pictograms: emoji",
    images={"train": 2_290, "dev": 120, "test": 300},
    captions_per_image=1,
    n_regions=REGIONS,
    feature_dim=DIM,
    protocols=("300",),
    order_fingerprints={
        "dev": "8a69d120929c1b746b78d94da9b619c77976d07b4c99aae63ecf9daa64c61ca2",
        "test": "7e423d03871b27b9699b46ffa90a271db6d1be233d128fe5323c2609bd499892",
    },
    languages=("zh", "en"),
    origin=_origin(
        "The emoji of Pictograms, in the same splits, with the names and keywords of Unicode in Chinese and English.",
        f"The pairs count as clean. {_MOVED}",
    ),
)

WEB = PictogramsWeb(
    name="pictograms-web",
    title="Pictograms: web",
    images={"train": 6_078, "dev": 160, "test": 400},
    captions_per_image=1,
    n_regions=REGIONS,
    feature_dim=DIM,
    noise="natural",
    protocols=("400",),
    order_fingerprints={
        "dev": "790ab849efe9be0cd1cbf465008717a0f31572d65298618d6370cc7264621aa5",
        "test": "c4b966acf3d174a3531590f1ad0052103201410fdd77f44f7cc854a98c5649c3",
    },
    pair_labels=FILES / "web_labels.csv",
    origin=_origin(
        "The clip art of Pictograms with the original titles and keywords, many of which name a batch of pictures. Dev "
        "and test are the clip art of Pictograms, whose captions passed its rules.",
        "Natural: some titles name a batch, an artist or another picture. Few are wrong: 1.7 % of train by labels of a "
        "sample. In a batch of 128, 52 % of the pairs share their caption with another pair. Dev and test hold only "
        "captions that passed the rules of Pictograms; of 77 clip arts of Pictograms' test that were looked at, 19 are "
        "doubtful.",
    ),
)
