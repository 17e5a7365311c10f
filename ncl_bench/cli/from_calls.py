"""Make the arguments and options of a command from the call that it makes.

Name, type and default are those of the call's signature. The help is the first sentence on the argument in its
docstring. An :class:`Option` says what a terminal writes otherwise.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from ncl_bench.errors import option_of

MISSING = inspect.Parameter.empty
"""Default of an argument that has none."""
LARGEST_COUNT = 2**31 - 1
"""Of a ``Count``; no help shows it."""

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON alone.")]


@dataclass(frozen=True)
class Option:
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


OF_SEVERAL_CALLS: dict[str, Option | None] = {
    "settings": Option(metavar="NAME=VALUE"),
    "device": Option(metavar="[auto|cpu|cuda]"),
    "self": None,
    "progress": None,
    "console": None,
    "say": None,
}
"""Forms of arguments that several calls take; None is on no command line."""


def made_from(*calls: Callable[..., Any], **forms: Option | None) -> Callable[[Callable[..., None]], Any]:
    """Give a command the arguments of calls, as the calls take them, before its own.

    Args:
        calls: functions, or dataclasses, of modules that import nothing heavy.
        forms: what the terminal writes otherwise; None leaves an argument out.
    """
    return lambda command: _Made(command, calls, OF_SEVERAL_CALLS | forms)


class _Made:
    """A command with the arguments of calls; a list of commands does not ask for them, which saves their time."""

    def __init__(
        self,
        command: Callable[..., None],
        calls: Sequence[Callable[..., Any]],
        known: dict[str, Option | None],
    ) -> None:
        update_wrapper(self, command)
        self.__annotations__ = {}  # Typer prefers them to the signature
        self._command, self._calls, self._known = command, calls, known

    @cached_property
    def _declared(self) -> dict[str, tuple[inspect.Parameter, str, Option]]:
        declared = {}
        for call in self._calls:
            texts = _texts(inspect.getdoc(call) or "")
            for name, parameter in inspect.signature(call).parameters.items():
                if (form := self._known.get(name, Option())) is not None:
                    if isinstance(call, type):  # a field of a dataclass is an option
                        parameter = parameter.replace(kind=parameter.KEYWORD_ONLY)
                    declared[name] = parameter, texts.get(name, ""), form
        return declared

    @cached_property
    def _options(self) -> dict[str, str]:
        return {name: form.name or _option(each) for name, (each, _, form) in self._declared.items()}

    @cached_property
    def __signature__(self) -> inspect.Signature:
        own = [
            each
            for each in inspect.signature(self._command).parameters.values()
            if each.name not in self._declared and each.kind is not each.VAR_KEYWORD
        ]
        made = [_parameter(*each, self._options) for each in self._declared.values()]
        # what is required comes first, as in a signature of Python
        return inspect.Signature(sorted([*made, *own], key=lambda each: each.default is not MISSING))

    def __call__(self, *positions: Any, **named: Any) -> None:
        bound = self.__signature__.bind(*positions, **named)
        bound.apply_defaults()
        given = bound.arguments
        for name, option in self._options.items():
            parameter, _, form = self._declared[name]
            if option.startswith("--no-"):
                given[name] = not given[name]
            elif given[name] is None and () in (parameter.default, form.default):
                given[name] = ()
        self._command(**given)


def _option(parameter: inspect.Parameter) -> str:
    """The option that an argument's name makes; empty if it has a position."""
    kind, _ = _written(parameter.annotation) or (None, {})
    by_position = parameter.kind is not parameter.KEYWORD_ONLY
    return "" if by_position else option_of(parameter.name, repeatable=get_origin(kind) is list)


def _parameter(
    declared: inspect.Parameter, text: str, form: Option, options: dict[str, str]
) -> inspect.Parameter:
    """The parameter that Typer reads."""
    kind, settings = (form.kind, {}) if form.kind else _written(declared.annotation) or (None, {})
    if kind is None:
        raise TypeError(f"{declared.name} has no type of a terminal; give its Option a kind, or leave it out")
    option, text = options[declared.name], form.help or _help(text, options)
    default = declared.default if form.default is MISSING else form.default
    if isinstance(default, tuple):
        default = None  # the help shows no empty list
    if option.startswith("--no-"):
        default, text = False, f"Do not {text[:1].lower()}{text[1:]}"
    elif default is True:
        option = f"{option}/--no{option[1:]}"
    if option and get_origin(kind) is list:
        text = f"{text.removesuffix('.')}; repeatable."
    settings |= {"help": text, "metavar": form.metavar, "envvar": form.env}
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=Annotated[
            kind | None if default is None else kind,
            typer.Option(option, **settings) if option else typer.Argument(**settings),
        ],
    )


def _written(annotation: Any) -> tuple[Any, dict[str, Any]] | None:
    """The type that a terminal writes, with Typer's settings of it: a list before a path before a text."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        order = {list: 0, Path: 1}
        found = [kind for each in inner if (kind := _written(each))]
        return min(found, key=lambda each: order.get(get_origin(each[0]) or each[0], 2), default=None)
    if origin is Annotated:
        least, most = inner[1][0], inner[1][-1]
        return inner[0], {"min": least, "max": None if most == LARGEST_COUNT else most}
    if origin is Sequence and (each := _written(inner[0])):
        return list[each[0]], each[1]  # type: ignore[valid-type]
    if origin is PathLike:
        return Path, {"path_type": str}  # as it was given: a recipe's name keeps its / on Windows
    return (annotation, {}) if origin is Literal or annotation in (str, int, float, bool, Path) else None


def _help(text: str, options: dict[str, str]) -> str:
    """The first sentence of a docstring's text in the words of a terminal."""
    sentence = re.split(r"(?<=\.)\s+(?=[A-Z`:])", " ".join(text.split()), maxsplit=1)[0]
    told = re.sub("``(.*?)``", lambda code: options.get(code[1]) or _shown(code[1]), sentence)
    return (told if sentence.startswith("`") else told[:1].upper() + told[1:]).removesuffix(".") + "."


def _shown(code: str) -> str:
    return f"`{code}`" if " " in code else code


def _texts(docstring: str) -> dict[str, str]:
    """The text on every argument of a docstring."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", docstring, re.MULTILINE)
    entries = re.findall(
        r"^    (\w[\w, ]*): (.*(?:\n(?:      .*)?)*)", section[1] if section else "", re.MULTILINE
    )
    return {name: text for names, text in entries for name in names.split(", ")}
