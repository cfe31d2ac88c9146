"""Several constraints: one limit, multiplier, cost value, budget and certificate each, against known answers."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting_toys import Toll
from learner_toys import LEARNERS, Constant, TwoCosts, assert_same
from scipy.stats import beta
from two_cost_toys import TwoArms, TwoSlopes, best

import saute
from saute.algos.cpo import most_violated
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.sac import SacSettings
from saute.cli.evaluate import _budgets
from saute.core.errors import UserError
from saute.core.options import options
from saute.core.protocol import Episodes, spec_of
from saute.evidence.plots import box_plot, cost_distribution, training_curves
from saute.learn.constraint import Free, Lagrangian, Pid, lagrangian, penalise, pid, tail_weights
from saute.learn.drive import drive
from saute.runs.evaluate import Outcome, evaluate, pooled
from saute.runs.loop import train
from saute.runs.outcomes import rows_of
from saute.runs.policy import load_policy
from saute.runs.report import told
from saute.serve.budgeted import BudgetedPolicy
from saute.serve.policy import Policy

LIMITS = (2.0, 1.0)
COUNTED = jnp.array([True, True, True, False])
TINY = OnPolicySettings(hidden=(4,), steps_per_epoch=40, value_iterations=2, policy_iterations=2, cg_iterations=2, tries=2)


def costs_of(epoch: int) -> Any:
    return jax.random.uniform(jax.random.key(epoch), (4, 2), maxval=6.0)


@pytest.mark.parametrize(
    "make",
    [lagrangian, lambda d: lagrangian(d, worst=0.5, through_softplus=True), lambda d: pid(d, worst=0.5, derivative=0.3)],
    ids=["lagrangian", "cvar", "pid"],
)
def test_two_limits_are_two_controllers(make: Any) -> None:
    both, apart = make([2.0, 1.0]), [make(2.0), make(1.0)]
    state, states = both.init(), [one.init() for one in apart]
    for epoch in range(6):
        costs, counted = costs_of(epoch), COUNTED if epoch != 3 else jnp.zeros(4, bool)
        state, λ = both.update(state, costs, counted)
        alone = [one.update(own, costs[:, i], counted) for i, (one, own) in enumerate(zip(apart, states, strict=True))]
        states = [own for own, _ in alone]
        assert λ.shape == (2,)
        np.testing.assert_allclose(λ, [one for _, one in alone], rtol=1e-6)
    assert both.limit == (2.0, 1.0) and hash(both) == hash(make((2.0, 1.0))), "plain numbers that never change"


def test_one_limit_stays_a_number() -> None:
    for constraint in (lagrangian(2.0), pid(2.0), Free(2.0)):
        assert constraint.limit == 2.0 and constraint.update(constraint.init(), jnp.ones(4), COUNTED)[1].shape == ()


def test_the_penalised_advantage_weighs_every_cost_by_its_multiplier() -> None:
    reward, cost, λ = jnp.array([1.0, 2.0]), jnp.array([[1.0, 0.0], [0.5, 4.0]]), jnp.array([2.0, 0.5])
    np.testing.assert_allclose(penalise(reward, cost, λ), [(1 - 2) / 3.5, (2 - 1 - 2) / 3.5])


def test_the_tail_of_each_constraint_is_its_own() -> None:
    ended = jnp.ones((1, 3), bool)
    cost = jnp.array([[[5.0, 1.0], [1.0, 9.0], [2.0, 2.0]]])
    episodes = Episodes(ended, ended, cost[..., 0], cost, cost, ended, jnp.ones((1, 3), int))
    np.testing.assert_allclose(tail_weights(episodes, 0.3), [[[3, 0], [0, 3], [0, 0]]])


def test_cpo_takes_the_most_violated_relative_to_its_limit() -> None:
    assert most_violated(jnp.array([3.0, 1.0]), jnp.array([30.0, 5.0])) == 1, "20 % are more than 10 %"
    assert most_violated(jnp.array([-3.0, -1.0]), jnp.array([30.0, 5.0])) == 0, "nearest to its limit"
    # Ten steps cost (10, 20): of limits (5, 16) the first is exceeded by 100 %, of (9, 10) the second.
    for limits, chosen in (([5.0, 16.0], 0), ([9.0, 10.0], 1)):
        run = train(saute.cpo(limits, TINY), Toll((1.0, 2.0)), seeds=1, epochs=2)
        assert [epoch[0]["constraint"] for epoch in run.metrics] == [chosen] * 2
        assert run.metrics[0][0]["violation_rate_0"] == 1.0, "held against the limits"


ON_POLICY = {
    "ppo": lambda limit: saute.ppo(lagrangian(limit), TINY),
    "trpo": lambda limit: saute.trpo(pid(limit), TINY),
    "cpo": lambda limit: saute.cpo(limit, TINY),
    "sac": lambda limit: saute.sac(lagrangian(limit), SacSettings(hidden=(4,), batch=4, replay=9, random_steps=4)),
}


@pytest.mark.parametrize("name", ON_POLICY)
@pytest.mark.parametrize(
    ("limit", "env", "message"),
    [
        (
            3.0,
            TwoCosts(),
            "has one limit 3, but a step of the environment has 2 costs; give one limit per cost, here 2 in a list",
        ),
        (3.0, saute.saute(TwoCosts(), [1.0, 1.0]), "has one limit 3, but a step of the environment has 2 costs"),
        ([3.0, 1.0, 2.0], TwoCosts(), r"has 3 limits \[3.0, 1.0, 2.0\], but a step of the environment has 2 costs"),
        ([3.0, 1.0], Toll(), r"has 2 limits \[3.0, 1.0\], but a step of the environment has one cost; .* here one number"),
    ],
)
def test_limits_that_are_not_as_many_as_costs_are_refused(name: str, limit: Any, env: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"{name} {message}"):
        ON_POLICY[name](limit).agent(spec_of(env))


@pytest.mark.parametrize(("budget", "env"), [(3.0, TwoCosts()), ([3.0, 1.0], Toll()), ([3.0] * 3, TwoCosts())])
def test_budgets_that_are_not_as_many_as_costs_are_refused(budget: Any, env: Any) -> None:
    with pytest.raises(ValueError, match=r"the budget is .* but the cost of a step is .*; give one budget per cost"):
        drive(saute.ppo(settings=TINY).agent(spec_of(env)), env, options(budget))


@pytest.mark.parametrize("limit", [[], [1.0, np.inf]])
@pytest.mark.parametrize("make", [Free, Lagrangian, Pid])
def test_limits_are_finite_numbers(make: Any, limit: Any) -> None:
    with pytest.raises(ValueError, match="must be one finite number, or a list with one for each constraint"):
        make(limit)


@pytest.mark.parametrize("name", ["trpo", "sac"])
def test_numbers_of_every_constraint_are_told(name: str) -> None:
    run = train(ON_POLICY[name]([3.0, 3.0]), Toll((1.0, 1.0)), seeds=1, epochs=1)
    numbers = run.metrics[0][0]
    assert numbers["cost_0"] == numbers["cost_1"] == 10.0
    assert name == "sac" or numbers["multiplier_0"] == numbers["multiplier_1"] > 0.0, "equal costs, equal multipliers"
    assert "multiplier" not in numbers and numbers["violation_rate"] == numbers["violation_rate_1"] == 1.0
    if name == "sac":
        assert {"cost_value_0", "cost_value_1"} <= numbers.keys()


@dataclasses.dataclass(frozen=True)
class Timed(TwoCosts):
    """Without an end but by time, as models need it."""

    def step(self, state: Any, action: Any, key: Any) -> Any:
        return TwoCosts.step(self, state, action, key)._replace(terminated=jnp.zeros((), bool))


@pytest.mark.parametrize("sauted", [True, False], ids=["sauted", "bare"])
@pytest.mark.parametrize("name", ["mbpo", "pets"])
def test_models_predict_all_costs(name: str, sauted: bool, tmp_path: pathlib.Path) -> None:
    env = saute.saute(Timed(), [4.0, saute.uniform(2.0, 6.0)], unsafe_reward=-1.0) if sauted else Timed()
    algorithm = LEARNERS[name]
    if name == "mbpo" and sauted:
        relabelled = dataclasses.replace(algorithm.settings.sac, relabel=True)
        algorithm = dataclasses.replace(algorithm, settings=dataclasses.replace(algorithm.settings, sac=relabelled))
    run = train(algorithm, env, seeds=1, epochs=2, out=tmp_path)
    numbers = run.metrics[-1][0]
    assert np.isfinite(numbers["model_error"]) and {"cost_0", "cost_1"} <= numbers.keys()
    ensemble = run.agent.ensemble if name == "mbpo" else run.agent.policy.ensemble
    assert ensemble.outputs == 1 + 1 + 2, "the observation, the reward and both costs"
    policy = load_policy(tmp_path)
    obs = np.zeros((3, 1), np.float32)
    left = (np.ones((3, 2)),) if sauted else ()
    assert policy(obs, *left).shape == (3, 1)
    if name == "pets":
        assert_same(policy(obs[0], *(one[0] for one in left)), policy(obs, *left)[0])


# Probes with known answers

SMALL = OnPolicySettings(
    hidden=(32, 32), steps_per_epoch=1000, value_rate=1e-2, value_iterations=20, target_kl=0.02, discount=1.0, trace=1.0,
    cost_discount=1.0, cost_trace=1.0,
)  # fmt: skip
SAC = SacSettings(
    hidden=(32, 32), batch=64, replay=5000, random_steps=100, steps_per_epoch=100, num_envs=10, rate=3e-3, averaging=0.02,
    discount=0.9, updates_per_step=0.5, temperature_rate=1e-2, relabel=True,
)  # fmt: skip
CAREFUL = dataclasses.replace(SMALL, target_kl=0.01, policy_rate=1e-3, policy_iterations=30)


def solved(algorithm: Any, budgets: tuple[float, float], epochs: int, continuous: bool = False, unsafe: float = -0.3) -> None:
    """Whether training comes to the best return, with both budgets kept."""
    env = saute.saute(TwoArms(continuous), list(budgets), unsafe_reward=unsafe)
    run = train(algorithm, env, seeds=1, epochs=epochs)
    outcome = evaluate(run.agent.policy, run.policies[0], env, 20)
    assert outcome.violated is not None and not outcome.violated.any()
    assert outcome.task_return.tolist() == [best(budgets)] * 20


def test_the_best_return_of_the_probe() -> None:
    assert best((2.5, 1.5)) == 5.0 and best((2.5, 2.5)) == 6.0 and best((9.0, 0.0)) == 10.0


def test_trpo_finds_the_best_within_both_budgets() -> None:
    solved(saute.trpo(settings=SMALL), (2.5, 1.5), 45)


@pytest.mark.slow
def test_ppo_finds_the_best_within_both_budgets() -> None:
    solved(saute.ppo(settings=CAREFUL), (2.5, 2.5), 60, unsafe=-0.1)


@pytest.mark.slow
def test_sac_finds_the_best_within_both_budgets() -> None:
    solved(saute.sac(settings=SAC), (2.5, 1.5), 60, continuous=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pid", "cpo"])
def test_both_means_come_to_their_limits_and_not_beyond(name: str) -> None:
    """The best return at means of (2, 1) is 2 · 2 + 1."""
    settings = dataclasses.replace(SMALL, hidden=(16,), target_kl=0.005 if name == "pid" else 0.01)
    controlled = pid(LIMITS, proportional=1.0, integral=0.3, smoothing=0.5)
    algorithm = saute.trpo(controlled, settings) if name == "pid" else saute.cpo(LIMITS, settings)
    metrics = train(algorithm, TwoSlopes(), seeds=1, epochs=80, seed=1).metrics[-30:]
    costs, value = (
        [np.mean([epoch[0][one] for epoch in metrics]) for one in names] for names in (("cost_0", "cost_1"), RETURN)
    )
    np.testing.assert_allclose(costs, LIMITS, rtol=0.1)
    assert value[0] == pytest.approx(5.0, abs=0.4)


RETURN = ("task_return",)


@pytest.mark.slow
def test_multipliers_keep_both_limits_on_average() -> None:
    """Dual ascent swings around the limits; over many epochs, and all seeds, it keeps both, near the best return of 5."""
    settings = dataclasses.replace(SMALL, hidden=(16,), target_kl=0.003)
    run = train(saute.trpo(lagrangian(LIMITS, rate=0.1), settings), TwoArms(), seeds=5, epochs=400)
    names = ("cost_0", "cost_1", "task_return")
    first, second, value = np.mean([[[seed[name] for name in names] for seed in epoch] for epoch in run.metrics[-300:]], (0, 1))
    assert first <= 1.05 * LIMITS[0] and second <= 1.05 * LIMITS[1] and value > 4.7


# Evaluation


def test_an_outcome_says_which_budget_was_overspent() -> None:
    env = saute.saute(TwoSlopes(), [2.0, 1.0])
    for action, each in (((0.39, 0.19), [False, False]), ((0.5, 0.19), [True, False]), ((0.39, 0.3), [False, True])):
        outcome = evaluate(Pair(), jnp.asarray(action, jnp.float32), env, 3)
        assert outcome.violated is not None and outcome.violated_each is not None
        assert outcome.violated_each.tolist() == [each] * 3 and outcome.violated.tolist() == [any(each)] * 3
    both = pooled([outcome, outcome])
    assert both.violated_each is not None and both.violated_each.shape == (6, 2)
    bare = evaluate(Pair(), jnp.asarray((0.5, 0.19), jnp.float32), TwoSlopes(), 2, ledger=options([2.0, 1.0]))
    assert bare.violated_each is not None and bare.violated_each.tolist() == [[True, False]] * 2
    one = evaluate(Constant(), np.float32(0.5), saute.saute(Toll(), 3.0), 2)
    assert one.violated_each is None


class Pair(Constant):
    """Plays two numbers."""

    def decide(self, parameters: Any, memory: tuple[()], obs: Any) -> tuple[Any, tuple[()]]:
        return jnp.broadcast_to(parameters, (len(obs), 2)), memory


def test_random_budgets_of_each_constraint_are_held_against_their_own() -> None:
    """Five steps cost (2, 1); the first budget is drawn from 1 to 3, so that about half the episodes overspend it."""
    env = saute.saute(TwoSlopes(), [saute.uniform(1.0, 3.0), 1.5], unsafe_reward=-1.0)
    outcome = evaluate(Pair(), jnp.asarray((0.4, 0.2), jnp.float32), env, 400)
    assert outcome.violated_each is not None
    share = outcome.violated_each.mean(0)
    assert 0.4 < share[0] < 0.6 and share[1] == 0.0
    selection = saute.Selection(env, episodes=50, every=1)
    numbers = train(saute.ppo(settings=TINY), env, seeds=1, epochs=1, selection=selection).metrics[0][0]
    assert numbers["validated_violations"] >= max(numbers["validated_violations_0"], numbers["validated_violations_1"])


def test_the_table_has_a_row_for_any_budget_and_one_for_each() -> None:
    costs = np.array([[1.0, 4.0], [3.0, 4.5]])
    each = costs > [2.0, 5.0]
    outcome = Outcome(np.array([1.0, 3.0]), costs, np.full(2, 5), costs, each.any(1), each)
    joint, first, second = rows_of("run", "0", outcome, (2.0, 5.0))
    assert joint == ["run", "any", "0", "2.00 ± 1.00", "", "", "1 of 2, so ≤ 97.468 % at 95 %"]
    assert first[1:6] == ["2", "0", "", "2.00", "3.00"] and first[6].startswith("1 of 2")
    assert second[1:6] == ["5", "0", "", "4.25", "4.50"] and second[6].startswith("0 of 2")


def test_budgets_of_the_command_line_are_parted_by_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    import saute.cli.evaluate as module

    config = type("Read", (), {"experiment": type("Asked", (), {"budget": (30.0, 5.0)})})
    monkeypatch.setattr(module, "read_config", lambda run: config)
    assert _budgets(pathlib.Path("run"), (10.0, 2.0, 20.0, 3.0)) == [(10.0, 2.0), (20.0, 3.0)]
    assert _budgets(pathlib.Path("run"), ()) == [None]
    with pytest.raises(UserError, match=r"--budget 10 2 3: run has 2 constraints; pass 2 numbers for each budget"):
        _budgets(pathlib.Path("run"), (10.0, 2.0, 3.0))


def test_the_bar_shows_every_cost_beside_its_budget_in_no_more_room() -> None:
    numbers = {"cost_0": 12.3, "cost_1": 3.1, "worst_cost_0": 20.0, "worst_cost_1": 4.4, "violation_rate": 0.25}
    seed = {"episodes": 4.0, "task_return": 1.0, "violation_rate_0": 0.25, "violation_rate_1": 0.0, **numbers}
    assert [one[-1] for one in told([seed], (30.0, 5.0))] == ["return 1", "worst 20/30 4.4/5", "viol. 1/4"]
    assert told([seed])[1] == ("cost 12.3 3.1, worst 20 4.4", "worst 20 4.4")


def test_the_bar_counts_the_violations_of_all_seeds() -> None:
    """One rate is the mean of 3 episodes, one of 7, and a third seed has none yet: the mean of the rates, 67 %, is nobody's."""
    short = {"episodes": 3.0, "task_return": 1.0, "cost": 2.0, "worst_cost": 3.0, "violation_rate": float(np.float32(1 / 3))}
    none = {name: 0.0 if name == "episodes" else np.nan for name in short}
    assert told([short, short | {"episodes": 7.0, "violation_rate": 1.0}, none])[2][0] == "violated 8 of 10"


