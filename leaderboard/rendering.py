"""Render templates with everything escaped and nothing undefined."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboard.entries import anchor
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
    templates.globals["anchor"] = anchor
    return templates


def format_recall(value: float | None) -> str:
    """Format a recall or sum with one decimal; a dash if unknown."""
    return "–" if value is None else f"{value:.1f}"


def svg(template: str, **values: Any) -> str:
    """Render a figure, as text that is safe in other templates."""
    return markup(render(template, **values).strip())


def markup(text: str) -> str:
    """Mark our own text as safe for templates."""
    from markupsafe import Markup

    return Markup(text)
