"""Flickr8K: sizes, splits and files; users make its features by ``ncl-bench features`` with its defaults."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np

from ncl_bench.data.captions import lines_of, unique_ids
from ncl_bench.data.download import Download, find_file, read_text
from ncl_bench.data.judgements import Judgements
from ncl_bench.data.spec import DatasetSpec, Origin, Split
from ncl_bench.errors import DataError, named, shorten

CAPTIONS = "Flickr8k.token.txt"
LISTS = {split: f"Flickr_8k.{split}Images.txt" for split in ("train", "dev", "test")}
GRID = 4
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""sha256 of the weights of EfficientNet-lite0, the default encoder of ``ncl-bench features``."""

_LINE = re.compile(r"(?P<image>[^\t]+)#(?P<number>\d+)\t(?P<caption>.*\S.*)")

JUDGEMENT_FILES = {"expert": "ExpertAnnotations.txt", "crowd": "CrowdFlowerAnnotations.txt"}
"""Kind of people's judgements to its file, which the download of the captions has too."""
_PAIR = r"([^\t]+)\t([^\t]+)#([0-4])\t"
_JUDGED = {
    "expert": (
        re.compile(_PAIR + r"([1-4])\t([1-4])\t([1-4])"),
        "IMAGE, IMAGE#NUMBER and three ratings from 1 to 4, separated by tabs",
    ),
    "crowd": (
        re.compile(_PAIR + r"[\d.]+\t(?!0\t0)([0-7])\t([0-7])"),
        "IMAGE, IMAGE#NUMBER, the share of Yes, the number of Yes and the number of No, separated by tabs",
    ),
}
"""Kind of judgement to a line of its file, and how errors describe it."""

ORIGIN = Origin(
    summary=(
        "8,091 photographs of people and animals from Flickr, each with five English captions by crowd "
        "workers. The authors' splits contain 8,000 of them. `ncl-bench features` computes 16 region "
        "features of EfficientNet-lite0 for each."
    ),
    homepage="http://nlp.cs.illinois.edu/HockenmaierGroup/8k-pictures.html",
    obtain=(
        "ask its authors for Flickr8k_Dataset.zip and Flickr8k_text.zip, and unpack both in one folder, here flickr8k",
        "there, make the features: ncl-bench features Flicker8k_Dataset --split train=Flickr_8k.trainImages.txt "
        "--split dev=Flickr_8k.devImages.txt --split test=Flickr_8k.testImages.txt --to features",
    ),
    folders=("features",),
    files=("{split}_ims.npy", "{split}_ids.txt"),
    extra_files=(CAPTIONS, *LISTS.values()),
    judgements=JUDGEMENT_FILES,
    dtypes=("float16", "float32"),
    licence="Flickr terms of use",
    licence_urls=("https://www.flickr.com/help/terms",),
    published="2013",
    terms=(
        "Whoever received images and captions from their authors may use them, for non-commercial research "
        "and education only. The images stay under the Flickr terms of use and their owners' rights."
    ),
    upload_reason=(
        "the authors share images and captions for research, and do not allow others to share them or "
        "features made from the images"
    ),
    citation="""@article{hodosh2013framing,
  title   = {Framing Image Description as a Ranking Task: Data, Models and Evaluation Metrics},
  author  = {Hodosh, Micah and Young, Peter and Hockenmaier, Julia},
  journal = {Journal of Artificial Intelligence Research},
  volume  = {47},
  pages   = {853--899},
  year    = {2013}
}""",
)


