"""What an interrupted preparation has done, so that the same command goes on where it stopped."""

import json
import shutil
from pathlib import Path
from typing import Any

from ncl_bench.files import write_text


class Journal:
    """Finished steps by name, kept in a folder of unfinished work.

    Args:
        folder: of the unfinished work; what lies there under other settings is deleted.
        settings: everything that the bytes of the result depend on, as json.
    """

    def __init__(self, folder: Path, settings: Any) -> None:
        self._path = folder / "journal.json"
        settings = json.loads(json.dumps(settings))
        self._content: dict[str, Any] = {"settings": settings, "done": {}}
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict) and found.get("settings") == settings:
            self._content = found
        elif folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)

    def result(self, step: str) -> Any:
        """What :meth:`finish` recorded for a step, or None."""
        return self._content["done"].get(step)

    def finish(self, step: str, result: Any) -> None:
        """Record a finished step and its json result."""
        self._content["done"][step] = result
        write_text(self._path, json.dumps(self._content))
