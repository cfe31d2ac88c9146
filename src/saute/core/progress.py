"""How far a long work is: a line that fits the terminal and moves while nothing else does; elsewhere, one line a minute."""

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
"""What is to be said, in a wide, a usual and a narrow terminal; the last form is that of all narrower ones."""
WIDEST_BAR, LEAST_BAR = 24, 4
MINUTE = 60.0
TICKS = 4
"""How often a second the line is drawn."""
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def _unknown() -> float | None:
    return None


@dataclasses.dataclass
class Meter:
    """How far a work is: whoever works tells it, and whoever draws reads it."""

    unit: str
    total: int
    doing: str = "compiling"
    """What is done before the first unit; nothing once they have begun."""
    done: int = 0
    parts: Sequence[Forms] = ()
    """What there is to say of what is done, the most important first."""
    share: Callable[[], float | None] = _unknown
    """How much of the next step is done, if that can be told; else it is guessed from the time of those before."""
    start: float = dataclasses.field(default_factory=time.monotonic)
    _first: int = 0
    _last: float = 0.0
    _step: int = 1

    def begin(self, done: int = 0, share: Callable[[], float | None] = _unknown, step: int = 1) -> None:
        """From now on units are done, so many at a step; some may have been done in another process."""
        self.start = self._last = time.monotonic()
        self.done = self._first = done
        self.share, self._step, self.doing = share, step, ""

    def tell(self, done: int, *parts: Forms) -> None:
        """So many units are done, and this is to say of them."""
        self.done, self.parts, self._last = done, parts, time.monotonic()

    def position(self, now: float) -> float:
        """Units that are done by now, with the share of those under way."""
        pace, known = self._pace(), self.share()
        guess = 0.0 if pace is None else (now - self._last) / pace
        ahead = min(0.95 * self._step, guess) if known is None else known * self._step
        return min(float(self.total), self.done + ahead)

    def left(self, now: float) -> float | None:
        """Seconds that the rest will take if it goes on like this; None before there is anything to go by."""
        pace, known = self._pace(), self.position(now) - self._first
        if pace is None and not known:
            return None
        return max(0.0, (self.total - self.position(now)) * ((now - self.start) / known if pace is None else pace))

    def _pace(self) -> float | None:
        """Seconds for each of the units that are done."""
        return (self._last - self.start) / (self.done - self._first) if self.done > self._first else None


def clock(seconds: float) -> str:
    """A time to read at a glance.

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
    """A speed with two or three digits that mean something, however slow it is.

    Example:
        >>> speed(43_210), speed(812.3), speed(0.036)
        ('43 k steps/s', '812 steps/s', '0.036 steps/s')
    """
    return f"{per_second / 1000:.0f} k {unit}" if per_second >= 9_999.5 else f"{float(f'{per_second:.3g}'):g} {unit}"


def line(meter: Meter, now: float, width: int, plain: bool = False) -> str:
    """The work in at most so many columns: what it is, a bar, the time, and as much of the rest as fits."""
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
    """The work in one line of a log."""
    return ", ".join(filter(None, [_at(part, 0) for part in (_head(meter), _time(meter, now), *meter.parts)]))


@contextlib.contextmanager
def progress(meter: Meter, stays: bool = False) -> Iterator[Meter]:
    """Show the work on the terminal as long as it is under way; where there is none, in a line of the log a minute.

    The last line stays on the terminal if it is asked to.
    """
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
        return Text(line(meter, time.monotonic(), console.width, plain), no_wrap=True, overflow="ellipsis")

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
