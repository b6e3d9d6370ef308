"""Type checks for arguments of public functions: a wrong type raises a RequestError that names the argument.

Types come from annotations; each function checks the values itself.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from privsyn.base.errors import RequestError

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class ArgumentKind:
    """A kind of argument: its description with an example, and its test.

    ``lists``: whether it is a list of values that fit; ``alone``: whether a single value is accepted too.
    """

    words: str
    example: str
    fits: Callable[[Any], bool]
    lists: bool = False
    alone: bool = False


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    if not isinstance(value, str | os.PathLike):
        return False
    path = os.fspath(value)
    return isinstance(path, str) and "\0" not in path and bool(path.strip())


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


_TEXT = ArgumentKind("text", "'name'", _is_text)
_TEXTS = ArgumentKind("a list of texts", "['one', 'two']", _is_text, lists=True)

KINDS: dict[str, ArgumentKind | None] = {
    "str | Path": ArgumentKind("a path", "'folder/file'", _is_path),
    "str": _TEXT,
    "Kind": _TEXT,
    "int": ArgumentKind("a whole number", "3", _is_whole),
    "float": ArgumentKind("a number", "0.5", _is_number),
    "bool": ArgumentKind("True or False", "True", lambda value: type(value).__name__ == "bool"),  # or NumPy's
    "Mapping[str, Any]": ArgumentKind("a mapping", "{'delimiter': ';'}", lambda value: isinstance(value, Mapping)),
    "Sequence[float]": ArgumentKind("a list of numbers", "[0.5, 1]", _is_number, lists=True),
    "Sequence[str]": _TEXTS,
    "Sequence[str] | Literal['all']": _TEXTS,
    "Sequence[str | Path]": ArgumentKind("a list of paths", "['one', 'two']", _is_path, lists=True),
    "float | Sequence[float]": ArgumentKind(
        "a number or a list of numbers", "[0.5, 0.9]", _is_number, lists=True, alone=True
    ),
    "str | Sequence[str]": ArgumentKind("text or a list of texts", "['one', 'two']", _is_text, lists=True, alone=True),
    "Callable[[pd.DataFrame], Any]": ArgumentKind("a function", "lambda table: table['income'].mean()", callable),
    "Sequence[Table]": ArgumentKind(
        "a list of tables or paths", "['one.parquet']", lambda value: value is not None, lists=True
    ),
    "Release | str | Path": ArgumentKind(
        "a release, its name or its folder",
        "'people-0123abcd'",
        lambda value: _is_path(getattr(value, "folder", value)),
    ),
    "Table": None,
    "AnySpec": None,
    "str | Path | SupportsArrowStream | Mapping[str, Any]": None,
}
"""Annotation, without `| None` -> the kind it accepts; None if the function itself recognises what it was given."""
_ALL = "Literal['all']"


def check_arguments(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Raise RequestError for an argument that does not match its annotation; lists are passed on as tuples."""
    signature = inspect.signature(function)
    expected = {p.name: str(p.annotation) for p in signature.parameters.values() if p.annotation is not p.empty}

    @wraps(function)
    def checked(*arguments: _P.args, **named: _P.kwargs) -> _T:
        bound = signature.bind(*arguments, **named)  # a missing or unknown argument raises Python's TypeError
        for name, value in bound.arguments.items():
            if name in expected and signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_check(f"*{name}", expected[name], item) for item in value)
            elif name in expected:
                bound.arguments[name] = _check(name, expected[name], value)
        return function(*bound.args, **bound.kwargs)

    return checked


def _check(name: str, annotation: str, value: Any) -> Any:
    without_none = annotation.removesuffix(" | None")
    kind = KINDS[without_none]
    if value is None and without_none != annotation:
        return value
    if kind is None or (isinstance(value, str) and value == "all" and _ALL in without_none):
        return value
    if not kind.lists:
        if kind.fits(value):
            return value
        raise _make_error(name, kind, _describe(value, kind))
    if kind.alone and kind.fits(value):
        return value
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise _make_error(name, kind, type(value).__name__)
    items = tuple(value)
    for item in items:
        if not kind.fits(item):
            raise _make_error(name, kind, f"a list with {_describe(item, kind)}")
    return items


def _describe(value: Any, kind: ArgumentKind) -> str:
    """Describe an argument of the wrong kind; a text that is no path has the right type but no name in it."""
    names_no_path = isinstance(value, str) and kind.fits("path")
    return "an empty text or one with a null character" if names_no_path else type(value).__name__


def _make_error(name: str, kind: ArgumentKind, value: str) -> RequestError:
    """Return the error; the example for an unnamed argument (``*by``) is the bare value."""
    example = kind.example if name.startswith("*") else f"{name}={kind.example}"
    words = f"{name.removeprefix('*')} must be {kind.words}, not {value}"
    return RequestError(words, f"Write for example {example}")
