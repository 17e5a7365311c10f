"""Files of a folder: every real file once, in natural order, and which of them hold the rows."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ncl_bench.data.pairs.names import split_of
from ncl_bench.errors import DataError, listed
from ncl_bench.foreign import reading

PICTURE_ENDINGS = (
    *(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"),
    *(".jfif", ".jp2", ".avif", ".ppm", ".heic", ".heif"),
)
"""Of all pictures, also of those that cannot be opened: one that is passed over would be a row that is missing."""
TEXT_ENDINGS = (".txt", ".caption")
"""Texts beside pictures."""
TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".token")
_FACTS = re.compile(r"(dataset_infos?|croissant|.*_stats)\.json")
"""Facts about Parquet files, which the Hub and img2dataset keep beside them."""
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Ending of a packed file to how Arrow calls its packing."""
_TABLES = tuple(ending for ending in TABLE_ENDINGS if ending != ".txt")
PART = re.compile(
    r"(?P<name>.*?)[-_.]?(?P<part>\d{1,9})[-_.]of[-_.](?P<n>\d{1,9})(?P<tail>.*)", re.IGNORECASE
)


Parts = Sequence[tuple[str, int]]
"""Names of files and their numbers of rows, in the order in which they are read."""


def natural(path: Path) -> list[list[object]]:
    """Key that sorts ``part_2`` before ``part_10``."""
    parts = (re.split("([0-9]+)", part) for part in path.parts)
    return [[int(each) if place % 2 else each for place, each in enumerate(part)] for part in parts]


def part_numbers(names: Sequence[str]) -> list[int]:
    """The number of each file among its parts, such as 3 of ``emb_3.npy``; none unless each has one of its own."""
    stems = [PurePosixPath(name).stem for name in names]
    numbers = [
        int(part["part"] if (part := PART.fullmatch(stem)) else last[0])
        for stem in stems
        if (last := re.findall(r"\d+", stem)[-1:])
    ]
    return numbers if len(numbers) == len({*numbers}) == len(names) > 1 else []


def refuse_other_parts(parts: Parts, others: Parts) -> None:
    """Refuse rows and arrays, which their order alone joins, of other parts or of other numbers of rows.

    A part that was lost on one side would give each of the rows after it the array of another.
    """
    if len(parts) != len(others):  # cut otherwise
        parts, others = (
            [(f"{each[0][0]} ({len(each)} files)", sum(n for _, n in each))] for each in (parts, others)
        )
    numbers, twins = (part_numbers([name for name, _ in each]) for each in (parts, others))
    for place, ((name, n), (other, m)) in enumerate(zip(parts, others, strict=True)):
        if n != m or (numbers and twins and numbers[place] != twins[place]):
            raise DataError(
                f"{name} with {n:,} rows stands beside {other} with {m:,}; give one of each per row, in parts of the "
                "same numbers"
            )


def files_below(folder: Path) -> list[Path]:
    """Every file below a folder, in natural order; hidden ones are left out.

    Links to folders are followed, but each real folder is listed once: a link to the folder itself, to one above it or
    to one that is listed already gives nothing.
    """
    root = os.path.realpath(folder)
    listed_folders: set[str] = set()
    files: list[Path] = []

    def refuse(error: OSError) -> None:
        raise error

    waiting = [str(folder)]
    with reading(folder, fix="check its permissions"):
        while waiting:
            links: list[str] = []
            for start in waiting:
                for parent, folders, names in os.walk(start, onerror=refuse):
                    real = os.path.realpath(parent)
                    if real in listed_folders or (root != real and Path(root).is_relative_to(real)):
                        folders[:] = []
                        continue
                    listed_folders.add(real)
                    folders[:] = [each for each in folders if not each.startswith(".")]
                    links += [path for each in folders if os.path.islink(path := os.path.join(parent, each))]
                    files += [Path(parent, each) for each in names if not each.startswith(".")]
            waiting = sorted(links)
    return sorted(files, key=natural)


def ending_of(path: Path) -> str:
    """Small ending of a file's name, without that of its packing."""
    name = path.name.lower()
    ending = Path(name.removesuffix(next(filter(name.endswith, PACKED), ""))).suffix
    return ".tar" if ending == ".tgz" else ending


