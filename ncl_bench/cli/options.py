"""Make the arguments and options of a command from the call that it makes.

Name, type and default are those of the call's signature. The help is the first sentence on the argument in its
docstring. An :class:`Option` says what a terminal writes otherwise. The call's source is read and not imported:
importing what trains takes seconds and needs torch, and ``--help`` needs neither.
"""

import ast
import inspect
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, update_wrapper
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

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
    "progress": None,
    "console": None,
    "say": None,
}
"""Forms of arguments that several calls take; None is on no command line."""


@dataclass(frozen=True)
class _Type:
    """A type that Typer reads, and settings that belong to it."""

    kind: Any
    settings: tuple[tuple[str, Any], ...] = ()


_SIMPLE = {each.__name__: _Type(each) for each in (str, int, float, bool, Path)}
_TEXT_OF_PATH = _Type(Path, (("path_type", str),))  # as it was given: a recipe's name keeps its / on Windows


@dataclass(frozen=True)
class _Argument:
    """An argument as the source of a call declares it."""

    name: str
    types: list[_Type]
    default: Any
    by_position: bool
    text: str


def _best(types: Sequence[_Type]) -> _Type:
    """Of the types that a call takes, the one that a terminal writes: a list before a path before a text."""
    order = {list: 0, Path: 1}
    return min(types, key=lambda each: order.get(getattr(each.kind, "__origin__", each.kind), 2))


