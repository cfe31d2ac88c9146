"""Cold starts: `import saute` beside `import gymnasium`, then the help and a stored policy, each in fresh processes in turns.

    python benchmarks/bench_import.py

To reach: < 1.5 × gymnasium; `saute --help` and `load_policy` < 0.3 s, `saute train --help` < 1 s. Seconds are those on the
clock; beside them are those of the processor, which other work on the machine changes less.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable

import numpy as np
from timing import rates, ratio

COLD = {
    "saute --help": ["-m", "saute", "--help"],
    "saute train --help": ["-m", "saute", "train", "--help"],
    "load_policy": ["-c", "import saute; saute.load_policy('pretrained:pendulum-saute-trpo')"],
}


def running(words: list[str], seconds: list[float]) -> Callable[[], int]:
    """A fresh Python that does this; what it takes of the processor is added to the list."""

    def work() -> int:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return 1

    return work


if __name__ == "__main__":
    commands = {f"import {name}": ["-c", f"import {name}"] for name in ("gymnasium", "saute")} | COLD
    spent: dict[str, list[float]] = {name: [] for name in commands}
    results = rates({name: running(words, spent[name]) for name, words in commands.items()}, turns=9)
    for name, rate in results.items():
        clock, cpu, slower = 1 / np.median(rate), np.median(spent[name]), ratio(results, "import gymnasium", name)
        print(f"  {name:<20} {clock:6.3f} s, {cpu:6.3f} of them computing   {slower:6.2f} × gymnasium")
