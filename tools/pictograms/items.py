"""Read pictures and their texts, source by source; nothing is drawn here."""

import html
import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tools.pictograms.packages import read_package

SHARED_TITLE = 10
"""A title on more images than this names their batch, not their content."""
SHARED_DESCRIPTION = 3
"""The same limit for a description."""
LONGEST = 30
"""Maximum words of a caption; the few longer ones are cut."""
TONES = {"1f3fb", "1f3fc", "1f3fd", "1f3fe", "1f3ff"}

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class SourceItem:
    """One picture and its texts.

    Attributes:
        id: source and name, such as ``openclipart/food/fruit/pear_02``.
        source: key of ``PACKAGES``.
        svg: the drawing.
        name: its subject, in lower case.
        caption: name, then keywords, in English; empty if no text describes the picture.
        chinese: the same in Chinese, or empty.
        as_it_comes: original title and keywords, or empty.
    """

    id: str
    source: str
    svg: str = field(repr=False)
    name: str
    caption: str
    chinese: str = ""
    as_it_comes: str = ""


@dataclass
class Rendering:
    """Items read, and the number of pictures left out by reason."""

    items: list[SourceItem] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_items(folder: Path) -> Rendering:
    """Read the items of every source, in a fixed order.

    Args:
        folder: folder of the packages.

    Raises:
        DataError: a package is missing or has another version.
    """
    reading = Rendering()
    names = read_names({**read_package(folder, "names"), **read_package(folder, "names-of-sequences")})
    read_openclipart(read_package(folder, "openclipart"), reading)
    for source in ("noto", "fluent"):
        read_emoji(source, read_package(folder, source), names, reading)
    read_lucide(read_package(folder, "lucide"), reading)
    read_phosphor(read_package(folder, "phosphor"), reading)
    return reading


def caption(name: str, keywords: list[str], comma: str = ", ") -> str:
    """Join the name and the keywords that differ from it: ``pear, food, fruit``."""
    words = [word.strip().lower() for word in (name, *keywords)]
    kept = [word for word in dict.fromkeys(words) if word]
    while len(" ".join(kept).split()) > LONGEST:
        kept.pop()
    return comma.join(kept)


# OpenClipart: titles, descriptions and keywords are in the drawing's RDF.


def read_openclipart(files: Files, reading: Rendering) -> None:
    """Append the clip art; ``caption`` is empty if the title names a batch or another picture.

    Args:
        files: files of the package.
        reading: updated.
    """
    drawings = [_ClipArt.read(path, files[path]) for path in sorted(files) if path.endswith(".svg")]
    shared = Counter(drawing.title for drawing in drawings)
    repeated = Counter(drawing.description for drawing in drawings)
    for drawing in drawings:
        if "publicdomain" not in drawing.licence.lower():
            reading.left_out["openclipart: not marked as public domain"] += 1
        elif drawing.has_text:
            reading.left_out["openclipart: letters, whose shape depends on installed fonts"] += 1
        elif drawing.links:
            reading.left_out["openclipart: a part lies in another file"] += 1
        else:
            title = _plain(drawing.own_title)
            told = shared[drawing.title] <= SHARED_TITLE and _shares_stem(title, drawing.path.stem)
            once = repeated[drawing.description] <= SHARED_DESCRIPTION
            described = [drawing.description] if once and _says_more(drawing.description, title) else []
            keywords = [
                word for word in map(_plain, drawing.keywords) if word and not _NO_WORD.fullmatch(word)
            ]
            reading.items.append(
                SourceItem(
                    id=f"openclipart/{drawing.path.with_suffix('')}",
                    source="openclipart",
                    svg=drawing.svg,
                    name=title if told else "",
                    caption=caption(title, described + keywords) if told else "",
                    as_it_comes=caption(drawing.title, [word.replace("_", " ") for word in drawing.keywords]),
                )
            )


@dataclass(frozen=True)
class _ClipArt:
    path: PurePosixPath
    svg: str
    licence: str
    title: str
    description: str
    keywords: list[str]
    has_text: bool
    links: bool

    @property
    def own_title(self) -> str:
        """Title without the artist's name in front: ``Clipart by Nicu Buculei - w_cloud``."""
        return re.sub(r"^clip ?art by [^-]+ - ", "", self.title, flags=re.IGNORECASE)

    @classmethod
    def read(cls, path: str, content: bytes) -> "_ClipArt":
        encoding = re.search(rb"<\?xml[^>]*encoding=[\"']([\w-]+)", content[:200])
        root = ElementTree.fromstring(content)  # noqa: S314 (a package whose hash is pinned)
        tags = {element.tag.split("}")[-1] for element in root.iter() if isinstance(element.tag, str)}
        images = [element for element in root.iter() if str(element.tag).endswith("}image")]
        links = [value for image in images for key, value in image.attrib.items() if key.endswith("href")]
        work = next((element for element in root.iter() if str(element.tag).endswith("}Work")), None)
        facts = {str(child.tag).split("}")[-1]: child for child in (() if work is None else work)}
        licence = facts.get("license")
        subject = facts.get("subject")
        return cls(
            path=PurePosixPath(path).relative_to("usr/share/openclipart/svg"),
            svg=content.decode(encoding[1].decode() if encoding else "utf-8"),
            licence="" if licence is None else " ".join(licence.attrib.values()),
            title=_text(facts.get("title")),
            description=_text(facts.get("description")),
            keywords=[
                _text(child)
                for child in (() if subject is None else subject.iter())
                if str(child.tag).endswith("}li")
            ],
            has_text=bool(tags & {"text", "flowRoot"}),
            links=any(not link.startswith("data:") for link in links),
        )


