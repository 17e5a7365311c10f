"""Download and upload, against a Hub that is only pretended."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import datasets
import huggingface_hub
import numpy as np
import pytest
from support import miniatures
from support.refusals import refused

from ncl_bench.data import DATASETS, hub, now
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import load_prepared
from ncl_bench.errors import DataError
from ncl_bench.files import sha256_of_file


class PretendedHub:
    """Records what would be uploaded, and gives a file for a download."""

    def __init__(self, fault=None, archive=None):
        self.fault, self.archive = fault, archive
        self.calls = []

    def create_repo(self, repo_id, **options):
        if self.fault:
            raise self.fault
        self.calls.append(("create_repo", {"repo_id": repo_id, **options}))

    def upload_file(self, **options):
        self.calls.append(("upload_file", options))

    def list_repo_commits(self, repository, repo_type):
        if self.fault:
            raise self.fault
        assert (repository, repo_type) == ("NJUyued/NoW", "dataset")
        return [
            SimpleNamespace(commit_id="f" * 40),
            SimpleNamespace(commit_id=now.ARCHIVE.revision + "0" * 33),
        ]

    def hf_hub_download(self, repository, name, *, repo_type, revision):
        assert (repository, name, repo_type) == ("NJUyued/NoW", "NoW.zip", "dataset")
        assert revision == now.ARCHIVE.revision + "0" * 33
        return str(self.archive)


@pytest.fixture
def on_a_hub(monkeypatch):
    """Let this object answer in place of the Hub."""

    def answer(api):
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
        return api

    return answer


@pytest.mark.parametrize(
    ("name", "tables"), [("now", ("captions", "images")), ("coco", ("captions",)), ("cc152k", ("captions",))]
)
def test_only_what_the_licence_allows_is_uploaded(name, tables, tmp_path, monkeypatch, on_a_hub):
    folder = prepare(name, miniatures.make(tmp_path / "from", name), tmp_path / "root")
    api, pushed = on_a_hub(PretendedHub()), {}

    def push(table, repository, config, *, split, private):
        assert (repository, private) == ("someone/data", True)
        pushed[config, split] = table

    monkeypatch.setattr(datasets.Dataset, "push_to_hub", push)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    assert hub.push_to_hub(folder, "someone/data") == tables
    (_, made), *files = api.calls
    assert made["private"]
    assert "README.md" in [sent["path_in_repo"] for _, sent in files]
    assert set(pushed) == {(table, split) for table in tables for split in miniatures.IMAGES}
    own = load_prepared(tmp_path / "root", miniatures.SPECS[name], "dev")
    tokens = "tokens_jieba" if name == "now" else "tokens_word"
    ids, lengths = own.tokens.padded(np.arange(len(own)))
    found = pushed["captions", "dev"][tokens][:]
    assert found == [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    if "images" in tables:
        images = pushed["images", "dev"].with_format("numpy")
        assert images["image_id"][:].tolist() == own.image_ids.tolist()
        np.testing.assert_array_equal(images["image_features"][:], own.image_features)


def test_an_upload_is_refused_by_the_licence_or_the_hub_in_one_sentence(tmp_path, on_a_hub):
    folder = prepare("flickr30k", miniatures.make(tmp_path / "from", "flickr30k"), tmp_path / "root")
    api = on_a_hub(PretendedHub())
    with refused(DataError):
        hub.push_to_hub(folder, "someone/data")
    assert api.calls == []
    folder = prepare("now", miniatures.make(tmp_path / "from", "now"), tmp_path / "root")
    on_a_hub(PretendedHub(PermissionError("no token\nlong story")))
    with refused(DataError):
        hub.push_to_hub(folder, "a/b")


def published_as(monkeypatch, archive):
    """The archive of Noise of Web is this one."""
    origin = replace(now.SPEC.origin, archive=archive)
    monkeypatch.setitem(DATASETS.data, "now", replace(DATASETS["now"], origin=origin))


def test_download_is_pinned_and_verified(tmp_path, monkeypatch, on_a_hub):
    archive = miniatures.zipped(miniatures.make_now(tmp_path / "from"), tmp_path / "NoW.zip")
    on_a_hub(PretendedHub(archive=archive))
    with refused(DataError, now.ARCHIVE.sha256):
        hub.fetch_archive("now")
    published_as(monkeypatch, replace(now.ARCHIVE, sha256=sha256_of_file(archive)))
    path = hub.fetch_archive("now")
    assert prepare("now", path, tmp_path / "root").name == "now"


def test_offline_says_what_to_do_by_hand(on_a_hub):
    on_a_hub(PretendedHub(OSError("Name or service not known\nmore")))
    with refused(DataError, now.ARCHIVE.sha256):
        hub.fetch_archive("now")


def test_a_hub_that_does_not_answer_is_left(monkeypatch, on_a_hub):
    monkeypatch.setattr(hub, "PATIENCE", 0.01)
    never = threading.Event()
    on_a_hub(SimpleNamespace(list_repo_commits=lambda *_, **__: never.wait()))
    with refused(DataError):
        hub.fetch_archive("now")
    never.set()
