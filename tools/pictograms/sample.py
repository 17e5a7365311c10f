"""A dozen pictures of each source, cut out of the packages: what a test reads in their place."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tools.pictograms.build import SHIPPED
from tools.pictograms.items import PHOSPHOR_ICON, TONES
from tools.pictograms.packages import read_package

SAMPLE = Path(__file__).parents[2] / "tests" / "golden" / "pictograms_sources.zip"
DOZEN = 12
LARGEST = 20_000
"""Bytes of a drawing."""

Files = Mapping[str, bytes]


def write_sample(packages: Path, archive: zipfile.ZipFile) -> None:
    """Write ``SOURCE/PATH`` for the first dozen shipped pictures of each source that are small.

    Args:
        packages: folder of the downloads.
        archive: to write to.

    Raises:
        DataError: a package is missing or is another version.
    """
    table = (SHIPPED / "items.tsv").read_text(encoding="utf-8").splitlines()[1:]
    chosen = {line.split("\t")[0] for line in table if line.split("\t")[1]}
    clip_art = read_package(packages, "openclipart")
    _write(archive, "openclipart", _clip_art(clip_art, chosen))
    emoji: set[str] = set()
    for source in ("noto", "fluent"):
        files, codes = _emoji(read_package(packages, source), chosen, source)
        _write(archive, source, files)
        emoji |= codes
    for name, folder in (("names", "annotations"), ("names-of-sequences", "annotationsDerived")):
        _write(archive, name, _names(read_package(packages, name), folder, emoji))
    _write(archive, "lucide", _lucide(read_package(packages, "lucide"), chosen))
    _write(archive, "phosphor", _phosphor(read_package(packages, "phosphor"), chosen))


def read_sample(archive: zipfile.ZipFile, source: str) -> dict[str, bytes]:
    """The files of one source, path to content."""
    names = [name for name in archive.namelist() if name.startswith(f"{source}/")]
    return {name.removeprefix(f"{source}/"): archive.read(name) for name in names}


def _write(archive: zipfile.ZipFile, source: str, files: Files) -> None:
    for path, content in files.items():
        archive.writestr(zipfile.ZipInfo(f"{source}/{path}"), content, zipfile.ZIP_DEFLATED)


def _clip_art(files: Files, chosen: set[str]) -> Files:
    prefix = "usr/share/openclipart/svg/"
    found: dict[str, bytes] = {}
    for path in sorted(files, key=lambda path: path.rsplit("/", 1)[-1]):
        name = f"openclipart/{path.removeprefix(prefix).removesuffix('.svg')}"
        if name in chosen and len(files[path]) < LARGEST and len(found) < DOZEN:
            found[path] = files[path]
    return found


def _emoji(files: Files, chosen: set[str], source: str) -> tuple[Files, set[str]]:
    icons, characters = (json.loads(files[f"package/{name}.json"]) for name in ("icons", "chars"))
    kept: dict[str, str] = {}
    for code, icon in sorted(characters.items()):
        if f"{source}/{icon}" in chosen and icon not in kept.values() and not TONES & set(code.split("-")):
            kept[code] = icon
    kept = dict(list(kept.items())[:: len(kept) // DOZEN][:DOZEN])
    icons["icons"] = {icon: icons["icons"][icon] for icon in kept.values()}
    icons.pop("aliases", None)
    emoji = {"".join(chr(int(point, 16)) for point in code.split("-") if point != "fe0f") for code in kept}
    return {"package/icons.json": _json(icons), "package/chars.json": _json(kept)}, emoji


def _names(files: Files, folder: str, emoji: set[str]) -> Files:
    found = {}
    for language in ("en", "zh"):
        path = f"package/{folder}/{language}/annotations.json"
        names = json.loads(files[path])[folder]["annotations"]
        found[path] = _json(
            {folder: {"annotations": {key: names[key] for key in sorted(emoji & names.keys())}}}
        )
    return found


def _lucide(files: Files, chosen: set[str]) -> Files:
    tags = json.loads(files["package/tags.json"])
    kept = [icon for icon in sorted(tags) if f"lucide/{icon}" in chosen]
    kept = kept[:: len(kept) // DOZEN][:DOZEN]
    drawings = {f"package/icons/{icon}.svg": files[f"package/icons/{icon}.svg"] for icon in kept}
    return {"package/tags.json": _json({icon: tags[icon] for icon in kept}), **drawings}


def _phosphor(files: Files, chosen: set[str]) -> Files:
    script = files["package/dist/index.mjs"].decode()
    entries = [match for match in PHOSPHOR_ICON.finditer(script) if f"phosphor/{match[1]}" in chosen]
    entries = entries[:: len(entries) // DOZEN][:DOZEN]
    paths = [f"package/assets/duotone/{match[1]}-duotone.svg" for match in entries]
    text = "".join(f"{{ {match[0]} }},\n" for match in entries)
    return {"package/dist/index.mjs": text.encode(), **{path: files[path] for path in paths}}


def _json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()