_NO_WORD = re.compile(r"hash|(hash)?\(?0x[0-9a-f]+\)?|magick|etiquette|unsorted|\W*")
"""Keywords added by a program."""


def _text(element: ElementTree.Element | None) -> str:
    return "" if element is None or not element.text else " ".join(html.unescape(element.text).split())


def _plain(text: str) -> str:
    """Convert to lower case, without underscores and a final number: ``Pear_02`` is ``pear``."""
    text = re.sub(r"[_\s]+", " ", text.lower()).strip()
    return re.sub(r"[\s#-]*\d+$", "", text).strip(" .,;:-!") if re.search(r"[^\W\d]", text) else text


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]{3,}", text.lower()))


def _shares_stem(title: str, stem: str) -> bool:
    """Whether a word of the title starts like a word of the file's name."""
    return any(
        word[:4] == other[:4] or word in other or other in word
        for word in _words(title)
        for other in _words(stem)
    )


def _says_more(description: str, title: str) -> bool:
    words = _words(description)
    programs = re.search(
        r"https?:|@|0x[0-9a-f]+|converted from|\bsvg\b|inkscape|sodipodi", description.lower()
    )
    return not programs and len(words) <= LONGEST // 2 and len(words - _words(title)) > 1


# Emoji: names and keywords come from Unicode, in every language.

Names = Mapping[str, Mapping[str, tuple[str, list[str]]]]


def read_names(files: Files) -> Names:
    """Read the names: language to emoji to its name and keywords.

    Args:
        files: files of both packages with names.
    """
    names: dict[str, dict[str, tuple[str, list[str]]]] = {}
    for language in ("en", "zh"):
        names[language] = {}
        for folder in ("annotations", "annotationsDerived"):
            content = json.loads(files[f"package/{folder}/{language}/annotations.json"])
            for emoji, found in content[folder]["annotations"].items():
                if "tts" in found:
                    names[language][emoji] = (found["tts"][0], found.get("default", []))
    return names


def read_emoji(source: str, files: Files, names: Names, reading: Rendering) -> None:
    """Append one set of emoji, without the variants of skin tone.

    Args:
        source: ``noto`` or ``fluent``.
        files: files of its package.
        names: Unicode names of each emoji.
        reading: updated.
    """
    icons = json.loads(files["package/icons.json"])
    drawings, seen = icons["icons"], set()
    for code, icon in sorted(json.loads(files["package/chars.json"]).items()):
        points = code.split("-")
        emoji = "".join(chr(int(point, 16)) for point in points if point != "fe0f")
        if TONES & set(points):
            reading.left_out[f"{source}: a variant of skin tone"] += 1
        elif emoji not in names["en"] or emoji not in names["zh"]:
            reading.left_out[f"{source}: Unicode gives no name in both languages"] += 1
        elif icon in drawings and icon not in seen:
            seen.add(icon)
            drawing = drawings[icon]
            size = f"0 0 {drawing.get('width', icons['width'])} {drawing.get('height', icons['height'])}"
            english, chinese = ((names[language][emoji]) for language in ("en", "zh"))
            reading.items.append(
                SourceItem(
                    id=f"{source}/{icon}",
                    source=source,
                    svg=f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
                    f'viewBox="{size}">{drawing["body"]}</svg>',
                    name=english[0].lower(),
                    caption=caption(*english),
                    chinese=caption(*chinese, comma="，"),
                )
            )


# Icons: name and tags are both written by the makers.


def read_lucide(files: Files, reading: Rendering) -> None:
    """Append the icons of Lucide, each once under the first of its names.

    Args:
        files: files of the package.
        reading: updated.
    """
    seen = set()
    for icon, tags in sorted(json.loads(files["package/tags.json"]).items()):
        svg = files[f"package/icons/{icon}.svg"].decode()
        shapes = svg.split(">", 2)[-1]
        if shapes in seen:
            reading.left_out["lucide: another name of the same icon"] += 1
            continue
        seen.add(shapes)
        reading.items.append(_icon("lucide", icon, svg, tags))


PHOSPHOR_ICON = re.compile(r'\bname: "([\w-]+)",\s+pascal_name:.*?\btags: \[(.*?)\]', re.DOTALL)


def read_phosphor(files: Files, reading: Rendering) -> None:
    """Append the icons of Phosphor in two tones.

    Args:
        files: files of the package.
        reading: updated.
    """
    for icon, tags in _phosphor_tags(files["package/dist/index.mjs"].decode()):
        drawing = files.get(f"package/assets/duotone/{icon}-duotone.svg")
        if drawing is None:
            reading.left_out["phosphor: another name of the same icon"] += 1
        else:
            reading.items.append(_icon("phosphor", icon, drawing.decode(), tags))


def _phosphor_tags(script: str) -> Iterator[tuple[str, list[str]]]:
    for icon, tags in PHOSPHOR_ICON.findall(script):
        yield icon, [tag for tag in re.findall(r'"([^"]*)"', tags) if not tag.startswith("*")]


def _icon(source: str, icon: str, svg: str, tags: list[str]) -> SourceItem:
    name = icon.replace("-", " ")
    return SourceItem(f"{source}/{icon}", source, svg, name, caption(name, tags))
