"""The books of every form of the wrapper against plain arithmetic, with costs of odd types."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import saute

LENGTH = 25
TYPES: dict[str, Callable[[float], Any]] = {
    "float": float,
    "int": lambda cost: int(cost),
    "bool": lambda cost: cost >= 1.0,
    "float16": np.float16,
    "float32": np.float32,
    "int8": lambda cost: np.int8(cost),
    "0-d float32": lambda cost: np.array(cost, np.float32),
    "0-d int": lambda cost: np.array(int(cost)),
    "one-element": lambda cost: np.array([cost]),
    "one-element list": lambda cost: [cost],
}
"""What environments may return for a cost."""


class Paying(gym.Env):
    """Its costs are drawn anew for every episode, and come in one type, or in another at every step."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Box(-1.0, 1.0, (1,), np.float32)
    render_mode = None

    def __init__(self, seed: int, kind: str | None):
        self.chance, self.kind = random.Random(seed), kind
        self.log: list[tuple[float, bool]] = []
        """What was paid, and whether it was the last step of its episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.left = self.chance.randrange(1, LENGTH)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        kind = self.kind or self.chance.choice(list(TYPES))
        cost = TYPES[kind](self.chance.choice((0.0, 1.0, 0.9, 0.1, 2.5, self.chance.random())))
        self.log.append((float(np.asarray(cost).item()), self.left == 0))
        ended, timed = (self.left == 0, False) if self.left % 2 else (False, self.left == 0)
        return np.zeros(1, np.float32), 1.0, ended, timed, {"cost": cost}


def expected(log: list[tuple[float, bool]], budget: float, discount: float) -> Iterator[tuple[float, bool]]:
    """What remains after every step, and whether it is overspent: w' = (w − l) / γ."""
    remaining = budget
    for cost, last in log:
        remaining = (remaining - cost) / discount
        yield remaining, remaining < 0
        remaining = budget if last else remaining


