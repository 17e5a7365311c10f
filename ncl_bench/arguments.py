"""Arguments of public calls: checked and converted once, by the call's annotations, before anything is read or written.

NumPy's numbers become Python's. ``Any``, arrays of floats and quoted annotations accept everything; what such an
argument holds is checked by its reader.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from os import PathLike, fsencode, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import NclBenchError, option_of, shorten

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Bounds:
    """Bounds of a whole number, both allowed."""

    least: int
    most: int


Seed = Annotated[int, Bounds(0, 2**32 - 1)]
"""Seed of NumPy's and torch's generators."""
Count = Annotated[int, Bounds(1, 2**31 - 1)]
Index = Annotated[int, Bounds(0, 2**31 - 1)]


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Unfit(Exception):
    """A value that an annotation does not allow."""


def checked_arguments(
    error: type[NclBenchError] = NclBenchError,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public call: a wrong argument raises ``error`` with its name, its value and what is expected.

    Whatever else the call refuses is told in words of Python: the sentence names arguments in place of options.
    """

    def decorated(call: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(call)

        @wraps(call)
        def checked(*positional: P.args, **named: P.kwargs) -> R:
            try:
                bound = signature.bind(*positional, **named)
            except TypeError as refusal:  # as Python words it, with the name of the call
                raise TypeError(f"{call.__qualname__}() {refusal}") from None
            for name, value in bound.arguments.items():
                parameter = signature.parameters[name]
                if parameter.annotation is parameter.empty or parameter.kind in _MANY:
                    continue
                try:
                    bound.arguments[name] = _fitted(value, parameter.annotation)
                except _Unfit:
                    raise error(
                        f"{name} is {_told(value)}, expected {_words(parameter.annotation)}"
                    ) from None
            try:
                return call(*bound.args, **bound.kwargs)
            except NclBenchError as refusal:
                refusal.arguments = {**refusal.arguments, **_options_of(signature)}
                raise

        return checked

    return decorated


def refuse_unused(
    call: Callable[..., Any], given: Mapping[str, Any], why: str, error: type[NclBenchError]
) -> None:
    """Refuse arguments that a call does not read in this case; in silence they would seem to be used.

    Args:
        call: the public call; an argument with its default was left out.
        given: what it does not read, by name.
        why: end of the sentence, such as ``beside features``.
        error: what is raised.
    """
    parameters = inspect.signature(call).parameters
    for name, value in given.items():
        default = parameters[name].default
        if value is not None if default is None else value != default:
            told = _told(str(value) if isinstance(value, Path) else value)
            raise error(f"{name} is {told}, which has no effect {why}; leave it out")


def _options_of(signature: inspect.Signature) -> dict[str, str]:
    """Option of the command line to what a caller from Python writes in its place."""
    found: dict[str, str] = {}
    for name, parameter in signature.parameters.items():
        told = f"{name}=True" if parameter.annotation is bool else f"{name}="
        found |= {option_of(name): told}
        if name.endswith("s"):
            found.setdefault(option_of(name, repeatable=True), told)
    return found


def _fitted(value: Any, kind: Any) -> Any:
    """The value in the type of an annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if isinstance(value, str) and any(_of_paths(one) for one in inner) and not _is_path(value):
            raise _Unfit
        for one in inner:
            try:
                return _fitted(value, one)
            except _Unfit:
                continue
        raise _Unfit
    if origin is Annotated:
        found, bounds = _fitted(value, inner[0]), inner[1]
        if not bounds.least <= found <= bounds.most:
            raise _Unfit
        return found
    if origin is Literal:
        return _one_of(value, inner)
    if origin is PathLike:
        return _if(isinstance(value, PathLike) and _is_path(value), value)
    if kind is Path:
        return Path(_if(_is_path(value), value))
    if origin is Mapping:
        return _if(isinstance(value, Mapping) and all(isinstance(name, str) for name in value), value)
    if origin is Sequence:
        listed = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        return [_fitted(each, inner[0]) for each in _if(listed and getattr(value, "ndim", 1) == 1, value)]
    if origin is Callable:
        return _if(callable(value), value)
    if kind == NDArray[np.int64]:
        return _whole_numbers(value)
    if kind in _SIMPLE:
        fits, convert, _ = _SIMPLE[kind]
        return convert(_if(fits(value), value))
    return _if(kind is Any or not isinstance(kind, type) or isinstance(value, kind), value)


def _if(fits: bool, value: Any) -> Any:
    if not fits:
        raise _Unfit
    return value


def _of_paths(kind: Any) -> bool:
    return get_origin(kind) is PathLike or kind is Path


def _is_path(value: Any) -> bool:
    try:
        text = fsencode(fspath(value))
    except (TypeError, UnicodeError):
        return False
    # an empty one is Python's current folder, and a text of a shell variable that is not set
    return text != b"" and b"\0" not in text and not isinstance(value, bytes)


def _whole_numbers(value: Any) -> NDArray[np.int64]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # a list of unequal lists; a torch tensor without data
        raise _Unfit from None
    if array.dtype.kind not in "iu" or array.ndim == 0:
        raise _Unfit
    return array.astype(np.int64, copy=False)


def _one_of(value: Any, words: tuple[Any, ...]) -> Any:
    """The word of a list, whatever its case."""
    text = value.lower() if isinstance(value, str) else None
    for word in words:
        if isinstance(word, str) and word.lower() == text:
            return word
    raise _Unfit


def _decimal(value: Any) -> float:
    try:
        # 0.4 in float32 is 0.4, not 0.4000000059604645, which would be another noise
        return float(str(value)) if isinstance(value, np.floating) else float(value)
    except OverflowError:  # a whole number of 400 digits
        raise _Unfit from None


_SIMPLE: Mapping[Any, tuple[Callable[[Any], bool], Callable[[Any], Any], str]] = {
    bool: (lambda x: isinstance(x, bool | np.bool_), bool, "True or False"),
    int: (lambda x: isinstance(x, Integral) and not isinstance(x, bool), int, "a whole number"),
    float: (lambda x: isinstance(x, Real) and not isinstance(x, bool), _decimal, "a number"),
    str: (lambda x: isinstance(x, str), str, "a text"),
    NoneType: (lambda x: x is None, lambda x: x, "None"),
}
"""Type to what fits it, how it is converted, and its name in an error."""


def _words(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        told = {_words(one): None for one in inner}
        if "a path" in told:
            told.pop("a text", None)
        return " or ".join(told)
    if origin is Annotated:
        return f"a whole number from {inner[1].least} to {inner[1].most}"
    if origin is Literal:
        return f"one of: {', '.join(map(str, inner))}"
    if _of_paths(kind):
        return "a path"
    if origin is Mapping:
        return "names with values"
    if origin is Callable:
        return "a function"
    if kind == NDArray[np.int64]:
        return "an array of whole numbers"
    if origin is Sequence:
        return f"a list of which each is {_words(inner[0])}"
    if kind in _SIMPLE:
        return _SIMPLE[kind][2]
    return getattr(origin or kind, "__name__", "something else")


def _told(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return (
        f"{type(value).__name__} of shape {tuple(shape)}"
        if isinstance(shape, tuple) and shape
        else shorten(value)
    )
