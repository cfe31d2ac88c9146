"""How a command ends on Ctrl-C, SIGTERM or SIGHUP: it finishes what it is saving, then the process exits.

It exits without Python's own teardown, which would free memory that XLA's compiling threads still use.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from saute.core.text import shown

__all__ = ["SIGNALS", "guarded", "last_words", "leave", "obedient", "parting", "send", "stopped_by", "whole"]

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
PATIENCE = 10.0
"""Seconds that a computation which cannot be interrupted is waited for; each epoch is saved, so no more than one is lost."""
AGAIN = 0.25
"""Seconds after which a signal is sent again, if it had no effect yet."""
CURSOR = "\x1b[?25h"
"""Shows the cursor that a progress bar has hidden."""


class _Told:
    """The signal that the process was sent, and what still has to happen before it exits."""

    signal = 0
    held = 0
    body: CodeType | None = None
    """The function that is to be stopped; after it there is nothing left to stop."""
    words: list[Callable[[], str]] = []


def stopped_by() -> int:
    """The first signal that told the process to stop, or 0."""
    return _Told.signal


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """What is written inside is written whole: a signal has to wait until its end."""
    _Told.held += 1
    try:
        yield
    finally:
        _Told.held -= 1
    if _Told.signal and not _Told.held:
        raise KeyboardInterrupt


@contextlib.contextmanager
def parting(words: Callable[[], str]) -> Iterator[None]:
    """What to print if the process is stopped inside."""
    _Told.words.append(words)
    try:
        yield
    except KeyboardInterrupt:
        raise  # the words are still to be printed
    except BaseException:
        _Told.words.remove(words)
        raise
    else:
        _Told.words.remove(words)


def last_words() -> str:
    """What to print at the end, once."""
    return shown(_Told.words.pop()()) if _Told.words else "stopped"


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Signals stop what is inside; if it does not react, the process exits after a while."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Signals that are ignored, as `nohup` and background jobs have them, stay so.
    before = {one: signal.getsignal(one) for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN}
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    waking = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_insist, args=(ours,), daemon=True).start()
    complaining, sys.unraisablehook = sys.unraisablehook, _without_interrupts(sys.unraisablehook)
    for one in before:
        signal.signal(one, _obey)
    try:
        yield
    finally:
        sys.unraisablehook = complaining
        for one, handler in before.items():
            signal.signal(one, handler)
        signal.set_wakeup_fd(waking)
        theirs.close()


def obedient(function: Callable[[], int]) -> int:
    """What the function returns; if a signal stopped it, the process exits, whatever exception the signal became on its way."""
    with guarded():
        _Told.body = function.__code__
        try:
            return function()
        finally:
            if stopped_by():
                leave()
            _Told.body = None


def leave() -> None:
    """Exit at once: print the last words, show the cursor again, and use the exit code of the signal."""
    _Told.held += 1  # no signal comes between
    try:
        words = last_words()
        print(f"{CURSOR}\n{words}" if sys.stderr.isatty() else words, file=sys.stderr, flush=True)
        sys.stdout.flush()
    finally:  # also if the terminal is gone
        os._exit(128 + (_Told.signal or signal.SIGINT))


def send(number: int) -> None:
    """Send the signal to the main thread, and wake it where the system can do that."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        _thread.interrupt_main(signal.Signals(number))


def _obey(number: int, frame: FrameType | None) -> None:
    _Told.signal = _Told.signal or number
    if not _Told.held and _can_be_raised(frame):
        raise KeyboardInterrupt


def _can_be_raised(frame: FrameType | None) -> bool:
    """Whether an interrupt may be raised here: the function to be stopped is running, and no module is half imported."""
    body, found = _Told.body, _Told.body is None
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return False
        found = found or frame.f_code is body
        frame = frame.f_back
    return found


def _without_interrupts(complain: Callable[[Any], object]) -> Callable[[Any], object]:
    """Python prints interrupts that it cannot raise, as in a garbage collection; ours come again, so they are not printed."""

    def quietly(problem: sys.UnraisableHookArgs) -> None:
        if not (stopped_by() and isinstance(problem.exc_value, KeyboardInterrupt)):
            complain(problem)

    return quietly


def _insist(ours: socket.socket) -> None:
    """Send the signal again, since libraries may swallow it, and exit if nothing reacts."""
    while (told := ours.recv(1)) and told[0] not in SIGNALS:
        pass
    if told:
        _Told.signal, begin = _Told.signal or told[0], time.monotonic()
        while _Told.held or time.monotonic() - begin < PATIENCE:
            time.sleep(AGAIN)
            if not _Told.held:
                send(told[0])
        leave()
