"""Shields are made here: a backup is trained, what it needs is estimated, one margin is calibrated; then all is stored."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import PyTree

from saute.algos.backup import Backup, Needs, NeedsSettings, Restless, Together, backup_for
from saute.algos.sac import SacSettings
from saute.core.files import folder_in
from saute.core.protocol import Env, Spec
from saute.core.seeds import VALIDATION
from saute.envs.from_gym import HostEnvs
from saute.evidence.stats import upper_bound
from saute.learn.agent import Agent
from saute.learn.drive import drive
from saute.learn.nets import Net
from saute.learn.shielded import Careful, Guard, Trained
from saute.runs.build import environment_of
from saute.runs.checkpoint import save
from saute.runs.config import Config
from saute.runs.evaluate import Guarded, Outcome, Shielded, evaluator
from saute.runs.folder import source_of
from saute.runs.policy import file_of
from saute.runs.pretrained import place_of
from saute.runs.shield import FILE, PARTS, StoredShield, digest_of, file_of_shield, stored_shield
from saute.runs.trained import finite, net_of, nets_of, policy_description, tree_of
from saute.serve.description import described

__all__ = ["ShieldSettings", "careful", "guarded", "make_shield", "shielded", "with_budget_shown"]

MARGINS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8)
"""From which the margin is chosen, in shares of the budgets."""
BACKUP = SacSettings(
    hidden=(64, 64), num_envs=20, updates_per_step=0.2, batch=256, replay=200_000, rate=1e-3, temperature_rate=1e-2,
    running_normaliser=True, scale_rewards=True, random_steps=2000,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ShieldSettings:
    """How much is learned from."""

    backup: SacSettings = BACKUP
    backup_steps: int = 600_000
    needs: NeedsSettings = dataclasses.field(default_factory=NeedsSettings)
    validation: int = 1000
    """Episodes of each seed, which arbitrary actions interrupt."""
    tolerance: float = 0.0
    """Largest share of those that may violate."""
    seed: int = 0


Told = Callable[[str], object]


def with_budget_shown(config: Config) -> Config:
    """The same task in an environment that shows its remaining budget and goes on when it is gone."""
    asked = config.experiment
    parts = asked.method if asked.sauted else "saute"
    return dataclasses.replace(
        config, experiment=dataclasses.replace(asked, method=parts, augment=True, terminate=False, lowest_budget=None)
    )


def make_shield(run: pathlib.Path, config: Config, settings: ShieldSettings, told: Told = print) -> pathlib.Path:
    """Learn the shield of a run and store it in its folder; all that can be refused is refused before."""
    digest, (net, parameters) = digest_of(file_of(run)), nets_of(source_of(run))
    asked = config.experiment
    if not isinstance(net, Net):
        raise ValueError(f"{run} is a planner (PETS), which a shield cannot follow; train sac or mbpo")
    if asked.budget is None:
        raise ValueError(f"{run} has no budget that a shield could keep; train with --budget")
    shown = with_budget_shown(config)

    def made(count: int) -> Any:
        return environment_of(shown, "test", count)

    few = made(settings.backup.num_envs)
    bare = _bare(run, few)
    reference = tuple(map(float, np.atleast_1d(few.options.reference)))
    _refuse_other_sizes(run, net, bare, len(reference))
    steps = settings.backup.num_envs * few.horizon
    learner = backup_for(bare, dataclasses.replace(settings.backup, steps_per_epoch=steps))
    together = Together(net, tuple(parameters.values()), learner, few.horizon, reference, asked.discount)
    epochs = math.ceil(settings.backup_steps / steps)
    backup = _trained(Backup(together), few, epochs, settings.seed, told, "backup", "critic_loss")
    many = max(settings.needs.steps_per_epoch // few.horizon, len(parameters))
    fitting = dataclasses.replace(settings.needs, num_envs=many, steps_per_epoch=many * few.horizon)
    estimate = Needs(fitting, together, backup)
    needs = _trained(estimate, made(many), fitting.epochs, settings.seed + 1, told, "needs", "needs_loss", "need")
    about = policy_description(bare, learner.policy, epochs)
    trial = Shielded(Restless(together, backup), Guard(learner.policy, estimate.policy, described(about)))
    episodes = settings.validation * len(parameters)
    found = _calibrated(run, evaluator(trial, made(episodes), episodes), Trained(backup, needs, 0.0), settings.tolerance, told)
    if digest_of(file_of(run)) != digest:
        raise ValueError(f"{run} changed while its shield was made; wait until its training has ended, and make it again")
    pair = Spec(
        spaces.Box(-np.inf, np.inf, (estimate.policy.observations,), np.float32),
        spaces.Box(0.0, np.inf, (len(reference),), np.float32),
    )
    known = {"reference": list(reference), "discount": asked.discount, "policy": digest, "config": config.digest}
    parts = {"backup": about, "needs": policy_description(pair, estimate.policy, fitting.epochs)}
    file = folder_in(place_of(run).parent, place_of(run).name) / FILE
    save(file, {"backup": finite(backup, run), "needs": finite(needs, run)}, {**parts, **known, **found})
    return file


def _bare(run: pathlib.Path, env: Any) -> Spec:
    """What the backup is told of the environment, if it is one that a shield can be made for."""
    if env.horizon is None:
        raise ValueError(f"{run}: a shield needs to know the longest episode; register the environment with max_episode_steps")
    if env.image is not None:
        raise ValueError(f"{run} sees pictures, from which what is needed cannot be estimated; shields are for vectors")
    if isinstance(env.action_space, spaces.MultiDiscrete):
        raise ValueError(f"{run} has several discrete actions, {env.action_space}; a shield is for a vector or for one")
    seen = spaces.Box(-np.inf, np.inf, (_bare_size(env),), np.float32)
    return Spec(seen, env.action_space, env.horizon, None, env.options.budget_shape)


def _refuse_other_sizes(run: pathlib.Path, net: Net, bare: Spec, constraints: int) -> None:
    (size,) = bare.observation_space.shape or (0,)
    if net.observations - size not in (0, constraints):
        raise ValueError(f"{run}: the policy takes {net.observations} observations, its environment has {size}")


def _trained(agent: Agent, env: Env | HostEnvs, epochs: int, seed: int, told: Told, name: str, *numbers: str) -> PyTree:
    """The parameters after so many epochs."""
    body, keys = drive(agent, env), jax.random.split(jax.random.key(seed), epochs + 1)
    state = body.first([keys[0]])[0]
    for epoch, key in enumerate(keys[1:], 1):
        state, metrics = body.epoch([state], [key])[0]
        if not metrics["finite"]:
            raise ValueError(f"the {name} of the shield diverged in epoch {epoch}: rewards, costs or parameters are not finite")
        if epoch % max(1, epochs // 5) == 0:
            told(f"{name}: epoch {epoch} of {epochs}, " + ", ".join(f"{one} {float(metrics[one]):.4g}" for one in numbers))
    return body.export(state)


def _calibrated(
    run: pathlib.Path, test: Callable[[PyTree, int], Outcome], shield: Trained, tolerance: float, told: Told
) -> dict[str, Any]:
    """The smallest margin with which few validation episodes violate, or none, though arbitrary actions interrupt them."""
    for margin in MARGINS:
        outcome = test(Guarded((), shield._replace(margin=np.float32(margin))), VALIDATION.start)
        assert outcome.violated is not None and outcome.intervened is not None
        k, n = int(outcome.violated.sum()), len(outcome.length)
        share = float(outcome.intervened.sum() / outcome.length.sum())
        told(
            f"margin {margin:g}: {k} of {n} validation episodes violate, the shield stepped in in {100 * share:.2f} % of steps"
        )
        if k <= tolerance * n + 1e-9:
            kept = {"episodes": n, "violations": k, "bound": upper_bound(k, n), "intervened": share}
            return {"margin": margin, "validation": kept}
    most = f"violations to {100 * tolerance:g} % of {n} validation episodes"
    wanted = most if tolerance else f"all {n} validation episodes safe"
    raise ValueError(
        f"{run}: no margin up to {MARGINS[-1]:g} of the budget keeps {wanted}, {k} still violate; the "
        "budget may be too small for some starts, or the backup too poor: train it longer with --backup-steps, or allow some "
        "violations with --tolerance"
    )


def guarded(run: pathlib.Path, net: Any, parameters: Sequence[PyTree]) -> tuple[Shielded, list[Guarded]]:
    """The policies of a run under its stored shield."""
    stored = stored_shield(run)
    if not isinstance(net, Net):
        raise ValueError(f"{run} is a planner (PETS), which a shield cannot follow")
    guard, shield = _in_jax(stored, run)
    return Shielded(net, guard), [Guarded(one, shield) for one in parameters]


def _in_jax(stored: StoredShield, where: pathlib.Path) -> tuple[Guard, Trained]:
    """The nets of a stored shield, and their parameters."""
    meta, arrays = stored
    nets: list[Any] = [net_of(meta[part]) for part in PARTS]
    backup, needs = (tree_of(one, arrays[part], where) for one, part in zip(nets, PARTS, strict=True))
    return Guard(nets[0], nets[1], described(meta["backup"])), Trained(backup, needs, np.float32(meta["margin"]))


def shielded(config: Config, run: str | pathlib.Path) -> Config:
    """The same training under the shield of a run."""
    stored_shield(run)
    return dataclasses.replace(config, shield=digest_of(file_of_shield(run)))


def careful(agent: Agent, env: Env | HostEnvs, stored: StoredShield, where: pathlib.Path) -> Careful:
    """A learner under a stored shield, if that is one for its environment."""
    meta, options = stored[0], getattr(env, "options", None)
    if options is None or not options.augment:
        raise ValueError("a shield asks for the remaining budget, which is not observed here; train with method saute")
    guard, shield = _in_jax(stored, where)
    shares = np.atleast_1d(options.reference) / np.array(meta["reference"])
    bare = Spec(env.observation_space, env.action_space)
    its = described(policy_description(bare, guard.backup, 0))._replace(observations=_bare_size(env))
    for name in ("observations", "low", "high", "choices", "start"):
        mine = getattr(guard.about, name)
        if mine != getattr(its, name):
            raise ValueError(f"{where} has a shield for other spaces: {name} is {mine}, here {getattr(its, name)}")
    if options.discount != meta["discount"] or options.constraints != len(meta["reference"]):
        raise ValueError(
            f"{where} has a shield for {len(meta['reference'])} budget(s) with discount {meta['discount']:g}, not for "
            f"{options.constraints} with {options.discount:g}; train with the discount and the costs of that run"
        )
    return Careful(agent, guard, shield, tuple(map(float, shares)))


def _bare_size(env: Env | HostEnvs) -> int:
    """Observations without the remaining budgets, which come after them."""
    (size,) = env.observation_space.shape or (0,)
    return size - env.options.constraints  # type: ignore[union-attr]
