"""Open a dataset: check what is asked for, open the clean split, and re-pair train where noise is asked for."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from ncl_bench.arguments import checked_arguments
from ncl_bench.data import ROOT_VARIABLE, dataset_spec
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.spec import DatasetSpec, SplitName, refuse_noise
from ncl_bench.errors import DataError, NoiseError, named
from ncl_bench.files import AnyPath
from ncl_bench.noise import unit_of
from ncl_bench.noise.draw import Noise, NoiseUnit
from ncl_bench.noise.files import read_noise_file
from ncl_bench.npy import Int64Array
from ncl_bench.progress import Progress, silent

if TYPE_CHECKING:
    from ncl_bench.data.embedded import EmbeddedDataset

DRAWN_AT_ONCE = 50_000
"""Up to this many training captions, noise of unit ``similar`` is drawn on demand; more take minutes."""


@checked_arguments(DataError)
def load_dataset(
    name: str,
    *,
    split: SplitName = "train",
    noise_ratio: float | None = None,
    noise_unit: NoiseUnit | None = None,
    noise_seed: int | None = None,
    noise_file: AnyPath | None = None,
    language: str | None = None,
    tokenizer: str | None = None,
    root: AnyPath | None = None,
    preload: Literal["ram"] | None = None,
    keep: AnyPath | None = None,
    columns: str | Sequence[str] | None = None,
) -> PairedDataset:
    """Open one split of a dataset, with synthetic noise on train if requested.

    Example::

        train = ncl_bench.load_dataset("digits", noise_ratio=0.4)
        dev = ncl_bench.load_dataset("flickr30k", split="dev", root="data")

    Args:
        name: key of ``DATASETS``. Embedded datasets such as ``digits`` need no files; the others must be prepared.
        split: ``train``, ``dev`` or ``test``.
        noise_ratio: nominal share of moved units, in [0, 1) (default: clean pairs). Only train is ever corrupted.
        noise_unit: ``caption`` (NCR and its successors, the default), ``image`` (DECL, RCL), ``similar`` (captions
            swap images with captions of similar words) or ``noun`` (captions take the image of a caption with a common
            noun). Results are not comparable across units. Beside ``noise_file``: what the file must move (default:
            any exchange); ``file`` allows images that lose or gain captions.
        noise_seed: seed of the draw (default: the protocol's seed for this dataset, unit and ratio; for the caption
            unit it draws the files that papers share).
        noise_file: an ``.npy`` index to use instead of a draw, such as RCL's image-unit files, which no seed draws. A
            file that does not fit is refused. One that neither a paper shares nor a seed draws is recorded as noise of
            unit ``file``.
        language: caption language (default: the dataset's first).
        tokenizer: tokenizer of the token ids (default: the language's own).
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        preload: ``"ram"`` reads the features into memory (default: they stay on disk).
        keep: folder from ``ncl-bench audit apply``; the result is the subset of train, noise included, that it keeps.
        columns: what ``dataset[row]`` and the batches of a ``DataLoader`` hold (default: ``image_features``,
            ``image_lengths``, ``caption_tokens``, ``caption_lengths`` and ``pair_ids``). Also: ``caption``, the text;
            ``image``, the encoded file of the image, such as a PNG; ``image_id``; and ``row``, the position in this
            dataset.

    Raises:
        DataError: a name is unknown, the prepared files are missing or damaged, or ``keep`` belongs to other data.
        NoiseError: the dataset or split takes no noise, a setting is out of range or has no effect, or the file is
            refused.
    """
    spec = dataset_spec(name)

    # a ratio of 0 asks for clean pairs, and may come with the unit and the seed of a sweep's other ratios
    if noise_file is None:
        asked = Noise.asked(noise_ratio, noise_unit, noise_seed)
    else:
        asked = Noise.asked(noise_ratio or 0.0, None, noise_seed)
    noisy = bool(asked.ratio) or noise_file is not None
    refuse_noise(spec, noisy)
    if keep is not None and split != "train":
        raise DataError(f"keep lists pairs of train, not of {split}; leave it out")
    if noisy and split != "train":
        raise NoiseError(f"noise was requested for {name}/{split}, but only train is corrupted; leave it out")
    if noise_file is not None and noise_seed is not None:
        raise NoiseError(
            f"noise_seed is {noise_seed} and noise_file is {noise_file}; give one of them, a file needs no seed"
        )

    root = _root(root)
    # noise before data: a file that does not fit is refused before features are read. The draw needs the size of train
    # alone (and, for some units, its captions), so it is the same whether features lie in memory, on disk or elsewhere.
    noise = None
    if noise_file is not None:
        noise = read_noise_file(Path(noise_file), spec, noise_unit)
        if asked.ratio not in (0, noise[1].ratio):
            raise NoiseError(
                f"{named('noise_ratio')} is {asked.ratio}, noise file {noise_file} carries {noise[1].ratio:g}; leave "
                f"{named('noise_ratio')} out"
            )
    elif asked.unit is not None:
        noise = train_noise(spec, asked.ratio, asked.unit, noise_seed, root)
    dataset = _open_clean(spec, split, language, tokenizer, root, preload)
    if columns is not None:
        dataset = dataset.with_columns(columns)
    if noise is not None:
        # only the pairing changes: captions, images and their order, and with them the fingerprint, stay
        dataset = replace(dataset, caption_to_image=noise[0], noise=noise[1])
    # another process opens the same files again instead of receiving the arrays; without `preload`, so that workers
    # share the mapped features. Paths are absolute, because that process may run in another folder.
    dataset = dataset.pickled_as(
        partial(
            load_dataset,
            name,
            split=split,
            noise_ratio=noise_ratio,
            noise_unit=noise_unit,
            noise_seed=noise_seed,
            noise_file=None if noise_file is None else Path(noise_file).absolute(),
            language=language,
            tokenizer=tokenizer,
            root=root,
            columns=columns,
        )
    )
    if keep is None:
        return dataset
    from ncl_bench.data.keep import read_keep

    # last, since `keep` names pairs of the noisy train split; a subset pickles as its rows of the whole
    return dataset.subset(read_keep(Path(keep), dataset)[0])


def refuse_damage(name: str, root: AnyPath | None, split: str, *, progress: Progress = silent) -> None:
    """Compare the hash of every file that a split is read from with the manifest; reads all of its features once.

    Args:
        name: name of the dataset. An embedded one has no files of its own, and nothing is compared.
        root: as for :func:`load_dataset`.
        split: ``train``, ``dev`` or ``test``.
        progress: shows the bytes read.

    Raises:
        DataError: a file has changed since the dataset was prepared.
    """
    from ncl_bench.data.prepared import damage, prepared_folder

    spec, place = dataset_spec(name), _root(root)
    if place is None or _is_embedded(spec, place):
        return
    for sentence in damage(prepared_folder(place, name), split=split, progress=progress):
        raise DataError(sentence)


def train_noise(
    spec: DatasetSpec, ratio: float, unit: NoiseUnit, seed: int | None, root: Path | None
) -> tuple[Int64Array, Noise]:
    """Draw the noise of a train split from its seed, or read that of unit ``similar`` from its file.

    Args:
        spec: a dataset with synthetic noise.
        ratio: nominal, in [0, 1).
        unit: ``caption``, ``image``, ``similar`` or ``noun``.
        seed: None for the protocol's seed.
        root: folder of prepared datasets; ``similar`` and ``noun`` need the captions of datasets that are not embedded.

    Returns:
        ``caption_to_image`` int64 ``(n_captions,)``, and its record.

    Raises:
        DataError: the dataset must be prepared first.
        NoiseError: a setting is refused, or the noise file must be made first.
    """
    if unit != "similar" or spec.embedded:
        return draw_train_noise(spec, ratio, unit, seed, root)
    root = prepared_root(root, spec)
    path = similar_file(root, spec, ratio, seed)
    if path.exists():
        caption_to_image, record = read_noise_file(path, spec, "similar")
        # rounded down, as in the draw
        n, expected = round(record.realised_ratio * len(caption_to_image)), int(ratio * len(caption_to_image))
        if n != expected:
            raise NoiseError(
                f"noise file {path} moves {n:,} captions, expected {expected:,}; delete it and make it again"
            )
        seed = spec.standard_seed("similar", ratio) if seed is None else seed
        return caption_to_image, replace(record, unit="similar", ratio=ratio, seed=seed)
    if spec.n_captions("train") > DRAWN_AT_ONCE:
        given = "" if seed is None else f" --seed {seed}"
        raise NoiseError(
            f"{path} is missing, and drawing it takes minutes; fix: "
            f"ncl-bench noise make {spec.name} --unit similar --ratio {ratio:g}{given} --root {root}"
        )
    return draw_train_noise(spec, ratio, unit, seed, root)


def draw_train_noise(
    spec: DatasetSpec,
    ratio: float,
    unit: NoiseUnit,
    seed: int | None,
    root: Path | None,
    progress: Progress = silent,
) -> tuple[Int64Array, Noise]:
    """Draw the noise of a train split, from its captions in the first language if the unit reads them.

    Args:
        spec, ratio, unit, seed, root: as for :func:`train_noise`.
        progress: reports the captions that ``similar`` has compared.
    """
    captions = None
    if unit_of(unit).reads_captions and not spec.embedded:
        held = _open_clean(spec, "train", None, None, root, None).captions
        captions = None if held is None else list(held)
    return spec.draw_noise(
        noise_ratio=ratio, noise_unit=unit, seed=seed, captions=captions, progress=progress
    )


def similar_file(root: Path, spec: DatasetSpec, ratio: float, seed: int | None) -> Path:
    """Path of the noise file in the folder of prepared datasets: ``NAME/noise/similar-60-seed96.npy``."""
    Noise.asked(ratio, "similar", seed)
    seed = spec.standard_seed("similar", ratio) if seed is None else seed
    return root / spec.name / "noise" / f"similar-{100 * ratio:g}-seed{seed}.npy"


# the argument wins over the environment; absolute, since a worker process may run in another folder
def _root(given: AnyPath | None) -> Path | None:
    root = given or os.environ.get(ROOT_VARIABLE)
    return Path(root).absolute() if root else None


# an embedded dataset that was prepared too is read from its folder: there it may have other tokenizers and a float16
def _is_embedded(spec: DatasetSpec, root: Path | None) -> bool:
    return spec.embedded and not (root and (root / spec.name / "manifest.json").exists())


def prepared_root(root: Path | None, spec: DatasetSpec) -> Path:
    """The folder of prepared datasets, where a dataset needs one."""
    if not root:
        raise DataError(
            f"{spec.name} must be prepared: run `ncl-bench prepare {spec.name}`, then name its {named('to')} "
            f"folder with {named('root')} or {ROOT_VARIABLE}"
        )
    return root


def _open_clean(
    spec: DatasetSpec,
    split: str,
    language: str | None,
    tokenizer: str | None,
    root: Path | None,
    preload: Literal["ram"] | None,
) -> PairedDataset:
    if _is_embedded(spec, root):
        return cast("EmbeddedDataset", spec).load_embedded(split, language, tokenizer)
    from ncl_bench.data.prepared import load_prepared  # its records are slow to import

    dataset = load_prepared(prepared_root(root, spec), spec, split, language=language, tokenizer=tokenizer)
    return dataset if preload is None else dataset.in_ram()
