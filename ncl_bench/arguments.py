"""Arguments of public calls: checked and converted once, by the call's annotations, before anything is read or written.

NumPy's numbers become Python's. ``Any``, arrays of floats and quoted annotations accept everything; what such an
argument holds is checked by its reader. This module imports nothing, as ``--help`` reads its annotations.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from numbers import Integral, Real
from os import PathLike, fsencode, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin

from ncl_bench.errors import NclBenchError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
AnyPath: TypeAlias = str | PathLike[str]
"""Path as a user gives it."""
Seed = Annotated[int, range(2**32)]
"""Seed of NumPy's and torch's generators."""
Count = Annotated[int, range(1, 2**31)]
Index = Annotated[int, range(2**31)]
Precision = Literal["32-true", "tf32", "bf16-mixed"]
"""float32; float32 with products in TF32 on a GPU's tensor cores; products inside the networks in bfloat16."""
Features = Literal["auto", "mapped", "gpu"]
"""Place of the training features: on disk, mapped into memory, or on the device; ``auto`` chooses."""
NoiseUnit: TypeAlias = str
"""Name of a unit of noise."""
_UNFIT = (TypeError, ValueError, LookupError, OverflowError, RuntimeError)
"""What a conversion raises; torch's tensors without data raise the last one."""


def as_path(given: AnyPath | None) -> Path | None:
    """The same path as a ``Path``; None stays None."""
    return None if given is None else Path(given)


def as_list(given: Any) -> list[Any]:
    """Several texts or paths; a single one is a list of one."""
    return [given] if isinstance(given, str | PathLike) else list(given)


