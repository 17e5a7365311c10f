"""Render templates with everything escaped and nothing undefined."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboard.entries import Entry, anchor
from ncl_bench.html import environment

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """Render a template; every value is HTML-escaped unless marked safe."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> "Environment":
    templates = environment(TEMPLATES)
    templates.filters["recall"] = format_recall
    templates.globals |= {"anchor": anchor, "recall_cell": recall_cell}
    return templates


def format_recall(value: float | None) -> str:
    """Format a recall or sum with one decimal; a dash if unknown."""
    return "–" if value is None else f"{value:.1f}"


def recall_cell(entry: Entry, name: str) -> str:
    """Table cell of a recall or of ``r_sum``, with its spread and its interval; a macro takes several times as long."""
    value = entry.r_sum if name == "r_sum" else getattr(entry.recalls, name)
    exact = f' data-v="{value:.4f}"' if entry.spread else ""
    below = [f"±{format_recall(entry.spread[name])}"] if name in entry.spread else []
    below += ["–".join(map(format_recall, entry.intervals[name]))] if name in entry.intervals else []
    small = "".join(f"<small>{text}</small>" for text in below)
    return markup(f'<td class="n{" sum" * (name == "r_sum")}"{exact}>{format_recall(value)}{small}</td>')


def svg(template: str, **values: Any) -> str:
    """Render a figure, as text that is safe in other templates."""
    return markup(render(template, **values).strip())


def markup(text: str) -> str:
    """Mark our own text as safe for templates."""
    from markupsafe import Markup

    return Markup(text)
