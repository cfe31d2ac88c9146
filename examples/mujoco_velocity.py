"""Sauté-SAC on a MuJoCo task: HalfCheetah with a budget for speeding. Run: python examples/mujoco_velocity.py

The cost of a step is the speed above 1 m/s, an episode has 200 steps, and its budget is 10. In this folder the
command line does the same with a preset:
saute train mujoco_velocity:SpeedLimit-v0 --algo sac --preset fast --envs 4 --budget 10 --unsafe-reward -0.5
"""

import argparse
import dataclasses
from typing import Any

import gymnasium as gym
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import saute
from saute.algos.sac import SacSettings
from saute.core.options import options
from saute.envs.from_gym import HostEnvs
from saute.evidence.stats import upper_bound
from saute.runs.evaluate import Outcome, evaluate

LIMIT, BUDGET, UNSAFE_REWARD, HORIZON = 1.0, 10.0, -0.5, 200
SETTINGS = SacSettings(
    hidden=(64, 64),
    batch=256,
    replay=100_000,
    rate=1e-3,
    temperature_rate=5e-4,
    averaging=0.01,
    value_scale=10.0,
    steps_per_epoch=4 * HORIZON,
)


class SpeedLimit(gym.Wrapper):
    """Adds the cost to `info`, which is all that Sauté needs of an environment."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward), terminated, truncated, info | {"cost": max(0.0, info["x_velocity"] - LIMIT)}


def speed_limit(**options: Any) -> gym.Env:
    return SpeedLimit(HalfCheetahEnv(**options))


gym.register("SpeedLimit-v0", entry_point=speed_limit, max_episode_steps=HORIZON)


def make(num_envs: int, sauted: bool) -> HostEnvs:
    envs = SyncVectorEnv([lambda: gym.make("SpeedLimit-v0")] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    return HostEnvs(saute.SauteVectorWrapper(envs, BUDGET, unsafe_reward=UNSAFE_REWARD) if sauted else envs)


def train(steps: int, sauted: bool, seed: int, episodes: int) -> Outcome:
    """Train in four environments side by side, then evaluate the deterministic policy from starts that it never saw."""
    algorithm = saute.sac(settings=dataclasses.replace(SETTINGS, relabel=sauted))
    run = saute.train(algorithm, make(4, sauted), seeds=1, seed=seed, epochs=max(1, steps // SETTINGS.steps_per_epoch))
    return evaluate(run.agent.policy, run.policies[0], make(episodes, sauted), episodes, ledger=options(BUDGET))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=100)
    asked = parser.parse_args()
    print(f"{'method':8} {'task return':>11} {'cost':>7} {'worst':>7}   violations (budget {BUDGET:g})")
    for name, sauted in (("vanilla", False), ("sautéed", True)):
        outcome = train(asked.steps, sauted, asked.seed, asked.episodes)
        k, n = int(outcome.violated.sum()), len(outcome.cost)
        numbers = f"{outcome.task_return.mean():11.2f} {outcome.cost.mean():7.2f} {outcome.cost.max():7.2f}"
        print(f"{name:8} {numbers}   {k} of {n} episodes, so ≤ {upper_bound(k, n):.3f} at 95 %", flush=True)


if __name__ == "__main__":
    main()