def checked_arguments(
    error: type[NclBenchError] = NclBenchError,
    *,
    formerly: Callable[..., Any] | None = None,
    former: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public call: a wrong argument raises ``error`` with its name, its value and what is expected.

    Whatever else the call refuses is told in words of Python.

    Args:
        error: what is raised.
        formerly: takes arguments of the last release, with a warning: its docstring, which says what replaces them. It
            requires what the call requires and they do not replace.
        former: names that it takes beside those of its signature and of the call.
    """

    def decorated(call: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(call)

        @wraps(call)
        def checked(*positional: P.args, **named: P.kwargs) -> R:
            try:
                bound = signature.bind(*positional, **named)
            except TypeError as refusal:  # as Python words it, with the name of the call
                own = {*signature.parameters}
                # names of its own alone lack an argument that it requires
                is_its_own = not positional and named.keys() <= own
                if (
                    formerly is None
                    or is_its_own
                    or not _is_taken(formerly, own | {*former}, positional, named)
                ):
                    raise TypeError(f"{call.__qualname__}() {refusal}") from None
                done: R = checked_arguments()(formerly)(*positional, **named)
                warn_of_former(call, formerly)  # what is refused was no form that worked
                return done
            try:
                for name, value in bound.arguments.items():
                    parameter = signature.parameters[name]
                    if parameter.annotation is parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
                        continue
                    try:
                        bound.arguments[name] = _fitted(value, parameter.annotation)
                    except _UNFIT:
                        expected = _words(parameter.annotation)
                        raise error(argument=name, got=value, expected=expected) from None
                return call(*bound.args, **bound.kwargs)
            except ModuleNotFoundError as missing:
                from ncl_bench.extras import not_installed

                raise not_installed(missing, needed_by=call.__name__) from None
            except NclBenchError as refusal:
                refusal.options = None
                raise

        return checked

    return decorated


def warn_of_former(call: Callable[..., Any], formerly: Callable[..., Any]) -> None:
    """Warn the caller of a checked call that its arguments are those of the last release."""
    told = f"these arguments of {call.__name__} go with the next release. {' '.join((formerly.__doc__ or '').split())}"
    warnings.warn(told, DeprecationWarning, stacklevel=3)


def _is_taken(
    formerly: Callable[..., Any], names: set[str], positional: Sequence[Any], named: Mapping[str, Any]
) -> bool:
    # a misspelt name is no form of the last release: both calls would pass it to each other
    signature = inspect.signature(formerly)
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return False
    rest = {name for name, each in signature.parameters.items() if each.kind is each.VAR_KEYWORD}
    return named.keys() <= (names | signature.parameters.keys()) - rest


def checked_fields(kind: type[T]) -> type[T]:
    """Decorate a dataclass: its fields are checked as the arguments of a call."""
    kind.__init__ = checked_arguments()(kind.__init__)  # type: ignore[method-assign]
    return kind


def _path(value: Any) -> Any:
    # an empty one is Python's current folder, and a text of a shell variable that is not set; no system has a name of
    # more than 255 bytes, and its error would come from anywhere below
    text = fsencode(fspath(value))
    fits = text and b"\0" not in text and all(len(fsencode(part)) <= 255 for part in Path(value).parts)
    _if(bool, fits)
    return value


def _number(value: Any) -> float:
    # the decimal that a float of NumPy prints as: 0.4 of float32(0.4)
    return float(str(value)) if type(value).__module__ == "numpy" else float(value)


def _whole_numbers(value: Any) -> Any:
    import numpy as np

    array = _if(lambda x: x.dtype.kind in "iu" and x.ndim, np.asarray(value))
    return array.astype(np.int64, copy=False)


def _named_values(value: Any) -> Any:
    "".join(value)  # its names are texts
    return value


def _same(value: Any) -> Any:
    return value


_SIMPLE: Mapping[Any, tuple[Any, Callable[[Any], Any], str]] = {
    bool: (object, bool, "True or False"),
    int: (Integral, int, "a whole number"),
    float: (Real, _number, "a number"),
    str: (str, str, "a text"),
    NoneType: (NoneType, _same, "None"),
    PathLike: (PathLike, _path, "a path"),
    Path: (object, lambda x: Path(_path(x)), "a path"),
    Callable: (Callable, _same, "a function"),
    Mapping: (Mapping, _named_values, "names with values"),
}
"""Type to the class of what fits it, how it is converted, and its name in an error. A library's lax mode would take
``"0.4"`` and ``True`` for numbers."""


def _fitted(value: Any, kind: Any) -> Any:
    """The value in the type of an annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if isinstance(value, str) and any(get_origin(one) is PathLike or one is Path for one in inner):
            return _path(value) if str in inner else Path(_path(value))
        for one in inner:
            with suppress(*_UNFIT):
                return _fitted(value, one)
        raise ValueError
    if origin is Annotated:
        return _if(inner[1].__contains__, _fitted(value, inner[0]))
    if origin is Literal:  # the word, whatever its case
        return {word.lower(): word for word in inner}[str.lower(value)]
    if "dtype[numpy.int64]" in str(inner):  # an array of any other kind is checked by its reader
        return _whole_numbers(value)
    if origin is Sequence:
        listed = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        _if(bool, listed and getattr(value, "ndim", 1) == 1)
        return [_fitted(each, inner[0]) for each in value]
    if (origin or kind) not in _SIMPLE:
        return _if(lambda x: isinstance(x, kind), value) if type(kind) is type else value
    base, convert, _ = _SIMPLE[origin or kind]
    truth = type(value).__name__ in ("bool", "bool_")  # also NumPy's; True is a whole number to Python
    return convert(_if(lambda x: isinstance(x, base) and truth == (kind is bool), value))


def _if(fits: Callable[[Any], bool], value: Any) -> Any:
    if not fits(value):
        raise ValueError
    return value


def _words(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        told = dict.fromkeys(map(_words, inner))
        if "a path" in told:
            told.pop("a text", None)
        return " or ".join(told)
    if origin is Annotated:
        return f"a whole number from {inner[1][0]} to {inner[1][-1]}"
    if origin is Literal:
        return f"one of: {', '.join(map(str, inner))}"
    if "dtype[numpy.int64]" in str(inner):
        return "an array of whole numbers"
    if origin is Sequence:
        return f"a list of which each is {_words(inner[0])}"
    if (origin or kind) in _SIMPLE:
        return _SIMPLE[origin or kind][2]
    return getattr(origin or kind, "__name__", "something else")
