"""Templates: one Jinja2 environment, everything escaped, nothing undefined."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """Text of a template; every value is HTML-escaped unless it is marked safe."""
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
    """A recall or sum with one decimal; a dash where it is not known."""
    return "–" if value is None else f"{value:.1f}"
