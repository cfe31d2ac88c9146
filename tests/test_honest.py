"""Every number of training against what is known: whole episodes, each with the same chance; violations by carried budgets."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting_toys import MEAN_COST, HostToll, Standing, StandingVector, Toll
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.cli.main import main
from saute.core.protocol import spec_of
from saute.envs.from_gym import HostEnvs
from saute.learn.agent import Acted, unchanged
from saute.learn.constraint import Lagrangian, cvar, lagrangian, pid
from saute.learn.drive import Window, rollout, window_of
from saute.learn.stream import begin
from saute.runs.evaluate import evaluate
from saute.runs.folder import read_metrics
from saute.runs.loop import train

TINY = OnPolicySettings(hidden=(4,), steps_per_epoch=40, value_iterations=1)
EPOCHS = 8
"""Of 5000 episodes each: as many as 2000 epochs of the paper's 20."""
MANY = dataclasses.replace(TINY, steps_per_epoch=5000 * 200)


class Told(Lagrangian):
    """A controller that tells what it is steered by: λ is the statistic itself."""

    def update(self, state: Any, costs: Any, counted: Any) -> Any:
        return state, cvar(costs, counted, self.worst)


def steered_by(name: str) -> tuple[Any, float]:
    """A learner whose policy stays, and whose metrics tell what its constraint sees; and what that should come to."""

    def improve(policy: Any, parameters: Any, state: Any, data: Any) -> Any:
        return parameters, state, {"excess": data.excess}

    algorithm = {
        "lagrangian": saute.trpo(Told(30.0), MANY),
        "cvar": saute.trpo(Told(30.0, worst=0.6), MANY),
        "pid": saute.trpo(pid(30.0, proportional=1.0, integral=0.0, smoothing=0.0), MANY),
        "cpo": saute.cpo(30.0, MANY),
    }[name]
    # The worst 60 % of all are the 45 % that cost 100, and 15 % that cost 20.
    expected = (0.45 * 100 + 0.15 * 20) / 0.6 if name == "cvar" else 56.0
    return dataclasses.replace(algorithm, improve=improve), expected


def statistic(name: str, epoch: dict[str, float]) -> float:
    """What the constraint saw: the PID controller tells it less its limit of 30, CPO that per step."""
    if name == "cpo":
        return 30.0 + epoch["excess"] * epoch["length"]
    return epoch["multiplier"] + (30.0 if name == "pid" else 0.0)


@pytest.mark.parametrize("kind", ["native", "host"])
@pytest.mark.parametrize("name", ["lagrangian", "cvar", "pid", "cpo"])
def test_constraints_are_steered_by_the_true_cost_of_an_episode(name: str, kind: str) -> None:
    algorithm, expected = steered_by(name)
    env = Standing() if kind == "native" else HostEnvs(StandingVector(5000))
    metrics = [epoch[0] for epoch in train(algorithm, env, seeds=1, epochs=EPOCHS).metrics]
    assert np.mean([statistic(name, epoch) for epoch in metrics]) == pytest.approx(expected, rel=0.01)
    assert np.mean([epoch["cost"] for epoch in metrics]) == pytest.approx(MEAN_COST, rel=0.01)
    assert np.mean([epoch["length"] for epoch in metrics]) == pytest.approx(2 * MEAN_COST, rel=0.01)
    assert {epoch["episodes"] for epoch in metrics} == {5000.0}, "one of each environment"


@dataclasses.dataclass(frozen=True)
class Still:
    """An agent that does nothing."""

    observe = staticmethod(unchanged)

    def memory(self, count: int) -> tuple[()]:
        return ()

    def act(self, state: Any, memory: Any, obs: Any, key: Any) -> Acted:
        return Acted(jnp.zeros((len(obs), 1)))


