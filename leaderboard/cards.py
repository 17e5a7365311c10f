"""Dataset cards as HTML."""

from pathlib import Path


def card_html(path: Path) -> object:
    """A card's Markdown as markup that templates take as safe; raw HTML in it is shown as text.

    Returns:
        Markup, empty where the card does not exist; without the YAML block at the top and the first heading.
    """
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    if not path.is_file():
        return Markup("")
    text = path.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        text = text.split("\n---\n", 1)[-1]
    lines = text.lstrip("\n").split("\n")
    body = "\n".join(lines[1:] if lines[0].startswith("# ") else lines)
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(body))
