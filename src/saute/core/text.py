"""Texts that strangers may have written, made harmless for terminals and for pages."""

from __future__ import annotations

import html
import re

__all__ = ["escaped", "shown"]


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
