"""The least budget against all policies, what a shield decides, by hand and as NumPy and JAX do, and how it is kept."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import types
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_exact import ACTIONS, HISTORIES, STATES, STEPS, tiny

import saute
from saute.algos.backup import NeedsSettings, Together, backup_for, costs_to_go, evenly
from saute.cli.main import main
from saute.core.protocol import Spec
from saute.envs.safe_pendulum import Pendulum
from saute.exact import mdp, minimal_budget
from saute.learn.nets import Gaussian, Layer, policy_for
from saute.learn.shielded import Trained
from saute.paper.exact_pendulum import Grid, least_budget, needed, spend_least, starts
from saute.runs.checkpoint import save
from saute.runs.evaluate import Guarded, Outcome, pooled
from saute.runs.folder import read_config
from saute.runs.outcomes import Elsewhere, outcomes_of
from saute.runs.policy import file_of
from saute.runs.shield import FILE, digest_of
from saute.runs.shielding import BACKUP, ShieldSettings, _bare, _calibrated, guarded, make_shield
from saute.runs.trained import nets_of, policy_description
from saute.serve.description import described
from saute.serve.shield import Shield, as_inputs

RUN = "pretrained:pendulum-saute-trpo"
PENDULUM = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)


def worst_cost(problem: Any, discount: float) -> np.ndarray:
    """Of all 2¹⁵ policies that may depend on everything seen so far: the dearest path that can happen, from state 0."""
    policies = np.array([*itertools.product(range(ACTIONS), repeat=len(HISTORIES))])
    transition, worst = np.stack([one.toarray() for one in problem.transition]), np.zeros(len(policies))
    for path in itertools.product(range(STATES), repeat=STEPS):
        steps = [*itertools.pairwise((0, *path))]
        actions = [policies[:, HISTORIES.index(path[:t])] for t in range(STEPS)]
        moves = [*zip(steps, actions, strict=True)]
        happens = np.all([transition[action, state, after] > 0 for (state, after), action in moves], axis=0)
        spent = sum(discount**t * problem.cost[state, action] for t, ((state, _), action) in enumerate(moves))
        worst = np.maximum(worst, np.where(happens, spent, 0.0))
    return worst


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_the_least_budget_against_all_policies(discount: float) -> None:
    found = [minimal_budget(tiny(seed), STEPS, discount)[0, 0] for seed in range(6)]
    assert found == pytest.approx([worst_cost(tiny(seed), discount).min() for seed in range(6)], rel=1e-12)
    assert len({round(one, 6) for one in found}) > 2, "the problems differ"


def test_what_is_improbable_counts_fully_unless_it_is_a_place_between() -> None:
    fall = mdp([np.array([[0.99, 0.01, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])], np.zeros((3, 1)), [[0.0], [5.0], [0.0]])
    assert minimal_budget(fall, 3)[:, 0].tolist() == [5.0, 5.0, 0.0, 0.0]
    assert minimal_budget(fall, 2, interpolated=True)[0, 0] == pytest.approx(0.05)
    with pytest.raises(ValueError, match=r"discount=1.5 in \(0, 1\]"):
        minimal_budget(fall, 3, 1.5)


def test_the_least_budget_of_the_pendulum_is_what_its_own_controller_spends() -> None:
    task, rng = Pendulum(mode="test", horizon=60), np.random.default_rng(0)
    needs = least_budget(task, Grid(101, 81, 3, 0))
    assert np.all(np.diff(needs, axis=0) <= 1e-6), "less time never needs more"
    assert needed(task, needs[0], starts(task, 5)) == pytest.approx(0.0, abs=1e-6), "hanging down costs nothing"
    x = jnp.asarray(rng.uniform((-np.pi, -8.0), (np.pi, 8.0), (300, 2)), jnp.float32)
    spent, least = np.asarray(spend_least(task, jnp.asarray(needs), x)), needed(task, needs[0], x)
    assert np.abs(spent - least).mean() < 0.05 and np.abs(spent - least).max() < 0.6 and least.max() > 3.0


def test_costs_to_go_by_hand() -> None:
    cost = jnp.array([1.0, 2.0, 4.0, 8.0, 16.0])[:, None, None]
    ended = jnp.array([False, False, True, False, False])[:, None]
    togo, known = costs_to_go(cost, ended, 0.5)
    assert togo[:3, 0, 0].tolist() == [3.0, 4.0, 4.0] and known[:, 0].tolist() == [True, True, True, False, False]


def test_from_the_takeover_on_only_the_backup_acts() -> None:
    spec = Spec(gym.spaces.Box(-np.inf, np.inf, (3,), np.float32), gym.spaces.Box(-2.0, 2.0, (1,), np.float32), 20)
    net = Gaussian(4, 1, (4,))
    parameters = net.init(jax.random.key(0))._replace(mean=(Layer(jnp.zeros((4, 1)), jnp.ones(1)),))
    together = Together(net, (parameters,), backup_for(spec, BACKUP), 20, (1.0,), 1.0)
    roles, seen = together.memory(500), []
    for key in jax.random.split(jax.random.key(1), 20):
        acted = together.act(jnp.full((500, 1), -0.25), roles, jnp.zeros((500, 4)), key)
        seen.append((acted.action[:, 0], acted.extras))
        roles = acted.memory
    action, time, takeover = (np.array(part) for part in zip(*((a, n.time, n.takeover) for a, n in seen), strict=True))
    is_backup = action == -0.5  # −0.25 of a range of ±2
    assert is_backup[time > takeover].all() and not is_backup[time == takeover].any()
    assert (takeover == takeover[0]).all() and set(takeover[0]) == set(range(20))
    before = time < takeover
    assert 0.3 < (action[before] == 1.0).mean() < 0.7 and 0.1 < is_backup[before].mean() < 0.4


def test_guarded_episodes_are_taken_over_when_little_would_be_left() -> None:
    """An arbitrary action leaves 0.2, which is too little for those that spare more; the backup leaves nothing, and may."""
    spec = Spec(gym.spaces.Box(-np.inf, np.inf, (3,), np.float32), gym.spaces.Box(-2.0, 2.0, (1,), np.float32), 20)
    net = Gaussian(4, 1, (4,))
    together = Together(net, (net.init(jax.random.key(0)),), backup_for(spec, BACKUP), 20, (1.0,), 1.0)
    roles, times = together.memory(2000), []

    def left(obs: Any, unit: Any) -> Any:
        return jnp.where(unit[:, 0] == -0.25, 0.0, 0.2)

    for key in jax.random.split(jax.random.key(1), 20):
        acted = together.act(jnp.full((2000, 1), -0.25), roles, jnp.zeros((2000, 4)), key, left=left)
        times.append(np.array(acted.extras.takeover))
        roles = acted.memory
    spare = np.array(roles.spare)
    assert np.isneginf(spare).mean() == pytest.approx(0.5, abs=0.05) and spare.max() < 0.3
    final = times[-1]
    assert final[spare <= 0.2].mean() == pytest.approx(9.5, abs=0.7), "at random, as if nobody guarded them"
    assert np.median(final[spare > 0.2]) == 0.0 and (spare > 0.2).sum() > 200
    assert all((after <= before).all() for before, after in itertools.pairwise(times))


def test_rare_kinds_of_rows_come_up_as_often_as_others() -> None:
    rare = jnp.arange(100) == 7
    chance = np.array(evenly(rare, ~rare, jnp.zeros(100, bool)))
    assert chance[7] == 1.0 and chance.sum() == pytest.approx(2.0) and np.ptp(np.delete(chance, 7)) == 0.0


def net_of_numbers(weights: Any, bias: Any) -> Any:
    return (Layer(jnp.asarray(weights, jnp.float32), jnp.asarray(bias, jnp.float32)),)


def write_shield(place: pathlib.Path, run: str = RUN, margin: float = 0.1, **other: Any) -> None:
    """A shield by hand: b is |θ̇|/8-like, 0.5 + θ̇/16 of the budget, and the backup gives −0.5."""
    bare = Spec(gym.spaces.Box(-np.inf, np.inf, (3,), np.float32), PENDULUM, 200)
    pair = Spec(gym.spaces.Box(-np.inf, np.inf, (4,), np.float32), gym.spaces.Box(0.0, np.inf, (1,), np.float32))
    backup, needs = (policy_for(one.observation_space, one.action_space, ()) for one in (bare, pair))
    parts = {
        "backup": backup.init(jax.random.key(0))._replace(mean=net_of_numbers(np.zeros((3, 1)), [-0.5])),
        "needs": needs.init(jax.random.key(0))._replace(mean=net_of_numbers([[0], [0], [1 / 16], [0]], [0.5])),
    }
    meta = {
        "backup": policy_description(bare, backup, 1),
        "needs": policy_description(pair, needs, 1),
        "reference": [30.0],
        "margin": margin,
        "discount": 1.0,
        "policy": digest_of(file_of(run)),
        "validation": {},
    }
    place.mkdir(parents=True, exist_ok=True)
    save(place / FILE, parts, meta | other)


@pytest.fixture
def shielded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder to work in, with a shield by hand for the pretrained policy."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "runs/pretrained/pendulum-saute-trpo"
    write_shield(place)
    return place


def test_a_shield_decides_by_what_would_be_left(shielded: pathlib.Path) -> None:
    policy, shield = saute.load_policy(RUN), saute.load_shield(RUN)
    keeper = saute.BudgetedPolicy(policy, shield=shield)
    keeper.begin(30.0)
    still, fast = np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.0, 4.0])
    assert shield.need(still, [0.3]) == pytest.approx([30 * 0.6]) and shield.need(fast, [0.3]) == pytest.approx([30 * 0.85])
    assert keeper.act(still) == pytest.approx(policy(still, 30.0)) and keeper.interventions == 0
    keeper.spend(6.0)
    assert keeper.act(fast) == pytest.approx([-0.5]) and keeper.interventions == 1, "24 is less than 25.5"
    keeper.spend(0.0)
    assert keeper.act(still) == pytest.approx(policy(still, 24.0)) and keeper.interventions == 1
    keeper.spend(25.0)
    assert keeper.violated and keeper.act(still) == pytest.approx([-0.5]), "where all is lost, the backup loses least"


def test_a_budget_of_exactly_what_is_needed_is_enough() -> None:
    policy = saute.load_policy(RUN)
    bare = policy.about._replace(reference=None, observations=3)
    pair = bare._replace(observations=4, low=(0.0, 0.0), high=(9.0, 9.0))
    backup = type(policy)(bare, lambda x, key: np.full((*x.shape[:-1], 1), -0.5))
    needs = type(policy)(pair, lambda x, key: np.broadcast_to([0.5, 0.25], (*x.shape[:-1], 2)))
    shield = Shield(backup, needs, np.array([2.0, 4.0]), 0.0, 1.0)
    left = np.array([[1.0, 1.0], [1.0, 0.999], [0.999, 1.0], [9.0, 9.0]])
    action, stops = shield(np.zeros((4, 3)), np.full((4, 1), 0.7), left)
    assert stops.tolist() == [False, True, True, False] and action[:, 0] == pytest.approx([0.7, -0.5, -0.5, 0.7])


def test_numpy_and_jax_decide_alike(shielded: pathlib.Path) -> None:
    net, parameters = nets_of(saute.runs.pretrained.located(RUN))
    decider, (guard, *_) = guarded(pathlib.Path(RUN), net, [*parameters.values()])
    rng = np.random.default_rng(0)
    angle, left = rng.uniform(-3, 3, 2000), rng.uniform(-3.0, 30.0, 2000)
    obs = np.stack([np.cos(angle), np.sin(angle), rng.uniform(-8, 8, 2000)], 1).astype(np.float32)
    action, count = decider.decide(guard, decider.memory(2000), jnp.asarray(np.c_[obs, left / 30], jnp.float32))
    shield, policy = saute.load_shield(RUN), saute.load_policy(RUN)
    expected, stops = shield(obs, policy(obs, left), left)
    assert np.asarray(count[0]).tolist() == stops.astype(int).tolist() and 100 < stops.sum() < 1900
    assert np.clip(action, -1, 1) == pytest.approx(expected, abs=1e-5)


def test_discrete_actions_are_told_by_which_value_they_have() -> None:
    space = gym.spaces.Discrete(3)
    one = described(policy_description(Spec(PENDULUM, space), policy_for(PENDULUM, space), 1))
    assert as_inputs(one, np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    several = one._replace(choices=(2, 3), several=True, start=(0, 0))
    assert as_inputs(several, np.array([1, 2])).tolist() == [0, 1, 0, 0, 1]


def test_episodes_under_a_shield_say_how_often_it_stepped_in(shielded: pathlib.Path, capsys: Any) -> None:
    assert main(["evaluate", RUN, "--shield", "--episodes", "10", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["all"]["episodes"] == 50 and 0.01 < run["all"]["intervened"] < 1.0
    assert main(["evaluate", RUN, "--shield", "--episodes", "2"]) == 0
    assert "the shield stepped in in" in capsys.readouterr().out
    assert (shielded / "shielded/episodes/seed-0.npz").exists() and not (shielded / "episodes").exists()
    assert main(["evaluate", RUN, "--shield", "--sampled"]) == 2


def test_interventions_are_seen_in_a_film(shielded: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()
    monkeypatch.setattr("saute.cli.film._framed", lambda picture, numbers, levels: (told.append(numbers), picture)[1])
    assert (
        main(["watch", RUN, "--shield", "--steps", "60", "--budget", "22", "--mode", "test", "--size", "64", "--out", "a.gif"])
        == 0
    )
    assert 0 < sum("SHIELD" in one for one in told) < len(told)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"policy": "0" * 64}, "was made for other policies (SHA-256 000000000000)"),
        ({"margin": -1.0}, "does not describe a shield (margin -1.0"),
        ({"reference": [30.0, 5.0]}, "needs of 4 numbers, 1 budgets, for 3 observations, 1 actions and 2 budgets"),
        ({"config": "0" * 64}, None),
    ],
)
def test_shields_of_others_are_refused(shielded: pathlib.Path, capsys: Any, other: dict[str, Any], message: str | None) -> None:
    write_shield(shielded, **other)
    if message is None:
        shielded.joinpath("config.json").write_text("{}")
        message = "another configuration"
    assert main(["evaluate", RUN, "--shield", "--episodes", "2"]) == 2
    assert message in capsys.readouterr().err
    with pytest.raises(ValueError):
        saute.load_shield(RUN)


def test_shields_of_other_spaces_and_discounts_are_refused(shielded: pathlib.Path, capsys: Any) -> None:
    shield = saute.load_shield(RUN)
    with pytest.raises(ValueError, match="other spaces than the policy: bare is 3, not 44"):
        saute.BudgetedPolicy(saute.load_policy("pretrained:point-saute-trpo"), shield=shield)
    with pytest.raises(ValueError, match=r"discount=0.9, but the shield was made for 1"):
        saute.BudgetedPolicy(saute.load_policy(RUN), 0.9, shield=shield)
    with pytest.raises(ValueError, match=r"needs one from saute\.load_policy"):
        saute.BudgetedPolicy(lambda obs, remaining: 0.0, shield=shield)
    assert main(["evaluate", "pretrained:reacher-saute-trpo", "--shield"]) == 2
    assert "has no shield; make one with saute shield pretrained:reacher-saute-trpo" in capsys.readouterr().err
    assert main(["shield", RUN, "--tolerance", "1"]) == 2
    assert "--tolerance 1 must be at least 0 and below 1; 0.01 is one episode of a hundred" in capsys.readouterr().err
    assert main(["watch", "pendulum", "--shield"]) == 2
    assert "--shield is for policies of run folders" in capsys.readouterr().err


def test_the_smallest_margin_that_keeps_all_episodes_safe_is_chosen() -> None:
    def tested(guard: Guarded, seed: int) -> Outcome:
        """Episodes that need 7, 12 and 18 % more than was estimated."""
        violated = np.array([0.07, 0.12, 0.18]) > guard.shield.margin
        zero = np.zeros(3)
        return Outcome(zero, zero, np.full(3, 10), zero, violated, None, np.array([0, 1, 2]))

    told = list[str]()
    shield = Trained((), (), np.float32(0.0))
    found = _calibrated(pathlib.Path("run"), tested, shield, 0.0, told.append)
    assert found["margin"] == 0.2 and (found["validation"]["episodes"], found["validation"]["violations"]) == (3, 0)
    assert found["validation"]["bound"] == pytest.approx(1 - 0.05 ** (1 / 3)) and found["validation"]["intervened"] == 0.1
    assert told[3] == "margin 0.1: 2 of 3 validation episodes violate, the shield stepped in in 10.00 % of steps"
    with pytest.raises(
        ValueError, match=r"run: no margin up to 0.8 of the budget keeps all 3 validation episodes safe, 3 still"
    ):
        _calibrated(pathlib.Path("run"), lambda guard, seed: tested(Guarded((), shield), seed), shield, 0.0, told.append)
    # Two of three may violate, and are counted where the shield is kept.
    found = _calibrated(pathlib.Path("run"), tested, shield, 0.67, told.append)
    assert (found["margin"], found["validation"]["violations"]) == (0.1, 2)
    with pytest.raises(ValueError, match=r"keeps violations to 50 % of 3 validation episodes, 3 still violate"):
        _calibrated(pathlib.Path("run"), lambda guard, seed: tested(Guarded((), shield), seed), shield, 0.5, told.append)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"horizon": None}, "register the environment with max_episode_steps"),
        ({"image": (8, 8, 3)}, "sees pictures"),
        ({"action_space": gym.spaces.MultiDiscrete([2, 3])}, r"several discrete actions, MultiDiscrete\(\[2 3\]\)"),
    ],
)
def test_what_no_shield_can_be_made_for(odd: dict[str, Any], message: str) -> None:
    usual = {"horizon": 200, "image": None, "action_space": PENDULUM}
    with pytest.raises(ValueError, match=message):
        _bare(pathlib.Path("run"), types.SimpleNamespace(**usual | odd))


def test_a_run_without_a_budget_has_no_shield(tmp_path: pathlib.Path) -> None:
    config = read_config(pathlib.Path(RUN))
    free = dataclasses.replace(config, experiment=dataclasses.replace(config.experiment, budget=None, method="vanilla"))
    with pytest.raises(ValueError, match="has no budget that a shield could keep; train with --budget"):
        make_shield(pathlib.Path(RUN), free, ShieldSettings())


@pytest.mark.slow
def test_a_shield_is_learned_on_the_host_for_discrete_actions_and_two_budgets(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    asked: dict[str, Any] = {"method": "vanilla", "budget": [2.0, 1.0], "cost": ("first", "second")}
    saute.train("ppo", "shield_toys:TwoPulls-v0", seeds=2, epochs=3, out=run, **asked)
    settings = ShieldSettings(
        backup=dataclasses.replace(BACKUP, hidden=(16,), random_steps=1000),
        backup_steps=16_000,
        needs=NeedsSettings(steps_per_epoch=1000, hidden=(16,), updates=600, epochs=4),
        validation=20,
    )
    make_shield(run, read_config(run), settings, lambda told: None)
    shield = saute.load_shield(run)
    needs = [shield.need([0.25], action) - shield.margin * shield.reference for action in range(3)]
    assert np.array(needs) == pytest.approx(np.array([[0, 0], [1, 0], [0, 1]]), abs=0.2), "what the action costs"
    assert all(shield.backup(np.full(1, time / 8, np.float32)) == 0 for time in range(8)), "the backup rests"
    _, outcomes = outcomes_of(run, 20, 5, elsewhere=Elsewhere(trusted=True), shield=True)
    both = pooled(outcomes)
    assert not both.violated.any() and both.intervened.min() > 0 and both.cost.sum(1).min() >= 1.0


@pytest.mark.slow
def test_a_certificate_under_a_shield_has_a_place_of_its_own(shielded: pathlib.Path) -> None:
    assert main(["certify", RUN, "--shield", "--episodes", "5"]) == 0
    content = json.loads((shielded / "shielded/certificate.json").read_text())
    assert content["provenance"]["shield"] == digest_of(shielded / FILE)
    assert "Under its shield: the shield stepped in in" in (shielded / "shielded/certificate.md").read_text()
    assert not (shielded / "certificate.json").exists(), "that would be one of the bare policy"
