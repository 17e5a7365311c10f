"""Read text files of the published layouts: captions, ids, tables and token ids; and the layout of SCAN."""

from collections.abc import Sequence

import numpy as np

from ncl_bench.data.columns import TokenTable
from ncl_bench.data.download import Download, read_text
from ncl_bench.data.spec import DatasetSpec, Split
from ncl_bench.data.tokenizers import tokenizer
from ncl_bench.errors import DataError
from ncl_bench.foreign import reading, text_lines

_FIELDS = tokenizer("ids")


def split_lines(content: bytes, name: str, at_least: int = 0) -> list[str]:
    """Split a UTF-8 file into lines (:func:`ncl_bench.foreign.text_lines`), without trailing blank ones.

    Args:
        content: the file's bytes.
        name: name of the file in errors.
        at_least: lines to keep, even if the last ones are blank.

    Raises:
        DataError: a line is not UTF-8.
    """
    lines = text_lines(content, name, DataError)
    # blank lines at the end are an editor's; a blank caption in the middle is a fault
    while len(lines) > at_least and not lines[-1].strip():
        lines.pop()
    return lines


def read_lines(content: bytes, name: str) -> list[str]:
    """Read one entry per line, without surrounding blanks.

    Raises:
        DataError: a line is blank or not UTF-8.
    """
    lines = [line.strip() for line in split_lines(content, name)]
    if "" in lines:
        raise DataError(f"{name} line {lines.index('') + 1} is blank; download the file again")
    return lines


def lines_of(download: Download, path: str) -> list[str]:
    """Read a file of a download, see :func:`read_lines`."""
    return read_lines(read_text(download, path), f"{download.place}/{path}")


def read_table(content: bytes, name: str) -> tuple[list[str], list[str]]:
    """Read ids and captions of a tab-separated file; a quotation mark is an ordinary character.

    Args:
        content: bytes with the id in the first and the caption in the second column.
        name: name of the file in errors.

    Raises:
        DataError: a row lacks its id or caption.
    """
    ids, captions = [], []
    for number, line in enumerate(split_lines(content, name), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < 2 or not cells[0] or not cells[1]:
            raise DataError(f"{name} line {number}: expected an id, a tab and a caption, got {line[:60]!r}")
        ids.append(cells[0])
        captions.append(cells[1])
    return ids, captions


def read_token_ids(
    content: bytes, name: str, *, start: int, end: int, size: int, at_least: int = 0
) -> TokenTable:
    """Read captions as comma-separated token ids; skip empty fields, add start and end token.

    A blank line is a caption without tokens.

    Args:
        content: the file's bytes.
        name: name of the file in errors.
        start: id added before each caption.
        end: id added after each caption.
        size: vocabulary size; every id is below it.
        at_least: captions to read, even if the last ones are blank.

    Raises:
        DataError: a line holds anything but ids, or an id outside the vocabulary.
    """
    ids, lengths = [np.empty(0, np.int32)], list[int]()
    for number, line in enumerate(split_lines(content, name, at_least), start=1):
        with reading(
            f"{name} line {number}", fix="download the file again, in a release that fits its vocabulary"
        ):
            caption = [*map(int, _FIELDS(line))]
            if outside := [i for i in caption if not 0 <= i < size]:
                raise ValueError(f"token id {outside[0]} is outside the vocabulary of {size}")
        ids.append(np.array([start, *caption, end], np.int32))
        lengths.append(len(caption) + 2)
    return TokenTable(np.concatenate(ids), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def unique_ids(ids: list[str], n_images: int, repeat: int, name: str) -> list[str]:
    """Reduce a list that may name each image ``repeat`` times in a row to one id per image.

    Raises:
        DataError: the count is wrong, repeats are not consecutive, or two images share an id.
    """
    # some releases name each image once, others once per caption
    if len(ids) == n_images:
        repeat = 1
    if len(ids) != n_images * repeat:
        expected = f"{n_images}" if repeat == 1 else f"{n_images} or {n_images * repeat}"
        raise DataError(f"{name} has {len(ids)} lines, expected {expected}; download the file again")
    seen: dict[str, int] = {}
    for row, own in enumerate(ids):
        first = seen.setdefault(own, row)
        if first != row - row % repeat:
            raise DataError(
                f"{name} line {row + 1}: id {own} is also on line {first + 1}, or follows another id; expected the id "
                f"of an image on {repeat} line(s) in a row and nowhere else"
            )
    return ids[::repeat]


class ScanLayout(DatasetSpec):
    """Files as SCAN published them: ``{split}_ims.npy``, ``{split}_caps.txt`` and ``{split}_ids.txt``.

    A dataset in several languages has one caption file per language, between the other two, in the order of
    ``languages``.
    """

    def read_captions(self, download: Download, paths: Sequence[str], split: str) -> Split:
        """Read captions and image ids of one split: ``*_caps.txt`` and ``*_ids.txt``.

        Args:
            download: the user's download.
            paths: features, captions of each language, and ids of this split.
            split: ``train``, ``dev`` or ``test``.

        Raises:
            DataError: a file is missing, damaged, or has another length than the protocol.
        """
        texts = {
            language: lines_of(download, path)
            for language, path in zip(self.languages, paths[1:-1], strict=True)
        }
        ids, name = lines_of(download, paths[-1]), f"{download.place}/{paths[-1]}"
        return Split(unique_ids(ids, self.images[split], self.captions_per_image, name), texts)