def single(place: object, steps: int, seed: int = 0) -> Iterator[str | None]:
    """Steps of `SauteWrapper`, whose costs change their type at every step."""
    for begin in range(0, steps, 5000):
        bare, budget, discount = Paying(seed + begin, None), 1.0 + begin % 7, (1.0, 0.99)[begin // 5000 % 2]
        env = saute.SauteWrapper(bare, budget, discount=discount)
        env.reset()
        found = []
        for _ in range(5000):
            _, _, terminated, truncated, info = env.step(np.zeros(1, np.float32))
            found.append((info["remaining"], info["violated"]))
            if terminated or truncated:
                env.reset()
        yield from _compared(found, expected(bare.log, budget, discount), "single")


def vector(place: object, steps: int, seed: int = 0, count: int = 50) -> Iterator[str | None]:
    """Steps of `SauteVectorWrapper` in every autoreset mode, over environments that return floats."""
    for i, mode in enumerate(AutoresetMode):
        budget, discount = 2.0 + i, (1.0, 0.99, 0.95)[i]
        bare = [Paying(seed + 100 * i + k, "float") for k in range(count)]
        envs = saute.SauteVectorWrapper(
            SyncVectorEnv([partial(_given, one) for one in bare], autoreset_mode=mode), budget, discount=discount
        )
        yield from _played(envs, bare, steps // 3 // count, partial(expected, budget=budget, discount=discount))


def hosted(place: object, steps: int, seed: int = 0, count: int = 50) -> Iterator[str | None]:
    """Steps of the vector that training makes of environments whose costs change their type at every step."""
    bare = [Paying(seed + 900 + k, None) for k in range(count)]
    makers = iter(bare)
    envs = saute.HostEnvs(lambda: saute.SauteWrapper(next(makers), 3.0), count)
    envs.reset(0)
    found: list[list[tuple[float, bool]]] = [[] for _ in bare]
    for _ in range(steps // count):
        made = envs.step(np.zeros((count, 1), np.float32))
        for i in range(count):
            found[i].append((made.state.remaining[i], bool(made.state.violated[i])))
        over = made.terminated | made.truncated
        if over.any():
            envs.restart(over)
    for one, log in zip(found, (each.log for each in bare), strict=True):
        yield from _compared(one, expected(log, 3.0, 1.0), "hosted")


def native(place: object, steps: int, seed: int = 0) -> Iterator[str | None]:
    """Steps of the JAX-native form, in double precision; its compensated sums may be nearer to the truth by a rounding."""
    import jax
    import jax.numpy as jnp

    from saute.core.native import spent

    rng, count = np.random.default_rng(seed), steps // LENGTH
    costs = np.where(
        rng.random((LENGTH, count)) < 0.5, rng.integers(0, 1024, (LENGTH, count)) / 1024, rng.integers(0, 3, (LENGTH, count))
    )
    with jax.enable_x64(True):
        start = (jnp.full(count, 12.5), jnp.zeros(count))

        def pay(state: Any, cost: Any) -> Any:
            state = spent(*state, cost, 1.0)
            return state, state[0]

        found = np.asarray(jax.jit(lambda paid: jax.lax.scan(pay, start, paid)[1])(jnp.asarray(costs)))
    wrong = found != 12.5 - np.cumsum(costs, axis=0)
    yield from (["native: another remaining budget"] * int(wrong.sum()) + [None] * int((~wrong).sum()))


def refused(place: object) -> Iterator[str | None]:
    """Vectors of others whose costs come as whole numbers or flags, which may have been cut, and costs that are no numbers."""
    for kind in ("int", "bool", "int8", "0-d int"):
        envs = saute.SauteVectorWrapper(SyncVectorEnv([partial(Paying, k, kind) for k in range(3)]), 3.0)
        envs.reset()
        yield _refusal(lambda envs=envs: envs.step(np.zeros((3, 1), np.float32)), kind)  # type: ignore[misc]
    for odd in ("1", b"1", np.array("1"), np.array(["1"]), ["1"], None, 1j, float("nan"), -1.0, np.array([None])):
        env = saute.SauteWrapper(Paying(0, "float"), 3.0, cost=lambda obs, action, after, info, odd=odd: odd)
        env.reset()
        yield _refusal(lambda env=env: env.step(np.zeros(1, np.float32)), repr(odd))  # type: ignore[misc]


def _refusal(step: Callable[[], object], name: str) -> str | None:
    try:
        step()
    except ValueError:
        return None
    return f"a cost of {name} was accepted"


def _given(env: gym.Env) -> gym.Env:
    return env


def _played(
    envs: Any, bare: list[Paying], steps: int, expect: Callable[[list[tuple[float, bool]]], Iterator[tuple[float, bool]]]
) -> Iterator[str | None]:
    """The steps of a vector environment, without those that only reset."""
    count, mode, ended = len(bare), envs.autoreset_mode, np.zeros(len(bare), bool)
    envs.reset()
    found: list[list[tuple[float, bool]]] = [[] for _ in bare]
    for _ in range(steps):
        _, _, terminated, truncated, info = envs.step(np.zeros((count, 1), np.float32))
        over = terminated | truncated
        final = info.get("final_info", {})
        for i in range(count):
            if not (mode is AutoresetMode.NEXT_STEP and ended[i]):
                of = final if mode is AutoresetMode.SAME_STEP and over[i] else info
                found[i].append((of["remaining"][i], bool(of["violated"][i])))
        ended = over
        if mode is AutoresetMode.DISABLED and over.any():
            envs.reset(options={"reset_mask": over})
    for one, env in zip(found, bare, strict=True):
        yield from _compared(one, expect(env.log), mode.value)


def _compared(found: list[tuple[float, bool]], wanted: Iterator[tuple[float, bool]], form: str) -> Iterator[str | None]:
    for step, (one, other) in enumerate(zip(found, wanted, strict=True)):
        yield None if one == other else f"{form}: {one} instead of {other} after step {step}"
