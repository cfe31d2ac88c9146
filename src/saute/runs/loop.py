"""The shell around the learners: seeds, metrics, checkpoints, resume; all input and output of training lives here."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saute.algos.mbpo import Mbpo, ModelBased
from saute.algos.model_host import mbpo_host_epoch, pets_host_epoch
from saute.algos.onpolicy import Algorithm, Learner, OnPolicy
from saute.algos.onpolicy_host import Collector, host_collector
from saute.algos.pets import Pets, Planning
from saute.algos.sac import Sac, SoftActorCritic
from saute.algos.sac_host import host_epoch
from saute.core.protocol import Episodes, Transition
from saute.envs.from_gym import HostEnvs
from saute.learn.constraint import mean
from saute.learn.drive import collect
from saute.learn.nets import normaliser
from saute.runs.checkpoint import newest, restore, save, write_atomically
from saute.runs.policy import save_policies
from saute.runs.validation import Epoch, Judge, Selection

__all__ = ["Run", "TrainingError", "train"]

Metrics = dict[str, float]
Bound = OnPolicy | SoftActorCritic | ModelBased | Planning
Report = Callable[[int, list[Metrics]], None]


class TrainingError(RuntimeError):
    """Training cannot go on; the message names the epoch, the seed and what was saved."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What training gives: one learner per seed, and the metrics of every epoch and seed."""

    learners: list[Learner]
    metrics: list[list[Metrics]]
    bound: Bound
    policies: list[Any]
    """Parameters of the policies that are kept: the last ones, or those that validation found best."""


def train(
    algorithm: Algorithm | Sac | Mbpo | Pets,
    env: Any,
    *,
    seeds: int = 5,
    epochs: int = 300,
    seed: int = 0,
    budget: float | None = None,
    selection: Selection | None = None,
    out: str | pathlib.Path | None = None,
    report: Report | None = None,
    checkpoint_seconds: float = 10.0,
    files: dict[str, bytes] | None = None,
) -> Run:
    """Train several seeds at once, in a run folder if `out` is given; a folder with checkpoints is continued, bit for bit.

    The last policies are kept or, with a `selection`, those on the way that are best in validation. `files` are put into the
    folder, by name, once it is sure that nobody else trains there.
    """
    _check_numbers(algorithm, env, seeds, epochs)
    bound = algorithm.bind(env.observation_space, env.action_space, getattr(env, "options", None))
    if isinstance(bound, Planning) and out is not None:
        bound.policy.described()  # What cannot be saved is said now, not after the training.
    gather = host_collector(bound, env) if isinstance(bound, OnPolicy) and isinstance(env, HostEnvs) else None
    learners = _first_learners(bound, env, gather, seeds, seed)
    epoch = compiled_epoch(bound, env, _limit(env, algorithm) if budget is None else budget, learners[0])
    judge = None if selection is None else Judge(selection, bound)
    if judge is not None:
        learners, epoch = [judge.begin(learner) for learner in learners], functools.partial(judge.epoch, epoch=epoch)
    metrics: list[list[Metrics]] = []
    folder = None if out is None else pathlib.Path(out)
    with _locked(folder), ThreadPoolExecutor(max_workers=_workers(env)) as pool:
        if folder is not None:
            learners, metrics = _recover(folder, learners, epochs, files or {})
        whole, saved = (learners, len(metrics)), time.monotonic()
        try:
            while len(metrics) < epochs:
                done = len(metrics)
                keys = [jax.random.fold_in(jax.random.key(seed + i), done + 1) for i in range(seeds)]
                bare = learners if judge is None else [state.learner for state in learners]
                given = keys if gather is None else gather(bare, keys)
                learners, values = zip(*pool.map(epoch, learners, given), strict=True)
                fresh = [_as_floats(of_seed) for of_seed in values]
                _check_finite(fresh, done, folder)
                _add_cost_rates(metrics, fresh, env.horizon or 1)
                _append(folder, fresh)
                metrics.append(fresh)
                whole = (learners, len(metrics))
                if report is not None:
                    report(done, fresh)
                if folder is not None and time.monotonic() - saved > checkpoint_seconds:
                    _checkpoint(folder, *whole)
                    saved = time.monotonic()
        finally:
            # Also after Ctrl-C, at whatever line: the learners and the number of epochs that belong together are kept.
            if folder is not None and whole[1] > 0:
                _checkpoint(folder, *whole)
        policies = [bound.exported(learner) if judge is None else judge.judged(learner).policy for learner in learners]
        if folder is not None:
            save_policies(folder / "policy.safetensors", policies, env, bound.policy, {"epochs": epochs})
    return Run(list(learners), metrics, bound, policies)