def test_counting_all_episodes_that_end_in_a_window_would_prefer_the_short_ones() -> None:
    window = Window(16_000, 200, True)
    start, key = jax.random.split(jax.random.key(0))
    run = jax.jit(rollout(Still(), Standing(), window, rows=False))
    episodes = run((), begin(Standing(), start, 16_000), jax.random.split(key, 200))[2][1]
    assert np.mean(episodes.cost[episodes.counted]) == pytest.approx(56.0, rel=0.02)
    # In 200 steps .45 long ones end, and .55 + .55² + … + .55⁵ = 1.1607 short ones.
    assert np.mean(episodes.cost[episodes.ended]) == pytest.approx(42.35, rel=0.03)


@pytest.mark.parametrize("kind", ["native", "host"])
def test_episodes_longer_than_an_epoch_go_on_and_each_counts_once(kind: str) -> None:
    settings = dataclasses.replace(TINY, steps_per_epoch=500 * 50, num_envs=500)
    env = Standing() if kind == "native" else HostEnvs(StandingVector(500))
    assert window_of(settings, env) == Window(500, 50, False)
    metrics = [epoch[0] for epoch in train(saute.trpo(lagrangian(30.0), settings), env, seeds=1, epochs=100).metrics]
    counts = np.array([epoch["episodes"] for epoch in metrics])
    # The first 50 steps end none of the long episodes; from the fourth epoch on all kinds end.
    assert counts[0] == pytest.approx(0.55 * 500, rel=0.15) and metrics[0]["cost"] == 20.0
    costs = np.array([epoch["cost"] for epoch in metrics])
    assert (counts[4:] * costs[4:]).sum() / counts[4:].sum() == pytest.approx(MEAN_COST, rel=0.015)
    assert counts.sum() == pytest.approx(100 * 50 * 500 / 112, rel=0.02), "none is counted twice, none is lost"


def test_without_a_whole_episode_there_is_no_number_and_controllers_hold_still() -> None:
    env = Toll(horizon=1000)
    for algorithm in (saute.trpo(lagrangian(3.0), TINY), saute.trpo(pid(3.0), TINY), saute.cpo(3.0, TINY)):
        run = train(algorithm, env, seeds=1, epochs=2)
        for epoch in run.metrics:
            numbers = [epoch[0][name] for name in ("task_return", "cost", "worst_cost", "violation_rate", "length")]
            assert all(map(math.isnan, numbers)) and epoch[0]["episodes"] == 0 and epoch[0]["cost_per_step"] == 1.0
        assert [epoch[0]["multiplier"] for epoch in run.metrics] == pytest.approx(
            {"trpo": [1.0] * 2 if isinstance(algorithm.constraint, Lagrangian) else [0.0] * 2, "cpo": [0.0] * 2}[algorithm.name]
        )
    before = jax.tree.leaves(run.agent.init(jax.random.fold_in(jax.random.key(0), 0)).policy)
    for old, new in zip(before, jax.tree.leaves(run.states[0].policy), strict=True):
        np.testing.assert_array_equal(old, new, err_msg="CPO does not step where it knows no cost")
    assert math.isnan(run.metrics[0][0]["case"])


