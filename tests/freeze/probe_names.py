"""Names of commands and options, and of what Python imports."""

import contextlib
import inspect
from typing import Any

from probe import first_of


def commands() -> dict[str, Any]:
    """Every command with its options, and the public functions with theirs."""
    import typer

    app = first_of("ncl_bench.cli:app", "ncl_bench.cli.commands:app")
    import ncl_bench

    found = {"": tree(typer.main.get_command(app))}
    names = {name: signature(getattr(ncl_bench, name)) for name in ncl_bench.__all__}
    return {"commands": found, "python": names}


def tree(command: Any) -> dict[str, Any]:
    """A command's options and its own commands; what a person reads stands under ``words``."""
    options = {parameter.name: option(parameter) for parameter in command.params}
    below = {name: tree(inner) for name, inner in getattr(command, "commands", {}).items()}
    return {"options": options, "commands": below, "words": command.help or ""}


def option(parameter: Any) -> dict[str, Any]:
    """What one option is called, what it takes and what it is by default."""
    return {
        "names": [*parameter.opts, *parameter.secondary_opts],
        "type": kind(parameter),
        "default": str(parameter.default),
        "required": parameter.required,
        "several": parameter.multiple,
        "variable": str(getattr(parameter, "envvar", None)),
        "words": getattr(parameter, "help", None) or "",
    }


def kind(parameter: Any) -> str:
    """The type that an option takes, in words; a range with its ends."""
    of = getattr(parameter, "type_descriptor", None)
    ends = (getattr(parameter, "min", None), getattr(parameter, "max", None))
    return f"{parameter.type if of is None else of.annotation} {ends}"


def signature(value: Any) -> list[str]:
    """Names and defaults of a function's arguments."""
    with contextlib.suppress(TypeError, ValueError):
        return [
            f"{p.name}={p.default!r}" if p.default is not p.empty else p.name
            for p in inspect.signature(value).parameters.values()
        ]
    return []


PARTS = {"commands": commands}