def _check_numbers(algorithm: Algorithm | Sac | Mbpo | Pets, env: Any, seeds: int, epochs: int) -> None:
    for name, number in (("seeds", seeds), ("epochs", epochs)):
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name}={number!r} must be a whole number ≥ 1")
    sides = env.seeds if isinstance(env, HostEnvs) else 1
    if sides > 1 and (sides != seeds or not isinstance(algorithm, Algorithm)):
        raise ValueError(
            f"the environments are for {sides} seeds of ppo, trpo or cpo side by side, not for {seeds} of "
            f"{algorithm.name}; make them with HostEnvs(…, seeds=1)"
        )


def _first_learners(bound: Bound, env: Any, gather: Collector | None, seeds: int, seed: int) -> Sequence[Any]:
    """One untrained learner per seed, with a normaliser from what its first policy sees if the settings ask for one."""
    init = jax.jit(bound.init)
    keys = [jax.random.fold_in(jax.random.key(seed + i), 0) for i in range(seeds)]
    learners = [init(key) for key in keys]
    if not isinstance(bound, OnPolicy) or not bound.algorithm.settings.normalise:
        return learners
    options = getattr(env, "options", None)
    budgets = options.constraints if options is not None and options.augment else 0
    keys = [jax.random.fold_in(key, 1) for key in keys]

    @jax.jit
    def measured(learner: Learner, key: Any) -> Any:
        batch, _ = collect(env, lambda obs, key: bound.act(learner, obs, key), key, 50, env.horizon)
        return normaliser(batch.obs, budgets)

    if gather is None:
        normalisers = list(map(measured, learners, keys))
    else:
        normalisers = [normaliser(jnp.asarray(batch.obs), budgets) for batch, _ in gather(learners, keys, 100)]
    return [learner._replace(normaliser=inputs) for learner, inputs in zip(learners, normalisers, strict=True)]