# Certificates and pictures


def exact(k: int, n: int, confidence: float) -> float:
    """Clopper & Pearson's bound, from SciPy."""
    return 1.0 if k == n else float(beta.ppf(confidence, k + 1, n - k))


def test_each_constraint_is_certified_so_that_all_hold_at_once() -> None:
    rng = np.random.default_rng(0)
    costs = rng.uniform(0.0, [31.0, 5.2, 8.0], (2, 300, 3))
    certificate = saute.certify(costs, [30.0, 5.0, 9.0], confidence=0.9)
    broken = costs > [30.0, 5.0, 9.0]
    for i, one in enumerate(certificate.each):
        assert one.confidence == pytest.approx(1 - 0.1 / 3) and one.budget == [30.0, 5.0, 9.0][i]
        assert one.pooled.violations == broken[..., i].sum()
        assert one.pooled.bound == pytest.approx(exact(broken[..., i].sum(), 600, 1 - 0.1 / 3), rel=1e-9)
        assert one.seeds[1].bound == pytest.approx(exact(broken[1, :, i].sum(), 300, 1 - 0.1 / 3), rel=1e-9)
    k = broken.any(2).sum()
    assert certificate.pooled.violations == k and certificate.pooled.bound == pytest.approx(exact(k, 600, 0.9), rel=1e-9)
    assert certificate.pooled.worst == pytest.approx((costs / [30.0, 5.0, 9.0]).max())
    assert certificate.statement.startswith(f"{k} of 600 episodes overspent one of their 3 budgets, so P(violation) ≤ ")
    text = certificate.text()
    assert "budgets of 30 and 5 and 9 per episode" in text and "Constraint 2, a budget of 9" in text and "Bonferroni" in text
    content = json.loads(certificate.json())
    assert content["budget"] == [30.0, 5.0, 9.0] and len(content["each"]) == 3
    assert "each" not in json.loads(saute.certify(costs[..., 0], 30.0).json()), "one constraint as ever"


