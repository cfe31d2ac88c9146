"""How far a long task is: one line in a terminal, which always fits and keeps moving; in a log file, one line per minute."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

__all__ = ["Forms", "Meter", "clock", "line", "progress", "report", "speed"]

Forms = Sequence[str]
"""The same message for a wide, a usual and a narrow terminal, longest first; the last form serves all narrower ones."""
WIDEST_BAR, LEAST_BAR = 24, 4
MINUTE = 60.0
TICKS = 4
"""How many times per second the line is drawn."""
ECHO = 2
"""Columns that are left free: a terminal writes ^C after the line, and without room for it the line would stay behind."""
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def _unknown() -> float | None:
    return None


@dataclasses.dataclass
class Meter:
    """How far a task is: the task writes it here, and the progress line reads it."""

    unit: str
    total: int
    doing: str = "compiling"
    """What happens before the first unit; empty once the units have begun."""
    done: int = 0
    parts: Sequence[Forms] = ()
    """Messages about the units that are done, the most important first."""
    share: Callable[[], float | None] = _unknown
    """Which share of the next step is done; where that is not known, it is estimated from the time of the steps before."""
    start: float = dataclasses.field(default_factory=time.monotonic)
    _first: int = 0
    _last: float = 0.0
    _step: int = 1

    def begin(self, done: int = 0, share: Callable[[], float | None] = _unknown, step: int = 1) -> None:
        """The units begin, `step` of them at a time; `done` of them were done earlier, perhaps in another process."""
        self.start = self._last = time.monotonic()
        self.done = self._first = done
        self.share, self._step, self.doing = share, step, ""

    def tell(self, done: int, *parts: Forms) -> None:
        """So many units are done now; the parts are messages about them."""
        self.done, self.parts, self._last = done, parts, time.monotonic()

    def position(self, now: float) -> float:
        """Units that are done by now, with the share of those that are running."""
        pace, known = self._pace(), self.share()
        guess = 0.0 if pace is None else (now - self._last) / pace
        ahead = min(0.95 * self._step, guess) if known is None else known * self._step
        return min(float(self.total), self.done + ahead)

    def left(self, now: float) -> float | None:
        """Seconds that the rest will take at the pace so far; None as long as there is no pace."""
        pace, known = self._pace(), self.position(now) - self._first
        if pace is None and not known:
            return None
        return max(0.0, (self.total - self.position(now)) * ((now - self.start) / known if pace is None else pace))

    def _pace(self) -> float | None:
        """Seconds per unit, of those that are done."""
        return (self._last - self.start) / (self.done - self._first) if self.done > self._first else None


def clock(seconds: float) -> str:
    """A time as people read it.

    Example:
        >>> clock(581.2), clock(3723), clock(200_000)
        ('9:41', '1:02:03', '2 d 7 h')
    """
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours >= 24:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def speed(per_second: float, unit: str = "steps/s") -> str:
    """A speed with two or three significant digits, however slow it is.

    Example:
        >>> speed(43_210), speed(812.3), speed(0.036)
        ('43 k steps/s', '812 steps/s', '0.036 steps/s')
    """
    return f"{per_second / 1000:.0f} k {unit}" if per_second >= 9_999.5 else f"{float(f'{per_second:.3g}'):g} {unit}"


def line(meter: Meter, now: float, width: int, plain: bool = False) -> str:
    """The progress line in at most `width` columns: what is done, a bar, the time, and as many messages as fit."""
    spinner = "|/-\\"[int(now * TICKS) % 4] if plain else SPINNER[int(now * TICKS) % len(SPINNER)]
    for level in range(3):
        head, *others = [_at(part, level) for part in (_head(meter), _time(meter, now), *meter.parts)]
        tail = ("  " if level < 2 else " ").join(filter(None, others))
        room = width - len(f"{spinner} {head}  {tail}")
        if room >= LEAST_BAR:
            bar = "" if meter.doing else _bar(meter.position(now) / meter.total, min(room, WIDEST_BAR), plain) + " "
            return f"{spinner} {head} {bar}{tail}"
    short = f"{spinner} {head} {tail}"
    return short if len(short) <= width else short[: width - 1] + ("~" if plain else "…")


def report(meter: Meter, now: float) -> str:
    """The progress as one line of a log."""
    return ", ".join(filter(None, [_at(part, 0) for part in (_head(meter), _time(meter, now), *meter.parts)]))


@contextlib.contextmanager
def progress(meter: Meter, stays: bool = False) -> Iterator[Meter]:
    """Show the progress inside: on a terminal, where the last line stays if `stays` is true; else in a log, once per minute."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        with _each_minute(meter):
            yield meter
        return
    plain = not console.encoding.startswith("utf")

    def drawn() -> Text:
        return Text(line(meter, time.monotonic(), console.width - ECHO, plain), no_wrap=True, overflow="ellipsis")

    with Live(console=console, get_renderable=drawn, refresh_per_second=TICKS, transient=not stays):
        yield meter


@contextlib.contextmanager
def _each_minute(meter: Meter) -> Iterator[None]:
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(MINUTE):
            print(report(meter, time.monotonic()), file=sys.stderr, flush=True)

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _head(meter: Meter) -> Forms:
    if meter.doing:
        return (meter.doing,)
    count = f"{min(meter.done + 1, meter.total) if meter.unit == 'epoch' else meter.done}/{meter.total}"
    return f"{meter.unit} {count}", f"{meter.unit} {count}", count


def _time(meter: Meter, now: float) -> Forms:
    left = None if meter.doing else meter.left(now)
    if left is None or not math.isfinite(left):
        return (clock(now - meter.start),)
    return f"{clock(now - meter.start)}, {clock(left)} left", f"{clock(left)} left", clock(left)


def _at(forms: Forms, level: int) -> str:
    return forms[min(level, len(forms) - 1)]


def _bar(share: float, width: int, plain: bool) -> str:
    full = int(share * width)
    return ("#" if plain else "━") * full + ("-" if plain else "┄") * (width - full)
