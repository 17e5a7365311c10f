"""Make the arguments and options of a command from the call that it makes.

Name, type and default are those of the call's signature. The help is the first sentence on the argument in its
docstring. A :class:`Form` says what a terminal writes otherwise.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from ncl_bench.cli.source import MISSING, Argument, Type, arguments, best

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON alone.")]


@dataclass(frozen=True)
class Form:
    """What a terminal writes otherwise than the call.

    Attributes:
        name: option, such as ``--from`` (default: made of the argument's name; what a call takes by position has none).
            ``--no-x`` turns off what is on by default.
        metavar: placeholder of the value in the help.
        help: text on it (default: the first sentence in the call's docstring).
        kind: type of the value (default: that of the call).
        default: value if it is not given (default: that of the call).
        env: environment variable that holds the value.
    """

    name: str = ""
    metavar: str | None = None
    help: str = ""
    kind: Any = None
    default: Any = MISSING
    env: str | None = None


SHARED: dict[str, Form | None] = {
    "settings": Form("--set", "NAME=VALUE"),
    "device": Form(metavar="[auto|cpu|cuda]"),
    "progress": None,
    "console": None,
    "say": None,
}
"""Forms of arguments that several calls take; None is on no command line."""


def made_from(*places: str, **forms: Form | None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the arguments of calls, as the calls take them, before its own.

    Args:
        places: ``module:function``, or ``module:Class`` of a dataclass.
        forms: what the terminal writes otherwise; None leaves an argument out.
    """

    def made(command: Callable[..., None]) -> Callable[..., None]:
        known = SHARED | forms
        left_out = {name for name, form in known.items() if form is None}
        declared = {each.name: each for place in places for each in arguments(place, left_out)}
        written = {name: known.get(name) or Form() for name in declared}
        options = {name: form.name or _option(declared[name]) for name, form in written.items()}
        parameters = [_parameter(declared[name], form, options) for name, form in written.items()]
        parameters += [
            each
            for each in inspect.signature(command).parameters.values()
            if each.name not in written and each.kind is not each.VAR_KEYWORD
        ]

        @wraps(command)
        def run(**given: Any) -> None:
            for name, option in options.items():
                if option.startswith("--no-"):
                    given[name] = not given[name]
                elif given[name] is None and declared[name].default == ():
                    given[name] = ()
            command(**given)

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
        )
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return made


def _option(argument: Argument) -> str:
    """The option that an argument's name makes; empty if it has a position."""
    return "" if argument.by_position else f"--{argument.name.replace('_', '-')}"


def _parameter(argument: Argument, form: Form, options: dict[str, str]) -> inspect.Parameter:
    """The parameter that Typer reads."""
    if not (form.kind or argument.types):
        raise TypeError(
            f"{argument.name} is of no type that a terminal writes; give its Form a kind, or leave it out"
        )
    read = Type(form.kind) if form.kind else best(argument.types)
    option, text = options[argument.name], form.help or _help(argument.text, options)
    default = argument.default if form.default is MISSING else form.default
    if isinstance(default, tuple):
        default = None  # the help shows no empty list
    if option.startswith("--no-"):
        default, text = False, f"Do not {text[:1].lower()}{text[1:]}"
    elif default is True:
        option = f"{option}/--no{option[1:]}"
    if option and getattr(read.kind, "__origin__", None) is list:
        text = f"{text.removesuffix('.')}; repeatable."
    settings = dict(read.settings) | {"help": text, "metavar": form.metavar, "envvar": form.env}
    return inspect.Parameter(
        argument.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[
            read.kind | None if default is None else read.kind,
            typer.Option(option, **settings) if option else typer.Argument(**settings),
        ],
    )


def _help(text: str, options: dict[str, str]) -> str:
    """The first sentence of a docstring's text in the words of a terminal."""
    sentence = re.split(r"(?<=\.)\s+(?=[A-Z`:])", " ".join(text.split()), maxsplit=1)[0]
    told = re.sub("``(.*?)``", lambda code: options.get(code[1]) or _shown(code[1]), sentence)
    return (told if sentence.startswith("`") else told[:1].upper() + told[1:]).removesuffix(".") + "."


def _shown(code: str) -> str:
    return f"`{code}`" if " " in code else code
