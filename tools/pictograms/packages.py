"""Packages of the pictograms: name, version, hash, and their files in memory."""

import hashlib
import io
import lzma
import tarfile
from dataclasses import dataclass
from pathlib import Path

from ncl_bench.errors import DataError


@dataclass(frozen=True)
class Package:
    """One pinned package.

    Attributes:
        file: file name of the download.
        sha256: sha256 of that file (hex).
        obtain: command that downloads it.
        licence_file: licence file in the package.
    """

    file: str
    sha256: str
    obtain: str
    licence_file: str


def _npm(name: str, version: str, sha256: str, licence_file: str) -> Package:
    file = f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
    return Package(file, sha256, f"npm pack {name}@{version}", f"package/{licence_file}")


PACKAGES = {
    "openclipart": Package(
        "openclipart-svg_1%3a0.18+dfsg-19_all.deb",
        "989712d90d57dfa3230049f553bb43b76c30ee4d4b8c5f6e106e33f7db5cbdc5",
        "apt-get download openclipart-svg=1:0.18+dfsg-19",
        "usr/share/doc/openclipart-svg/copyright",
    ),
    "noto": _npm(
        "@iconify-json/noto",
        "1.2.9",
        "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad",
        "info.json",
    ),
    "fluent": _npm(
        "@iconify-json/fluent-emoji-flat",
        "1.2.6",
        "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
        "info.json",
    ),
    "lucide": _npm(
        "lucide-static",
        "1.62.0",
        "386f9080c440d6f5049cefe3456ae8357f7a0c7f76e59670cd1cb83bc7050a44",
        "LICENSE",
    ),
    "phosphor": _npm(
        "@phosphor-icons/core",
        "2.1.1",
        "313332be6190b724da24107addd781799b48bf76b13963f24501112ffe1baadd",
        "LICENSE",
    ),
    "names": _npm(
        "cldr-annotations-full",
        "48.2.0",
        "28576e51225deb51e3ddd734b0f824a0079682cb5d8c27faa9f68149317a14d1",
        "LICENSE",
    ),
    "names-of-sequences": _npm(
        "cldr-annotations-derived-full",
        "48.2.0",
        "4be946ff5815f806ec78b50363d577a769f2fbfb90c6380a44e161a92436996e",
        "LICENSE",
    ),
}
"""Both sets of emoji use the Unicode names."""


def read_package(folder: Path, name: str) -> dict[str, bytes]:
    """Read the files of a package, path to content.

    Args:
        folder: folder of the downloads.
        name: key of ``PACKAGES``.

    Raises:
        DataError: the download is missing or has another version.
    """
    package = PACKAGES[name]
    path = folder / package.file
    if not path.is_file():
        raise DataError(f"{path} is missing; fix: run `{package.obtain}` in {folder}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != package.sha256:
        raise DataError(
            f"{path} has sha256 {found}, expected {package.sha256}; fix: delete it and run `{package.obtain}` there"
        )
    archive = lzma.decompress(_member(content, "data.tar.xz")) if path.suffix == ".deb" else content
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        found_files = [(member, files.extractfile(member)) for member in files if member.isfile()]
        return {member.name.removeprefix("./"): file.read() for member, file in found_files if file}


def _member(archive: bytes, name: str) -> bytes:
    """Read one file of an ``ar`` archive, the format of .deb."""
    at = 8
    while at < len(archive):
        title, size = archive[at : at + 16].decode().strip().rstrip("/"), int(archive[at + 48 : at + 58])
        if title == name:
            return archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise DataError(f"the .deb holds no {name}; fix: download it again")