def is_table(path: Path) -> bool:
    """Whether a file's name is one of a form."""
    return ending_of(path) in (*TABLE_ENDINGS, ".tar")


def row_files(folder: Path) -> tuple[str, list[Path]]:
    """Kind of a folder and the files that hold its rows; an empty kind for a folder of other files.

    The kinds are ``saved``, ``texts`` (the files are pictures) and ``tables``.
    """
    own = {each.name for each in folder.iterdir()}
    # what datasets saves holds tables and shards of its own, so it is asked for first
    if own & {"dataset_info.json", "dataset_dict.json"}:
        return "saved", []
    inside: dict[str, list[Path]] = defaultdict(list)
    every = files_below(folder)
    # a file has one place, and a link to it another only where it is alone
    place_of = {os.path.realpath(each): each for each in sorted(every, key=Path.is_symlink, reverse=True)}
    for path in (each for each in every if place_of[os.path.realpath(each)] == each):
        inside["metadata" if path.name in METADATA else ending_of(path)].append(path)
    kinds = [kind for kind in ("metadata", ".tar", ".parquet") if kind in inside]
    if kinds[1:] == [".parquet"]:
        kinds.pop()  # img2dataset writes a table of the same rows beside each shard
    pictures = [path for path in every if path.suffix.lower() in PICTURE_ENDINGS]
    stems = {path.with_suffix("") for path in pictures} | {*pictures}
    tops = [
        each
        for each in every
        if each.parent == folder and ending_of(each) in _TABLES and not _FACTS.fullmatch(each.name)
        if each.with_suffix("") not in stems  # facts of a picture beside it
    ]
    if len(kinds) > 1:
        both = listed([inside[kind][0].relative_to(folder).as_posix() for kind in kinds])
        raise DataError(f"{folder} holds {both}; give the one that holds your pairs")
    if kinds and (kinds != [".parquet"] or all(ending_of(each) == ".parquet" for each in tops)):
        return "tables", _whole(folder, inside[kinds[0]])
    # train.csv, val.csv and test.csv
    if len(tops) > 1 and len({*map(ending_of, tops)}) == 1 and all(split_of(each.name) for each in tops):
        return "tables", _whole(folder, tops)
    beside = {path.with_suffix("") for ending in TEXT_ENDINGS for path in inside[ending]} & stems
    return ("texts", pictures) if beside and not tops else ("", tops)


def _whole(folder: Path, files: Sequence[Path]) -> list[Path]:
    """The files, whose names state one complete set of parts for each split, as ``train-00000-of-00003`` does.

    Leftovers of another upload would double rows in silence, a missing part would lose them, and a folder for each
    configuration would mix them.
    """
    sets: dict[tuple[str | None, str], dict[tuple[Path, str, str], list[int]]] = {}
    for path in files:
        part, inner = PART.fullmatch(path.stem), path.relative_to(folder)
        split = split_of(inner)
        if path.name in METADATA or not (part or split):
            continue
        name, number, n, tail = (
            part.groups() if part else (re.sub(r"[-_.]?\d+$", "", path.stem), "-1", "0", "")
        )
        # above the folder of a split: a configuration, or another upload
        above = next(each for each in inner.parents if not split or split_of(each) != split)
        sets.setdefault((split, name), {}).setdefault((above, n, tail), []).append(int(number))
    for (_, name), sets_of_name in sets.items():
        if len(sets_of_name) > 1:
            places = [f"{place / name}{f' of {n}' if int(n) else ''}" for place, n, _ in sets_of_name]
            raise DataError(
                f"{folder} holds {len(places)} sets of one name, {listed(places, 3)}; remove those of an older upload, "
                "or give the folder of one"
            )
        (((place, n, _), numbers),) = sets_of_name.items()
        start = int(n) in numbers  # parts count from 1
        if lacking := sorted({*range(start, int(n) + start)} - {*numbers}):
            raise DataError(
                f"{folder / place} holds {len(numbers)} of {n} parts of {name or 'one set'}: part "
                f"{listed(map(str, lacking), 5)} is missing; fetch it"
            )
    return list(files)
