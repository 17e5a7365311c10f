"""Arguments of public calls: checked and converted once, by the call's annotations, before anything is read or written.

NumPy's numbers become Python's. ``Any``, arrays of floats and quoted annotations accept everything; what such an
argument holds is checked by its reader. This module imports nothing, as ``--help`` reads its annotations.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
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
        forms = cache(lambda: {name: _form(kind) for name, kind in call.__annotations__.items()})

        @wraps(call)
        def checked(*positional: P.args, **named: P.kwargs) -> R:
            try:
                bound = signature.bind(*positional, **named)
            except TypeError as refusal:
                own = {*signature.parameters}
                lacks = not positional and named.keys() <= own  # an argument that it requires
                if formerly is None or lacks or not _is_taken(formerly, own | {*former}, positional, named):
                    raise TypeError(f"{call.__qualname__}() {refusal}") from None
                done: R = checked_arguments()(formerly)(*positional, **named)
                warn_of_former(call, formerly)  # what is refused was no form that worked
                return done
            try:
                given = bound.arguments
                for name, (fit, expected) in forms().items():
                    if name in given:
                        try:
                            given[name] = fit(given[name])
                        except _UNFIT:
                            raise error(argument=name, got=given[name], expected=expected) from None
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
    spec = inspect.getfullargspec(formerly)
    with suppress(TypeError):
        inspect.signature(formerly).bind(*positional, **named)
        return named.keys() <= {*names, *spec.args, *spec.kwonlyargs}
    return False


def checked_fields(kind: type[T]) -> type[T]:
    """Decorate a dataclass: its fields are checked as the arguments of a call."""
    kind.__init__ = checked_arguments()(kind.__init__)  # type: ignore[method-assign]
    return kind


def _if(fits: Callable[[Any], Any], value: Any) -> Any:
    if not fits(value):
        raise ValueError
    return value


def _path(value: Any) -> Any:
    # an empty one is Python's current folder, and a text of a shell variable that is not set; no system has a name of
    # more than 255 bytes, and its error would come from anywhere below
    text = fsencode(fspath(value))
    fits = text and b"\0" not in text and all(len(fsencode(part)) <= 255 for part in Path(value).parts)
    return _if(lambda _: fits, value)


def _number(value: Any) -> float:
    # the decimal that a float of NumPy prints as: 0.4 of float32(0.4)
    return float(str(value)) if type(value).__module__ == "numpy" else float(value)


def _whole_numbers(value: Any) -> Any:
    import numpy as np

    array = _if(lambda x: x.dtype.kind in "iu" and x.ndim, np.asarray(value))
    return array.astype(np.int64, copy=False)


def _same(value: Any) -> Any:
    return value


_SIMPLE: Mapping[Any, tuple[Any, Callable[[Any], Any], str]] = {
    bool: (object, bool, "True or False"),
    int: (Integral, int, "a whole number"),
    float: (Real, _number, "a number"),
    str: (str, str, "a text"),
    NoneType: (NoneType, _same, "None"),
    PathLike: (object, _path, "a path"),
    Path: (object, lambda x: Path(_path(x)), "a path"),
    Callable: (Callable, _same, "a function"),
    Mapping: (Mapping, lambda x: dict(**x), "names with values"),
}
"""Type to the class of what fits it, how it is converted, and its name in an error. A library's lax mode would take
``"0.4"`` and ``True`` for numbers."""


def _form(kind: Any) -> tuple[Callable[[Any], Any], str]:
    """What makes a value one of an annotation's type, or raises; and the type's name in an error."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        forms = [_form(one) for one in inner]
        paths = [each for each in forms if each[1] == "a path"]

        def first(value: Any) -> Any:
            # a text is a path if one fits
            for fit, _ in paths if paths and isinstance(value, str) else forms:
                with suppress(*_UNFIT):
                    return fit(value)
            raise ValueError

        told = dict.fromkeys(name for _, name in forms if not paths or name != "a text")
        return first, " or ".join(told)
    if origin is Annotated:
        fit, span = _form(inner[0])[0], inner[1]
        return lambda x: _if(span.__contains__, fit(x)), f"a whole number from {span[0]} to {span[-1]}"
    if origin is Literal:  # the word, whatever its case
        words = {word.lower(): word for word in inner}
        return lambda x: words[str.lower(x)], f"one of: {', '.join(inner)}"
    if "dtype[numpy.int64]" in str(inner):  # an array of any other kind is checked by its reader
        return _whole_numbers, "an array of whole numbers"
    if origin is Sequence:
        fit, name = _form(inner[0])

        def each(value: Any) -> list[Any]:
            listed = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
            _if(bool, listed and getattr(value, "ndim", 1) == 1)
            return [fit(one) for one in value]

        return each, f"a list of which each is {name}"
    if (origin or kind) not in _SIMPLE:
        name = getattr(origin or kind, "__name__", "something else")
        return (lambda x: _if(lambda y: isinstance(y, kind), x)) if type(kind) is type else _same, name
    base, convert, name = _SIMPLE[origin or kind]

    def simple(value: Any) -> Any:
        truth = type(value).__name__ == "bool"  # also NumPy's; True is a whole number to Python
        return convert(_if(lambda x: isinstance(x, base) and truth == (kind is bool), value))

    return simple, name
