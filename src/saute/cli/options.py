"""What the options of several commands share: how the help shows them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import pathlib
import re
import sys
import types
import typing
from typing import Annotated, Any, Literal, Union

__all__ = ["documented", "flat", "positional", "readable", "shown_as"]

METAVARS: dict[Any, str] = {float: "NUMBER", int: "N", str: "NAME", pathlib.Path: "FOLDER"}


def shown_as(metavar: str, hint: str | None = None) -> Any:
    """How the help shows an option; tyro asks when it reads the annotations, so that commands load without it."""
    import tyro

    return tyro.conf.arg(metavar=metavar, help_behavior_hint=None if hint is None else f"({hint})")


def positional() -> Any:
    """An option without a name, though it need not be given."""
    import tyro

    return tyro.conf.Positional


def flat() -> Any:
    """Options of a part that are named without it."""
    import tyro

    return tyro.conf.arg(name="")


def readable(kind: type, defaults: Any = None, hidden: tuple[str, ...] = ()) -> type:
    """A dataclass with the fields of another, whose help is in words: NUMBER ... instead of {None}|FLOAT|{[FLOAT [FLOAT ...]]}.

    The defaults are those of an instance, if one is given.
    """
    import tyro

    hints, texts, fields = typing.get_type_hints(kind), documented(kind), list[Any]()
    for field in dataclasses.fields(kind):
        if field.name in hidden:
            continue
        default = field.default if defaults is None else getattr(defaults, field.name)
        required = default is dataclasses.MISSING
        hint = "(required)" if required else "" if default is None or default == () else f"(default: {_text(default)})"
        if dataclasses.is_dataclass(default):
            part = readable(type(default), default)
            fields.append((field.name, part, dataclasses.field(default_factory=part)))
            continue
        own = hints[field.name]
        shown = tyro.conf.arg(
            metavar=None if own is bool else field.name.upper() if required else _metavar(own),
            help=texts.get(field.name),
            help_behavior_hint=hint,
        )
        place = dataclasses.field() if required else dataclasses.field(default=default)
        fields.append((field.name, Annotated[own, shown], place))
    made = dataclasses.make_dataclass(kind.__name__, fields, frozen=True)
    made.__doc__ = kind.__doc__
    return made


def documented(kind: type) -> dict[str, str]:
    """The docstring below each field of a class, as one line."""
    pairs = [(field, text) for field, text in itertools.pairwise(_body(kind)) if isinstance(field, ast.AnnAssign)]
    texts = {ast.unparse(field.target): text.value for field, text in pairs if isinstance(text, ast.Expr)}
    return {name: " ".join(str(ast.literal_eval(text)).split()) for name, text in texts.items()}


def _body(kind: type) -> list[ast.stmt]:
    """The statements of a class; only its own lines are parsed, for which `inspect` would parse all of its module."""
    lines = inspect.getsource(sys.modules[kind.__module__]).splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if re.match(rf"class {kind.__name__}\b", line))
    (made,) = ast.parse("".join(inspect.getblock(lines[start:]))).body
    assert isinstance(made, ast.ClassDef)
    return made.body


def _metavar(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        several = [one for one in arguments if typing.get_origin(one) is tuple]
        words = [_metavar(one) for one in arguments if one is not type(None) and one not in several]
        return f"{words[0]} ..." if several and words else "|".join(words or map(_metavar, several))
    if origin is tuple:
        return f"{_metavar(arguments[0])} ..."
    return "|".join(map(str, arguments)) if origin is Literal else METAVARS.get(kind, "VALUE")


def _text(value: Any) -> str:
    return " ".join(map(_text, value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
