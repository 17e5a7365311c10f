"""Where a dataset's files come from, what they are called, and what may be passed on."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownFile:
    """A published file whose hash is known.

    Attributes:
        name: of the file.
        sha256: its hash (hex), or the first digits of it where no more is known.
        bytes: its size, or None where it is not known.
        where: a place that shares it, as it stands in a sentence.
    """

    name: str
    sha256: str
    bytes: int | None = None
    where: str = ""


@dataclass(frozen=True)
class Origin:
    """The source of one dataset, as its card and ``ncl-bench datasets show`` print it.

    Attributes:
        summary: what the dataset is, in one or two sentences.
        homepage: where it is described.
        obtain: ways to get the files, one sentence each; links that were reported dead are left out.
        folders: names that the folder with the features may have.
        prefixes: our split name to the prefix of its files.
        files: the files of each split, with ``{split}`` for the prefix.
        extra_files: further files that are read, each found by its name.
        dtypes: number types the published features may have.
        ids_span_splits: ids of all splits come from one list, so that no image may be in two splits.
        licence: the licence's name.
        licence_id: its identifier on the Hugging Face Hub.
        terms: what it allows, in one or two sentences.
        noise: where wrong pairs come from.
        upload: tables that may be uploaded: ``images``, ``captions``, both or none.
        upload_reason: why no more than that.
        citation: BibTeX.
        vocabulary: the published vocabulary of the captions, or None where there is none to look for.
        archive: the published archive, or None where its hash is not known.
    """

    summary: str
    homepage: str
    obtain: tuple[str, ...]
    folders: tuple[str, ...]
    prefixes: Mapping[str, str]
    files: tuple[str, ...]
    extra_files: tuple[str, ...]
    dtypes: tuple[str, ...]
    ids_span_splits: bool
    licence: str
    licence_id: str
    terms: str
    noise: str
    upload: tuple[str, ...]
    upload_reason: str
    citation: str
    vocabulary: KnownFile | None = None
    archive: KnownFile | None = None

    def split_files(self, split: str) -> tuple[str, ...]:
        """File names of one of our splits."""
        return tuple(name.format(split=self.prefixes[split]) for name in self.files)
