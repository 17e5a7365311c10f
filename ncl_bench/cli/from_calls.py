"""Make the arguments and options of a command from the call that it makes.

Name, type and default are those of the call's signature. The help is the first sentence on the argument in its
docstring. An :class:`Option` says what a terminal writes otherwise. A group of options, a dataclass, is written as one
option per field. What no terminal can write, such as a function, is left out.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
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
}
"""Forms of arguments that several calls take."""


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
        forms: dict[str, Option | None],
    ) -> None:
        update_wrapper(self, command)
        self.__annotations__ = {}  # Typer prefers them to the signature
        self._command, self._calls, self._forms = command, calls, forms
        self._groups: dict[str, Any] = {}  # known once Typer has asked for the signature

    @cached_property
    def __signature__(self) -> inspect.Signature:
        declared = {}
        calls: list[Any] = [*self._calls]
        for call in calls:  # a group of options becomes one more
            texts = _texts(inspect.getdoc(call) or "")
            for name, parameter in inspect.signature(call).parameters.items():
                form = self._forms.get(name, Option())
                if form and is_dataclass(parameter.annotation):
                    self._groups[name] = parameter.annotation
                    calls.append(parameter.annotation)
                elif form:
                    kind, settings = (form.kind, {}) if form.kind else _written(parameter.annotation)
                    by_position = parameter.kind is not parameter.KEYWORD_ONLY and not isinstance(call, type)
                    usual = "" if by_position else option_of(name, repeatable=get_origin(kind) is list)
                    default = parameter.default if form.default is MISSING else form.default
                    form = replace(form, name=form.name or usual, kind=kind, default=default)
                    if kind:
                        declared[name] = form, settings, texts.get(name, "")
        options = {name: form.name for name, (form, *_) in declared.items()}
        made = [_parameter(name, *each, options) for name, each in declared.items()]
        own = [
            each
            for each in inspect.signature(self._command).parameters.values()
            if each.name not in declared and each.kind is not each.VAR_KEYWORD
        ]
        # what is required comes first, as in a signature of Python
        return inspect.Signature(sorted([*made, *own], key=lambda each: each.default is not MISSING))

    def __call__(self, **given: Any) -> None:
        for name, form in self._forms.items():
            if form and form.name.startswith("--no-"):
                given[name] = not given[name]
        for name, group in self._groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        self._command(**given)


def _parameter(
    name: str, form: Option, settings: dict[str, Any], text: str, options: dict[str, str]
) -> inspect.Parameter:
    """The parameter that Typer reads."""
    option, kind, default, text = form.name, form.kind, form.default, form.help or _help(text, options)
    if option.startswith("--no-"):
        default, text = False, f"Do not {text[:1].lower()}{text[1:]}"
    elif default is True:
        option = f"{option}/--no{option[1:]}"
    if option and get_origin(kind) is list:
        text = f"{text.removesuffix('.')}; repeatable."
    settings |= {"help": text, "metavar": form.metavar, "envvar": form.env}
    written = typer.Option(option, **settings) if option else typer.Argument(**settings)
    kind = Annotated[kind | None if default is None else kind, written]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)


def _written(annotation: Any) -> tuple[Any, dict[str, Any]]:
    """The type that a terminal writes, with Typer's settings of it: a list before a path before a text; or None."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return max(
            map(_written, inner),
            key=lambda each: (get_origin(each[0]) is list, each[0] is Path, bool(each[0])),
        )
    if origin is Annotated:
        least, most = inner[1][0], inner[1][-1]
        return inner[0], {"min": least, "max": None if most == LARGEST_COUNT else most}
    if origin is Sequence and (each := _written(inner[0]))[0]:
        return list[each[0]], each[1]  # type: ignore[valid-type]
    if origin is PathLike:
        return Path, {"path_type": str}  # as it was given: a recipe's name keeps its / on Windows
    return annotation if origin is Literal or annotation in (str, int, float, bool, Path) else None, {}


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
