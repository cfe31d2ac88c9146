"""Sauté-PPO on a Brax task: a pole is balanced as far right as the budget allows. Run: python examples/brax_cart.py

It needs `pip install "saute[train,jax-envs]"`. The cost of a step is 1 where the cart is beyond 0.3, an episode has 200 steps,
and its budget is 20. Brax rewards each step with 1 until the pole falls; here the cart's position is added, so that rewards
stay ≥ 0 on the rail, and overspending, which gives 0, never pays.
"""

import argparse
from typing import Any

from brax import envs

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.core.options import options
from saute.envs.foreign import ForeignEnv
from saute.evidence.stats import upper_bound
from saute.runs.evaluate import Outcome, evaluate

LINE, BUDGET, HORIZON = 0.3, 20.0, 200
SETTINGS = OnPolicySettings(steps_per_epoch=32 * HORIZON, value_scale=10.0)


class FarRight(envs.Wrapper):
    """r = 1 + x of the cart."""

    def step(self, state: Any, action: Any) -> Any:
        state = self.env.step(state, action)
        return state.replace(reward=state.reward + state.obs[0])


def beyond(obs: Any, action: Any, next_obs: Any, info: Any) -> Any:
    return next_obs[0] > LINE


def make() -> ForeignEnv:
    return saute.from_brax(FarRight(envs.get_environment("inverted_pendulum")), cost=beyond, horizon=HORIZON)


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
