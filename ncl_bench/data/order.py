"""Hash of the order of a split's images and captions, which a score matrix must follow."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from ncl_bench.data.download import find_file
from ncl_bench.data.spec import DatasetSpec, Split
from ncl_bench.data.verify import download_of, read_split


def order_fingerprint(image_ids: Iterable[object], captions: Sequence[str] | None) -> str:
    """sha256 (hex) of every image id followed by the image's captions, in order (docs/protocol.md, Order).

    Each text is hashed with its length, so that no two orders collide: ``length:text,`` in bytes of UTF-8.

    Args:
        image_ids: one per image.
        captions: texts in the dataset's first language, in the order of the clean pairing, the same number for every
            image; None if the dataset has only token ids, where the order of images fixes the order of captions.
    """
    ids = [str(own) for own in image_ids]
    each = 0 if captions is None else len(captions) // len(ids)
    texts = iter(captions or ())
    digest = hashlib.sha256()
    for own in ids:
        for text in (own, *(next(texts) for _ in range(each))):
            content = text.encode()
            digest.update(b"%d:%b," % (len(content), content))
    return digest.hexdigest()


def order_of_captions(spec: DatasetSpec, split: Split) -> str:
    """Compute the order fingerprint of a split in a download."""
    return order_fingerprint(split.image_ids, split.captions.get(spec.languages[0]))


def order_of_download(spec: DatasetSpec, place: Path, split: str) -> str:
    """Compute the order fingerprint of a split from its caption and id files; features are not needed.

    Args:
        spec: a dataset that is not embedded.
        place: the downloaded folder, the folder above it, or a zip file.
        split: ``test`` or ``dev``.

    Raises:
        DataError: a file is missing, damaged, or has another length than the protocol.
    """
    download = download_of(spec, place)
    names = spec.origin.split_files(split)
    # by the captions, because the features, names[0], need not be there
    folder = PurePosixPath(find_file(download, names[1])).parent
    paths = [str(folder / name) for name in names]
    return order_of_captions(spec, read_split(spec, download, paths, split))
