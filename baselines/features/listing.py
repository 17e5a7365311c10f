"""Which images, under which names, in which split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncl_bench.data.image_table import Splits, note_split, noted_splits, open_table
from ncl_bench.data.spec import SPLITS
from ncl_bench.errors import DataError


@dataclass(frozen=True)
class Listing:
    """A user's images.

    Attributes:
        folder: the names are paths below it.
        names: ids of the images, in order, each once.
        splits: split to the names in it; None where nothing says so and they are drawn.
    """

    folder: Path
    names: list[str]
    splits: Splits | None


def list_images(source: Path, lists: Sequence[str] = ()) -> Listing:
    """The images of a folder or of a table.

    Args:
        source: a folder, of which every file counts whose path has no part that begins with a dot; or a ``.csv`` or
            ``.tsv`` file with a column ``image`` of paths beside it, and perhaps one ``split``.
        lists: ``SPLIT=FILE`` for each split, a file with a name per line; other images are left out.

    Raises:
        DataError: there is no image, a list or table is not as expected, or an image is in two splits.
    """
    if source.is_dir():
        found = Listing(source, _files_below(source), None)
    elif source.suffix.lower() in (".csv", ".tsv"):
        found = _read_table(source)
    else:
        raise DataError(
            f"{source} is neither a folder nor a .csv or .tsv file; give the images' folder or table"
        )
    if lists:
        found = _listed(found, source, _parsed(lists))
    for name in found.names:
        if name != name.strip() or len(name.splitlines()) != 1 or not _is_text(name):
            raise DataError(
                f"{source}: the image {name!r} has blanks around its name, a line end or what is no UTF-8 in it; "
                "rename it"
            )
    if not found.names:
        raise DataError(f"{source} holds no image; give the folder or the table of your images")
    return found


def _is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8; Python reads other bytes of a file's name as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _files_below(folder: Path) -> list[str]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(p.as_posix() for p in paths if not any(part.startswith(".") for part in p.parts))


def _read_table(path: Path) -> Listing:
    split_of: dict[str, str] = {}
    with open_table(path) as rows:
        columns = rows.fieldnames or ()
        if "image" not in columns:
            raise DataError(
                f"{path} has the columns {', '.join(columns)}, none of them named image; name it so"
            )
        for row in rows:
            where = f"{path} line {rows.line_num}"
            name, split = row["image"] or "", row.get("split") or ""
            if not name:
                raise DataError(f"{where} names no image; fill in the column image")
            if "split" in columns and split not in SPLITS:
                raise DataError(
                    f"{where}: the split is {split!r}, expected one of {', '.join(SPLITS)}; correct it"
                )
            note_split(split_of, name, split, where)
    return Listing(path.parent, list(split_of), noted_splits(split_of) if "split" in columns else None)


def _parsed(lists: Sequence[str]) -> dict[str, Path]:
    found = {}
    for each in lists:
        split, _, path = each.partition("=")
        if split not in SPLITS or not path:
            raise DataError(f"--split {each} is no SPLIT=FILE with one of {', '.join(SPLITS)}; correct it")
        found[split] = Path(path)
    missing = [split for split in SPLITS if split not in found]
    if missing:
        raise DataError(
            f"--split is missing for {' and '.join(missing)}; give it for every split or for none"
        )
    return found


def _listed(found: Listing, source: Path, lists: Mapping[str, Path]) -> Listing:
    known, seen, splits = set(found.names), dict[str, str](), Splits()
    for split, path in lists.items():
        try:
            names = [
                line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()
            ]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path} cannot be read ({error}); give a text with an image's name per line"
            ) from None
        for name in names:
            if name not in known:
                raise DataError(
                    f"{path} names {name}, which {source} does not hold; fetch it or correct the list"
                )
            if seen.setdefault(name, split) != split:
                raise DataError(
                    f"{path}: {name} is in {split} here and in {seen[name]} before; leave it in one of them"
                )
        splits[split] = list(dict.fromkeys(names))
    return Listing(found.folder, [name for names in splits.values() for name in names], splits)