def test_all_forms_of_costs_and_what_budgets_said() -> None:
    costs = np.random.default_rng(1).uniform(0.0, [3.0, 2.0], (50, 2))
    whole = saute.certify(costs, [2.5, 1.5])
    assert whole == saute.certify([costs], [2.5, 1.5]) == saute.certify(costs[None], np.array([2.5, 1.5]))
    ragged = saute.certify([costs[:20], costs[20:]], [2.5, 1.5])
    assert ragged.pooled.violations == whole.pooled.violations and ragged.seeds[0].episodes == 20
    never = saute.certify(costs, [2.5, 1.5], violated=np.zeros((50, 2), bool))
    assert never.pooled.violations == never.each[0].pooled.violations == 0
    own = saute.certify([costs], [np.broadcast_to([2.5, 1.5], costs.shape)])
    assert own.budget is None and own.each[1].pooled.violations == whole.each[1].pooled.violations
    for budget, flags, message in (
        (2.5, None, "not one for each of the 2 constraints; pass 2 numbers"),
        ([2.5, 1.5, 1.0], None, "not one for each of the 2 constraints"),
        ([2.5, 1.5], np.zeros(50, bool), "violated has not one flag for each of the 2 constraints"),
    ):
        with pytest.raises(ValueError, match=message):
            saute.certify([costs], budget, violated=flags)


