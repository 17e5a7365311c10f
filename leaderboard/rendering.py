"""Render pages: templates with everything escaped and nothing undefined, and dataset cards."""

import base64
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """Render a template; every value is HTML-escaped unless marked safe."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["recall"] = format_recall
    return environment


def format_recall(value: float | None) -> str:
    """Format a recall or sum with one decimal; a dash if unknown."""
    return "–" if value is None else f"{value:.1f}"


def markup(text: str) -> object:
    """Mark our own text, such as a figure, as safe for templates."""
    from markupsafe import Markup

    return Markup(text)


def card_html(path: Path) -> object:
    """Render a card's Markdown as safe markup; raw HTML in it is shown as text.

    Returns:
        Markup; empty if the card does not exist. The YAML block at the top and the first heading are left out, and
        pictures beside the card are embedded, so that a page is one file.
    """
    from markdown_it import MarkdownIt

    if not path.is_file():
        return markup("")
    text = path.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        text = text.split("\n---\n", 1)[-1]
    lines = text.lstrip("\n").split("\n")
    body = "\n".join(lines[1:] if lines[0].startswith("# ") else lines)
    body = re.sub(r"(?<=\]\()[\w-]+\.png(?=\))", lambda name: _data_uri(path.with_name(name[0])), body)
    return markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(body))


def _data_uri(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode('ascii')}"
