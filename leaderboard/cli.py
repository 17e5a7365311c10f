"""Commands of this room."""

import typer


def register(app: typer.Typer) -> None:
    """Add this room's commands to the app."""
