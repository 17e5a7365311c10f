"""The folder of a leaderboard: the files that its entries are read from."""

from pathlib import Path

REPRODUCED = "reproduced.yaml"


def result_files(folder: Path) -> list[Path]:
    """All files in the folder, sorted: each YAML file with its ``.npz``.

    An ``.npz`` alone is no row yet, nor is a file that an addition is writing or was stopped at: the board of the
    others can be read meanwhile.
    """
    return sorted(path for path in folder.rglob("*.*") if path.suffix in (".yaml", ".npz"))


def published_folder(root: Path) -> Path:
    """Folder of printed results: the leaderboard's own, or those of its checkout, or else this package's."""
    checkout = root.parent / "ncl_bench" / "papers" / "published"
    for folder in (root / "published", checkout):
        if folder.is_dir():
            return folder
    from ncl_bench.papers import PUBLISHED  # slow to import

    return PUBLISHED
