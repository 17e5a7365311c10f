"""Write a prepared folder from verified material; finished files are kept when the work is interrupted."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from ncl_bench import __version__
from ncl_bench.data.card import render_card
from ncl_bench.data.layout import (
    LAYOUT_VERSION,
    Dtype,
    FileRecord,
    Format,
    Journal,
    Manifest,
    SplitRecord,
    captions_schema,
    images_schema,
    text_column,
)
from ncl_bench.data.order import order_of_captions
from ncl_bench.data.paired import FloatArray, TokenTable
from ncl_bench.data.spec import DatasetSpec, FeatureRows, Material, SplitCaptions
from ncl_bench.data.tokenize import TextOptions, make_tokens
from ncl_bench.data.verify import Findings, vocabulary_warning
from ncl_bench.files import write_text
from ncl_bench.progress import Advance, Progress

BLOCK_ROWS = 128
"""Images in a record batch, and the unit of hashing: fingerprints do not depend on the size of the files."""

SHARD_BYTES = 512 * 2**20
"""Features in one file, about."""

CAPTION_ROWS = 10_000


@dataclass(frozen=True)
class PrepareOptions:
    """What the prepared folder shall be like.

    Attributes:
        dtype: number type of the features; that of the download where None.
        file_format: ``arrow`` for training, ``parquet`` for uploading.
        text: how to tokenize the captions.
    """

    dtype: Dtype | None = None
    file_format: Format = "arrow"
    text: TextOptions = field(default_factory=TextOptions)


def write_prepared(
    folder: Path,
    spec: DatasetSpec,
    material: Material,
    options: PrepareOptions,
    *,
    dtype: Dtype,
    key: str,
    findings: Findings,
    journal: Journal,
    progress: Progress,
) -> None:
    """Write the tables, vocabularies, manifest and card of a prepared folder.

    Args:
        folder: becomes the prepared folder.
        spec: the dataset.
        material: what is written.
        options: what the folder shall be like.
        dtype: number type of the features.
        key: the manifest's key.
        findings: files that the material comes from, and what was found out about them.
        journal: lists finished files.
        progress: shows what is done.
    """
    folder.mkdir(exist_ok=True)
    tokenized = make_tokens(folder, spec, material, options.text, progress)
    languages = tuple(material.captions["train"].texts)
    splits = {}
    for split, captions in material.captions.items():
        texts = {text_column(language, languages): text for language, text in captions.texts.items()}
        writer = SplitWriter(folder, spec, split, captions.image_ids, options.file_format, journal)
        records = writer.captions(texts, tokenized.tokens[split])
        with progress(f"writing {split}", spec.images[split]) as advance:
            images, digest = writer.images(material.features[split], dtype, advance)
        splits[split] = SplitRecord(
            images=spec.images[split],
            captions=spec.n_captions(split),
            fingerprint=material.fingerprints.get(split)
            or _fingerprint(spec, split, captions, dtype, digest),
            order_fingerprint=order_of_captions(spec, captions),
            files=(*records, *images),
        )
    vocabulary = [
        vocabulary_warning(
            spec.origin, tokens.tokenizer, None if tokens.origin == "built" else tokens.vocabulary_sha256
        )
        for tokens in tokenized.tokenizations
    ]
    manifest = Manifest(
        layout_version=LAYOUT_VERSION,
        tool=f"ncl_bench {__version__}",
        key=key,
        name=spec.name,
        dtype=dtype,
        format=options.file_format,
        captions_per_image=spec.captions_per_image,
        n_regions=spec.n_regions,
        feature_dim=spec.feature_dim,
        texts={language: text_column(language, languages) for language in languages},
        tokenizations=tuple(tokenized.tokenizations),
        sources=findings.files,
        encoding=findings.encoding,
        splits=splits,
        checked=findings.checked,
        warnings=(*findings.warnings, *filter(None, vocabulary)),
    )
    write_text(folder / "manifest.json", manifest.model_dump_json(indent=2) + "\n")
    write_text(folder / "README.md", render_card(spec, manifest))


def _fingerprint(spec: DatasetSpec, split: str, captions: SplitCaptions, dtype: Dtype, features: str) -> str:
    """sha256 (hex) of a split's content: facts, ids, features, and texts or else the given token ids."""
    facts = [spec.name, split, dtype, spec.images[split], spec.n_regions, spec.feature_dim]
    digest = hashlib.sha256(json.dumps([*facts, captions.image_ids, features]).encode())
    for language, text in sorted(captions.texts.items()):
        digest.update(json.dumps([language, text]).encode())
    if not captions.texts:
        for key, table in sorted(captions.tokens.items(), key=lambda item: item[0][1]):
            digest.update(json.dumps(key).encode())
            digest.update(table.ids.astype("<i4").tobytes() + table.offsets.astype("<i8").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class SplitWriter:
    """Writes one split below a folder of unfinished work.

    Attributes:
        folder: becomes the prepared folder.
        spec: the dataset.
        split: ``train``, ``dev`` or ``test``.
        image_ids: one per image.
        file_format: ``arrow`` or ``parquet``.
        journal: lists finished image files.
    """

    folder: Path
    spec: DatasetSpec
    split: str
    image_ids: list[str]
    file_format: Format
    journal: Journal

    def images(self, features: FeatureRows, dtype: Dtype, advance: Advance) -> tuple[list[FileRecord], str]:
        """Write the images table.

        Args:
            features: those of the unique images.
            dtype: number type to write.
            advance: called with the number of images done.

        Returns:
            The files written, and the sha256 (hex) of the features' blocks.
        """
        columns = images_schema(self.spec, dtype)
        names = self._shard_names(np.dtype(dtype).itemsize)
        results = [self._finished(name) for name in names]
        n_done = next(i for i in count() if i == len(names) or results[i] is None)
        first = n_done * self._shard_rows(np.dtype(dtype).itemsize)
        advance(min(first, len(self.image_ids)))
        blocks = self._batches(features, dtype, first, arrow_schema(columns), advance)
        for i in range(n_done, len(names)):
            n_blocks = self._shard_rows(np.dtype(dtype).itemsize) // BLOCK_ROWS
            results[i] = self._write(names[i], arrow_schema(columns), islice(blocks, n_blocks))
            self.journal.finish(names[i], results[i])
        digest = hashlib.sha256("".join(d for result in results for d in result["blocks"]).encode())
        records = [FileRecord(name=n, bytes=r["bytes"]) for n, r in zip(names, results, strict=True)]
        self._write_state(columns, records, digest.hexdigest())
        return records, digest.hexdigest()

    def captions(self, texts: dict[str, list[str]], tokens: dict[str, TokenTable]) -> list[FileRecord]:
        """Write the captions table.

        Args:
            texts: column name to captions.
            tokens: column name to token ids.
        """
        columns = captions_schema(list(texts), list(tokens))
        schema = arrow_schema(columns)
        per_image = self.spec.captions_per_image
        batches = _caption_batches(
            schema, self.image_ids, per_image, list(texts.values()), list(tokens.values())
        )
        name = f"captions/{self.split}/data-00000-of-00001.{self.file_format}"
        result = self._write(name, schema, ((batch, "") for batch in batches))
        records = [FileRecord(name=name, bytes=result["bytes"])]
        self._write_state(columns, records, hashlib.sha256(str(columns).encode()).hexdigest())
        return records

    def _shard_rows(self, itemsize: int) -> int:
        block_bytes = BLOCK_ROWS * self.spec.n_regions * self.spec.feature_dim * itemsize
        return max(1, SHARD_BYTES // block_bytes) * BLOCK_ROWS

    def _shard_names(self, itemsize: int) -> list[str]:
        n = -(-len(self.image_ids) // self._shard_rows(itemsize))
        return [f"images/{self.split}/data-{i:05d}-of-{n:05d}.{self.file_format}" for i in range(n)]

    def _finished(self, name: str) -> Any:
        result = self.journal.result(name)
        path = self.folder / name
        whole = result and path.is_file() and path.stat().st_size == result["bytes"]
        return result if whole else None

    def _batches(
        self, features: FeatureRows, dtype: Dtype, first: int, schema: Any, advance: Advance
    ) -> Iterator[tuple[Any, str]]:
        start = first
        for block in features.blocks(first, BLOCK_ROWS):
            numbers = block.astype(dtype, copy=False)
            digest = hashlib.sha256(np.ascontiguousarray(numbers).view(np.uint8).data).hexdigest()
            yield _image_batch(schema, self.image_ids[start : start + len(block)], numbers), digest
            start += len(block)
            advance(len(block))

    def _write(self, name: str, schema: Any, batches: Iterator[tuple[Any, str]]) -> dict[str, Any]:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        digests = []
        with table_writer(temporary, schema, self.file_format) as write:
            for batch, digest in batches:
                write(batch)
                digests.append(digest)
        os.replace(temporary, path)
        return {"bytes": path.stat().st_size, "blocks": digests}

    def _write_state(self, columns: dict[str, Any], records: list[FileRecord], fingerprint: str) -> None:
        if self.file_format == "arrow":
            names = [Path(record.name).name for record in records]
            folder = (self.folder / records[0].name).parent
            write_state_files(folder, columns, self.split, names, fingerprint)


def arrow_schema(columns: Mapping[str, Any]) -> Any:
    """An Arrow schema that carries the columns in the notation of the Hugging Face library."""
    import pyarrow as pa

    def arrow_type(column: Mapping[str, Any]) -> Any:
        if column["_type"] == "Image":
            return pa.struct({"bytes": pa.binary(), "path": pa.string()})
        if column["_type"] == "List":
            return pa.list_(arrow_type(column["feature"]), column.get("length", -1))
        return getattr(pa, column["dtype"])()

    metadata = json.dumps({"info": {"features": columns}})
    fields = [(name, arrow_type(column)) for name, column in columns.items()]
    return pa.schema(fields, metadata={"huggingface": metadata})


@contextmanager
def table_writer(path: Path, schema: Any, file_format: Format) -> Iterator[Callable[[Any], None]]:
    """A function that writes one record batch; the file is whole and on disk when the block ends well."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("wb") as sink:  # by Python, since Arrow takes every path for UTF-8
        if file_format == "arrow":
            with pa.ipc.new_stream(sink, schema) as stream:
                yield stream.write_batch
        else:
            with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as parquet:
                yield lambda batch: parquet.write_table(pa.Table.from_batches([batch]))
        sink.flush()
        os.fsync(sink.fileno())


def _image_batch(schema: Any, image_ids: list[str], block: FloatArray) -> Any:
    """Rows of the images table; the features are not copied."""
    import pyarrow as pa

    numbers = schema.field("image_features").type
    values = pa.Array.from_buffers(numbers.value_type, block.size, [None, pa.py_buffer(block)])
    features = pa.FixedSizeListArray.from_arrays(values, numbers.list_size)
    return pa.record_batch([pa.array(image_ids), features], schema=schema)


def _caption_batches(
    schema: Any,
    image_ids: list[str],
    captions_per_image: int,
    texts: list[list[str]],
    tokens: list[TokenTable],
) -> Iterator[Any]:
    """Rows of the captions table, in the order of the clean pairing.

    Args:
        schema: the table's; its text and token columns in the order of the next two.
        image_ids: one per image.
        captions_per_image: a fact of the dataset.
        texts: captions of each text column.
        tokens: token ids of each token column.
    """
    import pyarrow as pa

    for start in range(0, len(image_ids) * captions_per_image, CAPTION_ROWS):
        rows = np.arange(start, min(start + CAPTION_ROWS, len(image_ids) * captions_per_image))
        images = rows // captions_per_image
        columns = [pa.array(rows), pa.array(images), pa.array([image_ids[i] for i in images.tolist()])]
        columns += [pa.array(text[start : start + len(rows)], pa.string()) for text in texts]
        for table in tokens:
            offsets = table.offsets[start : start + len(rows) + 1]
            values = table.ids[offsets[0] : offsets[-1]]
            columns.append(pa.ListArray.from_arrays((offsets - offsets[0]).astype(np.int32), values))
        yield pa.record_batch(columns, schema=schema)


def write_state_files(
    folder: Path, columns: Mapping[str, Any], split: str, files: list[str], fingerprint: str
) -> None:
    """The two small files that make a folder of Arrow files open with ``datasets.load_from_disk``."""
    info = {"citation": "", "description": "", "features": columns, "homepage": "", "license": ""}
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in files],
        "_fingerprint": fingerprint[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    write_text(folder / "dataset_info.json", json.dumps(info, indent=2) + "\n")
    write_text(folder / "state.json", json.dumps(state, indent=2) + "\n")
