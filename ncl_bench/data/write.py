"""Write the tables of one split; finished files are kept when the work is interrupted."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from ncl_bench.data.journal import Journal
from ncl_bench.data.layout import Dtype, FileRecord, Format, captions_schema, images_schema
from ncl_bench.data.material import FeatureRows
from ncl_bench.data.paired import TokenTable
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.data.tables import arrow_schema, caption_batches, image_batch, table_writer, write_state
from ncl_bench.progress import Advance

BLOCK_ROWS = 128
"""Images in a record batch, and the unit of hashing: fingerprints do not depend on the size of the files."""

SHARD_BYTES = 512 * 2**20
"""Features in one file, about."""


@dataclass(frozen=True)
class SplitWriter:
    """Writes one split below a folder of unfinished work.

    Attributes:
        folder: becomes the prepared folder.
        spec: the protocol's facts.
        split: ours.
        image_ids: one per image.
        file_format: of the tables.
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
            features: of the unique images.
            dtype: of the numbers written.
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
        batches = caption_batches(
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
            yield image_batch(schema, self.image_ids[start : start + len(block)], numbers), digest
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
            write_state(folder, columns, self.split, names, fingerprint)