def compiled_epoch(bound: Bound, env: Any, limit: float, example: Any) -> Epoch:
    """Collect and learn: one compiled call for a JAX-native environment, a loop and a compiled call for Gymnasium's.

    On-policy learners in Gymnasium's are given what a `Collector` has brought them, in place of a key.
    """
    if not isinstance(bound, OnPolicy):
        replayed: Any = functools.partial(bound.epoch, env)
        if isinstance(env, HostEnvs):
            replayed = _host_epoch(bound, env)
        described = jax.jit(functools.partial(_described, limit))

        def replaying(learner: Any, key: Any) -> tuple[Any, dict[str, Any]]:
            learner, metrics, episodes = replayed(learner, key)
            return learner, described(bound.vital(learner), metrics, episodes)

        return replaying if isinstance(env, HostEnvs) else _compiled(replaying, example)

    settings = bound.algorithm.settings

    def learn(learner: Learner, batch: Transition, episodes: Episodes) -> tuple[Learner, dict[str, Any]]:
        learner, metrics = bound.learn(learner, batch, episodes)
        finite = _all_finite((bound.vital(learner), batch.reward, batch.cost))
        return learner, {**metrics, **summary(episodes, limit), "finite": finite}

    if isinstance(env, HostEnvs):
        learning = jax.jit(learn)
        return lambda learner, collected: learning(learner, *collected)

    num_envs = max(1, settings.steps_per_epoch // env.horizon)
    steps = settings.steps_per_epoch // num_envs

    def native(learner: Learner, key: Any) -> tuple[Learner, dict[str, Any]]:
        return learn(learner, *collect(env, lambda obs, k: bound.act(learner, obs, k), key, num_envs, steps))

    return _compiled(native, example)


def _host_epoch(bound: SoftActorCritic | ModelBased | Planning, envs: HostEnvs) -> Any:
    if isinstance(bound, SoftActorCritic):
        return host_epoch(bound, envs)
    return mbpo_host_epoch(bound, envs) if isinstance(bound, ModelBased) else pets_host_epoch(bound, envs)


def _described(limit: float, vital: Any, metrics: dict[str, Any], episodes: Episodes) -> dict[str, Any]:
    return {**metrics, **summary(episodes, limit), "finite": _all_finite((vital, metrics))}


def _compiled(epoch: Epoch, example: Any) -> Epoch:
    """Compiled before the threads start, or each of them would compile it."""
    compiled = jax.jit(epoch).lower(example, jax.random.key(0)).compile()
    return lambda learner, key: jax.block_until_ready(compiled(learner, key))


def summary(episodes: Episodes, limit: float) -> dict[str, Any]:
    """What the paper's training curves show: returns of the original reward, mean and worst cost, violations."""
    ended, cost = episodes.ended, episodes.cost
    counted = ended.at[-1].set(True)
    return {
        "episodes": ended.sum(),
        "task_return": mean(episodes.task_return, ended),
        "cost": mean(cost, ended),
        "worst_cost": jnp.max(jnp.where(ended, cost, 0.0)),
        "violation_rate": mean((cost > limit).astype(cost.dtype), ended),
        "length": mean(episodes.length.astype(cost.dtype), ended),
        "cost_per_step": jnp.sum(jnp.where(counted, cost, 0.0)) / cost.size,
    }


def _limit(env: Any, algorithm: Algorithm | Sac | Mbpo | Pets) -> float:
    options = getattr(env, "options", None)
    known = algorithm.limit if options is None else float(np.max(options.high))
    return float("inf") if known is None else known


def _workers(env: Any) -> int:
    return 1 if isinstance(env, HostEnvs) else len(os.sched_getaffinity(0))


def _all_finite(tree: Any) -> Any:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def _as_floats(values: dict[str, Any]) -> Metrics:
    return {name: float(value) for name, value in values.items()}


def _add_cost_rates(metrics: list[list[Metrics]], fresh: list[Metrics], horizon: int) -> None:
    """Cost rate = cost of all training so far / its steps × T (Ray et al. 2019); without a time limit, per step."""
    for seed, values in enumerate(fresh):
        earlier = [epoch[seed]["cost_per_step"] for epoch in metrics]
        values["cost_rate"] = horizon * sum([*earlier, values["cost_per_step"]]) / (len(metrics) + 1)


def _check_finite(fresh: list[Metrics], epoch: int, folder: pathlib.Path | None) -> None:
    for seed, values in enumerate(fresh):
        if not values.pop("finite"):
            kept = "" if folder is None else f"; the state before it is kept in {folder / 'checkpoints'}"
            raise TrainingError(f"epoch {epoch}, seed {seed}: rewards, costs or parameters are not finite{kept}")


@contextlib.contextmanager
def _locked(folder: pathlib.Path | None) -> Iterator[None]:
    """One process per run folder."""
    if folder is None:
        yield
        return
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        handle = open(folder / ".lock", "w")  # noqa: SIM115 (held below)
    except OSError as problem:
        raise TrainingError(f"cannot write to {folder} ({problem.strerror}); choose another folder with --out") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(f"another process is training in {folder}; wait for it, or choose another --out") from None
        yield


def _recover(
    folder: pathlib.Path, learners: Sequence[Any], epochs: int, files: dict[str, bytes]
) -> tuple[Sequence[Any], list[list[Metrics]]]:
    """The newest whole checkpoint and the metrics up to it, or the beginning; then the folder gets its files."""
    found = newest(folder / "checkpoints")
    lines, metrics = folder / "metrics.jsonl", []
    if found is None:
        write_atomically(lines, b"")
    else:
        arrays, meta = found
        if meta["epoch"] > epochs:
            raise TrainingError(f"{folder} has {meta['epoch']} epochs already, more than {epochs}; ask for at least as many")
        kept = lines.read_text().splitlines()[: meta["epoch"]]
        write_atomically(lines, "".join(line + "\n" for line in kept).encode())
        learners, metrics = restore(tuple(learners), arrays, folder), [json.loads(line)["seeds"] for line in kept]
    for name, content in files.items():
        write_atomically(folder / name, content)
    return learners, metrics


def _append(folder: pathlib.Path | None, fresh: list[Metrics]) -> None:
    if folder is not None:
        with open(folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"seeds": fresh}) + "\n")


def _checkpoint(folder: pathlib.Path, learners: Sequence[Any], epoch: int) -> None:
    """Save the learners, and keep the one before as well."""
    place = folder / "checkpoints"
    try:
        save(place / f"{epoch:06d}.safetensors", tuple(learners), {"epoch": epoch})
    except OSError as problem:
        raise TrainingError(
            f"could not save epoch {epoch} in {place} ({problem.strerror}); earlier checkpoints are kept"
        ) from None
    for old in sorted(place.glob("*.safetensors"))[:-2]:
        old.unlink()
