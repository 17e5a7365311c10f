"""The README of a prepared folder: a card in the format of the Hugging Face Hub."""

from typing import Any

from ncl_bench.data import dataset_spec
from ncl_bench.data.layout import Manifest
from ncl_bench.data.spec import SPLITS, DatasetSpec, Origin
from ncl_bench.data.verify import how_to_get
from ncl_bench.errors import as_size

_USE = """## Open it

With ncl_bench (`root` is the parent folder; the files are memory-mapped):

```python
import ncl_bench
train = ncl_bench.load_dataset("{name}", split="train", root="..")
```

Without ncl_bench, in this folder:

```python
import datasets, numpy
captions = datasets.load_from_disk("captions/train")
features = numpy.load("features/train.npy", mmap_mode="r")
```

A caption's `image_row` is the row of its image in the features, `(images, {n_regions}, {feature_dim})`.
The files in `tokens/` hold the token ids of caption `c`, with start and end token: `ids[offsets[c]:offsets[c + 1]]`.
`manifest.json` holds the sha256 of every file; `ncl-bench doctor --deep` checks them.
"""

_PUBLISHED = {True: "yes", False: "no", None: "no hash published"}


def render_card(spec: DatasetSpec, manifest: Manifest) -> str:
    """Render the card of a prepared folder.

    Args:
        spec: the dataset.
        manifest: manifest of the prepared folder.

    Returns:
        Markdown with YAML front matter.
    """
    import yaml

    origin = spec.origin
    header: dict[str, Any] = {
        "pretty_name": spec.title,
        "license": origin.licence_id,
        "language": list(spec.languages),
    }
    if origin.licence_id == "other":
        # the Hub wants a name for what is none of its licences
        header |= {"license_name": origin.licence}
    use = _USE.format(name=spec.name, n_regions=spec.n_regions, feature_dim=spec.feature_dim)
    about = _sentences(origin.summary, f"See {origin.homepage}." if origin.homepage else "")
    parts = [
        f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---\n",
        f"# {spec.title}, prepared for noisy-correspondence learning\n",
        *([f"{about}\n"] if about else []),
        _splits(manifest),
        use,
        _tokens(manifest),
        *([f"## Features\n\n{manifest.encoding.in_words()}\n"] if manifest.encoding else []),
        *([_sources(manifest)] if manifest.sources else []),
        f"## Noise\n\n{spec.noise_in_words}\n",
        f"## Licence\n\n{_sentences(f'{origin.licence}.', origin.terms)}\n",
        *([f"## Citation\n\n```bibtex\n{origin.citation}\n```\n"] if origin.citation else []),
    ]
    return "\n".join(parts)


def _sentences(*texts: str) -> str:
    return " ".join(filter(None, texts))


def _splits(manifest: Manifest) -> str:
    rows = [
        f"| {split} | {record.images:,} | {record.captions:,} | `{record.fingerprint}` "
        f"| `{record.order_fingerprint}` |"
        for split, record in manifest.splits.items()
    ]
    head = (
        f"## Splits\n\nFeatures are {manifest.dtype}; {manifest.captions_per_image} caption(s) per image.\n\n"
    )
    return head + "\n".join(
        [
            "| split | images | captions | fingerprint | order fingerprint |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _tokens(manifest: Manifest) -> str:
    rows = [
        f"| `{own.name}` | {own.language or 'any'} | {own.tokenizer} | {own.version} "
        f"| `{own.vocabulary}` | {own.origin} |"
        for own in manifest.tokenizations
    ]
    head = "## Token ids\n\n| name | language | tokenizer | version | vocabulary | origin |\n"
    return head + "\n".join(["| --- | --- | --- | --- | --- | --- |", *rows, ""])


def _sources(manifest: Manifest) -> str:
    rows = [
        f"| `{file.name}` | {file.bytes:,} | `{file.sha256}` | {_PUBLISHED[file.published]} |"
        for file in manifest.sources
    ]
    head = ["| file | bytes | sha256 | matches the published hash |", "| --- | --- | --- | --- |"]
    facts = [f"- {fact}" for fact in (*manifest.checked, *manifest.warnings)]
    return "## Made from\n\n" + "\n".join([*head, *rows, "", *facts, ""])


def feature_gigabytes(spec: DatasetSpec, split: str) -> float:
    """Size of the float32 features of the unique images, in 10^9 bytes."""
    return spec.images[split] * spec.n_regions * spec.feature_dim * 4 / 1e9


def describe(name: str) -> str:
    """Describe how to get a dataset: source, licence and terms, size, expected files and permitted uploads.

    Raises:
        DataError: the name is not in ``DATASETS``.
    """
    spec, origin = dataset_spec(name), dataset_spec(name).origin
    total = sum(feature_gigabytes(spec, split) for split in SPLITS) * 1e9
    uploads = f"{' and '.join(origin.upload)} only" if len(origin.upload) == 1 else "everything"
    about = [*filter(None, [origin.summary, origin.homepage and f"Homepage: {origin.homepage}"])]
    lines = [
        f"{spec.title} ({name})",
        "",
        *([*about, ""] if about else []),
        *(["Where to get it:", *(f"  {way}" for way in origin.obtain), ""] if origin.obtain else []),
        f"Licence: {_sentences(f'{origin.licence}.', origin.terms)}",
        f"Noise: {spec.noise_in_words}",
        f"Upload: {uploads if origin.upload else 'refused'}; {origin.upload_reason}.",
        "",
        f"Prepared: {as_size(total)} as float32, {as_size(total / 2)} as float16 "
        f"({spec.n_regions} regions of {spec.feature_dim} numbers per image).",
        *(
            f"  {split:<6}{spec.images[split]:>9,} images {spec.n_captions(split):>9,} captions"
            for split in SPLITS
        ),
        *(f"  order fingerprint of {split}: {order}" for split, order in spec.order_fingerprints.items()),
        "",
        *_files(origin),
    ]
    if origin.vocabulary:
        lines += [
            "",
            "WITHOUT THE PUBLISHED VOCABULARY, TOKEN IDS DIFFER FROM THE PUBLISHED ONES: prepare then builds one from "
            f"the training captions; {how_to_get(origin.vocabulary)}.",
        ]
    return "\n".join(lines).rstrip()


def _files(origin: Origin) -> list[str]:
    if not origin.files:
        return []
    return [
        f"Files expected in {' or '.join(f'{name}/' for name in origin.folders) or 'one folder'}:",
        *(f"  {'  '.join(origin.split_files(split))}" for split in SPLITS),
        *([f"and, in any folder next to it:  {'  '.join(origin.extra_files)}"] if origin.extra_files else []),
    ]
