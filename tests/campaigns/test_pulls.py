"""Downloads from a Hub on this machine that are killed at random moments: the same call then gets the same bytes."""

import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support import forked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

KILLS = 20
COMMIT = "a" * 40
REPOSITORY = "ada/run"
BLOCK = 1 << 16
CONTENT = {
    name: random.Random(name).randbytes(size)
    for name, size in (
        ("run.json", 500),
        ("training.json", 900),
        ("history.json", 40_000),
        ("best.safetensors", 3 << 20),
    )
}
"""What a run on the Hub holds; the download looks into none of it."""


class Hub(BaseHTTPRequestHandler):
    """Serves one repository, slowly, and parts of its files to those who resume."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            tree = [
                {"type": "file", "path": name, "size": len(whole), "oid": hashlib.sha256(whole).hexdigest()}
                for name, whole in CONTENT.items()
            ]
            files = [{"rfilename": name} for name in CONTENT]
            answer = tree if "/tree/" in self.path else {"id": REPOSITORY, "sha": COMMIT, "siblings": files}
            return self._answer(json.dumps(answer).encode(), {})
        whole = CONTENT[self.path.rpartition("/")[2]]
        etag = hashlib.sha256(whole).hexdigest()
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        more = {"Content-Range": f"bytes {start}-{len(whole) - 1}/{len(whole)}"} if start else {}
        return self._answer(
            whole[start:], {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, **more}, 206 if start else 200
        )

    def _answer(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "Accept-Ranges": "bytes", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with suppress(ConnectionError):  # who asked was killed
            for start in range(0, len(content), BLOCK):
                self.wfile.write(content[start : start + BLOCK])
                time.sleep(0.01)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def pull(cache: Path, endpoint: str) -> None:
    os.environ.update(
        HF_HOME=str(cache), HF_ENDPOINT=endpoint, HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1"
    )
    import baselines.hub

    folder = baselines.hub.fetch(f"hub:{REPOSITORY}")
    cache.with_suffix(".txt").write_text(str(folder))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_a_killed_download_is_finished_by_the_same_call(endpoint: str, tmp_path: Path) -> None:
    def started(cache: Path) -> Any:
        process = forked.process(pull, cache, endpoint)
        process.start()
        return process

    expected = {name: hashlib.sha256(whole).hexdigest() for name, whole in CONTENT.items()}
    started(tmp_path / "first").join()  # the server of processes starts with it
    start = time.monotonic()
    started(tmp_path / "whole").join()
    whole, chance, killed = time.monotonic() - start, random.Random(0), 0
    for number in range(KILLS):
        cache = tmp_path / f"broken-{number // 2}"  # every cache meets two kills
        process = started(cache)
        process.join(chance.uniform(0, whole))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    for number in range(KILLS // 2):
        process = started(cache := tmp_path / f"broken-{number}")
        process.join()
        assert process.exitcode == 0
        assert digests(Path(cache.with_suffix(".txt").read_text())) == expected
    print(f"{KILLS} kills, {killed} of them met the download at work")
    assert killed > KILLS // 2
