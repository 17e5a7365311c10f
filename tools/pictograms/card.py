"""The dataset cards of the pictograms; every number in them is counted here."""

import json
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from ncl_bench.data import load_dataset
from ncl_bench.data.pictograms import EMOJI, SPEC, WEB, Pictograms, Row, rows, thumbnails
from ncl_bench.data.spec import SPLITS
from tools.pictograms.build import DROPPED_BY_HAND, HERE, REPORT
from tools.pictograms.check import PAIRS, sampled_ids
from tools.pictograms.items import SHARED_TITLE
from tools.pictograms.packages import PACKAGES
from tools.pictograms.split import KINDS, NEAR

CARDS = HERE.parents[1] / "dataset_cards"
DOUBTFUL = HERE / "doubtful.txt"
"""Ids of the sampled test pairs that a person doubts, each with the reason."""
EACH, LARGE = 4, 96
SOURCES = tuple(KINDS)
SEEDS = " The standard seed is 0 at every ratio, for both units."


def render_cards() -> dict[str, str]:
    """Name of a dataset to the Markdown of its card."""
    return {SPEC.name: _checked(), EMOJI.name: _emoji(), WEB.name: _web()}


def example_ids() -> list[str]:
    """Twenty pictures of test, four of each source."""
    test = SPEC.content("test").image_ids.tolist()
    return [
        name for source in SOURCES for name in [one for one in test if one.startswith(f"{source}/")][:EACH]
    ]


