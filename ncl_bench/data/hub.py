"""The Hugging Face Hub: fetch an archive, upload what a licence lets be passed on."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ncl_bench.data import dataset_spec
from ncl_bench.data.card import render_card
from ncl_bench.data.layout import TABLES, read_manifest
from ncl_bench.data.spec import HubFile
from ncl_bench.errors import DataError
from ncl_bench.files import sha256_of_file

PATIENCE = 30
"""Seconds to wait for the Hub's first answer."""


def check_upload(name: str) -> tuple[str, ...]:
    """Which tables of a dataset may be uploaded.

    Raises:
        DataError: none of them, with the reason.
    """
    origin = dataset_spec(name).origin
    if not origin.upload:
        raise DataError(
            f"{name} cannot be uploaded: {origin.upload_reason}; prepare it without --push-to-hub"
        )
    return origin.upload


def push_to_hub(folder: Path, repository: str, *, api: Any = None) -> tuple[str, ...]:
    """Upload a prepared folder to a private dataset repository, which is made where there is none.

    Args:
        folder: the prepared folder.
        repository: ``owner/name`` on the Hub.
        api: a ``huggingface_hub.HfApi``; one with the user's stored token by default.

    Returns:
        The tables that were uploaded: those that the licence lets be passed on.

    Raises:
        DataError: the licence allows nothing, or the Hub cannot be reached or refuses.
    """
    from huggingface_hub import HfApi

    manifest = read_manifest(folder)
    tables = check_upload(manifest.name)
    whole = set(tables) == set(TABLES)
    card = render_card(dataset_spec(manifest.name), manifest, tables=tables)
    patterns = [f"{table}/**" for table in tables] + ["vocab/**"] + (["manifest.json"] if whole else [])
    api = HfApi() if api is None else api
    try:
        _answered(partial(api.create_repo, repository, repo_type="dataset", private=True, exist_ok=True))
        api.upload_folder(
            repo_id=repository, folder_path=str(folder), repo_type="dataset", allow_patterns=patterns
        )
        api.upload_file(
            path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repository, repo_type="dataset"
        )
    except Exception as error:  # the client raises many classes: network, token, permission
        raise DataError(f"{folder} was not uploaded to {repository}: {_first_line(error)}") from error
    return tables


def fetch_archive(name: str, *, api: Any = None, fetch: Any = None) -> Path:
    """Fetch the archive of a dataset, pinned to its commit and verified by size and sha256.

    Args:
        name: of a dataset whose ``origin.archive`` is a :class:`~ncl_bench.data.spec.HubFile`.
        api: a ``huggingface_hub.HfApi``.
        fetch: ``huggingface_hub.hf_hub_download``, which goes on with a broken download.

    Returns:
        The archive, in the Hub's cache.

    Raises:
        DataError: no archive of the dataset is on the Hub; the Hub cannot be reached, with what to do by hand; or
            the file is not the published one.
    """
    archive = dataset_spec(name).origin.archive
    if not isinstance(archive, HubFile):
        raise DataError(
            f"--download cannot fetch {name}; `ncl-bench datasets show {name}` says where to get it"
        )
    from huggingface_hub import HfApi, hf_hub_download

    api = HfApi() if api is None else api
    fetch = hf_hub_download if fetch is None else fetch
    try:
        listed = _answered(partial(api.list_repo_commits, archive.repository, repo_type="dataset"))
        commits = [commit.commit_id for commit in listed]
        revision = next(commit for commit in commits if commit.startswith(archive.revision))
        path = Path(fetch(archive.repository, archive.name, repo_type="dataset", revision=revision))
    except Exception as error:  # the client raises many classes: network, offline mode, missing commit
        raise DataError(
            f"{archive.name} cannot be downloaded ({_first_line(error)}); fetch it by hand from "
            f"https://huggingface.co/datasets/{archive.repository} ({archive.bytes} bytes, sha256 "
            f"{archive.sha256}) and run `ncl-bench prepare {name} --from {archive.name} --to DIR`"
        ) from error
    _verify_archive(path, archive)
    return path


def _verify_archive(path: Path, archive: HubFile) -> None:
    """Refuse a file that is not the published archive."""
    size = path.stat().st_size
    if size != archive.bytes:
        raise DataError(f"{path} has {size} bytes, expected {archive.bytes}; delete it and download it again")
    digest = sha256_of_file(path)
    if digest != archive.sha256:
        raise DataError(
            f"{path} has sha256 {digest}, expected {archive.sha256}; delete it and download it again"
        )


def _answered(ask: Callable[[], Any]) -> Any:
    """What the Hub answers; its client would wait without end.

    Raises:
        TimeoutError: it has not answered for :data:`PATIENCE` seconds.
    """
    answers: SimpleQueue[Future[Any]] = SimpleQueue()

    def wait() -> None:
        answer: Future[Any] = Future()
        try:
            answer.set_result(ask())
        except Exception as error:  # which the caller raises
            answer.set_exception(error)
        answers.put(answer)

    threading.Thread(target=wait, daemon=True).start()
    try:
        return answers.get(timeout=PATIENCE).result()
    except Empty:
        raise TimeoutError(f"no answer for {PATIENCE} seconds") from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