def made_from(*places: str, **forms: Option | None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the arguments of calls, as the calls take them, before its own.

    Args:
        places: ``module:function``, or ``module:Class`` of a dataclass.
        forms: what the terminal writes otherwise; None leaves an argument out.
    """
    return lambda command: _Made(command, places, OF_SEVERAL_CALLS | forms)


class _Made:
    """A command with the arguments of calls.

    Their sources are read when the signature is asked for: a list of commands shows none of it, and all of them have
    33 sources.
    """

    def __init__(
        self, command: Callable[..., None], places: Sequence[str], known: Mapping[str, Option | None]
    ) -> None:
        update_wrapper(self, command)
        self.__annotations__ = {}  # Typer prefers them to the signature, which has them too
        self._command, self._places, self._known = command, places, known

    @cached_property
    def _declared(self) -> dict[str, _Argument]:
        left_out = {name for name, form in self._known.items() if form is None}
        return {each.name: each for place in self._places for each in _arguments(place, left_out)}

    @cached_property
    def _forms(self) -> dict[str, Option]:
        return {name: self._known.get(name) or Option() for name in self._declared}

    @cached_property
    def _options(self) -> dict[str, str]:
        return {name: form.name or _option(self._declared[name]) for name, form in self._forms.items()}

    @cached_property
    def __signature__(self) -> inspect.Signature:
        parameters = [
            _parameter(self._declared[name], form, self._options) for name, form in self._forms.items()
        ]
        parameters += [
            each
            for each in inspect.signature(self._command).parameters.values()
            if each.name not in self._forms and each.kind is not each.VAR_KEYWORD
        ]
        # what is required comes first, as in a signature of Python
        return inspect.Signature(sorted(parameters, key=lambda each: each.default is not MISSING))

    def __call__(self, *positions: Any, **named: Any) -> None:
        bound = self.__signature__.bind(*positions, **named)
        bound.apply_defaults()
        given = bound.arguments
        for name, option in self._options.items():
            if option.startswith("--no-"):
                given[name] = not given[name]
            elif given[name] is None and self._declared[name].default == ():
                given[name] = ()
        self._command(**given)


def _option(argument: _Argument) -> str:
    """The option that an argument's name makes; empty if it has a position."""
    repeatable = bool(argument.types) and getattr(_best(argument.types).kind, "__origin__", None) is list
    return "" if argument.by_position else option_of(argument.name, repeatable=repeatable)


def _parameter(argument: _Argument, form: Option, options: dict[str, str]) -> inspect.Parameter:
    """The parameter that Typer reads."""
    if not (form.kind or argument.types):
        raise TypeError(
            f"{argument.name} is of no type that a terminal writes; give its Option a kind, or leave it out"
        )
    read = _Type(form.kind) if form.kind else _best(argument.types)
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
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
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


def _arguments(place: str, left_out: Container[str]) -> Iterator[_Argument]:
    """The arguments of a call, without some."""
    module, _, name = place.partition(":")
    call, module = _found(name, module)
    if not isinstance(call, ast.FunctionDef | ast.ClassDef):
        raise TypeError(f"{place} is no function or class")
    texts = _texts(ast.get_docstring(call) or "")
    for argument, annotation, default, by_position in _declared(call):
        if argument in left_out:
            continue
        if isinstance(default, ast.Name):
            default, _ = _found(default.id, module)
        yield _Argument(
            argument,
            _types(annotation, module),
            default if default is MISSING else ast.literal_eval(default),
            by_position,
            texts.get(argument, ""),
        )


def _declared(call: ast.FunctionDef | ast.ClassDef) -> Iterator[tuple[str, ast.expr | None, Any, bool]]:
    """Name, annotation and default of every argument, and whether it has a position."""
    if isinstance(call, ast.ClassDef):
        for node in call.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id, node.annotation, node.value or MISSING, False
        return
    listed, named = call.args.args, call.args.kwonlyargs
    defaults = [*[MISSING] * (len(listed) - len(call.args.defaults)), *call.args.defaults]
    for argument, default in zip(listed, defaults, strict=True):
        yield argument.arg, argument.annotation, default, True
    for argument, default in zip(named, call.args.kw_defaults, strict=True):
        yield argument.arg, argument.annotation, default or MISSING, False


def _texts(docstring: str) -> dict[str, str]:
    """The text on every argument of a docstring."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", docstring, re.MULTILINE)
    entries = re.findall(
        r"^    (\w[\w, ]*): (.*(?:\n(?:      .*)?)*)", section[1] if section else "", re.MULTILINE
    )
    return {name: text for names, text in entries for name in names.split(", ")}


def _types(annotation: ast.AST | None, module: str) -> list[_Type]:
    """The types that an annotation names and a terminal can write."""
    match annotation:
        case ast.Constant(value=str(quoted)):
            return _types(ast.parse(quoted, mode="eval").body, module)
        case ast.BinOp(left=one, right=other):
            return _types(one, module) + _types(other, module)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=words):
            return [_Type(Literal[ast.literal_eval(words)])]
        case ast.Subscript(value=ast.Name(id="Sequence"), slice=each):
            kinds = _types(each, module)
            return [_Type(list[_best(kinds).kind], _best(kinds).settings)] if kinds else []  # type: ignore[misc]
        case ast.Subscript(value=ast.Name(id="PathLike")):
            return [_TEXT_OF_PATH]
        case ast.Subscript(
            value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, ast.Call(args=bounds)])
        ):
            least, most = map(_whole_number, bounds)
            bound = (("min", least), ("max", None if most == LARGEST_COUNT else most))
            return [_Type(each.kind, bound) for each in _types(kind, module)]
        case ast.Name(id=name) if name in _SIMPLE:
            return [_SIMPLE[name]]
        case ast.Name(id=name):
            return _types(*_found(name, module))
    return []


def _whole_number(node: ast.expr) -> int:
    """The value of ``2**32 - 1``."""
    match node:
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            return int(_whole_number(base) ** _whole_number(exponent))
        case ast.BinOp(left=whole, op=ast.Sub(), right=part):
            return _whole_number(whole) - _whole_number(part)
    return int(ast.literal_eval(node))


def _found(name: str, module: str) -> tuple[ast.AST | None, str]:
    """What a name stands for in a module, and the module that declares it: this package's, or its own."""
    found = _names(module).get(name)
    if isinstance(found, str):
        near = found.partition(".")[0] in (module.partition(".")[0], "ncl_bench")
        return _found(name, found) if near else (None, found)
    return found, module


@cache
def _names(module: str) -> dict[str, ast.AST | str | None]:
    """The functions, classes and values of a module, and the modules of what it imports; it is not imported itself."""
    package, *parts = module.split(".")
    spec = find_spec(package)
    (root,) = (spec and spec.submodule_search_locations) or ("",)
    place = Path(root, *parts)
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names: dict[str, ast.AST | str | None] = {}
    for statement in ast.parse(file.read_bytes()).body:
        for node in statement.body if isinstance(statement, ast.If) else [statement]:  # if TYPE_CHECKING
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names[name] = node  # the last one: those before it are overloads
                case ast.ImportFrom(module=str(home), names=imported):
                    names |= {each.name: home for each in imported}
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    names[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    names[name] = value
    return names
