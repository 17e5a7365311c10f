"""The Hugging Face Hub: fetch Noise of Web, upload what a licence lets be passed on."""

from pathlib import Path
from typing import Any

from ncl_bench.data import dataset_spec, now
from ncl_bench.data.card import render_card
from ncl_bench.data.layout import TABLES, read_manifest
from ncl_bench.errors import DataError
from ncl_bench.files import sha256_of_file


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
    card = render_card(
        dataset_spec(manifest.name), dataset_spec(manifest.name).origin, manifest, tables=tables
    )
    patterns = [f"{table}/**" for table in tables] + ["vocab/**"] + (["manifest.json"] if whole else [])
    api = HfApi() if api is None else api
    try:
        api.create_repo(repository, repo_type="dataset", private=True, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=str(folder), repo_type="dataset", allow_patterns=patterns
        )
        api.upload_file(
            path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repository, repo_type="dataset"
        )
    except Exception as error:  # the client raises many classes: network, token, permission
        raise DataError(f"{folder} was not uploaded to {repository}: {_first_line(error)}") from error
    return tables


def download_now(*, api: Any = None, fetch: Any = None) -> Path:
    """Fetch the archive of Noise of Web, pinned to its commit and verified by size and sha256.

    Args:
        api: a ``huggingface_hub.HfApi``.
        fetch: ``huggingface_hub.hf_hub_download``, which goes on with a broken download.

    Returns:
        The zip file, in the Hub's cache.

    Raises:
        DataError: the Hub cannot be reached, with what to do by hand; or the file is not the published one.
    """
    from huggingface_hub import HfApi, hf_hub_download

    api = HfApi() if api is None else api
    fetch = hf_hub_download if fetch is None else fetch
    try:
        commits = [c.commit_id for c in api.list_repo_commits(now.REPOSITORY, repo_type="dataset")]
        revision = next(commit for commit in commits if commit.startswith(now.REVISION))
        path = Path(fetch(now.REPOSITORY, now.ARCHIVE, repo_type="dataset", revision=revision))
    except Exception as error:  # the client raises many classes: network, offline mode, missing commit
        raise DataError(
            f"{now.ARCHIVE} cannot be downloaded ({_first_line(error)}); fetch it by hand from "
            f"https://huggingface.co/datasets/{now.REPOSITORY} ({now.ARCHIVE_BYTES} bytes, sha256 "
            f"{now.ARCHIVE_SHA256}) and run `ncl-bench prepare now --from {now.ARCHIVE} --to DIR`"
        ) from error
    verify_archive(path)
    return path


def verify_archive(path: Path) -> None:
    """Refuse a file that is not the published archive of Noise of Web.

    Raises:
        DataError: its size or sha256 differs.
    """
    size = path.stat().st_size
    if size != now.ARCHIVE_BYTES:
        raise DataError(
            f"{path} has {size} bytes, expected {now.ARCHIVE_BYTES}; delete it and download it again"
        )
    digest = sha256_of_file(path)
    if digest != now.ARCHIVE_SHA256:
        raise DataError(
            f"{path} has sha256 {digest}, expected {now.ARCHIVE_SHA256}; delete it and download it again"
        )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
