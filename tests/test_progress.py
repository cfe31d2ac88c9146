"""The line that shows how far a work is: it fits, it moves, and it says what matters."""

from __future__ import annotations

import re

import pytest

from saute.core.progress import Meter, line, report, speed
from saute.runs.report import told

SEED = {"episodes": 20.0, "task_return": 173.21, "cost": 12.1, "worst_cost": 28.13, "violation_rate": 0.05}


def training(done: int = 12, total: int = 300) -> Meter:
    meter = Meter("epoch", total)
    meter.begin()
    meter.tell(done, *told([SEED] * 5, 30.0), (speed(43_210.0), ""))
    meter.start, meter._last = 0.0, 24.0
    return meter


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("total", [300, 20_000])
def test_what_matters_fits(width: int, total: int) -> None:
    text = line(training(total=total), 24.0, width)
    assert len(text) <= width and f"13/{total}" in text and re.search(r"return 173.* worst 28.1/30 .*5( of |/)100", text)
    assert "9:36" in line(training(), 24.0, width), "the time left: 288 epochs of 2 s"


def test_nothing_is_wider_than_the_terminal() -> None:
    assert [len(line(training(), 24.0, width)) <= width for width in range(5, 200)] == [True] * 195


def test_it_moves_within_an_epoch_and_while_compiling() -> None:
    """Where nobody knows how much of an epoch is done, the time of those before tells; what is known is shown."""
    meter = training(done=12, total=24)
    assert [meter.position(now) for now in (24.0, 25.0, 40.0)] == [12.0, 12.5, 12.95]
    assert line(meter, 24.0, 80).count("━") < line(meter, 25.9, 80).count("━") or meter.left(25.0) == 23.0
    meter.share = lambda: 0.25
    assert meter.position(24.0) == 12.25
    waiting = Meter("epoch", 300, start=0.0)
    assert [line(waiting, now, 80)[1:] for now in (3.0, 74.0)] == [" compiling 0:03", " compiling 1:14"]


def test_the_first_epoch_of_a_slow_environment_has_a_time_left() -> None:
    meter = Meter("epoch", 2)
    meter.begin(share=lambda: 0.1)
    meter.start = 0.0
    assert meter.left(60.0) == pytest.approx(60.0 / 0.1 * 1.9)


def test_a_line_of_the_log_has_everything() -> None:
    assert report(training(), 24.0) == (
        "epoch 13/300, 0:24, 9:36 left, return 173.2 (173.2 to 173.2), cost 12.1, worst 28.1/30, violated 5 of 100, "
        "43 k steps/s"
    )


def test_a_terminal_without_unicode_gets_a_plain_bar() -> None:
    assert line(training(), 24.0, 80, plain=True).isascii()
