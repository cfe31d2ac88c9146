"""Both collectors: the same batch, own last observations, whole episodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from toys import Scripted

import saute
import saute.runs.evaluate as evaluation
from saute.envs.from_gym import HostEnvs
from saute.learn.drive import collect, collect_host
from saute.learn.nets import policy_for

TASK = dict(mode="test", horizon=7)


def act(obs: Any, key: Any) -> tuple[Any, Any]:
    return jnp.clip(jax.random.normal(key, (len(obs), 1)), -1, 1), {"first": obs[:, 0]}


def fixed_start(env: Any) -> Any:
    """The pendulum from one known state, so that both collectors start alike."""
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Fixed:
        env: Any
        horizon = 7

        def __getattr__(self, name: str) -> Any:
            return getattr(self.env, name)

        def reset(self, key: Any) -> Any:
            return self.env.start_from(jnp.array([3.0, 0.1]))

        def step(self, state: Any, action: Any, key: Any) -> Any:
            return self.env.step(state, action, key)

    return Fixed(env)


class Restarting(gym.vector.VectorWrapper):
    """Every reset leads to the same physical state."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options={**(options or {}), "state": [3.0, 0.1]})


@pytest.mark.parametrize("sauted", [False, True])
def test_native_and_host_collectors_give_the_same_batch(sauted: bool) -> None:
    native = fixed_start(saute.envs.pendulum(**TASK))
    host = Restarting(gym.make_vec("saute/SafePendulum-v0", num_envs=3, autoreset_mode=AutoresetMode.DISABLED, **TASK))
    if sauted:
        native = saute.saute(native, budget=0.5, unsafe_reward=-1.0)
        host = saute.SauteVectorWrapper(host, 0.5, unsafe_reward=-1.0)
    key = jax.random.key(3)
    a = jax.jit(lambda k: collect(native, act, k, 3, 20))(key)
    b = collect_host(HostEnvs(host), act, key, 20)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, atol=2e-5)


def test_last_observations_are_the_episodes_own_and_sums_are_whole_episodes() -> None:
    env = saute.saute(saute.envs.pendulum(mode="test", horizon=5), budget=30.0)
    transition, episodes = jax.jit(lambda k: collect(env, act, k, 4, 12))(jax.random.key(0))
    assert transition.obs.shape == (12, 4, 4) and transition.truncated.sum() == 8
    inner = ~np.asarray(episodes.ended)[:-1]
    np.testing.assert_array_equal(transition.next_obs[:-1][inner], transition.obs[1:][inner])
    ends = np.asarray(episodes.ended)[:-1]
    assert (np.asarray(transition.obs[1:])[ends][:, -1] == 1.0).all()
    assert not np.array_equal(transition.next_obs[:-1][ends], transition.obs[1:][ends])
    np.testing.assert_array_equal(np.asarray(episodes.length)[np.asarray(episodes.ended)], 5)
    costs = np.asarray(transition.cost).reshape(12, 4)[:5].sum(0)
    np.testing.assert_allclose(episodes.cost[4], costs, rtol=1e-6)


def test_task_return_is_unshaped_in_both_collectors() -> None:
    env = saute.saute(fixed_start(saute.envs.pendulum(**TASK)), budget=1e-6, unsafe_reward=-9.0)
    transition, episodes = collect(env, lambda o, k: (jnp.zeros((2, 1)), ()), jax.random.key(0), 2, 7)
    assert (episodes.task_return[-1] > 0).all()
    scripted = saute.SauteVectorWrapper(
        gym.vector.SyncVectorEnv([partial(Scripted, length=3)] * 2, autoreset_mode=AutoresetMode.DISABLED),
        1.0,
        unsafe_reward=-9.0,
    )
    transition, episodes = collect_host(HostEnvs(scripted), lambda o, k: (np.zeros((2, 1)), ()), jax.random.key(0), 3)
    np.testing.assert_array_equal(transition.reward[:, 0], [1.0, -9.0, -9.0])
    np.testing.assert_array_equal(episodes.task_return[-1], [3.0, 3.0])
    np.testing.assert_array_equal(transition.next_obs[-1, :, -1], [-2.0, -2.0])


def test_host_takes_a_function_that_makes_one_environment() -> None:
    envs = HostEnvs(partial(Scripted, length=2), num_envs=3)
    transition, episodes = collect_host(envs, lambda o, k: (np.zeros((3, 1)), ()), jax.random.key(0), 5)
    assert episodes.ended.sum() == 6 and transition.obs.dtype == np.float32


def test_host_refuses_what_it_cannot_collect() -> None:
    with pytest.raises(ValueError, match="resets itself"):
        HostEnvs(gym.vector.SyncVectorEnv([Scripted]))
    with pytest.raises(ValueError, match="flatten them"):
        HostEnvs(lambda: Scripted(space=gym.spaces.Discrete(3)))
    with pytest.raises(ValueError, match="no cost"):
        collect_host(HostEnvs(partial(Scripted, key="")), lambda o, k: (np.zeros((1, 1)), ()), jax.random.key(0), 1)


def test_an_episode_that_never_ends_is_not_evaluated_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LONGEST", 6)
    envs = HostEnvs(partial(Scripted, length=6), num_envs=3)
    net = policy_for(envs.observation_space, envs.action_space, (4,))
    parameters = net.init(jax.random.key(0))
    assert (evaluation.evaluate(net, parameters, envs, 3).length == 6).all()
    endless = HostEnvs(partial(Scripted, length=7), num_envs=3)
    with pytest.raises(ValueError, match="3 episodes have not ended after 6 steps; give the environment a TimeLimit"):
        evaluation.evaluate(net, parameters, endless, 3)


def test_many_policies_are_evaluated_on_the_host_with_one_compilation() -> None:
    envs, traces = HostEnvs(partial(Scripted, length=2), num_envs=3), []

    class Net:
        def distribution(self, parameters: Any, obs: Any) -> Any:
            traces.append(1)
            return parameters * jnp.ones((len(obs), 1))

        def mode(self, dist: Any) -> Any:
            return dist

    test = evaluation.evaluator(Net(), envs, 3)
    for seed in range(3):
        assert (test(np.float32(seed), seed).length == 2).all()
    assert len(traces) == 1
