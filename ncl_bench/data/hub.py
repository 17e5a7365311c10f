"""Use the Hugging Face Hub: fetch an archive, upload what a licence permits."""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ncl_bench.data import dataset_spec
from ncl_bench.data.layout import Manifest, read_manifest
from ncl_bench.errors import DataError, NclBenchError, first_line, named, refuse_difference
from ncl_bench.extras import require
from ncl_bench.files import sha256_of_file

PATIENCE = 30
"""Seconds to wait for the Hub's answer."""


def check_upload(name: str) -> tuple[str, ...]:
    """Tables of a dataset that may be uploaded.

    Raises:
        DataError: no table may be uploaded; names the reason.
    """
    origin = dataset_spec(name).origin
    if not origin.upload:
        raise DataError(
            f"{name} cannot be uploaded: {origin.upload_reason}; prepare it without {named('push_to_hub')}"
        )
    return origin.upload


def push_to_hub(folder: Path, repository: str) -> tuple[str, ...]:
    """Upload a prepared folder to a dataset repository; a missing one is created as private.

    The tables become configurations of the repository: ``captions`` with token ids, and ``images`` with the features in
    their shape. ``Dataset.push_to_hub`` uploads them; card and vocabularies are uploaded next to them.

    Args:
        folder: the prepared folder.
        repository: ``owner/name`` on the Hub; the user's stored token opens it.

    Returns:
        The uploaded tables: those that the licence permits.

    Raises:
        DataError: the licence permits nothing, or the Hub refuses or cannot be reached.
    """
    require("data", "huggingface_hub", needed_by="an upload to the Hub")
    from huggingface_hub import HfApi

    manifest = read_manifest(folder)
    names = check_upload(manifest.name)
    api = HfApi()
    with on_the_hub(f"{folder} was not uploaded to {repository}"):
        # the first call tells whether the Hub answers; uploads may take as long as they need
        answered(partial(api.create_repo, repository, repo_type="dataset", private=True, exist_ok=True))
        for file in ("README.md", *(own.vocabulary for own in manifest.tokenizations)):
            api.upload_file(
                path_or_fileobj=str(folder / file), path_in_repo=file, repo_id=repository, repo_type="dataset"
            )
        for split in manifest.splits:
            for name in names:
                table = (_captions if name == "captions" else _images)(folder, manifest, split)
                table.push_to_hub(repository, name, split=split, private=True)
    return names


def _captions(folder: Path, manifest: Manifest, split: str) -> Any:
    """Captions table of a split, with a column of token ids per tokenizer."""
    import datasets

    table = datasets.load_from_disk(str(folder / "captions" / split))
    for own in manifest.tokenizations:
        ids, offsets = (np.load(folder / name, allow_pickle=False) for name in own.token_files(split))
        # the outer offsets are the ends of the array, where np.split would add empty captions
        lists = np.split(ids, offsets[1:-1])
        kind = datasets.List(datasets.Value("int32"))
        table = table.add_column(f"tokens_{own.name}", lists, feature=kind)
    return table


def _images(folder: Path, manifest: Manifest, split: str) -> Any:
    """Table with one row per image of a split: its id, and its features in their shape."""
    import datasets

    shape = (manifest.n_regions, manifest.feature_dim)
    kinds = datasets.Features(
        {"image_id": datasets.Value("string"), "image_features": datasets.Array2D(shape, manifest.dtype)}
    )
    sha256 = next(own.sha256 for own in manifest.files if own.name == f"features/{split}.npy")
    source = {"folder": folder, "split": split, "each": manifest.captions_per_image, "sha256": sha256}
    return datasets.Dataset.from_generator(_image_rows, features=kinds, gen_kwargs=source)


def _image_rows(folder: Path, split: str, each: int, sha256: str) -> Iterator[dict[str, Any]]:
    """Rows of the images table; the library uses these arguments as its cache key."""
    import datasets

    captions = datasets.load_from_disk(str(folder / "captions" / split))
    features = np.load(folder / "features" / f"{split}.npy", mmap_mode="r", allow_pickle=False)
    for row, image_id in enumerate(captions[range(0, len(captions), each)]["image_id"]):
        yield {"image_id": image_id, "image_features": features[row]}


def fetch_archive(name: str) -> Path:
    """Fetch the archive of a dataset, pinned to its commit and verified by size and sha256; resume a broken download.

    Args:
        name: a dataset with an ``origin.archive``.

    Returns:
        The archive, in the Hub's cache.

    Raises:
        DataError: the Hub has no archive of the dataset; the Hub cannot be reached (the message says what to do by
            hand); or the file is not the published one.
    """
    archive = dataset_spec(name).origin.archive
    if archive is None:
        raise DataError(
            f"{named('download')} cannot fetch {name}; `ncl-bench datasets show {name}` says where to get it"
        )
    require("data", "huggingface_hub", needed_by=named("download"))
    from huggingface_hub import HfApi

    api = HfApi()
    by_hand = (
        f"fetch it by hand from https://huggingface.co/datasets/{archive.repository} ({archive.bytes} bytes, sha256 "
        f"{archive.sha256}) and run `ncl-bench prepare {name} --from {archive.name} --to DIR`"
    )
    with on_the_hub(f"{archive.name} cannot be downloaded", by_hand):
        listed = answered(partial(api.list_repo_commits, archive.repository, repo_type="dataset"))
        commits = [commit.commit_id for commit in listed]
        # the client takes whole hashes only
        revision = next(commit for commit in commits if commit.startswith(archive.revision))
        path = Path(
            api.hf_hub_download(archive.repository, archive.name, repo_type="dataset", revision=revision)
        )
    refuse_difference(
        path, {"sha256": (sha256_of_file(path), archive.sha256)}, "delete it and download it again"
    )
    return path


@contextmanager
def on_the_hub(problem: str, fix: str = "", error: type[NclBenchError] = DataError) -> Iterator[None]:
    """Turn what the Hub's client raises, about network, token or permission, into one sentence without a token.

    Args:
        problem: what did not happen.
        fix: what the user should do.
        error: class of what is raised.
    """
    try:
        yield
    except Exception as reason:
        said = re.sub(r"hf_\w+", "hf_***", first_line(reason))
        raise error(f"{problem}: {said}{fix and f'; {fix}'}") from None  # the client names the token


def answered(ask: Callable[[], Any]) -> Any:
    """Answer of the Hub, with a time limit, because its client would wait forever.

    Raises:
        TimeoutError: no answer for :data:`PATIENCE` seconds.
    """
    answer: Future[Any] = Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # raised again by the caller, in its own thread
            answer.set_exception(error)

    # a daemon, because a call that waits for ever must not keep the program alive
    threading.Thread(target=wait, daemon=True).start()
    return answer.result(timeout=PATIENCE)
