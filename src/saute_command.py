"""The command `saute`: from its first moment Ctrl-C ends it quietly, also while the package is being imported."""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> int:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from saute.cli.main import main as run

    return run()
