"""The exact solver against all policies there are, theorem 2 on a grid-world, the pendulum's controller in true dynamics."""

from __future__ import annotations

import itertools
import json
import pathlib

import numpy as np
import pytest

from saute.cli.main import main
from saute.envs.safe_pendulum import Pendulum
from saute.exact import NO_SAFE_ACTION, Mdp, mdp, solve, stages, violation_probability
from saute.paper import solved
from saute.paper import theory as T
from saute.paper.exact_pendulum import Grid, dual_values, plan, roll_out, starts, value_at
from saute.paper.gridworld import MAP, Gridworld, gridworld
from saute.paper.measured import measure
from saute.runs.evaluate import Outcome

STATES, ACTIONS, STEPS = 2, 2, 4
HISTORIES = [history for t in range(STEPS) for history in itertools.product(range(STATES), repeat=t)]
"""States visited after the start: all that a deterministic policy can depend on."""


def tiny(seed: int) -> Mdp:
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(STATES), (ACTIONS, STATES))
    transition[0, 0] = np.eye(STATES)[rng.integers(STATES)]
    return mdp([*transition], rng.normal(size=(STATES, ACTIONS)), rng.choice([0.0, 0.0, 1.0, 2.0], (STATES, ACTIONS)))


def brute_force(problem: Mdp, budget: int, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Of all 2¹⁵ policies that may depend on everything seen so far: rewards while safe, and discounted steps overspent."""
    policies = np.array([*itertools.product(range(ACTIONS), repeat=len(HISTORIES))])
    transition = np.stack([one.toarray() for one in problem.transition])
    earned, overspent = np.zeros(len(policies)), np.zeros(len(policies))
    for path in itertools.product(range(STATES), repeat=STEPS):
        steps = [*itertools.pairwise((0, *path))]
        actions = [policies[:, HISTORIES.index(path[:t])] for t in range(STEPS)]
        moves = [*zip(steps, actions, strict=True)]
        probability = np.prod([transition[action, state, after] for (state, after), action in moves], axis=0)
        spent = np.cumsum([problem.cost[state, action] for (state, _), action in moves], axis=0)
        for t, ((state, _), action) in enumerate(moves):
            weight, safe = discount**t * probability, spent[t] <= budget
            earned += weight * np.where(safe, problem.reward[state, action], 0.0)
            overspent += weight * ~safe
    return earned, overspent


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_solver_against_all_policies(discount: float) -> None:
    binding = 0
    for seed, budget in itertools.product(range(6), (2, 3)):
        problem = tiny(seed)
        earned, overspent = brute_force(problem, budget, discount)
        limit = earned[overspent == 0].max(initial=-np.inf)
        for n in (0.0, 1.5, 20.0):
            solved = solve(problem, budget, STEPS, -n, discount).value[0, 0, budget]
            assert solved == pytest.approx((earned - n * overspent).max(), rel=1e-12, abs=1e-12)
        assert solve(problem, budget, STEPS, discount=discount).value[0, 0, budget] == pytest.approx(limit, rel=1e-12)
        binding += bool(-np.inf < limit < earned.max())
    assert binding >= 3, "some of the budgets can be kept, at a price"


def test_values_without_policies_are_the_same() -> None:
    for problem in (tiny(1), gridworld().mdp):
        for n in (0.0, 3.0, np.inf):
            assert np.array_equal([*stages(problem, 3, 10, -n, 0.9)][-1], solve(problem, 3, 10, -n, 0.9).value[0])


@pytest.fixture(scope="module")
def world() -> Gridworld:
    return gridworld()


def test_values_fall_to_the_limit(world: Gridworld) -> None:
    penalties = [0.0, 0.5, 1.0, 2.0, 8.0, 64.0, 1e6]
    values = np.stack([solve(world.mdp, 4, 40, -n).value[0] for n in penalties])
    limit = solve(world.mdp, 4, 40).value[0]
    assert (np.diff(values, axis=0) <= 1e-12).all() and (values >= limit - 1e-9).all()
    possible = limit > -np.inf
    assert possible[world.start].all() and not possible.all()
    assert np.allclose(values[-1][possible], limit[possible], atol=1e-6)
    assert (values[-1][~possible] < -1e2).all(), "where a violation cannot be excluded values fall for ever"
    assert (values[0, world.start] > limit[world.start] + 0.5).all(), "n = 0 makes overspending worth its while"


def test_every_trajectory_of_the_limit_is_safe(world: Gridworld) -> None:
    solution, following = solve(world.mdp, 4, 40), np.stack([one.toarray() for one in world.mdp.transition])
    spent: dict[int, set[int]] = {}
    for budget in range(5):
        here = {(world.start, budget)}
        for policy in solution.policy:
            chosen = [(s, w - int(world.mdp.cost[s, policy[s, w]]), int(policy[s, w])) for s, w in here]
            assert all(left >= 0 and action != NO_SAFE_ACTION for _, left, action in chosen)
            here = {(after, left) for s, left, action in chosen for after in following[action, s].nonzero()[0].tolist()}
        spent[budget] = {budget - w for _, w in here}
        assert violation_probability(world.mdp, solution, world.start, budget) == pytest.approx(0, abs=1e-12)
    assert spent[0] == {0} and max(spent[2]) == 2 and max(spent[3]) == 3


def test_probability_of_a_violation_by_simulation(world: Gridworld) -> None:
    solution, rng = solve(world.mdp, 1, 40, -1.0), np.random.default_rng(0)
    count, state, left = 4000, np.full(4000, world.start), np.ones(4000, int)
    dense = np.stack([one.toarray() for one in world.mdp.transition]).cumsum(-1)
    for policy in solution.policy:
        action = policy[state, np.maximum(left, 0)]
        left = left - world.mdp.cost[state, action].astype(int)
        state = (dense[action, state] < rng.random((count, 1))).sum(1)
    exact = violation_probability(world.mdp, solution, world.start, 1)
    assert 0.03 < exact < 0.06 and np.mean(left < 0) == pytest.approx(exact, abs=4 * np.sqrt(exact / count))


def test_policy_depends_on_the_remaining_budget(world: Gridworld) -> None:
    first = solve(world.mdp, 4, 40).policy[0, world.start]
    assert first.tolist() == [2, 2, 2, 1, 1], "down and around, or straight through the mud"
    steps = -solve(world.mdp, 4, 40).value[0, world.start]
    assert steps[0] > 17 and 12 < steps[2] < 13 and steps[3] < 9 and (np.diff(steps) < 0).all()


def test_costs_between_levels_are_interpolated() -> None:
    stay = mdp([np.eye(1)], [[1.0]], [[0.25]])
    (last, before) = stages(stay, 4, 2, unsafe_reward=0.0)
    assert np.allclose(last, [[0.0, 1.0, 1.0, 1.0, 1.0]])
    assert np.allclose(before, [[0.0, 1.75, 2.0, 2.0, 2.0]]), "the mean of rounding 0.75 to 1 and, a quarter of the time, to 0"
    with pytest.raises(ValueError, match="whole levels"):
        violation_probability(stay, solve(stay, 4, 2), 0, 4)


@pytest.fixture(scope="module")
def pendulum() -> Pendulum:
    return Pendulum(mode="test")


def test_controller_keeps_the_budget_and_earns_much(pendulum: Pendulum) -> None:
    grid, x = Grid(61, 49, 5, 20), starts(pendulum, 200)
    sauted, free = plan(pendulum, grid, 40.0), plan(pendulum, grid._replace(levels=0), 1.0)
    returns = {}
    for budget in (10.0, 20.0, 30.0):
        seen = roll_out(pendulum, sauted, x, budget)
        assert (seen.cost <= budget).all() and (seen.length == 200).all()
        returns[budget] = seen.task_return.mean()
    unconstrained = roll_out(pendulum, free, x, np.inf)
    assert 180.0 < returns[30.0] < unconstrained.task_return.mean() and unconstrained.cost.mean() > 60
    assert returns[10.0] < returns[20.0] <= returns[30.0]
    (dual,) = dual_values(pendulum, grid, (0.0, 0.05, 0.1), x, [30.0])
    assert value_at(pendulum, sauted, x, 30.0).mean() < dual < value_at(pendulum, free, x, np.inf).mean()


def test_pendulum_values_fall_with_n(pendulum: Pendulum) -> None:
    x = starts(pendulum, 50)
    values = [value_at(pendulum, plan(pendulum, Grid(31, 25, 3, 10), 40.0, -n), x, 30.0).mean() for n in (0.0, 1.0, 10.0)]
    assert values == sorted(values, reverse=True)


def test_theory_by_name(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(T.SIZES, "smoke", T.Sizes((Grid(31, 25, 3, 10),), 20))
    monkeypatch.setattr(solved, "PRICES", (0.0, 0.1))
    assert main(["reproduce", "theory", "--scale", "smoke", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "| ∞ | 17.732 (0.00 %)" in printed and "No tested policies" in printed
    numbers = json.loads((tmp_path / "smoke/theory/numbers.json").read_text())
    assert {row["n"] for row in numbers["gridworld"]} >= {0.0, 64.0, "inf"} and len(numbers["pendulum"]) == 6
    for name in ("values.png", "policies.png", "pendulum.png"):
        assert (tmp_path / "smoke/theory" / name).stat().st_size > 5000


def test_a_run_that_figures_share_is_one_learned_policy_under_its_first_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(T.SIZES, "smoke", T.Sizes((Grid(31, 25, 3, 10),), 20))
    monkeypatch.setattr(solved, "PRICES", (0.0, 0.1))
    outcome = Outcome(np.full(10, 100.0), np.zeros(10), np.full(10, 200), np.zeros(10), np.zeros(10, bool))
    names = (("Sauté TRPO", 30.0, "a"), ("no cost shaping", 30.0, "b"), ("Sauté", 30.0, "a"), ("of another budget", 31.0, "a"))
    T.theory(tmp_path, "smoke", [measure(label, budget, [outcome], run=run) for label, budget, run in names])
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert [(gap["label"], gap["run"]) for gap in numbers["gaps"]] == [("Sauté TRPO", "a"), ("no cost shaping", "b")]
    best = max(row["task_return"] for row in numbers["pendulum"] if row["budget"] == 30.0 and row["violations"] == 0)
    assert [gap["gap"] for gap in numbers["gaps"]] == [pytest.approx(best - 100.0)] * 2


def test_bad_input() -> None:
    good = gridworld().mdp
    with pytest.raises(ValueError, match="one \\(states, states\\) matrix"):
        mdp([], [[0.0]], [[0.0]])
    with pytest.raises(ValueError, match=r"reward has shape \(2, 1\)"):
        mdp([np.eye(1)], [[0.0], [0.0]], [[0.0]])
    with pytest.raises(ValueError, match="cost has -1"):
        mdp([np.eye(1)], [[0.0]], [[-1.0]])
    with pytest.raises(ValueError, match=r"row that sums to 0\.5"):
        mdp([0.5 * np.eye(1)], [[0.0]], [[0.0]])
    with pytest.raises(ValueError, match="horizon=0"):
        solve(good, 3, 0)
    with pytest.raises(ValueError, match=r"discount=1\.5"):
        solve(good, 3, 5, discount=1.5)
    with pytest.raises(ValueError, match="unsafe_reward=nan"):
        solve(good, 3, 5, float("nan"))
    with pytest.raises(ValueError, match="slip=2"):
        gridworld(slip=2)
    with pytest.raises(ValueError, match="exactly one start"):
        gridworld(("..", ".G"))
    with pytest.raises(ValueError, match="rows of equal length"):
        gridworld((*MAP, "."))
    with pytest.raises(ValueError, match="at least 2 angles"):
        plan(Pendulum(), Grid(1, 5, 3, 5), 30.0)
    with pytest.raises(ValueError, match="largest_budget=0"):
        plan(Pendulum(), Grid(5, 5, 3, 5), 0.0)
    with pytest.raises(ValueError, match="stride=0"):
        plan(Pendulum(), Grid(5, 5, 3, 5), 30.0, stride=0)
    with pytest.raises(ValueError, match="episodes=0"):
        starts(Pendulum(), 0)
