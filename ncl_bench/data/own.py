"""Make a dataset of a user's images and captions: its features, its module, and its prepared folder."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.format import open_memmap

from ncl_bench.arguments import AnyPath
from ncl_bench.data import DATASETS, register
from ncl_bench.data.captions import ScanLayout
from ncl_bench.data.encoding import ENCODING_FILE
from ncl_bench.data.languages import language_name, language_tag
from ncl_bench.data.own_features import FeatureArrays, feature_arrays, files_of_splits
from ncl_bench.data.own_tables import CaptionTable, complete_splits, read_captions
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pairs.kept import KEPT, KeptRows, read_kept
from ncl_bench.data.pairs.names import IN_ORDER, ON_CARD
from ncl_bench.data.pairs.rows import UserPairs
from ncl_bench.data.prepare import prepare
from ncl_bench.data.spec import SPLITS, Origin
from ncl_bench.data.tokenize import refuse_tokenizers
from ncl_bench.data.tokenizers import default_tokenizer
from ncl_bench.errors import DataError, NclBenchError, known_name, listed, named
from ncl_bench.extras import require
from ncl_bench.files import sole_owner, write_text
from ncl_bench.foreign import readable
from ncl_bench.npy import Int64Array
from ncl_bench.options import Columns, PictureEncoding, SplitDraw, Words
from ncl_bench.progress import Progress

FEATURES, PICTURES = "features", "pictures"
"""Folders of encoded pictures, and of pictures that rows hold, in the folder of unfinished work."""


def made_dataset(
    name: str,
    source: Any,
    features: Path | None,
    images: AnyPath | None,
    groups: tuple[Columns, SplitDraw, Words, PictureEncoding],
    captions_per_image: int | None,
    noise: Literal["synthetic", "natural"],
    to: AnyPath,
    module: AnyPath | None,
    progress: Progress,
) -> tuple[ScanLayout, tuple[str, ...]]:
    """Do what :func:`ncl_bench.new_dataset` and :func:`ncl_bench.new_dataset_of_features` say."""
    columns, splits, words, encoding = groups
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise DataError(
            f"the name is {name!r}, expected small letters, digits and _, a letter first; choose another"
        )
    if name in DATASETS:
        raise DataError(f"a dataset {name!r} exists already; choose another name")
    root, file = Path(to), Path(module or f"{name}.py")
    # next to the result, so that an interrupted run is found and resumes
    work = root / f".{name}.gathered"
    if (root / name).exists() and not work.exists():  # both exist if a run was interrupted at its very end
        raise DataError(f"{root / name} exists already; delete it, or choose another name or {named('to')}")
    kept = _kept(Path(source)) if isinstance(source, str | Path) else None
    chosen_rows, known = None, list[Path]()
    if kept:
        if (Path(source) / KEPT).is_file():  # else the table itself, such as clean.csv, is read as any other
            source, chosen_rows = Path(kept.path), partial(_kept_rows, kept)
        # other languages are read too
        plain = not columns.languages and language_tag(kept.caption_column) is None
        columns = replace(
            columns,
            image_column=columns.image_column or kept.image_column,
            caption_column=columns.caption_column or (kept.caption_column if plain else None),
            rows_in_order=columns.rows_in_order or kept.rows_in_order,
        )
        images, encoding = images or kept.images, replace(encoding, encoder=encoding.encoder or kept.encoder)
        known = [Path(kept.features)] if kept.features else []
    with sole_owner(work, inside=root):
        try:
            table = read_captions(
                source,
                **vars(columns),
                images=None if images is None else Path(images),
                drawn=splits.dev is not None or splits.test is not None,
                chosen_rows=chosen_rows,
                work=None if features else work / PICTURES,  # pictures are not unpacked if features are given
                progress=progress,
            )
            chosen = _tokenizers(table.languages, words.tokenizers)
            own_file = None if words.tokenizer_file is None else Path(words.tokenizer_file)
            refuse_tokenizers(name, {*chosen.values()}, own_file)  # before minutes of encoding
            features_folder, remarks = features or work / FEATURES, list(table.remarks)
            drawn = None
            if features is None or not files_of_splits(features_folder):
                drawn = complete_splits(list(table.captions), table.splits, **vars(splits))
            skipped: Mapping[str, str] = {}
            if features is None:
                _captions_each(table, table.captions, captions_per_image)  # before minutes of encoding
                skipped = _encoded(
                    table, features_folder, known=known, progress=progress, **vars(encoding), **vars(splits)
                )
            arrays = feature_arrays(
                features_folder, table, drawn, kept=kept is not None, rows_in_order=columns.rows_in_order
            )
            if features is not None and any(each.in_order for each in arrays.values()):
                remarks.append(IN_ORDER.format("Features"))
            on_card = [each for each in remarks if each.endswith(ON_CARD)]
            spec = _spec(name, table, arrays, captions_per_image, noise, chosen, on_card)
            made_of = f"features in {features} and the captions in {table.name}"
            code = _module_text(spec, made_of if features else f"pictures and captions in {table.name}")
            if file.exists() and readable(file, DataError, "a module").read_bytes() != code.encode():
                raise DataError(
                    f"{file} exists with other content; delete it or choose another {named('module')}"
                )
            _gather(work, spec, table, arrays, progress)
            if (features_folder / ENCODING_FILE).is_file():
                shutil.copy2(features_folder / ENCODING_FILE, work / ENCODING_FILE)
            # as if it had been downloaded: own data pass the same checks as published data
            prepare(register(spec).name, work, root, tokenizer_file=own_file, progress=progress)
        except NclBenchError:
            # a refused dataset leaves neither a registration nor files, except computed features, which take long
            DATASETS.pop(name, None)
            _forget(work)
            # prepare's own folder: its settings may change with the user's next try
            shutil.rmtree(root / f".{name}.partial", ignore_errors=True)
            raise
        write_text(file, code)
        shutil.rmtree(work)
    left_out = [f"{table.files[image]} {reason}" for image, reason in skipped.items()]
    if features is not None and (n := len(table.captions) - sum(spec.images.values())):
        left_out.append(f"{n:,} images of {table.name}, which have no features in {features}")
    if table.ignored:
        left_out.append(f"columns of {table.name}, which are no captions: {listed(table.ignored)}")
    return spec, (*remarks, *(f"left out: {what}" for what in left_out))


def _forget(work: Path) -> None:
    """Delete unfinished work, but for encoded pictures: the corrected command does not encode them again."""
    paths = [*work.glob("*")]
    if not any(FEATURES in path.name for path in paths):
        shutil.rmtree(work, ignore_errors=True)
        return
    # computed features stay, because they take long, and the pictures that they were computed from
    for path in paths:
        if FEATURES not in path.name and path.name != PICTURES:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _kept(clean: Path) -> KeptRows | None:
    """What an audit kept, by its folder, or by the folder of a table such as its file ``clean.csv``."""
    places = (clean, clean.parent) if clean.stem in ("clean", "suspects", "corrected") else (clean,)
    return next((read_kept(place) for place in places if (place / KEPT).is_file()), None)


def _kept_rows(kept: KeptRows, pairs: UserPairs) -> Int64Array:
    if pairs.caption_column != kept.caption_column:  # captions in another language first
        pairs = read_pairs(Path(kept.path), kept.image_column, kept.caption_column)
    return kept.taken(pairs)


def _encoded(table: CaptionTable, to: Path, *, skip_damaged: bool, **given: Any) -> Mapping[str, str]:
    """Encode the pictures by the package that is installed for it; images that cannot be read, with the reason."""
    require("features", "torch", needed_by="`datasets new` without --features")
    files = {image: table.files[image] for image in table.captions}
    missing = [file for file in files.values() if not file.exists()]
    if missing and not skip_damaged:
        raise DataError(
            f"{len(missing):,} of {len(files):,} images of {table.name} have no file, the first is {missing[0]}; fetch "
            f"them, correct {named('images')}, or leave them out with {named('skip_damaged')}, which lists them"
        )
    # an entry point, because ncl_bench does not import baselines
    (encoder,) = entry_points(group="ncl_bench.features", name="pictures")
    skipped: Mapping[str, str] = encoder.load()(table, to, skip_damaged=skip_damaged, **given)
    return skipped


def _captions_each(table: CaptionTable, images: Iterable[str], wanted: int | None) -> int:
    """Number of captions of every image, or how many of them are wanted; refused where they differ."""
    used = [len(table.captions[image]) for image in images]
    least, most = min(used), max(used)
    if (wanted or least) > least or (wanted is None and least != most):
        raise DataError(
            f"the images of {table.name} have {least} to {most} captions, but all must have the same number; "
            f"give {named('captions_per_image')} with {least} at most, which keeps the first ones of each"
        )
    return wanted or least


def _spec(
    name: str,
    table: CaptionTable,
    arrays: Mapping[str, FeatureArrays],
    captions_per_image: int | None,
    noise: Literal["synthetic", "natural"],
    tokenizers: dict[str, str],
    remarks: Sequence[str],
) -> ScanLayout:
    for split, each in arrays.items():
        if not each.ids:
            raise DataError(f"no image is in {split}; every dataset needs {', '.join(SPLITS)}")
    every = [image for each in arrays.values() for image in each.ids]
    wanted = _captions_each(table, every, captions_per_image)
    regions, dim = arrays["train"].shape
    languages = table.languages
    several = len(languages) > 1
    texts = [f"{{split}}_caps_{language}.txt" for language in languages] if several else ["{split}_caps.txt"]
    spoken = " and ".join(map(language_name, languages))
    origin = Origin(
        summary=" ".join([f"Images with {wanted} caption(s) each, in {spoken}.", *remarks]),
        obtain=("ask whoever made it",),
        files=("{split}_ims.npy", *texts, "{split}_ids.txt"),
        dtypes=("float32", "float16"),
        licence="not stated",
        terms="Nothing is stated about them.",
        upload_reason="no licence is stated",
    )
    return ScanLayout(
        name=name,
        title=name,
        images={split: len(each.ids) for split, each in arrays.items()},
        captions_per_image=wanted,
        n_regions=regions,
        feature_dim=dim,
        noise=noise,
        protocols=(str(len(arrays["test"].ids)),),
        languages=languages,
        tokenizers=tokenizers,
        origin=origin,
    )


def _tokenizers(languages: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Language to its tokenizer, from ``NAME`` for all and ``LANGUAGE=NAME`` for one."""
    chosen: dict[str, str] = {}
    for each in wanted:
        language, separator, name = each.rpartition("=")
        language = language_tag(language) or language
        if separator:
            known_name(f"language of {named('tokenizers', each)}:", language, languages)
        for own in [language] if separator else languages:
            if chosen.setdefault(own, name) != name:
                raise DataError(
                    f"{named('tokenizers')} gives {chosen[own]} and {name} for {own}; give one, as {own}={name}"
                )
    return {language: chosen.get(language) or default_tokenizer(language) for language in languages}


