"""Croissant metadata of a dataset (MLCommons, version 1.0), from the same facts as its card.

``dataset_cards/NAME.json`` holds what `ncl-bench datasets show NAME --croissant` prints. Files of embedded datasets are
named relative to that folder, in a checkout and in an installation.
"""

import json
from pathlib import Path
from typing import Any

from ncl_bench.data.embedded import EmbeddedDataset
from ncl_bench.data.spec import SPLITS, DatasetSpec, Origin
from ncl_bench.files import sha256_of_file

HERE = Path(__file__).parent
_TERMS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset "
    "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source "
    "subField transform"
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
} | {term: f"cr:{term}" for term in _TERMS.split()}
"""The standard's own; readers warn about any other."""
MEDIA_TYPES = {
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".webp": "image/webp",
}
BYTES = "application/octet-stream"
CARD_VERSION = "1.0.0"
"""Of every dataset: its content is fixed, and another content gets another name."""


def croissant_text(spec: DatasetSpec) -> str:
    """Return the metadata as JSON-LD."""
    return json.dumps(croissant(spec), ensure_ascii=False, indent=1) + "\n"


def croissant(spec: DatasetSpec) -> dict[str, Any]:
    """Describe a dataset: its facts, its files, the sizes of its splits, and its table if it has one.

    A download without a published hash is a set of file names; the files of embedded datasets have their hashes.
    """
    origin, shipped = spec.origin, spec if isinstance(spec, EmbeddedDataset) else None
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": spec.name,
        "alternateName": spec.title,
        "description": f"{origin.summary} {spec.noise_in_words}".strip(),
        **({"url": origin.homepage} if origin.homepage else {}),
        "license": list(origin.licence_urls) or origin.licence,
        "usageInfo": origin.terms,
        "citeAs": origin.citation,
        **({"datePublished": origin.published} if origin.published else {}),
        "inLanguage": list(spec.languages),
        "version": CARD_VERSION,
        "distribution": _shipped(shipped) if shipped else _downloaded(origin),
        "recordSet": [_splits(spec, shipped), *([_table(shipped)] if shipped and shipped.columns else ())],
    }


def _node(kind: str, identity: str, **facts: Any) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": identity, "name": identity.rpartition("/")[2], **facts}


def _downloaded(origin: Origin) -> list[dict[str, Any]]:
    """The archive, if its hash is known, and the files of each split as sets of file names."""
    archive, known, inside = origin.archive, [], {}
    if archive:
        address = (
            f"https://huggingface.co/datasets/{archive.repository}/resolve/{archive.revision}/{archive.name}"
        )
        size = {"contentSize": f"{archive.bytes} B", "sha256": archive.sha256}
        known = [
            _node("FileObject", archive.name, encodingFormat="application/zip", contentUrl=address, **size)
        ]
        # files inside the archive, if there is one; else as their authors give them
        inside = {"containedIn": {"@id": archive.name}}
    sets = [
        (
            f"{split}-files",
            BYTES,
            f"Files of {split}, as their authors published them.",
            origin.split_files(split),
        )
        for split in SPLITS
    ]
    if origin.judgements:
        told = "What people say of pairs of a test image and a test caption, as published."
        sets.append(("judgements", "text/plain", told, (*origin.judgements.values(),)))
    # with a *, because a download may have them in a folder of any name
    return known + [
        _node(
            "FileSet",
            name,
            encodingFormat=form,
            description=told,
            includes=[f"*{each}" for each in names],
            **inside,
        )
        for name, form, told, names in sets
    ]


def _shipped(spec: EmbeddedDataset) -> list[dict[str, Any]]:
    """The files of the package that hold a dataset."""
    return [
        _node(
            "FileObject",
            file.name,
            encodingFormat=MEDIA_TYPES.get(file.suffix, BYTES),
            contentUrl=f"../ncl_bench/data/{file.relative_to(HERE).as_posix()}",
            contentSize=f"{file.stat().st_size} B",
            sha256=sha256_of_file(file),
        )
        for file in spec.files
    ]


def _splits(spec: DatasetSpec, shipped: EmbeddedDataset | None) -> dict[str, Any]:
    """Sizes of the splits; for an embedded dataset, also the hash of each split's content and order."""
    types = {"split": "sc:Text", "images": "sc:Integer", "captions": "sc:Integer"}
    records: list[dict[str, object]] = [
        {"split": split, "images": spec.images[split], "captions": spec.n_captions(split)} for split in SPLITS
    ]
    if shipped:
        types["sha256"] = "sc:Text"
        for record, split in zip(records, SPLITS, strict=True):
            record["sha256"] = shipped.content(split).fingerprint
    return _node(
        "RecordSet",
        "splits",
        description=f"{spec.captions_per_image} caption(s) and {spec.n_regions} regions of {spec.feature_dim} "
        "numbers per image. A sha256 covers features, ids and captions of a split.",
        key={"@id": "splits/split"},
        field=[_node("Field", f"splits/{name}", dataType=kind) for name, kind in types.items()],
        data=[{f"splits/{name}": value for name, value in record.items()} for record in records],
    )


def _table(spec: EmbeddedDataset) -> dict[str, Any]:
    """The table that an embedded dataset reads."""
    fields = [
        _node(
            "Field",
            f"pictures/{column}",
            description=what,
            dataType="sc:Text",
            source={"fileObject": {"@id": spec.files[0].name}, "extract": {"column": column}},
        )
        for column, what in spec.columns.items()
    ]
    return _node(
        "RecordSet",
        "pictures",
        description="One picture per row; row r has features r of features.npy, times scales.npy.",
        key={"@id": fields[0]["@id"]},
        field=fields,
    )
