"""Options of calls that read a user's images and captions, in groups; this module imports nothing heavy."""

from collections.abc import Sequence
from dataclasses import dataclass

from ncl_bench.arguments import AnyPath, Count, Seed, checked_fields


@checked_fields
@dataclass(frozen=True)
class PairColumns:
    """What the columns of a table of pairs hold, where their names do not say it.

    Attributes:
        image_column: column of image paths or pictures (default: image, file_name, path, filename or alike).
        caption_column: column of captions (default: caption, text, title, alt or alike).
        rows_in_order: take files that are numbered by row, or rows of features without ids, for those of the table's
            rows in their order (default: refuse them).
    """

    image_column: str | None = None
    caption_column: str | None = None
    rows_in_order: bool = False


@checked_fields
@dataclass(frozen=True)
class Columns:
    """What the columns of a table hold, where their names do not say it.

    Attributes:
        image_column: column of image paths or pictures (default: image, file_name, path, filename or alike).
        caption_column: column of captions (default: caption, text, title, alt or alike).
        split_column: column of splits (default: split, if there is one).
        languages: language of a column of captions, such as ``en`` or ``en=text``; the first one is the dataset's
            default (default: the column caption in English, or all columns named by languages).
        rows_in_order: take files that are numbered by row, or rows of features without ids, for those of the table's
            rows in their order (default: refuse them).
    """

    image_column: str | None = None
    caption_column: str | None = None
    split_column: str | None = None
    languages: Sequence[str] = ()
    rows_in_order: bool = False


@checked_fields
@dataclass(frozen=True)
class SplitDraw:
    """How splits are drawn that no column, file or folder states.

    Attributes:
        dev: number of dev images to draw if no split is given (default: a tenth).
        test: number of test images to draw if no split is given (default: a tenth).
        seed: seed of the random split.
    """

    dev: Count | None = None
    test: Count | None = None
    seed: Seed = 0


@checked_fields
@dataclass(frozen=True)
class Words:
    """How captions become words.

    Attributes:
        tokenizers: tokenizer of all captions or of one language: word, word-punkt, jieba, char, bpe or bert (default:
            jieba for Chinese, char for other languages written without blanks, else word).
        tokenizer_file: file tokenizer.json of the tokenizer ``bert``.
    """

    tokenizers: Sequence[str] = ()
    tokenizer_file: AnyPath | None = None


@checked_fields
@dataclass(frozen=True)
class PictureEncoding:
    """How pictures become features.

    Attributes:
        encoder: image encoder: efficientnet-lite0, or a timm model with a grid of features (default:
            efficientnet-lite0, or that of the audit).
        skip_damaged: skip and list files that are not readable images.
        device: device of the encoder; ``auto`` takes a GPU if there is one.
    """

    encoder: str | None = None
    skip_damaged: bool = False
    device: str = "auto"