def test_every_constraint_has_panels_with_its_budget() -> None:
    costs = [np.random.default_rng(2).uniform(0.0, [3.0, 2.0], (50, 2))]
    groups: Any = {"a": ([np.ones(50)], costs), "b": ([np.ones(50)], costs)}

    def dashed(axis: Any, vertical: bool = False) -> list[float]:
        return [line.get_data()[0 if vertical else 1][0] for line in axis.lines if line.get_label() == "budget"]

    boxes = box_plot(groups, (2.5, 1.5)).axes
    assert [axis.get_xlabel() for axis in boxes] == ["task return", "episode cost 0", "episode cost 1"]
    assert [dashed(axis, True) for axis in boxes] == [[], [2.5], [1.5]]
    assert [dashed(axis, True) for axis in cost_distribution(groups, [2.5, 1.5]).axes] == [[2.5], [1.5]] * 3
    epoch = [{"task_return": 1.0, "cost_0": 1.0, "cost_1": 2.0, "worst_cost_0": 2.0, "worst_cost_1": 3.0}]
    curves = training_curves({"a": [epoch, epoch]}, (2.5, 1.5)).axes
    assert [dashed(axis) for axis in curves] == [[], [2.5], [2.5], [1.5], [1.5]]
    assert curves[3].get_title() == "mean cost, constraint 1"
    with pytest.raises(ValueError, match="pass one budget per constraint"):
        box_plot(groups, 2.5)


