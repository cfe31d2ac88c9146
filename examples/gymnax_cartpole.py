"""Sauté-PPO on a gymnax task: a pole is balanced as far right as the budget allows. Run: python examples/gymnax_cartpole.py

It needs `pip install "saute[train,jax-envs]"`. The cost of a step is 1 where the cart is beyond 0.3, an episode has 200 steps,
and its budget is 20. gymnax rewards each step with 1 until the pole falls; here the cart's position is added, as a part of the
way to the end, so that rewards stay ≥ 0, and overspending, which gives 0, never pays. The actions are discrete, left and right.
"""

import argparse
from typing import Any

from gymnax.environments.classic_control.cartpole import CartPole

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.core.options import options
from saute.envs.foreign import ForeignEnv
from saute.evidence.stats import upper_bound
from saute.runs.evaluate import Outcome, evaluate

LINE, BUDGET, HORIZON = 0.3, 20.0, 200
SETTINGS = OnPolicySettings(steps_per_epoch=32 * HORIZON, value_scale=10.0)


class FarRight(CartPole):
    """r = 1 + x / 2.4."""

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, done, info = super().step_env(key, state, action, params)
        return obs, state, reward + state.x / params.x_threshold, done, info


def beyond(obs: Any, action: Any, next_obs: Any, info: Any) -> Any:
    return next_obs[0] > LINE


def make() -> ForeignEnv:
    return saute.from_gymnax(FarRight(), cost=beyond, horizon=HORIZON)


def train(epochs: int, sauted: bool, seed: int, episodes: int) -> Outcome:
    """Train in one compiled program, then evaluate the deterministic policy on starts that it never saw."""
    env = saute.saute(make(), budget=BUDGET) if sauted else make()
    run = saute.train(saute.ppo(settings=SETTINGS), env, seeds=1, seed=seed, epochs=epochs)
    return evaluate(run.agent.policy, run.policies[0], env, episodes, ledger=options(BUDGET))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=100)
    asked = parser.parse_args()
    print(f"{'method':8} {'task return':>11} {'cost':>7} {'worst':>7}   violations (budget {BUDGET:g})")
    for name, sauted in (("vanilla", False), ("sautéed", True)):
        outcome = train(asked.epochs, sauted, asked.seed, asked.episodes)
        k, n = int(outcome.violated.sum()), len(outcome.cost)
        numbers = f"{outcome.task_return.mean():11.2f} {outcome.cost.mean():7.2f} {outcome.cost.max():7.2f}"
        print(f"{name:8} {numbers}   {k} of {n} episodes, so ≤ {upper_bound(k, n):.3f} at 95 %", flush=True)


if __name__ == "__main__":
    main()
