"""Read the arguments of a call from its source: names, types, defaults and the texts of its docstring.

The call is not imported: importing what trains takes seconds and needs torch, and ``--help`` needs neither.
"""

import ast
import inspect
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

MISSING = inspect.Parameter.empty
"""Default of an argument that has none."""
LARGEST_COUNT = 2**31 - 1
"""Of a ``Count``; no help shows it."""


@dataclass(frozen=True)
class Type:
    """A type that Typer reads, and settings that belong to it."""

    kind: Any
    settings: tuple[tuple[str, Any], ...] = ()


_SIMPLE = {each.__name__: Type(each) for each in (str, int, float, bool, Path)}
_TEXT_OF_PATH = Type(Path, (("path_type", str),))  # as it was given: a recipe's name keeps its / on Windows


@dataclass(frozen=True)
class Argument:
    """An argument as the source of a call declares it."""

    name: str
    types: list[Type]
    default: Any
    by_position: bool
    text: str


def best(types: Sequence[Type]) -> Type:
    """Of the types that a call takes, the one that a terminal writes: a list before a path before a text."""
    order = {list: 0, Path: 1}
    return min(types, key=lambda each: order.get(getattr(each.kind, "__origin__", each.kind), 2))


def arguments(place: str, left_out: Container[str]) -> Iterator[Argument]:
    """The arguments of a call, without some."""
    call, module = _declaration(*place.split(":"))
    texts = _texts(ast.get_docstring(call) or "")
    for argument, annotation, default, by_position in _declared(call):
        if argument in left_out:
            continue
        if isinstance(default, ast.Name):
            default, _ = _alias(default.id, module)
        yield Argument(
            argument,
            _types(annotation, module),
            default if default is MISSING else ast.literal_eval(default),
            by_position,
            texts.get(argument, ""),
        )


def _declaration(module: str, name: str) -> tuple[ast.FunctionDef | ast.ClassDef, str]:
    """What declares a function or class, and the module where it does."""
    found = [
        node
        for node in _tree(module).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    ]
    if found:
        return found[-1], module  # those before it are overloads
    (home,) = (
        node.module
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module and name in {each.name for each in node.names}
    )
    return _declaration(home, name)


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


def _types(annotation: ast.expr | None, module: str) -> list[Type]:
    """The types that an annotation names and a terminal can write."""
    match annotation:
        case ast.Constant(value=str(quoted)):
            return _types(ast.parse(quoted, mode="eval").body, module)
        case ast.BinOp(left=one, right=other):
            return _types(one, module) + _types(other, module)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=words):
            return [Type(Literal[ast.literal_eval(words)])]
        case ast.Subscript(value=ast.Name(id="Sequence"), slice=each):
            kinds = _types(each, module)
            return [Type(list[best(kinds).kind], best(kinds).settings)] if kinds else []  # type: ignore[misc]
        case ast.Subscript(value=ast.Name(id="PathLike")):
            return [_TEXT_OF_PATH]
        case ast.Subscript(
            value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, ast.Call(args=bounds)])
        ):
            least, most = map(_whole_number, bounds)
            bound = (("min", least), ("max", None if most == LARGEST_COUNT else most))
            return [Type(each.kind, bound) for each in _types(kind, module)]
        case ast.Name(id=name) if name in _SIMPLE:
            return [_SIMPLE[name]]
        case ast.Name(id=name):
            return _types(*_alias(name, module))
    return []


def _whole_number(node: ast.expr) -> int:
    """The value of ``2**32 - 1``."""
    match node:
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            return int(_whole_number(base) ** _whole_number(exponent))
        case ast.BinOp(left=whole, op=ast.Sub(), right=part):
            return _whole_number(whole) - _whole_number(part)
    return int(ast.literal_eval(node))


def _alias(name: str, module: str) -> tuple[ast.expr | None, str]:
    """The annotation that a name stands for, and the module that declares it."""
    for node in ast.walk(_tree(module)):
        match node:
            case ast.ImportFrom(module=str(home), names=names) if name in {each.name for each in names}:
                return _alias(name, home) if home.partition(".")[0] in _ROOMS else (None, home)
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return value, module
            case ast.AnnAssign(target=ast.Name(id=found), value=value) if found == name:
                return value, module
    return None, module


_ROOMS = ("ncl_bench", "baselines", "leaderboard")


@cache
def _tree(module: str) -> ast.Module:
    """The source of a module, which is not imported."""
    package, *parts = module.split(".")
    found = find_spec(package)
    (root,) = (found and found.submodule_search_locations) or ("",)
    place = Path(root, *parts)
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_bytes())
