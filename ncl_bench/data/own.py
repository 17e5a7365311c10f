"""Make a dataset from a user's features and caption table: its module, and its prepared folder."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib.format import open_memmap

from ncl_bench.data import DATASETS, register
from ncl_bench.data.captions import ScanLayout
from ncl_bench.data.encoding import ENCODING_FILE
from ncl_bench.data.languages import language_name, language_tag
from ncl_bench.data.own_features import FeatureArrays, feature_arrays
from ncl_bench.data.own_tables import CaptionTable, read_captions
from ncl_bench.data.prepare import prepare
from ncl_bench.data.spec import SPLITS, Origin
from ncl_bench.data.tokenizers import default_tokenizer
from ncl_bench.errors import DataError, listed, unknown_name
from ncl_bench.files import readable, sole_owner, write_text
from ncl_bench.progress import Progress, silent


@dataclass(frozen=True)
class OwnOptions:
    """What the user's files do not say.

    Attributes:
        captions_per_image: number of first captions of every image to keep; None if all images have the same number.
        dev: number of dev images to draw if no split is given; None draws a tenth.
        test: number of test images to draw if no split is given; None draws a tenth.
        seed: seed of that draw.
        noise: ``synthetic`` if the pairs are right and the benchmark corrupts them, ``natural`` if many are already
            wrong.
        languages: columns of captions, see :func:`ncl_bench.data.own_tables.read_captions`.
        tokenizers: ``NAME`` for every language, or ``LANGUAGE=NAME``; other languages get their
            :func:`ncl_bench.data.tokenizers.default_tokenizer`.
        tokenizer_file: ``tokenizer.json`` of the tokenizer ``bert``.
    """

    captions_per_image: int | None = None
    dev: int | None = None
    test: int | None = None
    seed: int = 0
    noise: Literal["synthetic", "natural"] = "synthetic"
    languages: tuple[str, ...] = ()
    tokenizers: tuple[str, ...] = ()
    tokenizer_file: Path | None = None


def new_dataset(
    name: str,
    features: Path,
    captions: Path,
    root: Path,
    module: Path,
    options: OwnOptions | None = None,
    *,
    progress: Progress = silent,
) -> tuple[ScanLayout, tuple[str, ...]]:
    """Write the module of a dataset and prepare it; the same call resumes an interrupted one.

    Args:
        name: letters, digits and ``_``; registry key of the dataset.
        features: a folder with ``{split}_ims.npy`` or ``{split}.npy`` for each split, ``(images, dim)`` or ``(images,
            regions, dim)``, and their ids in ``{split}_ids.txt``, one per line; or with an ``.npy`` file per image,
            named by its id, ``(dim,)`` or ``(regions, dim)``. 64-bit numbers are stored as 32-bit.
        captions: a table or Karpathy's JSON, see :func:`ncl_bench.data.own_tables.read_captions`.
        root: folder of prepared datasets; a folder of this name is added.
        module: the Python file to write.
        options: what the files do not say.
        progress: shows what is done.

    Returns:
        The dataset, which is registered, and what of the table is left out, in words: images without features, columns.

    Raises:
        DataError: something is missing, damaged or does not fit together.
    """
    options = options or OwnOptions()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise DataError(
            f"the name is {name!r}, expected small letters, digits and _, a letter first; choose another"
        )
    if name in DATASETS:
        raise DataError(f"a dataset {name!r} exists already; choose another name")
    work = root / f".{name}.gathered"
    if (root / name).exists() and not work.exists():  # both exist if a run was interrupted at its very end
        raise DataError(f"{root / name} exists already; delete it, or choose another name or --to")
    table = read_captions(captions, options.languages)
    with sole_owner(work, inside=root):
        arrays = feature_arrays(features, table, dev=options.dev, test=options.test, seed=options.seed)
        spec = _spec(name, table, arrays, options)
        code = _module_text(spec, features, captions)
        if module.exists() and readable(module, DataError, "a module").read_bytes() != code.encode():
            raise DataError(f"{module} exists with other content; delete it or choose another --module")
        try:
            _gather(work, spec, table, arrays, progress)
            if (features / ENCODING_FILE).is_file():
                shutil.copy2(features / ENCODING_FILE, work / ENCODING_FILE)
            prepare(register(spec).name, work, root, tokenizer_file=options.tokenizer_file, progress=progress)
        except DataError:
            DATASETS.pop(name, None)
            for unfinished in (work, root / f".{name}.partial"):
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        write_text(module, code)
        shutil.rmtree(work)
    left_out = len(table.captions) - sum(spec.images.values())
    return spec, (
        *([f"{left_out:,} images of {captions}, which have no features in {features}"] if left_out else []),
        *(
            [f"columns of {captions}, which are no captions: {listed(table.ignored)}"]
            if table.ignored
            else []
        ),
    )


def _spec(
    name: str, table: CaptionTable, arrays: Mapping[str, FeatureArrays], options: OwnOptions
) -> ScanLayout:
    for split, each in arrays.items():
        if not each.ids:
            raise DataError(f"no image is in {split}; every dataset needs {', '.join(SPLITS)}")
    used = [len(table.captions[image]) for each in arrays.values() for image in each.ids]
    least, most = min(used), max(used)
    wanted = options.captions_per_image or least
    if wanted > least or (options.captions_per_image is None and least != most):
        raise DataError(
            f"the images of {table.path} have {least} to {most} captions, but all must have the same number; "
            f"give --captions-per-image with {least} at most, which keeps the first ones of each"
        )
    regions, dim = arrays["train"].shape
    dtype = arrays["train"].dtype
    if dtype not in (np.float16, np.float32, np.float64):
        raise DataError(f"the features are {dtype}, expected float32 or float16; convert them")
    languages = table.languages
    several = len(languages) > 1
    texts = [f"{{split}}_caps_{language}.txt" for language in languages] if several else ["{split}_caps.txt"]
    spoken = " and ".join(map(language_name, languages))
    origin = Origin(
        summary=f"Images with {wanted} caption(s) each, in {spoken}.",
        homepage="none",
        obtain=("ask whoever made it",),
        folders=(),
        files=("{split}_ims.npy", *texts, "{split}_ids.txt"),
        dtypes=("float32", "float16"),
        licence="not stated",
        licence_id="other",
        terms="Nothing is stated about them.",
        noise=(
            "The pairs are taken for clean."
            if options.noise == "synthetic"
            else "Some pairs are wrong, and nobody knows which."
        ),
        upload=(),
        upload_reason="no licence is stated",
        citation="",
    )
    return ScanLayout(
        name=name,
        title=name,
        images={split: len(each.ids) for split, each in arrays.items()},
        captions_per_image=wanted,
        n_regions=regions,
        feature_dim=dim,
        noise=options.noise,
        protocols=(str(len(arrays["test"].ids)),),
        languages=languages,
        tokenizers=_tokenizers(languages, options.tokenizers),
        origin=origin,
    )


def _tokenizers(languages: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Language to its tokenizer, from ``NAME`` for all and ``LANGUAGE=NAME`` for one."""
    chosen: dict[str, str] = {}
    for each in wanted:
        language, separator, name = each.rpartition("=")
        language = language_tag(language) or language
        if separator and language not in languages:
            raise DataError(f"--tokenizer {each}: {unknown_name('language', language, languages)}")
        for own in [language] if separator else languages:
            if chosen.setdefault(own, name) != name:
                raise DataError(
                    f"--tokenizer gives {chosen[own]} and {name} for {own}; give one, as {own}={name}"
                )
    return {language: chosen.get(language) or default_tokenizer(language) for language in languages}