def test_no_episode_is_null_in_the_file_and_a_word_in_the_bar(tmp_path: Any) -> None:
    from saute.runs.report import told

    run = train(saute.ppo(settings=TINY), Toll(horizon=100), seeds=2, epochs=3, out=tmp_path)
    assert told(run.metrics[0]) == [("no episode ended yet",)]
    lines = [json.loads(line)["seeds"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line[0]["cost"] for line in lines] == [None, None, 100.0]
    assert [line[1]["episodes"] for line in lines] == [0.0, 0.0, 1.0]
    assert math.isnan(read_metrics(tmp_path)[0][0]["cost"]) and told(run.metrics[2])[2][0] == "no budget"


KINDS = ["native", "vector", "single"]


def sauted(kind: str, tolls: tuple[float, ...], num_envs: int = 4, **given: Any) -> Any:
    """Ten steps of tolls, with a budget: JAX-native, sautéed as a vector, or each by itself."""
    if kind == "native":
        return saute.saute(Toll(tolls), **given)
    if kind == "single":
        return HostEnvs(lambda: saute.SauteWrapper(HostToll(tolls), **given), num_envs)
    vector = SyncVectorEnv([partial(HostToll, tolls)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    return HostEnvs(saute.SauteVectorWrapper(vector, **given))


# Σ γᵗ for ten steps at γ = ½ is 1.998046875; the plain sum is 10.
KNOWN = [
    ({"budget": 2.0, "discount": 0.5}, (1.0,), 0.0),
    ({"budget": 1.99, "discount": 0.5}, (1.0,), 1.0),
    ({"budget": 10.0}, (1.0,), 0.0),
    ({"budget": [10.0, 5.0]}, (1.0, 0.5), 0.0),
    ({"budget": [10.0, 4.5]}, (1.0, 0.5), 1.0),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("given", "tolls", "rate"), KNOWN)
def test_violations_come_from_the_carried_budget_everywhere(given: Any, tolls: Any, rate: float, kind: str) -> None:
    env = sauted(kind, tolls, unsafe_reward=-1.0, **given)
    selection = saute.Selection(sauted(kind, tolls, unsafe_reward=-1.0, **given), episodes=4, every=1)
    run = train(saute.ppo(settings=TINY), env, seeds=1, epochs=1, selection=selection)
    metrics = run.metrics[0][0]
    assert metrics["violation_rate"] == rate and metrics["episodes"] == 4
    assert metrics["validated_violations"] == 4 * rate
    assert metrics["validated_score"] == (-10.0 if rate else 10.0), "ten steps of 1, or of the unsafe reward"
    outcome = evaluate(run.agent.policy, run.policies[0], env, 4)
    assert outcome.violated is not None and outcome.violated.tolist() == [bool(rate)] * 4
    assert outcome.task_return.tolist() == [10.0] * 4
    np.testing.assert_allclose(outcome.cost, np.broadcast_to(10 * np.squeeze(tolls), outcome.cost.shape), rtol=1e-6)
    if "discount" in given:
        np.testing.assert_allclose(outcome.spent, 1.998046875, rtol=1e-6)
        certificate = saute.certify(outcome.spent, given["budget"], violated=outcome.violated)
        assert certificate.pooled.violations == 4 * rate


@pytest.mark.parametrize("kind", KINDS)
def test_random_budgets_are_each_held_against_their_own(kind: str) -> None:
    # Ten steps of 1 overspend a budget from U[5, 15] in half of the cases; of the largest, which is 15, never.
    count = 2000 if kind == "native" else 200
    env = sauted(kind, (1.0,), num_envs=count, budget=saute.uniform(5.0, 15.0))
    run = train(saute.ppo(settings=dataclasses.replace(TINY, steps_per_epoch=10 * count)), env, seeds=1, epochs=4)
    rates = [epoch[0]["violation_rate"] for epoch in run.metrics]
    assert np.mean(rates) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(4 * count))
    outcome = evaluate(run.agent.policy, run.policies[0], env, count)
    assert outcome.violated is not None
    assert outcome.violated.mean() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(count))
    certificate = saute.certify(outcome.cost, 15.0, violated=outcome.violated)
    assert certificate.pooled.violations == outcome.violated.sum()


@pytest.mark.parametrize("kind", ["native", "host"])
def test_environments_that_are_not_sauted_are_held_against_the_limit_or_the_budget(kind: str) -> None:
    env = Toll() if kind == "native" else HostEnvs(HostToll, 4)
    assert train(saute.ppo(lagrangian(9.0), TINY), env, seeds=1, epochs=1).metrics[0][0]["violation_rate"] == 1.0
    assert train(saute.cpo(10.0, TINY), env, seeds=1, epochs=1).metrics[0][0]["violation_rate"] == 0.0
    assert train(saute.ppo(settings=TINY), env, seeds=1, epochs=1, budget=9.0).metrics[0][0]["violation_rate"] == 1.0
    discounted = train(saute.ppo(settings=TINY), env, seeds=1, epochs=1, budget=2.0, discount=0.5)
    assert discounted.metrics[0][0]["violation_rate"] == 0.0
    unknown = train(saute.ppo(settings=TINY), env, seeds=1, epochs=1)
    assert math.isnan(unknown.metrics[0][0]["violation_rate"]) and unknown.metrics[0][0]["cost"] == 10.0
    assert evaluate(unknown.agent.policy, unknown.policies[0], env, 4).violated is None


def test_a_task_without_a_budget_argument_has_its_own() -> None:
    class Strict(Toll):
        budget = 9.0

    assert train(saute.ppo(settings=TINY), Strict(), seeds=1, epochs=1).metrics[0][0]["violation_rate"] == 1.0
    pendulum = saute.envs.pendulum(horizon=10)
    assert train(saute.ppo(settings=TINY), pendulum, seeds=1, epochs=1).metrics[0][0]["violation_rate"] == 0.0


def test_policies_of_environments_that_were_sauted_one_by_one_keep_their_budget_input(tmp_path: Any) -> None:
    train(saute.ppo(settings=TINY), sauted("single", (1.0,), budget=9.0), seeds=1, epochs=1, out=tmp_path)
    policy = saute.load_policy(tmp_path)
    assert policy(np.zeros(1), remaining=4.5).shape == (1,)
    with pytest.raises(ValueError, match="needs its remaining budget"):
        policy(np.zeros(1))


def test_environments_that_were_sauted_differently_are_refused() -> None:
    budgets = iter([9.0, 10.0])
    with pytest.raises(ValueError, match=r"are sautéed differently .* give all the same options"):
        HostEnvs(lambda: saute.SauteWrapper(HostToll(), budget=next(budgets)), 2)


def test_a_million_small_costs_do_not_drift() -> None:
    env = saute.saute(Toll((1e-5,), horizon=10**6), budget=10.001)
    run = jax.jit(rollout(Still(), env, Window(1, 10**6, True), env.options, rows=False))
    _, _, (_, episodes, _) = run(
        (), begin(env, jax.random.key(0), 1, (), env.options), jax.random.split(jax.random.key(1), 10**6)
    )
    assert episodes.cost[-1, 0] == pytest.approx(10.0, abs=2e-6) and episodes.counted[-1, 0]
    assert not episodes.violated[-1, 0], "a sum that drifts, as of float32, ends at 9.917"
    tight = saute.saute(Toll((1e-5,), horizon=10**6), budget=9.999)
    run = jax.jit(rollout(Still(), tight, Window(1, 10**6, True), tight.options, rows=False))
    last = run((), begin(tight, jax.random.key(0), 1, (), tight.options), jax.random.split(jax.random.key(1), 10**6))[2][1]
    assert last.violated[-1, 0] and not last.violated[10**6 - 200, 0]


@pytest.mark.parametrize("algo", ["ppo", "trpo", "cpo", "sac"])
def test_a_thousand_steps_of_mujoco_end_in_the_first_epoch_with_default_options(algo: str, tmp_path: Any) -> None:
    method = "vanilla" if algo == "cpo" else "saute"
    words = ["train", "counting_toys:counting/Cheetah-v0", "--budget", "25", "--algo", algo, "--method", method]
    assert main([*words, "--seeds", "1", "--epochs", "1", "--out", str(tmp_path)]) == 0
    numbers = read_metrics(tmp_path)[0][0]
    assert numbers["episodes"] == (1 if algo == "sac" else 4) and numbers["length"] == 1000.0
    # Random play is faster than a decimetre a second in most of a thousand steps.
    assert numbers["violation_rate"] == 1.0 and numbers["cost"] == pytest.approx(1000 * numbers["cost_per_step"])


def test_an_environment_without_a_time_limit_trains_and_says_what_it_does_not_know(
    tmp_path: Any, capsys: Any, monkeypatch: Any
) -> None:
    words = ["train", "counting_toys:counting/Endless-v0", "--budget", "25", "--algo", "ppo", "--seeds", "2", "--epochs", "2"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    assert all(
        math.isnan(seed["violation_rate"]) and seed["episodes"] == 0 for epoch in read_metrics(tmp_path) for seed in epoch
    )
    monkeypatch.setattr("saute.runs.evaluate.LONGEST", 30)
    assert main(["evaluate", str(tmp_path), "--trust", "--episodes", "3"]) == 2
    said = capsys.readouterr().err
    assert "3 of 3 episodes have not ended after 30 steps; give the environment a time limit" in said
    assert "no time limit is known" in said and "Traceback" not in said


def test_seeds_whose_episodes_go_on_need_environments_of_their_own() -> None:
    endless = HostEnvs(lambda: HostToll(limit=None), 4)
    with pytest.raises(
        ValueError, match=r"each of 2 seeds needs environments of its own: make 8 of them with HostEnvs\(…, seeds=2\)"
    ):
        train(saute.ppo(settings=TINY), endless, seeds=2, epochs=1)
    long = HostEnvs(partial(HostToll, limit=100), 4)
    with pytest.raises(ValueError, match=r"of up to 100 steps go on after the 10 steps .* set steps_per_epoch to at least 400"):
        train(saute.ppo(settings=TINY), long, seeds=2, epochs=1)


def test_native_streams_that_go_on_are_resumed_bit_for_bit(tmp_path: Any) -> None:
    env = saute.saute(Standing(), budget=50.0)
    settings = dataclasses.replace(TINY, steps_per_epoch=4 * 30, num_envs=4)
    whole = train(saute.trpo(settings=settings), env, seeds=2, epochs=9, out=tmp_path / "whole")
    for epochs in (4, 9):
        halves = train(saute.trpo(settings=settings), env, seeds=2, epochs=epochs, out=tmp_path / "halves")
    for a, b in zip(jax.tree.leaves(whole.states), jax.tree.leaves(halves.states), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "halves/metrics.jsonl").read_bytes()
    assert any(epoch[0]["episodes"] for epoch in whole.metrics)


def test_actions_are_bounded_for_the_environment_and_kept_as_chosen_for_the_learner() -> None:
    class Wide(Toll):
        def step(self, state: Any, action: Any, key: Any) -> Any:
            return Toll.step(self, state, action, key)._replace(reward=action[0])

    class HostWide(HostToll):
        def step(self, action: Any) -> Any:
            obs, _, *rest = HostToll.step(self, action)
            return obs, float(action[0]), *rest

    @dataclasses.dataclass(frozen=True)
    class Pushing(Still):
        observations = 1

        def init(self, key: Any) -> Any:
            return ()

        def act(self, state: Any, memory: Any, obs: Any, key: Any) -> Acted:
            return Acted(jnp.full((len(obs), 1), 7.0))

        def decide(self, parameters: Any, memory: Any, obs: Any) -> Any:
            return jnp.full((len(obs), 1), 7.0), memory

    native = rollout(Pushing(), Wide(), Window(2, 10, True))(
        (), begin(Wide(), jax.random.key(0), 2), jax.random.split(jax.random.key(1), 10)
    )
    rows = native[2][0]
    assert (rows.action == 7.0).all() and (rows.reward == 1.0).all()
    for env in (Wide(), HostEnvs(HostWide, 2)):
        assert evaluate(Pushing(), (), env, 2).task_return.tolist() == [10.0, 10.0]


def test_one_window_for_native_and_host() -> None:
    spec = spec_of(HostEnvs(HostToll, 4))
    assert (spec.horizon, spec.options) == (10, None)
    limited = HostEnvs(lambda: gym.wrappers.TimeLimit(HostToll(limit=None), 7), 2)
    assert limited.horizon == 7 and window_of(TINY, limited) == Window(2, 20, True)
    assert window_of(TINY, Toll()) == Window(4, 10, True)
