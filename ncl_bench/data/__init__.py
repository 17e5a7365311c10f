"""The datasets of the benchmark, by name.

Each dataset is an object of a class from ``spec``, in its own file such as ``flickr30k``. ``prepare`` makes a folder
from a download: ``download`` opens the files, ``captions`` and ``features`` read them, ``verify`` checks them,
``tokenize`` makes token ids. ``layout`` describes the folder, and ``prepared`` opens it as a ``PairedDataset``.
``load`` opens a split, embedded or prepared, with its noise.
"""

import inspect
import re

from ncl_bench.data import cc152k, coco, digits, flickr8k, flickr30k, now, pictograms
from ncl_bench.data.paired import collate as collate
from ncl_bench.data.spec import DATASETS as DATASETS
from ncl_bench.data.spec import SPLITS, DatasetSpec, protocol_images
from ncl_bench.data.spec import dataset_spec as dataset_spec
from ncl_bench.data.spec import true_correspondence as true_correspondence
from ncl_bench.errors import DataError, listed
from ncl_bench.foreign import reading
from ncl_bench.plugins import registered

ROOT_VARIABLE = "NCL_BENCH_DATA"


def register(dataset: DatasetSpec) -> DatasetSpec:
    """Register a dataset under its name; also a user's own, in a file given with ``--plugin``.

    Raises:
        DataError: the name is taken, or a protocol does not fit the number of test images.
    """
    _add(dataset)
    registered(dataset.name)
    return dataset


def _add(dataset: DatasetSpec) -> None:
    # by its facts: a cell of a notebook that defines the class runs again
    known = DATASETS.get(dataset.name, dataset)
    if (type(known).__qualname__, vars(known)) != (type(dataset).__qualname__, vars(dataset)):
        raise DataError(f"a dataset {dataset.name!r} exists already; give yours another name")
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", dataset.name):
        raise DataError(f"a dataset's name is {dataset.name!r}, expected small letters, digits, _ and -")
    if set(dataset.images) != set(SPLITS):
        raise DataError(
            f"{dataset.name} counts images of {listed(sorted(dataset.images))}, expected those of train, dev and test"
        )
    # features of one name for all splits, or none, would be found when a download of gigabytes is prepared
    fix = (
        "list the features of a split first, such as {split}_ims.npy, then its captions, and write "
        "read_captions(self, download, paths, split)"
    )
    with reading(f"{dataset.name} with the files {dataset.origin.files}", fix=fix):
        of_splits = {dataset.origin.split_files(split)[:1] for split in SPLITS if not dataset.embedded}
        inspect.signature(dataset.read_captions).bind("download", ["paths"], "split")
        own = type(dataset).read_captions is not DatasetSpec.read_captions
        if not dataset.embedded and not (own and len(of_splits) == len(SPLITS) and all(dataset.origin.files)):
            raise ValueError("it names no features for each split, or its class reads no captions")
    for protocol in dataset.protocols:
        if protocol_images(protocol) != dataset.images["test"]:
            raise DataError(
                f"protocol {protocol} of {dataset.name} ranks among {protocol_images(protocol):,} images, and test has "
                f"{dataset.images['test']:,}; name it after the images of test, such as {dataset.images['test']}"
            )
    DATASETS.data[dataset.name] = dataset


# _add instead of `register`, which records the datasets of plugins
for _module in (flickr30k, coco, cc152k, now, flickr8k, digits):
    _add(_module.SPEC)
for _dataset in (pictograms.SPEC, pictograms.EMOJI, pictograms.WEB):
    _add(_dataset)