class Flickr8K(DatasetSpec):
    """All captions in one file, a list of image names per split, and features made from the photographs."""

    def read_captions(self, download: Download, paths: Sequence[str], split: str) -> Split:
        """Read captions and image names of one split, in the order of its list.

        Args:
            download: holds the texts anywhere, and ``features.json`` next to the features.
            paths: features and names of this split.
            split: ``train``, ``dev`` or ``test``.

        Raises:
            DataError: a file is missing or damaged, the features are not the benchmark's or belong to other images, or
                the captions of an image are incomplete.
        """
        self._check_encoding(download, PurePosixPath(paths[0]).parent)
        names = lines_of(download, paths[1])
        listed = lines_of(download, find_file(download, LISTS[split]))
        image_ids = unique_ids(listed, self.images[split], 1, f"{download.place}/{LISTS[split]}")
        # features are matched to captions by row, so the order must be that of the list
        if names != image_ids:
            raise DataError(
                f"{download.place}/{paths[1]} holds other images than {LISTS[split]}, or in another order; make the "
                f"features again with {named('lists', f'{split}={LISTS[split]}')}"
            )
        captions_of = self._read_all_captions(download)
        captions = []
        for name in image_ids:
            by_number = captions_of.get(name, {})
            if sorted(by_number) != list(range(self.captions_per_image)):
                raise DataError(
                    f"{download.place}/{CAPTIONS} has the captions {sorted(by_number)} of {name}, expected 0 to "
                    f"{self.captions_per_image - 1}; download it again"
                )
            captions += [by_number[number] for number in range(self.captions_per_image)]
        content = Split(image_ids, {self.languages[0]: captions})
        return self._with_judgements(download, content) if split == "test" else content

    def _check_encoding(self, download: Download, features: PurePosixPath) -> None:
        from ncl_bench.data.encoding import ENCODING_FILE, parse_encoding  # records are slow to import

        path = str(features / ENCODING_FILE)
        name = f"{download.place}/{path}"
        encoding = parse_encoding(read_text(download, path), name)
        # by the hash: a name of an encoder may stand for other weights
        if (encoding.weights_sha256, encoding.grid, encoding.pca) != (WEIGHTS_SHA256, GRID, None):
            raise DataError(
                f"{name}: the features come from {encoding.encoder} with other weights, another grid or a projection, "
                "and results on them are not comparable; make them with the defaults of `ncl-bench features`, or "
                "register a dataset of your own (docs/add-a-dataset.md)"
            )

    def _read_all_captions(self, download: Download) -> dict[str, dict[int, str]]:
        """Image to number to caption, also for images in no list."""
        path = find_file(download, CAPTIONS)
        captions_of: dict[str, dict[int, str]] = {}
        for number, line in enumerate(lines_of(download, path), start=1):
            parts = _LINE.fullmatch(line)
            where = f"{download.place}/{path} line {number}"
            if parts is None:
                raise DataError(
                    f"{where}: expected IMAGE#NUMBER, a tab and a caption, got {line[:60]!r}; download it again"
                )
            by_number = captions_of.setdefault(parts["image"], {})
            # a repeated line is no fault; another caption under its number is
            if (
                by_number.setdefault(int(parts["number"]), parts["caption"].strip())
                != parts["caption"].strip()
            ):
                raise DataError(
                    f"{where}: caption {parts['number']} of {parts['image']} occurs twice; download it again"
                )
        return captions_of

    def _with_judgements(self, download: Download, test: Split) -> Split:
        """Add what experts and crowd workers say of pairs of the test split; a kind without a file is left out."""
        row = {name: number for number, name in enumerate(test.image_ids)}
        held = {PurePosixPath(path).name for path in download.sizes}
        judgements, missing = {}, [name for name in JUDGEMENT_FILES.values() if name not in held]
        for kind, name in JUDGEMENT_FILES.items():
            if name in missing:
                continue
            path = find_file(download, name)
            rows = [
                self._judged(line, row, kind, f"{download.place}/{path} line {number}")
                for number, line in enumerate(lines_of(download, path), start=1)
            ]
            judgements[kind] = Judgements(kind, np.array(rows, np.int64), self.captions_per_image)
        warning = (
            f"{download.place} lacks {' and '.join(missing)}, so agreement with people is not measured; both files "
            "come with the captions, in Flickr8k_text.zip"
        )
        return replace(test, judgements=judgements, warnings=(warning,) if missing else ())

    def _judged(self, line: str, row: Mapping[str, int], kind: str, where: str) -> tuple[int, ...]:
        """Row of the image, row of the caption, and what people said."""
        pattern, expected = _JUDGED[kind]
        match = pattern.fullmatch(line)
        if match is None or not row.keys() >= {match[1], match[2]}:
            raise DataError(
                f"{where}: expected {expected}, of images in {LISTS['test']}, got {shorten(line)}; download it again"
            )
        image, of, *numbers = match.groups()
        number, *said = map(int, numbers)
        # the row of the caption in the split: captions of an image are consecutive
        return row[image], self.captions_per_image * row[of] + number, *said


SPEC = Flickr8K(
    name="flickr8k",
    title="Flickr8K",
    images={"train": 6_000, "dev": 1_000, "test": 1_000},
    captions_per_image=5,
    n_regions=GRID * GRID,
    feature_dim=1280,
    protocols=("1k",),
    origin=ORIGIN,
    judged={
        "expert": (5_664, "ff7f0630eb4faa5eb38fbbdabe5c33838a438918044998a72076e73b2206ac63"),
        "crowd": (47_830, "5c46f5e357d8519042d1c525835b3100fd8abb13299f4505a23999a979c79a68"),
    },
)
