"""Texts that strangers may have written, made harmless for terminals and for pages."""

from __future__ import annotations

import html
import re
import shutil
import sys
import textwrap
from typing import TextIO

__all__ = ["columns_of", "escaped", "one_line", "say", "shown", "wrapped"]


def shown(text: str) -> str:
    """The text for a terminal: characters that are not printed but obeyed, such as colours, are spelt out as JSON spells them.

    Example:
        >>> shown("safe\\x1b[2K")
        'safe\\\\u001b[2K'
    """
    return "".join(one if one.isprintable() or one in "\n\t" else _spelt(one) for one in text)


def one_line(text: str) -> str:
    """The same in one line, whatever a name may have in it."""
    return "".join(one if one.isprintable() else _spelt(one) for one in text)


def say(text: str) -> None:
    """A line for the user, beside what was asked for."""
    print(wrapped(one_line(text), columns_of(sys.stderr)), file=sys.stderr)


def _spelt(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def escaped(text: str) -> str:
    """The text for a page in Markdown or HTML, where it is one line and nothing but text.

    Example:
        >>> escaped("a|b <img>")
        'a\\\\|b &lt;img&gt;'
    """
    one_line = html.escape(shown(" ".join(text.split())), quote=False)
    return re.sub(r"([\\`*_\[\]()#!|~])", r"\\\1", one_line)


def columns_of(stream: TextIO) -> int | None:
    """Columns of the terminal that is printed to; None if it is a file or a pipe, which take any width."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(text: str, width: int | None, later: str = "") -> str:
    """The text in lines of at most so many columns, broken between words; as it is if there is no width.

    All lines but the first begin with `later`.

    Example:
        >>> print(wrapped("0 of 100, so at most 2.951 %\\nat 95 %", 20))
        0 of 100, so at most
        2.951 %
        at 95 %
    """
    if width is None:
        return text
    fill = textwrap.TextWrapper(width, subsequent_indent=later, break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(map(fill, text.splitlines()))
