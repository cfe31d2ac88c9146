"""Interrupt trainings at random moments of their first seconds: no crash, and no promise that does not hold.

`python tests/interrupts.py 50` prints what each of 50 interrupts came to, and fails if one came to something else.
"""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from saute.runs.folder import begun

COMMAND = [sys.executable, "-c", "import sys; from saute_command import main; sys.exit(main())"]
QUICK = ["--seeds", "2", "--settings.hidden", "8", "--settings.steps-per-epoch", "400", "--settings.value-iterations", "2"]
FALSE = "a false promise"


class Stopped(NamedTuple):
    """How a process ended that was sent a signal."""

    code: int
    said: str
    begun: bool
    """Whether its folder can be gone on with."""
    left: bool
    """Whether there is a folder."""


def training(out: pathlib.Path, words: Sequence[str] = QUICK) -> subprocess.Popen[str]:
    """A training that takes minutes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and would pass that on
    whole = [*COMMAND, "train", "pendulum", "--epochs", "20000", *words, "--out", str(out)]
    return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stopped(process: subprocess.Popen[str], out: pathlib.Path, number: int = signal.SIGINT, times: int = 1) -> Stopped:
    """Send the signal, so many times, and wait for the end."""
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.05)
    said = process.communicate(timeout=120)[0]
    return Stopped(process.returncode, said, begun(out), out.exists())


def fault(end: Stopped) -> str | None:
    """What is wrong with an end by Ctrl-C."""
    if end.code != 130:
        return f"exit code {end.code} instead of 130"
    if "Traceback" in end.said:
        return "a traceback"
    if end.begun != ("saute resume" in end.said):
        return FALSE if not end.begun else "does not say how to go on"
    return None if end.left == end.begun else "left a folder that has nothing in it to go on with"


def main(count: int, seconds: float = 10.0, seed: int = 0) -> int:
    """So many interrupts: half of the paper's training, half of one with epochs of milliseconds; every fourth comes twice."""
    moments, faults = random.Random(seed), list[str]()
    for i in range(count):
        with tempfile.TemporaryDirectory() as place:
            out = pathlib.Path(place, "run")
            process, moment = training(out, QUICK if i % 2 else []), moments.uniform(0.1, seconds)
            time.sleep(moment)
            begin = time.monotonic()
            end = stopped(process, out, times=2 if i % 4 == 3 else 1)
            wrong = fault(end)
            faults += [wrong] if wrong else []
            took = time.monotonic() - begin
            print(f"{moment:5.2f} s: {wrong or 'fine'} after {took:.1f} s: {end.said.strip()[-160:]}", flush=True)
    crashes, false = sum("exit code" in one for one in faults), faults.count(FALSE)
    print(f"{count} interrupts: {crashes} crashes, {false} false promises, {len(faults) - crashes - false} other faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0))
