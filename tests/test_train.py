"""Training: known optima on probes, with and without constraints and budgets; minibatches, trust regions, cost rates."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from learner_toys import Slope

import saute
from saute.algos.cpo import cpo
from saute.algos.onpolicy import OnPolicySettings, interleave
from saute.algos.ppo import ppo
from saute.algos.trpo import trpo
from saute.core.protocol import Step
from saute.learn.constraint import lagrangian, pid
from saute.runs.evaluate import evaluate
from saute.runs.loop import train

SMALL = OnPolicySettings(hidden=(16, 16), steps_per_epoch=400, value_iterations=20)


def action_of(run: Any) -> np.ndarray:
    obs = jnp.linspace(0, 0.9, 10)[:, None]
    policy = run.agent.policy
    return np.array([np.clip(policy.decide(parameters, (), obs)[0], -1, 1).mean() for parameters in run.policies])


@pytest.mark.parametrize("optimiser", [ppo, trpo])
def test_unconstrained_probe(optimiser) -> None:
    run = train(optimiser(settings=SMALL), Slope(), seeds=2, epochs=60)
    assert (action_of(run) > 0.85).all()


MINIBATCHES = dataclasses.replace(SMALL, minibatches=5, value_scale=10.0)


@pytest.mark.parametrize("algorithm", [ppo(settings=MINIBATCHES), trpo(settings=MINIBATCHES)])
def test_unconstrained_probe_in_minibatches_with_scaled_values(algorithm) -> None:
    run = train(algorithm, Slope(), seeds=2, epochs=60)
    assert (action_of(run) > 0.85).all()


TIMES, ENVS = jnp.meshgrid(jnp.arange(5), jnp.arange(6), indexing="ij")
"""Time and environment of thirty steps."""


def test_minibatches_see_all_times() -> None:
    for i, part in enumerate(interleave(jnp.stack([TIMES, ENVS], -1), 3)):
        assert ((part[:, 1] - part[:, 0]) % 3 == i).all()
        assert np.bincount(part[:, 0]).tolist() == [2] * 5


def test_minibatches_lose_no_step_and_part_all_arrays_alike() -> None:
    parts, same = interleave((jnp.stack([TIMES, ENVS], -1), 10 * TIMES + ENVS), 3)
    np.testing.assert_array_equal(10 * parts[..., 0] + parts[..., 1], same)
    assert sorted(same.ravel().tolist()) == sorted((10 * TIMES + ENVS).ravel().tolist())
    np.testing.assert_array_equal(interleave(TIMES, 1)[0], TIMES.ravel())


def test_there_are_no_more_minibatches_than_environments_and_what_fills_no_row_is_left_out() -> None:
    uneven = interleave(10 * TIMES + ENVS, 4)
    assert uneven.shape == (4, 5) and len(set(uneven.ravel().tolist())) == 20
    assert interleave(TIMES, 100).shape == (6, 5)


CONSTRAINED = {
    "ppo-lagrangian": lambda: ppo(lagrangian(3.0), SMALL),
    "trpo-lagrangian": lambda: trpo(lagrangian(3.0), SMALL),
    "trpo-pid": lambda: trpo(pid(3.0, proportional=0.5, integral=0.1), SMALL),
    "ppo-pid": lambda: ppo(pid(3.0, proportional=0.5, integral=0.1), SMALL),
    "cpo": lambda: cpo(3.0, SMALL),
}


@pytest.mark.parametrize("name", CONSTRAINED)
def test_constrained_probe_comes_to_the_limit_and_not_beyond(name: str) -> None:
    run = train(CONSTRAINED[name](), Slope(), seeds=2, epochs=150, budget=3.0)
    costs = np.array([[seed["cost"] for seed in epoch] for epoch in run.metrics[-40:]])
    assert costs.mean() < 3.5, "the mean cost of the episodes is held near the limit"
    assert costs.mean() > 1.5, "and the limit is used"


# The tail's gradient comes from a tenth of the episodes, and it shrinks the policy's noise, and with that the cost advantage
# against the normalised one of the reward: the multiplier must follow faster.
WIDE = dataclasses.replace(SMALL, steps_per_epoch=2000)
TAILS = {
    "trpo-cvar": lambda: trpo(lagrangian(3.0, worst=0.02), SMALL),
    "trpo-cvar-tail": lambda: trpo(lagrangian(3.0, worst=0.1, tail=True, rate=0.3), WIDE),
}


@pytest.mark.parametrize("name", TAILS)
def test_the_tail_of_the_costs_is_held_at_the_limit(name: str) -> None:
    """CVaR lies between the mean and the worst cost of an epoch; of 40 episodes the worst 2 % are the worst one."""
    run = train(TAILS[name](), Slope(), seeds=2, epochs=150, budget=3.0)
    mean, worst = (np.mean([[seed[of] for seed in epoch] for epoch in run.metrics[-40:]]) for of in ("cost", "worst_cost"))
    assert 2.4 < mean < worst < 3.6


@pytest.mark.parametrize("make", [ppo, trpo, lambda **kw: cpo(3.0, **kw)], ids=["ppo", "trpo", "cpo"])
def test_the_trust_region_shrinks_to_a_tenth(make) -> None:
    settings = dataclasses.replace(SMALL, target_kl=0.02, kl_epochs=6)
    run = train(make(settings=settings), Slope(), seeds=1, epochs=9)
    steps = np.array([epoch[0]["divergence"] for epoch in run.metrics])
    assert 0.005 < steps[0] < 0.03
    wanted = 0.02 * np.maximum(0.1, 1.0 - np.arange(9) / 6)
    assert (steps <= 1.5 * wanted + 1e-7).all(), "PPO stops a little beyond its target"
    assert steps[8] > 0.0


@pytest.mark.parametrize("optimiser", [ppo, trpo])
def test_sauted_probe_spends_its_budget_and_no_more(optimiser) -> None:
    env = saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0)
    run = train(optimiser(settings=dataclasses.replace(SMALL, steps_per_epoch=2000)), env, seeds=2, epochs=120)
    for parameters in run.policies:
        outcome = evaluate(run.agent.policy, parameters, env, 10)
        assert (outcome.cost <= 3.0).all() and outcome.task_return.mean() > 1.5


def test_discrete_actions_are_learned() -> None:
    class Arms(Slope):
        action_space = spaces.Discrete(3)

        def step(self, state: Any, action: Any, key: Any) -> Step:
            return Slope.step(self, state, (action[None] == 1).astype(jnp.float32), key)

    run = train(trpo(settings=SMALL), Arms(), seeds=1, epochs=40)
    obs = jnp.linspace(0, 0.9, 10)[:, None]
    np.testing.assert_array_equal(run.agent.policy.decide(run.policies[0], (), obs)[0], 1)


def test_cost_rate_is_the_cost_of_all_training_per_episode() -> None:
    run = train(trpo(settings=SMALL), Slope(), seeds=2, epochs=3)
    for seed in range(2):
        spent = [epoch[seed]["cost_per_step"] for epoch in run.metrics]
        assert [epoch[seed]["cost_rate"] for epoch in run.metrics] == pytest.approx(10 * np.cumsum(spent) / np.arange(1, 4))
        # All episodes of the probe are whole, so that the mean cost of an episode is that of its ten steps.
        assert run.metrics[2][seed]["cost"] == pytest.approx(10 * spent[2], rel=1e-5)
