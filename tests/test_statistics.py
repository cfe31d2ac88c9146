"""Running statistics against NumPy; what learners see with them, what they never touch, and that units do not matter then."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from learner_toys import Slope, assert_same

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.ppo import ppo
from saute.algos.sac import SacSettings, sac
from saute.core.protocol import Episodes, Step, Transition, spec_of
from saute.learn.constraint import lagrangian
from saute.learn.drive import drive
from saute.learn.replay import Batch
from saute.learn.statistics import Statistics, inputs_of, nothing, return_scale, updated
from saute.runs.evaluate import evaluate

ON_POLICY = OnPolicySettings(
    hidden=(16,), steps_per_epoch=400, num_envs=20, value_iterations=20, policy_iterations=20, policy_rate=1e-2,
    value_rate=1e-2, target_kl=0.05, discount=0.9, cost_discount=0.9,
)  # fmt: skip
SAC = SacSettings(
    hidden=(32,), batch=64, replay=5000, random_steps=100, steps_per_epoch=200, num_envs=10, rate=3e-3, averaging=0.02,
    discount=0.9, updates_per_step=0.5, temperature_rate=1e-2,
)  # fmt: skip
BOTH = {"running_normaliser": True, "scale_rewards": True}


def of(batches: Any) -> Statistics:
    """The statistics of one batch after the other."""
    start = nothing(*batches[0].shape[batches[0].ndim - 1 :])
    step = jax.jit(lambda known, rows: (updated(known, rows), None))
    return jax.lax.scan(step, start, jnp.asarray(np.stack(batches), jnp.float32))[0]


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("shape", [(20_000, 1, 3), (300, 7, 5, 3)])
def test_running_statistics_are_those_of_all_rows(offset: float, shape: tuple[int, ...]) -> None:
    """Also one row at a time, whose share falls below the resolution of an offset of 10,000 after a thousand of them."""
    random = np.random.default_rng(0)
    drift = np.linspace(0.0, 2.0, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    x = (offset + drift + random.normal([0.0, 0.5, -1.0], [1.0, 0.3, 2.0], shape)).astype(np.float32)
    rows, known = x.reshape(-1, 3).astype(np.float64), of(x)
    assert known.number == len(rows)
    np.testing.assert_allclose(known.mean.total, rows.mean(0), rtol=1e-7, atol=1e-4)
    np.testing.assert_allclose(known.variance.total, rows.var(0), rtol=1e-4)


def test_unequal_batches_count_by_their_rows() -> None:
    x = np.random.default_rng(1).normal(3.0, 2.0, (111, 2)).astype(np.float32)
    known = nothing(2)
    for part in (x[:1], x[1:11], x[11:]):
        known = updated(known, jnp.asarray(part))
    np.testing.assert_allclose(known.mean.total, x.mean(0, np.float64), rtol=1e-5)
    np.testing.assert_allclose(known.variance.total, x.var(0, np.float64), rtol=1e-5)


def test_pictures_and_budgets_stay_exactly_and_constants_are_not_blown_up() -> None:
    x = np.random.default_rng(2).normal([1e3, 9.81], [1e-2, 0.0], (500, 1, 2)).astype(np.float32)
    inputs = inputs_of(of(x), pixels=3, budgets=2)
    whole = jnp.concatenate([jnp.full((500, 3), 255.0), x[:, 0], jnp.full((500, 2), 0.1234567)], 1)
    seen = inputs(whole)
    np.testing.assert_array_equal(seen[:, :3], whole[:, :3])
    np.testing.assert_array_equal(seen[:, 5:], whole[:, 5:])
    np.testing.assert_allclose([seen[:, 3].mean(), seen[:, 3].std()], [0.0, 1.0], atol=1e-2)
    np.testing.assert_array_equal(seen[:, 4], 0.0)
    np.testing.assert_array_equal(inputs.scale[4], 1.0)
    assert_same(inputs_of(nothing(2), 1, 1), (jnp.zeros(4), jnp.ones(4)))
    assert inputs_of(nothing(0), 4, 1).mean.shape == (5,), "there may be nothing but a picture"


def test_the_scale_of_rewards_is_the_size_of_their_discounted_sum() -> None:
    rewards = np.random.default_rng(3).normal(0.3, 2.0, 200_000).astype(np.float32)
    sums = np.zeros(len(rewards))
    for i, r in enumerate(rewards):
        sums[i] = 0.9 * sums[i - 1] + r
    found = return_scale(updated(nothing(), jnp.asarray(rewards)), 0.9)
    assert found == pytest.approx(math.sqrt(np.mean(sums**2)), rel=1e-2)
    assert return_scale(updated(nothing(), jnp.full(9, -3.0)), 0.9) == pytest.approx(30.0, rel=1e-5)
    assert return_scale(updated(nothing(), jnp.zeros(9)), 0.9) == 1.0


@pytest.mark.parametrize("algorithm", [ppo, sac])
def test_returns_without_discount_have_no_scale(algorithm: Any) -> None:
    settings = ON_POLICY if algorithm is ppo else SAC
    undiscounted = dataclasses.replace(settings, scale_rewards=True, discount=1.0)
    with pytest.raises(ValueError, match=r"no bound for discount=1; use a discount below 1"):
        algorithm(settings=undiscounted).agent(spec_of(Slope()))


@dataclasses.dataclass(frozen=True)
class Units:
    """A number s ~ U(−1, 1) at every step, to be answered by a = s: pays −(a − s)² and costs a⁺, all in odd units."""

    offset: float = 1e3
    extent: float = 1e-2
    pay: float = 1e3
    horizon: int = 20
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _shown(self, s: Any) -> Any:
        return jnp.stack([self.offset + self.extent * s, 9.81])

    def reset(self, key: Any) -> tuple[Any, Any]:
        s = jax.random.uniform(key, minval=-1.0, maxval=1.0)
        return (s, jnp.zeros((), jnp.int32)), self._shown(s)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        (s, time), a = state, jnp.clip(action[0], -1.0, 1.0)
        (fresh, _), obs = self.reset(key)
        never = jnp.zeros((), bool)
        return Step((fresh, time + 1), obs, -self.pay * (a - s) ** 2, jnp.maximum(a, 0.0), never, time + 1 >= self.horizon)


STEPS: dict[str, Any] = {"sac": {"steps": jnp.int32(1000)}}
"""Beyond the random ones."""


def met(agent: Any, state: Any, obs: Any) -> Any:
    """A learner that has seen these observations and nothing else."""
    if hasattr(state, "epoch"):
        return agent.prepare(state, obs)[0]
    return state._replace(observed=updated(state.observed, obs[..., :2]))


def trained(algorithm: Any, env: Any, epochs: int, seed: int = 0) -> Any:
    """The learner, its last state, its policy for plain observations, and the numbers of all epochs."""
    agent = algorithm.agent(spec_of(env))
    body, numbers = drive(agent, env), []
    (training,) = body.first([jax.random.key(seed)])
    for epoch in range(epochs):
        ((training, metrics),) = body.epoch([training], [jax.random.fold_in(jax.random.key(seed), epoch + 1)])
        numbers.append(metrics)
    return agent, training.state, body.export(training), numbers


MAKE: dict[str, Any] = {
    "ppo": (lambda **changes: ppo(settings=dataclasses.replace(ON_POLICY, **changes)), 30),
    "sac": (lambda **changes: sac(settings=dataclasses.replace(SAC, **changes)), 10),
}


@pytest.fixture(scope="module", params=MAKE)
def solved(request: pytest.FixtureRequest) -> Any:
    """A learner that normalises, in odd units and with a budget."""
    make, epochs = MAKE[request.param]
    return request.param, *trained(make(**BOTH), saute.saute(Units(), 100.0), epochs)


def test_odd_units_are_learned_with_running_statistics_and_not_without(solved: Any) -> None:
    """Deaf to s, the best is a = 0, which pays −1000/3 per step."""
    name, agent, _, policy, numbers = solved
    make, epochs = MAKE[name]
    env = saute.saute(Units(), 100.0)
    plain_agent, _, plain, _ = trained(make(), env, epochs)
    found = evaluate(agent.policy, policy, env, 50).task_return.mean() / 20
    without = evaluate(plain_agent.policy, plain, env, 50).task_return.mean() / 20
    assert found > -50.0 and without < -250.0, (found, without)
    # What is reported is in the units of the task.
    assert -100.0 < numbers[-1]["task_return"] / 20 < -1.0 and numbers[0]["task_return"] / 20 < -250.0
    if name == "sac":
        assert numbers[-1]["value"] < -20.0


def test_statistics_are_those_of_the_task_and_the_policy_absorbs_them(solved: Any) -> None:
    _, agent, state, policy, _ = solved
    assert state.observed.mean.total.shape == (2,), "z has none"
    np.testing.assert_allclose(state.observed.mean.total, [1e3, 9.81], rtol=1e-6)
    assert jnp.sqrt(state.observed.variance.total[0]) == pytest.approx(1e-2 / math.sqrt(3), rel=0.05)
    assert jnp.sqrt(state.observed.variance.total[1]) == 0.0
    inputs = inputs_of(state.observed, 0, 1)
    obs = jnp.asarray([[1e3 + 1e-2 * s, 9.81, z] for s in (-0.9, 0.1, 0.7) for z in (-0.3, 0.5)], jnp.float32)
    np.testing.assert_array_equal(inputs(obs)[:, 2], obs[:, 2])
    wanted, found = agent.policy.decide(state.policy, (), inputs(obs))[0], agent.policy.decide(policy, (), obs)[0]
    # The offset is 10⁵ deviations, so the last digit of an observation is worth this much.
    np.testing.assert_allclose(found, wanted, atol=2e-2)


@pytest.mark.parametrize("name", MAKE)
def test_the_exported_policy_acts_on_plain_observations_as_in_training(name: str) -> None:
    agent = MAKE[name][0](**BOTH).agent(spec_of(saute.saute(Units(), 100.0)))
    obs = jnp.asarray(np.random.default_rng(4).uniform([3.0, 9.81, -0.5], [7.0, 9.81, 1.0], (50, 3)), jnp.float32)
    state = met(agent, agent.init(jax.random.key(0)), obs)
    seen = inputs_of(of([obs[:, :2]]), 0, 1)(obs)
    wanted = agent.policy.decide(state.policy, (), seen)[0]
    np.testing.assert_allclose(agent.policy.decide(agent.export(state), (), obs)[0], wanted, atol=1e-5)
    assert not np.allclose(agent.policy.decide(state.policy, (), obs)[0], wanted, atol=1e-2)
    # That is also what is drawn from in training.
    drawn, key = agent.act(state._replace(**STEPS.get(name, {})), (), obs, jax.random.key(1)).action, jax.random.key(1)
    np.testing.assert_array_equal(drawn, agent.policy.sample(agent.policy.distribution(state.policy, seen), key))


@pytest.mark.parametrize("name", MAKE)
def test_an_observation_that_is_not_a_number_is_noticed(name: str) -> None:
    agent = MAKE[name][0](**BOTH).agent(spec_of(saute.saute(Units(), 100.0)))
    state = agent.init(jax.random.key(0))
    for value, expected in ((1.0, True), (jnp.nan, False), (jnp.inf, False)):
        vital = agent.vital(met(agent, state, jnp.full((5, 3), value)))
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(vital)) == expected


def rows_of(random: np.random.Generator, steps: int, envs: int) -> Transition:
    def column(*shape: int) -> Any:
        return jnp.asarray(random.normal(size=(steps, envs, *shape)), jnp.float32)

    never = jnp.zeros((steps, envs), bool)
    cost, reward = jnp.abs(column()), column()
    return Transition(column(3), column(1), reward, reward, cost, column(3), column(), column(), never, never, ())


def test_learning_on_policy_is_the_same_in_any_unit_of_the_reward_and_costs_keep_theirs() -> None:
    """A power of two changes no digit of a float, so the learner ends with the same bits."""
    settings = dataclasses.replace(ON_POLICY, **BOTH, value_iterations=3, policy_iterations=3)
    agent = ppo(lagrangian(3.0), settings).agent(spec_of(saute.saute(Units(), 100.0)))
    rows = rows_of(np.random.default_rng(5), 20, 2)
    ended = jnp.zeros((20, 2), bool).at[9::10].set(True)
    length = jnp.full((20, 2), 10, jnp.int32)
    episodes = Episodes(ended, ended, rows.reward, rows.cost, rows.cost, ended, length)
    state, learn = met(agent, agent.init(jax.random.key(0)), rows.obs), jax.jit(agent.learn)
    once, _ = learn(state, rows, episodes, jax.random.key(1))
    large, _ = learn(state, rows._replace(reward=1024.0 * rows.reward), episodes, jax.random.key(1))
    assert_same(once._replace(rewards=()), large._replace(rewards=()))
    assert_same(large.rewards.mean.total, 1024.0 * once.rewards.mean.total)
    dear, _ = learn(state, rows._replace(cost=1024.0 * rows.cost), episodes, jax.random.key(1))
    assert (dear.cost_value[0].weight != once.cost_value[0].weight).any(), "costs are in their own units"


def test_soft_updates_are_the_same_in_any_unit_of_the_reward_and_the_value_is_told_in_it() -> None:
    agent = sac(lagrangian(3.0), dataclasses.replace(SAC, **BOTH)).agent(spec_of(saute.saute(Units(), 100.0)))
    rows = jax.tree.map(lambda column: column[0], rows_of(np.random.default_rng(6), 1, 30))
    update, start = jax.jit(agent.update), met(agent, agent.init(jax.random.key(0)), rows.obs)
    found = []
    for factor in (1.0, 1024.0):
        reward = factor * rows.reward
        batch = Batch(rows.obs, rows.action, reward, rows.cost, rows.next_obs, rows.terminated)
        state = start._replace(rewards=updated(nothing(), reward))
        found.append(update(state, batch, agent.noise(jax.random.key(1), 30)))
    (once, numbers), (large, large_numbers) = found
    assert_same(once._replace(rewards=()), large._replace(rewards=()))
    assert large_numbers["value"] == 1024.0 * numbers["value"] != 0.0


def test_an_epoch_acts_and_learns_by_one_normaliser_and_then_moves_it() -> None:
    still = ppo(settings=dataclasses.replace(ON_POLICY, **BOTH, policy_rate=0.0))
    env = saute.saute(Units(offset=5.0, extent=2.0), 100.0)
    body = drive(still.agent(spec_of(env)), env)
    (before,) = body.first([jax.random.key(0)])
    assert before.state.observed.number == 50 * 20, "what the untrained policy met"
    ((after, metrics),) = body.epoch([before], [jax.random.key(1)])
    assert metrics["divergence"] == 0.0, "a policy that does not learn is the one that acted"
    assert after.state.observed.number == 50 * 20 + 400 and after.state.rewards.number == 400
    assert_same(after.state.normaliser, inputs_of(after.state.observed, 0, 1))
    assert (after.state.normaliser.mean != before.state.normaliser.mean).any()
