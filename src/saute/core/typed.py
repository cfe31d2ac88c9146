"""JSON values turned into dataclasses and named tuples by their type annotations; a value of another type is refused."""

from __future__ import annotations

import dataclasses
import math
import reprlib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

__all__ = ["rebuilt"]

LARGEST = 2**31
"""Whole numbers are below this; a larger one is taken for damage."""
LONGEST = 1000
"""Characters of a name."""


def rebuilt(kind: Any, value: object, name: str = "the file") -> Any:
    """The value as a number, text, tuple, or as a dataclass or named tuple, from a mapping with an entry for each field.

    Fields of a named tuple that have a default may be missing.

    Example:
        >>> rebuilt(tuple[float, ...], [1, 2.5])
        (1, 2.5)
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(parts, value, name)
    if origin in (tuple, Sequence) and isinstance(value, list | tuple):
        return tuple(rebuilt(parts[0], one, f"{name}[{i}]") for i, one in enumerate(value))
    if origin is dict and isinstance(value, Mapping):
        return {rebuilt(parts[0], key, name): rebuilt(parts[1], one, f"{name}.{key}") for key, one in value.items()}
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _with_fields(kind, value, name)
    if value in parts if origin is Literal else _is(kind, value):
        return value
    raise ValueError(f"{name} is {reprlib.repr(value)}, expected {getattr(kind, '__name__', kind)}")


def _is(kind: object, value: Any) -> bool:
    """Whether a value is of a plain type; an int is also a float, but a bool is not a number."""
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    if kind is int:
        return type(value) is int and abs(value) < LARGEST
    if kind is str:
        return isinstance(value, str) and value.isprintable() and len(value) <= LONGEST
    return type(value) is kind


def _one_of(kinds: Sequence[Any], value: object, name: str) -> Any:
    for kind in kinds:
        try:
            return rebuilt(kind, value, name)
        except ValueError:
            continue
    expected = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise ValueError(f"{name} is {reprlib.repr(value)}, expected {expected}")


def _with_fields(kind: Any, value: object, name: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {reprlib.repr(value)}, expected the entries of {kind.__name__}")
    hints = typing.get_type_hints(kind)
    fields = [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else list(kind._fields)
    missing = set(fields) - value.keys() - getattr(kind, "_field_defaults", {}).keys()
    unknown = value.keys() - set(fields)
    if missing:
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(missing))}; {name} is not complete")
    if unknown:
        known = ", ".join(sorted(map(str, unknown)))
        raise ValueError(f"unknown entries {known} of {name}; was it written by another version of saute?")
    return kind(**{field: rebuilt(hints[field], one, f"{name}.{field}") for field, one in value.items()})
