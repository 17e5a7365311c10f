"""Captions of the layout that SCAN introduced, and the counts that every layout must meet."""

from collections.abc import Sequence

from ncl_bench.data.download import Source, read_text
from ncl_bench.data.lines import read_lines, unique_ids
from ncl_bench.data.material import Cut, SplitCaptions
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import DataError


def read_scan_captions(source: Source, paths: Sequence[str], spec: DatasetSpec, split: str) -> SplitCaptions:
    """Captions and image ids of one split: ``*_caps.txt`` and ``*_ids.txt``.

    Args:
        source: the download.
        paths: features, captions and ids of this split.
        spec: the protocol's facts.
        split: ours.

    Raises:
        DataError: a file is missing, damaged or of another length than the protocol says.
    """
    captions_name, ids_name = (f"{source.place}/{path}" for path in paths[1:])
    captions = read_lines(read_text(source, paths[1]), captions_name)
    check_count(len(captions), spec, split, captions_name)
    ids = read_lines(read_text(source, paths[2]), ids_name)
    image_ids = unique_ids(ids, spec.images[split], spec.captions_per_image, ids_name)
    return SplitCaptions(image_ids, {spec.languages[0]: captions})


def check_count(found: int, spec: DatasetSpec, split: str, name: str) -> None:
    """Refuse a file with another number of captions than the protocol says.

    Raises:
        DataError: the numbers differ.
    """
    expected = spec.n_captions(split)
    if found != expected:
        raise DataError(
            f"{name} has {found} captions, {spec.name}/{split} has {expected} "
            f"({spec.images[split]} images, {spec.captions_per_image} each); download the file again"
        )


def no_vocabularies(source: Source) -> dict[Cut, tuple[bytes, str]]:
    """Vocabularies of a source that gives captions as text: none."""
    return {}
