"""What `make demo` begins with: five sautéed seeds on the pendulum, from the command to their policies, and what these do.

    python benchmarks/bench_demo.py

To reach on two cores: ≤ 30 s with compiling, a return ≥ 179 (98 % of the best safe one that is known), 0 of 5 × 30,000 fresh
episodes violate.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from saute.core.machine import cores

SAUTE = [sys.executable, "-m", "saute"]
EPISODES = 30_000

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        run = pathlib.Path(place, "demo")
        begin = time.perf_counter()
        words = ["train", "pendulum", "--algo", "sac", "--preset", "quick", "--out", str(run)]
        subprocess.run([*SAUTE, *words], check=True, capture_output=True)
        seconds = time.perf_counter() - begin
        words = ["evaluate", str(run), "--episodes", str(EPISODES), "--json"]
        printed = subprocess.run([*SAUTE, *words], check=True, capture_output=True, text=True).stdout
    found = json.loads(printed)["runs"][0]["all"]
    print(f"five seeds, from the command to their policies: {seconds:.1f} s on {cores()} cores")
    print(f"  return {found['task_return']['mean']:.2f}, {found['violations']:,} of {found['episodes']:,} episodes violate")