def example_sheet() -> Image.Image:
    """The twenty pictures, a source in a line."""
    sheet = Image.new("RGB", (EACH * LARGE, len(SOURCES) * LARGE), "white")
    for place, name in enumerate(example_ids()):
        picture = Image.fromarray(thumbnails()[name]).resize((LARGE, LARGE), Image.Resampling.BICUBIC)
        sheet.paste(picture, (place % EACH * LARGE, place // EACH * LARGE))
    return sheet


def _filled(text: str) -> str:
    return textwrap.fill(text, 116)


def _table(*lines: Iterable[object]) -> str:
    written = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line] for line in lines]
    written.insert(1, ["---"] * len(written[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in written)


def _reasons(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line)


def _head(spec: Pictograms) -> str:
    languages = "\n".join(f"- {language}" for language in spec.languages)
    return f"""---
pretty_name: "{spec.title}"
license: {spec.origin.licence_id}
license_name: by-source
language:
{languages}
tags:
- image-text retrieval
- noisy correspondence
---

# {spec.title}

{_filled(spec.origin.summary)}

Homepage: {spec.origin.homepage}
"""


def _splits(spec: Pictograms) -> str:
    found: list[list[object]] = [["split", "images", "captions", *dict.fromkeys(KINDS.values())]]
    for split in SPLITS:
        names = spec.content(split).image_ids.tolist()
        counts = Counter(KINDS[name.split("/")[0]] for name in names)
        kinds = [counts[kind] for kind in dict.fromkeys(KINDS.values())]
        found.append([split, len(names), spec.n_captions(split), *kinds])
    return _table(*found)


def _lengths(spec: Pictograms) -> str:
    found: list[list[object]] = [["language", "split", "shortest", "median", "mean", "longest", "vocabulary"]]
    for language in spec.languages:
        for split in SPLITS:
            dataset = load_dataset(spec.name, split=split, language=language)
            lengths = dataset.tokens.lengths - 2  # without the start and end token
            facts = (int(lengths.min()), int(np.median(lengths)), f"{lengths.mean():.1f}", int(lengths.max()))
            found.append([language, split, *facts, dataset.vocabulary.size])
    return _table(*found)


def _fingerprints(spec: Pictograms) -> str:
    found = [[split, f"`{spec.content(split).fingerprint}`"] for split in SPLITS]
    return _table(["split", "fingerprint"], *found)


def _ending(spec: Pictograms) -> str:
    return f"""## Fingerprints

sha256 of features, ids and captions:

{_fingerprints(spec)}

## Licence and terms

{_filled(f"{spec.origin.licence}. {spec.origin.terms}")}

## How to cite

```bibtex
{spec.origin.citation}
```
"""


def _getting(spec: Pictograms) -> str:
    noise = "" if spec.noise == "natural" else ", noise_ratio=0.4"
    return f"""## How to get it

{spec.origin.obtain[0].capitalize()}.

```python
import ncl_bench

train = ncl_bench.load_dataset("{spec.name}", split="train"{noise})
```

`ncl-bench prepare {spec.name} --to data` writes it in the same layout as the other datasets.
"""


def _checked() -> str:
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    shipped = [row for row in rows() if row.split]
    return "\n".join(
        [
            _head(SPEC),
            f"""\
It is the second embedded dataset: real pictures and texts that people wrote, under licences that let anyone
pass them on, small enough for a laptop. Its emoji have Chinese captions too (`{EMOJI.name}`), and its clip art comes
with natural noise (`{WEB.name}`).

## Sources

{_sources(shipped)}

The names and keywords of emoji are those of Unicode (packages `{PACKAGES["names"].file}` and
`{PACKAGES["names-of-sequences"].file}`, {PACKAGES["names"].licence}, says `{PACKAGES["names"].licence_file}`). Clip art
carries its title, keywords and licence in its own file. Icons carry a name and tags.

## How it was made

`python -m tools.pictograms build` makes every file anew from the packages, whose sha256 it checks, and
`python -m tools.pictograms compare` says how far a rebuild differs.

A caption is the name of a picture, then its keywords. A title of clip art counts if at most {SHARED_TITLE} pictures
carry it and it shares the beginning of a word with the file's name; a description follows it where it says more.
Every drawing is rendered on white. What was left out of {sum(report["read"].values()) + _before(report):,} drawings:

{_table(["reason", "drawings"], *_left_out(report))}

Splits keep concepts apart. Two pictures are of one concept if their names have the same words, or if the cosine of
their mean features is above {NEAR:g}, at any number of steps: {report["near_pairs"]:,} pairs are that near, and
{report["concepts"]:,} concepts remain. Dev and test hold at most one picture of a concept and of a text; the
{report["left_out_of_concepts_in_dev_and_test"]:,} other pictures of their concepts are in no split.

## Splits

{SPEC.captions_per_image} caption per image; caption `c` belongs to image `c`.

{_splits(SPEC)}

## Captions

Numbers of words, as `{SPEC.tokenizers["en"]}` cuts them; the vocabulary holds the words that train has at least
{SPEC.word_threshold} times, and four special ones.

{_lengths(SPEC)}

{_duplicates()}

## Features

Every image is {SPEC.n_regions} regions, the last grid of EfficientNet-lite0 (weights of ImageNet, Apache-2.0) pooled to
4 x 4, row by row. A region is {SPEC.feature_dim} numbers: principal components of the training regions, kept as whole
steps from -127 to 127 of one size per component, and given as float32.

## Twenty examples

![Four pictures of each source, in the order of the table](pictograms.png)

{_examples()}

## A sample checked by hand

{_by_hand()}

## Noise

{_filled(SPEC.origin.noise + SEEDS)}

Natural noise is the matter of `{WEB.name}`.
""",
            _getting(SPEC),
            _ending(SPEC),
        ]
    )


def _sources(shipped: list[Row]) -> str:
    counts = Counter(row.id.split("/")[0] for row in shipped)
    found = [
        [
            f"`{PACKAGES[source].file}`",
            KINDS[source],
            counts[source],
            PACKAGES[source].licence,
            f"`{PACKAGES[source].licence_file}`",
        ]
        for source in SOURCES
    ]
    return _table(["package", "holds", "pictures used", "licence", "file that says so"], *found)


def _before(report: dict[str, dict[str, int]]) -> int:
    """Drawings that were left out before they were read."""
    after = ("empty, or nothing but white", "dropped by hand")
    return sum(number for reason, number in report["left_out"].items() if reason not in after)


def _left_out(report: dict[str, dict[str, int]]) -> list[tuple[str, int]]:
    return [(reason, number) for reason, number in report["left_out"].items() if number]


def _duplicates() -> str:
    lines = []
    for split in SPLITS:
        content = SPEC.content(split)
        captions = Counter(content.captions["en"])
        pictures = Counter(image.tobytes() for image in content.image_features)
        twice = [sum(number for number in counted.values() if number > 1) for counted in (captions, pictures)]
        lines.append([split, *twice])
    head = ["split", "captions that another image has too", "images with exactly the features of another"]
    return _table(head, *lines)


def _examples() -> str:
    known = {row.id: row for row in rows()}
    lines = [(f"`{name}`", known[name].caption, known[name].chinese) for name in example_ids()]
    return _table(["image", "caption", "Chinese"], *lines)


def _by_hand() -> str:
    doubts, sample = _reasons(DOUBTFUL), set(sampled_ids())
    doubtful = [(f"`{name}`", reason) for name, reason in doubts.items() if name in sample]
    foreign = sum(reason.startswith("in ") for _, reason in doubtful)
    dropped = [(f"`{name}`", reason) for name, reason in _reasons(DROPPED_BY_HAND).items()]
    found = f"""{PAIRS} test pairs were looked at, drawn by `python -m tools.pictograms sheets`. Doubtful are
{len(doubtful)} of them, {foreign} of these because the text is not English:

{_table(["image", "doubt"], *doubtful)}
"""
    if dropped:
        found += f"""
Dropped for what was seen there and while building, {len(dropped)} pictures:

{_table(["image", "reason"], *dropped)}
"""
    return found.rstrip()


def _emoji() -> str:
    return "\n".join(
        [
            _head(EMOJI),
            f"""\
Sources, making, features and terms are those of `{SPEC.name}`, of which these are the emoji. Unicode names
every emoji in many languages alike; here are its Chinese and English names and keywords. Two sets of drawings share
each text.

## Splits

{_splits(EMOJI)}

## Captions

Numbers of words, as {" and ".join(f"`{name}`" for name in EMOJI.tokenizers.values())} cut them:

{_lengths(EMOJI)}

## Examples

{_emoji_examples()}

## Noise

{_filled(EMOJI.origin.noise + SEEDS)}
""",
            _getting(EMOJI),
            _ending(EMOJI),
        ]
    )


def _emoji_examples() -> str:
    content = EMOJI.content("test")
    lines = [
        (f"`{content.image_ids[row]}`", *(content.captions[lang][row] for lang in ("zh", "en")))
        for row in range(5)
    ]
    return _table(["image", "Chinese", "English"], *lines)


def _web() -> str:
    web = WEB.content("train")
    checked = {row.id for row in rows() if row.split}
    shared = Counter(web.captions["en"])
    told = sum(name in checked for name in web.image_ids.tolist())
    repeated = sum(number for number in shared.values() if number > SHARED_TITLE)
    common = [(caption, number) for caption, number in shared.most_common(8)]
    return "\n".join(
        [
            _head(WEB),
            f"""\
Sources, making, features and terms are those of `{SPEC.name}`, of which this is the clip art alone.

## Natural noise

Train holds {len(web.image_ids):,} drawings with title and keywords as their makers left them. Of {told:,} the text
passes the rules of `{SPEC.name}`; of the other {len(web.image_ids) - told:,} the title names a batch, an artist or
another picture, and at best a keyword says what is seen. {repeated:,} drawings have a caption that more than
{SHARED_TITLE} drawings share:

{_table(["caption", "drawings"], *common)}

{_filled(WEB.origin.noise)}

## Splits

{_splits(WEB)}

## Captions

{_lengths(WEB)}
""",
            _getting(WEB),
            _ending(WEB),
        ]
    )
