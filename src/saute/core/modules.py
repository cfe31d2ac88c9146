"""Import the modules that users name, and only those."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

__all__ = ["module_named"]


def module_named(name: str) -> ModuleType:
    """The module of this name; as for `python -m` it may lie in the current folder, which is searched last.

    Last, so that a file there that is called like an installed package is not run in its place.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return importlib.import_module(name)