def _gather(
    work: Path,
    spec: ScanLayout,
    table: CaptionTable,
    arrays: Mapping[str, FeatureArrays],
    progress: Progress,
) -> None:
    """Write all files in the layout that `prepare` reads; the same rows and features get the same modification time."""
    work.mkdir(parents=True, exist_ok=True)
    files = {str(path): path.stat() for each in arrays.values() for path in each.files}
    made_of = {
        "captions": table.captions,
        "features": [[path, status.st_size, status.st_mtime_ns] for path, status in files.items()],
        "ids": {split: each.ids for split, each in arrays.items()},
        "rows": [None if each.rows is None else each.rows.tolist() for each in arrays.values()],
    }
    # not the time of the newest source: a clock may go back, and a frame has none
    digest = hashlib.sha256(json.dumps(made_of).encode()).digest()
    changed = int.from_bytes(digest[:7])
    for split, each in arrays.items():
        names = spec.origin.split_files(split)
        # float64 is stored as float32: networks compute in it
        dtype = np.dtype("float16" if each.dtype == np.float16 else "float32")
        target = open_memmap(work / names[0], "w+", dtype, (len(each.ids), *each.shape))
        with progress(f"gathering {split}", len(each.ids)) as advance:
            row = 0
            for block in each.blocks():
                flat = block.reshape(len(block), -1)
                # here, where the user's file is known, and not in the copy that `prepare` checks
                if len(wrong := np.flatnonzero(~np.isfinite(flat).all(axis=1) | ~flat.any(axis=1))):
                    wrong_row = row + int(wrong[0])
                    raise DataError(
                        f"{each.files[wrong_row if each.rows is None else 0]}: the features of {each.ids[wrong_row]} "
                        "are all zero or not finite; compute them again"
                    )
                target[row : row + len(block)] = block.reshape(-1, *each.shape)
                row += len(block)
                advance(len(block))
        target.flush()
        del target  # closes the file
        for number, text in enumerate(names[1:-1]):
            lines = [
                caption[number]
                for image in each.ids
                for caption in table.captions[image][: spec.captions_per_image]
            ]
            write_text(work / text, "\n".join(lines) + "\n")
        write_text(work / names[-1], "\n".join(each.ids) + "\n")
        for file in names:
            os.utime(work / file, ns=(changed, changed))


def _module_text(spec: ScanLayout, made_of: str) -> str:
    """Text of the module that registers the dataset, for the user to edit."""
    origin = "\n".join(
        f"            {key}={value!r}," for key, value in vars(spec.origin).items() if value is not None
    )
    facts = "\n".join(
        f"        {key}={value!r},"
        for key, value in vars(spec).items()
        if key not in ("origin",) and value not in ({}, ())
    )
    return f'''"""{spec.title}: a dataset of the {made_of}.

Written by `ncl-bench datasets new`. Edit the origin below: the dataset's card shows it.
"""

from ncl_bench.data import register
from ncl_bench.data.captions import ScanLayout
from ncl_bench.data.spec import Origin

register(
    ScanLayout(
{facts}
        origin=Origin(
{origin}
        ),
    )
)
'''
