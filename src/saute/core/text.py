"""Texts that strangers may have written, made harmless for terminals and for pages."""

from __future__ import annotations

import html
import re
import textwrap

__all__ = ["escaped", "shown", "wrapped"]


def shown(text: str) -> str:
    """The text for a terminal: characters that are not printed but obeyed, such as colours and backspaces, are spelt out.

    Example:
        >>> shown("safe\\x1b[2K")
        'safe\\\\x1b[2K'
    """
    return "".join(one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode() for one in text)


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
