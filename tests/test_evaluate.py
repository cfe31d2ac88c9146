"""Evaluation: one whole episode of each environment, what its budget says, and one compilation for many policies."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_toys import Constant, Slope, hosted
from toys import Scripted

import saute
import saute.runs.evaluate as evaluation
from saute.core.options import options
from saute.envs.from_gym import HostEnvs
from saute.learn.nets import policy_for
from saute.runs.evaluate import Outcome, Sampled, evaluate, evaluator, pooled


@pytest.mark.parametrize("sauted", [saute.saute(Slope(), 3.0), hosted(4)], ids=["native", "host"])
def test_an_outcome_has_the_tasks_own_return_and_what_the_carried_budget_says(sauted: Any) -> None:
    for action, violated in ((0.25, False), (0.5, True)):
        outcome = evaluate(Constant(), np.float32(action), sauted, 4)
        np.testing.assert_array_equal(outcome.task_return, np.full(4, 10 * action))
        np.testing.assert_array_equal(outcome.cost, outcome.task_return)
        np.testing.assert_array_equal(outcome.spent, outcome.cost)
        assert outcome.length.tolist() == [10] * 4 and outcome.violated is not None
        assert outcome.violated.tolist() == [violated] * 4


@pytest.mark.parametrize("bare", [Slope(), HostEnvs(hosted(2).envs.env)], ids=["native", "host"])
def test_an_environment_that_is_not_sauted_is_held_against_the_ledger(bare: Any) -> None:
    assert evaluate(Constant(), np.float32(0.5), bare, 2).violated is None
    # Σ 0.9ᵗ/2 over ten steps is 3.2566.
    for budget, violated in ((3.26, False), (3.25, True)):
        outcome = evaluate(Constant(), np.float32(0.5), bare, 2, ledger=options(budget, discount=0.9))
        np.testing.assert_allclose(outcome.spent, 3.2566, rtol=1e-4)
        assert outcome.violated is not None and outcome.violated.tolist() == [violated] * 2


def test_outcomes_are_pooled_and_cut() -> None:
    one, other = (Outcome(*(np.full(3, value),) * 4, violated=np.full(3, value > 1)) for value in (1.0, 2.0))
    both = pooled([one, other], 5)
    assert both.cost.tolist() == [1, 1, 1, 2, 2] and both.violated is not None and both.violated.sum() == 2
    assert pooled([one._replace(violated=None)] * 2).violated is None


def test_an_episode_that_never_ends_is_not_evaluated_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LONGEST", 6)
    envs = HostEnvs(partial(Scripted, length=6), num_envs=3)
    net = policy_for(envs.observation_space, envs.action_space, (4,))
    parameters = net.init(jax.random.key(0))
    assert (evaluate(net, parameters, envs, 3).length == 6).all()
    endless = HostEnvs(partial(Scripted, length=7), num_envs=3)
    with pytest.raises(ValueError, match="3 of 3 episodes have not ended after 6 steps; give the environment a time limit"):
        evaluate(net, parameters, endless, 3)


def test_many_policies_are_evaluated_on_the_host_with_one_compilation() -> None:
    envs, traces = HostEnvs(partial(Scripted, length=2), num_envs=3), []

    class Net(Constant):
        def decide(self, parameters: Any, memory: Any, obs: Any) -> Any:
            traces.append(1)
            return parameters * jnp.ones((len(obs), 1)), memory

    test = evaluator(Net(), envs, 3)
    for seed in range(3):
        assert (test(np.float32(seed), seed).length == 2).all()
    assert len(traces) == 1


def test_sampled_policies_draw_their_actions_as_in_training() -> None:
    """With σ = e^−½ and mean 0, the mean of |a| is σ√(2/π); a deterministic policy has none."""
    from saute.learn.nets import Gaussian, GaussianParameters, init_mlp

    net = Gaussian(2, 1, (4,))
    zeros = jax.tree.map(jnp.zeros_like, init_mlp(jax.random.key(0), (2, 4, 1)))
    parameters = GaussianParameters(zeros, jnp.full(1, -0.5))
    acting, obs = Sampled(net), jnp.zeros((4000, 2))
    first, memory = acting.decide(parameters, acting.memory(4000), obs)
    second, _ = acting.decide(parameters, memory, obs)
    for drawn in (first, second):
        assert float(jnp.abs(drawn).mean()) == pytest.approx(np.exp(-0.5) * np.sqrt(2 / np.pi), rel=0.05)
    assert abs(float(jnp.corrcoef(first[:, 0], second[:, 0])[0, 1])) < 0.06


@pytest.mark.parametrize("env", [saute.saute(Slope(), 3.0), hosted(4)], ids=["native", "host"])
def test_every_sampled_episode_has_random_numbers_of_its_own(env: Any) -> None:
    """Starts are all alike, so what differs are the actions; were they drawn alike, so many episodes would prove less."""
    net = policy_for(env.observation_space, env.action_space, (4,))
    one = net.init(jax.random.key(0))
    outcomes = evaluation.tested(Sampled(net), [one, one], env, 8, seed=5)
    both = pooled(outcomes).task_return
    assert len(set(both)) == 16, "two policies of two batches each"
    again = evaluation.tested(Sampled(net), [one, one], env, 8, seed=5)
    assert pooled(again).task_return.tolist() == both.tolist()
