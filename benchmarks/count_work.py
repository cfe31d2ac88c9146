"""What an epoch of each preset computes, counted from its program, and what that would take on one GPU, on paper.

    python benchmarks/count_work.py [--seeds 5]

Counted from the jaxpr, every loop as often as it turns: XLA's own `cost_analysis` counts the body of a loop once, whatever its
length. Flops are those of matrix products (2 m n k), and one for each number that other operations make. Bytes are the operands
and results of the products, which have to be moved unless they stay in a cache; what is between them is fused. Steps are
products and turns of loops in a row, each at least one kernel. PPO's policy is counted with all of its iterations, a line
search with one try, a start that is redrawn with one draw, the fit of a learned model with one pass over its data.
The time is the sum of three: flops at PEAK, bytes at BANDWIDTH, kernels at LAUNCH.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, NamedTuple

import epochs
import jax

from saute.runs.build import algorithm_of, configured, environment_of
from saute.runs.config import Experiment

PEAK, BANDWIDTH, LAUNCH = 60e12, 3.3e12, 3e-6
"""Of one data-centre GPU, rounded: float32 flops/s without tensor cores, bytes/s, seconds per small kernel in a graph."""
NATIVE = ("pendulum", "double_pendulum", "reacher", "point")
PRESETS = [(preset, task, algo) for preset in ("paper", "fast") for task in NATIVE for algo in ("trpo", "ppo")]
PRESETS += [(preset, "pendulum", "sac") for preset in ("paper", "fast")]
PRESETS += [("paper", "pendulum", algo) for algo in ("mbpo", "pets")]


class Work(NamedTuple):
    """What is computed; `+` and `*` are those of its three numbers."""

    flops: float = 0.0
    bytes: float = 0.0
    steps: float = 0.0

    def plus(self, other: Work, times: float = 1.0) -> Work:
        return Work(*(own + times * others for own, others in zip(self, other, strict=True)))


def counted(jaxpr: Any, turns: int = 1) -> Work:
    """The work of a jaxpr; a loop that ends when it likes is taken to turn so often if it has products, else once."""
    total = Work()
    for line in jaxpr.eqns:
        name, given = line.primitive.name, line.params
        inner = [counted(getattr(part, "jaxpr", part), turns) for part in _parts(given)]
        if name == "scan":
            total = total.plus(inner[0].plus(Work(steps=1)), given["length"])
        elif name == "while":
            body = counted(given["body_jaxpr"].jaxpr, turns).plus(Work(steps=1))
            total = total.plus(body, turns if body.bytes else 1)
        elif name == "cond":
            total = total.plus(max(inner, key=lambda work: work.flops))
        elif inner:
            total = total.plus(inner[0])
        elif name == "dot_general":
            total = total.plus(_product(line))
        else:
            total = total.plus(Work(flops=sum(out.aval.size for out in line.outvars)))
    return total


def _parts(given: dict[str, Any]) -> list[Any]:
    """The programs in the parameters of an operation."""
    values = [one for value in given.values() for one in (value if isinstance(value, tuple | list) else (value,))]
    return [one for one in values if hasattr(getattr(one, "jaxpr", one), "eqns")]


def _product(line: Any) -> Work:
    (contracted, _), _ = line.params["dimension_numbers"]
    left, right, result = line.invars[0].aval, line.invars[1].aval, line.outvars[0].aval
    depth = math.prod(left.shape[axis] for axis in contracted)
    return Work(2.0 * result.size * depth, 4.0 * (left.size + right.size + result.size), 1.0)


def work_of(preset: str, task: str, algo: str) -> tuple[Work, int]:
    """An epoch of one seed, and the environment steps in it."""
    config = configured(Experiment(task, algo, preset=preset))
    init, epoch = epochs.of(algorithm_of(config), environment_of(config))
    key, settings = jax.random.key(0), config.settings
    program = jax.make_jaxpr(epoch)(jax.eval_shape(init, key), key)
    return counted(program.jaxpr, getattr(settings, "policy_iterations", 1) if algo == "ppo" else 1), settings.steps_per_epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="trained side by side, which adds no kernels")
    seeds = parser.parse_args().seeds
    heads = ("flops", "bytes", "kernels", "flops ms", "bytes ms", "kernels ms", "steps/s")
    print(f"One epoch of {seeds} seeds side by side\n{'':32}" + "".join(f"{head:>12}" for head in heads))
    for preset, task, algo in PRESETS:
        work, steps = work_of(preset, task, algo)
        limits = (seeds * work.flops / PEAK, seeds * work.bytes / BANDWIDTH, work.steps * LAUNCH)
        counts = (f"{seeds * work.flops:.2g}", f"{seeds * work.bytes:.2g}", f"{work.steps:,.0f}")
        times = [f"{1e3 * limit:,.2f}" for limit in limits]
        words = (*counts, *times, f"{seeds * steps / sum(limits):.2g}")
        print(f"{f'{preset} {task} {algo}':32}" + "".join(f"{word:>12}" for word in words))


if __name__ == "__main__":
    main()
