"""Texts that strangers may have written, made harmless for terminals and for pages."""

from __future__ import annotations

import html
import re
import sys
import textwrap

__all__ = ["escaped", "one_line", "say", "shown", "wrapped"]


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
    print(one_line(text), file=sys.stderr)


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


def wrapped(text: str, width: int | None) -> str:
    """The text in lines of at most so many columns, broken between words; as it is if there is no width.

    Example:
        >>> print(wrapped("0 of 100, so at most 2.951 %\\nat 95 %", 20))
        0 of 100, so at most
        2.951 %
        at 95 %
    """
    if width is None:
        return text
    fill = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(map(fill, text.splitlines()))