def _gather(
    work: Path, spec: ScanLayout, table: CaptionTable, arrays: Mapping[str, FeatureArrays], progress: Progress
) -> None:
    """Write all files in the layout that `prepare` reads; unchanged files keep their modification time."""
    work.mkdir(parents=True, exist_ok=True)
    changed = max(path.stat().st_mtime_ns for each in arrays.values() for path in (*each.files, table.path))
    for split, each in arrays.items():
        names = spec.origin.split_files(split)
        dtype = np.dtype("float16" if each.dtype == np.float16 else "float32")
        target = open_memmap(work / names[0], "w+", dtype, (len(each.ids), *each.shape))
        with progress(f"gathering {split}", len(each.ids)) as advance:
            row = 0
            for block in each.blocks():
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


def _module_text(spec: ScanLayout, features: Path, captions: Path) -> str:
    """Text of the module that registers the dataset, for the user to edit."""
    origin = "\n".join(
        f"            {key}={value!r}," for key, value in vars(spec.origin).items() if value is not None
    )
    facts = "\n".join(
        f"        {key}={value!r},"
        for key, value in vars(spec).items()
        if key not in ("origin",) and value not in ({}, ())
    )
    return f'''"""{spec.title}: a dataset of the features in {features} and the captions in {captions}.

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