# Policies


def test_policies_take_one_remaining_budget_per_constraint(tmp_path: pathlib.Path) -> None:
    env = saute.saute(TwoSlopes(), [2.0, 1.0])
    train(saute.ppo(settings=TINY), env, seeds=1, epochs=1, out=tmp_path)
    policy: Policy = load_policy(tmp_path)
    obs, left = np.zeros((3, 1)), np.array([[2.0, 1.0], [1.0, 1.0], [0.5, 0.1]])
    many = policy(obs, remaining=left)
    for i in range(3):
        np.testing.assert_allclose(policy(obs[i], remaining=left[i].tolist()), many[i], rtol=1e-5)
    np.testing.assert_allclose(policy(obs, remaining=[2.0, 1.0])[1], many[0], rtol=1e-5)
    for wrong in (1.0, [1.0], [1.0] * 3, np.ones((2, 2))):
        with pytest.raises(ValueError, match=r"expected \(2,\) or \(N, 2\), one per constraint"):
            policy(obs, remaining=wrong)
    keeper = BudgetedPolicy(policy, discount=0.5)
    keeper.begin([2.0, 1.0])
    assert keeper.spend([1.0, 0.0]).tolist() == [2.0, 2.0] and keeper.act(obs[0]).shape == (2,)
    assert keeper.spend((0.0, 2.5)).tolist() == [4.0, -1.0] and keeper.violated
    with pytest.raises(ValueError, match="pass one cost for each"):
        keeper.spend(1.0)
