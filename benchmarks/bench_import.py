"""Import time: `import saute` against `import gymnasium`, each in fresh interpreters that take turns.

    python benchmarks/bench_import.py

To reach: < 1.5 × gymnasium.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
from timing import rates, ratio


def importing(module: str) -> Callable[[], int]:
    def work() -> int:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
        return 1

    return work


if __name__ == "__main__":
    results = rates({name: importing(name) for name in ("gymnasium", "saute")}, turns=9)
    for name, rate in results.items():
        print(f"  import {name:<12} {1e3 / np.median(rate):7.0f} ms   {ratio(results, 'gymnasium', name):6.3f} × gymnasium")
