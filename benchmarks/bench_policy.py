"""How long a stored policy takes for one observation: with NumPy, compiled by JAX as formerly, and as exported files.

    python benchmarks/bench_policy.py

To reach: NumPy ≥ 5 times as fast as JAX, and the slowest hundredth of 100,000 calls within 3 times the median.
"""

from __future__ import annotations

import ctypes
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import saute
from saute.serve.to_c import c_source
from saute.serve.to_numpy import numpy_source
from saute.serve.to_onnx import onnx_bytes

CALLS, TURN = 100_000, 1000
Step = Callable[[np.ndarray], Any]
"""An observation → its action, with a remaining budget of 12.5."""


def in_numpy(policy: Any) -> Step:
    return lambda obs: policy(obs, 12.5)


def kept(policy: Any) -> Step:
    """With its budget: act and spend."""
    keeper = saute.BudgetedPolicy(policy)
    keeper.begin(30.0)

    def step(obs: np.ndarray) -> Any:
        action = keeper.act(obs)
        keeper.spend(0.0)
        return action

    return step


def exported(policy: Any) -> Step:
    made: dict[str, Any] = {}
    exec(numpy_source(policy.net, {}, 1.0), made)
    act = made["act"]
    return lambda obs: act(obs, 12.5)


def in_onnx(policy: Any) -> Step:
    import onnxruntime

    few = onnxruntime.SessionOptions()
    few.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_bytes(policy.net, {}), few, providers=["CPUExecutionProvider"])
    left = np.full((1, 1), 12.5, np.float32)
    return lambda obs: session.run(None, {"observation": obs[None], "remaining": left})[0]


def in_c(policy: Any) -> Step:
    """Called through ctypes, which takes most of the time."""
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "policy.c").write_text(c_source(policy.net, {}, 1.0))
    subprocess.run(["cc", "-std=c99", "-O2", "-shared", "-fPIC", "policy.c", "-o", "policy.so", "-lm"], cwd=folder, check=True)
    act = ctypes.CDLL(str(folder / "policy.so")).saute_policy
    shutil.rmtree(folder)
    action, left = np.zeros(policy.about.actions, np.float32), np.full(1, 12.5)
    act.argtypes, there, out = [ctypes.c_void_p] * 3, left.ctypes.data, action.ctypes.data
    return lambda obs: act(obs.ctypes.data, there, out)


def latencies(steps: dict[str, Step], observations: int) -> dict[str, np.ndarray]:
    """Microseconds of each of all calls; the contenders take turns."""
    obs = np.random.default_rng(0).normal(size=(TURN, observations)).astype(np.float32)
    seen: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(CALLS // TURN + 1):  # the first turn only warms up
        for name, step in steps.items():
            for row in obs:
                begin = time.perf_counter()
                step(row)
                seen[name].append(1e6 * (time.perf_counter() - begin))
    return {name: np.array(times[TURN:]) for name, times in seen.items()}


def compare(name: str) -> None:
    policy, former = (saute.load_policy(f"pretrained:{name}", backend=backend) for backend in ("numpy", "jax"))
    makers = {
        "load_policy": in_numpy,
        "BudgetedPolicy, act and spend": kept,
        "exported: numpy": exported,
        "exported: onnx": in_onnx,
    }
    steps = {title: make(policy) for title, make in makers.items()}
    if shutil.which("cc"):
        steps["exported: c, by ctypes"] = in_c(policy)
    times = latencies(steps | {"load_policy, backend='jax'": in_numpy(former)}, policy.about.bare)
    slowest = np.median(times["load_policy, backend='jax'"])
    print(f"{name}: {policy.about.observations} inputs, layers of {policy.about.hidden}, {CALLS:,} calls")
    for title, own in times.items():
        p50, p99 = np.quantile(own, [0.5, 0.99])
        print(f"  {title:<32} p50 {p50:7.1f} µs   p99 {p99:7.1f} µs ({p99 / p50:4.1f} × p50)   {slowest / p50:6.1f} × JAX")
    print()


if __name__ == "__main__":
    for name in ("pendulum-saute-trpo", "pendulum-saute-sac", "car-saute-trpo"):
        compare(name)
