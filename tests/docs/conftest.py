"""The leaderboard of this checkout is read once for all pages, since that takes seconds."""

from pathlib import Path
from typing import Any

import pytest
from support.board_rows import measured_board, whole_board

import leaderboard
from leaderboard.board import Content, read_content


def read_once(root: Path, *, published: bool, **options: Any) -> Content:
    own = root.resolve() == Path(leaderboard.__file__).parent
    if not own:
        return read_content(root, published=published, **options)
    return whole_board() if published else measured_board()


@pytest.fixture(autouse=True)
def one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("board", "build"):
        monkeypatch.setattr(f"leaderboard.{module}.read_content", read_once)
