"""Write a prepared folder from verified material."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from ncl_bench import __version__
from ncl_bench.data.card import render_card
from ncl_bench.data.findings import Findings, vocabulary_warning
from ncl_bench.data.journal import Journal
from ncl_bench.data.layout import (
    LAYOUT_VERSION,
    Dtype,
    Manifest,
    SplitRecord,
    text_column,
)
from ncl_bench.data.material import Material
from ncl_bench.data.settings import PrepareOptions
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.data.tokenize import CutTables, make_tokens
from ncl_bench.data.write import SplitWriter
from ncl_bench.files import write_text
from ncl_bench.progress import Progress


@dataclass(frozen=True)
class Job:
    """One preparation.

    Attributes:
        folder: becomes the prepared folder.
        spec: the protocol's facts.
        material: what is written.
        options: how.
        dtype: of the features.
        journal: lists finished files.
        progress: shows what is done.
    """

    folder: Path
    spec: DatasetSpec
    material: Material
    options: PrepareOptions
    dtype: Dtype
    journal: Journal
    progress: Progress

    def write(self, key: str, findings: Findings) -> None:
        """Write everything.

        Args:
            key: of the settings.
            findings: files that the material comes from, and what was found out about them.
        """
        self.folder.mkdir(exist_ok=True)
        cut = make_tokens(self.folder, self.spec, self.material, self.options.text, self.progress)
        splits = {split: self._write_split(split, cut) for split in self.material.captions}
        languages = tuple(self.material.captions["train"].texts)
        origin = self.spec.origin
        vocabulary = [
            vocabulary_warning(
                origin, tokens.tokenizer, None if tokens.origin == "built" else tokens.vocabulary_sha256
            )
            for tokens in cut.tokenizations
        ]
        manifest = Manifest(
            layout_version=LAYOUT_VERSION,
            tool=f"ncl_bench {__version__}",
            key=key,
            name=self.spec.name,
            dtype=self.dtype,
            format=self.options.file_format,
            captions_per_image=self.spec.captions_per_image,
            n_regions=self.spec.n_regions,
            feature_dim=self.spec.feature_dim,
            texts={language: text_column(language, languages) for language in languages},
            tokenizations=tuple(cut.tokenizations),
            sources=findings.files,
            splits=splits,
            checked=findings.checked,
            warnings=(*findings.warnings, *filter(None, vocabulary)),
        )
        write_text(self.folder / "manifest.json", manifest.model_dump_json(indent=2) + "\n")
        card = render_card(self.spec, origin, manifest)
        write_text(self.folder / "README.md", card)

    def _write_split(self, split: str, cut: CutTables) -> SplitRecord:
        captions = self.material.captions[split]
        languages = tuple(captions.texts)
        texts = {text_column(language, languages): text for language, text in captions.texts.items()}
        writer = SplitWriter(
            self.folder, self.spec, split, captions.image_ids, self.options.file_format, self.journal
        )
        records = writer.captions(texts, cut.tokens[split])
        with self.progress(f"writing {split}", self.spec.images[split]) as advance:
            images, digest = writer.images(self.material.features[split], self.dtype, advance)
        return SplitRecord(
            images=self.spec.images[split],
            captions=self.spec.n_captions(split),
            fingerprint=self.material.fingerprints.get(split) or self._fingerprint(split, digest),
            files=(*records, *images),
        )

    def _fingerprint(self, split: str, features: str) -> str:
        """sha256 (hex) of a split's content: facts, ids, features, and texts or else the given token ids."""
        spec, captions = self.spec, self.material.captions[split]
        facts = [spec.name, split, self.dtype, spec.images[split], spec.n_regions, spec.feature_dim]
        digest = hashlib.sha256(json.dumps([*facts, captions.image_ids, features]).encode())
        for language, text in sorted(captions.texts.items()):
            digest.update(json.dumps([language, text]).encode())
        if not captions.texts:
            for cut, table in sorted(captions.tokens.items(), key=lambda item: item[0][1]):
                digest.update(json.dumps(cut).encode())
                digest.update(table.ids.astype("<i4").tobytes() + table.offsets.astype("<i8").tobytes())
        return digest.hexdigest()
