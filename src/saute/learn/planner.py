"""Planning with imagined futures by the cross-entropy method: CEM (Chua et al. 2018) and iCEM (Pinneri et al. 2020)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from saute.core.options import Options
from saute.core.protocol import Step
from saute.learn.model import NOTHING, Ensemble, Known, ModelSettings, Parameters, imagination, imagined
from saute.learn.nets import Dist

__all__ = ["CEM", "CemSettings", "Plan", "Planner", "cem", "planner_for", "planner_of"]


@dataclasses.dataclass(frozen=True)
class CemSettings:
    """The settings of iCEM (Pinneri et al. 2020); colour=0, refining=population, reused=0 is plain CEM."""

    horizon: int = 20
    population: int = 128
    elites: int = 12
    iterations: int = 4
    smoothing: float = 0.1
    """Weight of the old mean and deviation; those of the elites have the rest."""
    deviation: float = 0.5
    """Standard deviation of the actions in the first iteration; 1 is half of their range."""
    colour: float = 2.0
    """β of the noise: its power falls with the frequency f as f^−β."""
    refining: int = 64
    """Population of the iterations after the first."""
    reused: int = 4
    """How many elites compete again: in the next iteration and, shifted by a step, in the next plan."""
    particles: int = 5
    """Imagined futures of each candidate, the same number from each elite member of the ensemble."""

    def __post_init__(self) -> None:
        for name in ("horizon", "population", "elites", "iterations", "particles"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} of the planner must be at least 1")
        if not 0 <= self.reused <= self.elites <= self.refining <= self.population:
            numbers = f"reused={self.reused}, elites={self.elites}, refining={self.refining}, population={self.population}"
            raise ValueError(f"{numbers} must not fall; keep fewer elites, or enlarge the population")


CEM = CemSettings()
TOGETHER = 25
"""How many plans are made at once; more would only take more memory."""


class Plan(NamedTuple):
    """Sequences of actions in (−1, 1): mean and deviation of the search, elites that compete again, and the best sequence."""

    mean: Float[Array, "horizon action"]
    deviation: Float[Array, "horizon action"]
    reused: Float[Array, "reused horizon action"]
    best: Float[Array, "horizon action"]

    def shifted(self) -> Plan:
        """What is left of the plan after one step; the last action is repeated."""
        return jax.tree.map(lambda leaf: jnp.concatenate([leaf[..., 1:, :], leaf[..., -1:, :]], axis=-2), self)


def cem(
    score: Callable[[Float[Array, "candidate horizon action"]], Float[Array, " candidate"]],
    plan: Plan,
    key: PRNGKeyArray,
    settings: CemSettings,
) -> Plan:
    """Find the action sequence with the highest score: draw, keep the elites, fit mean and deviation to them, repeat.

    The search begins at the mean of the given plan. The mean and the reused elites are candidates too, so that an executed
    sequence has always been imagined.
    """
    basis = coloured_basis(settings.horizon, settings.colour)

    def iteration(plan: Plan, key: PRNGKeyArray, count: int) -> Plan:
        noise = jnp.einsum("cfa,ft->cta", jax.random.normal(key, (count, *plan.mean.shape)), basis)
        drawn = jnp.clip(plan.mean + plan.deviation * noise, -1.0, 1.0)
        candidates = jnp.concatenate([drawn, plan.reused, plan.mean[None]])
        elites = candidates[jax.lax.top_k(score(candidates), settings.elites)[1]]
        old, new = settings.smoothing, 1 - settings.smoothing
        mean, deviation = old * plan.mean + new * elites.mean(0), old * plan.deviation + new * elites.std(0)
        return Plan(mean, deviation, elites[: settings.reused], elites[0])

    first, *others = jax.random.split(key, settings.iterations)
    plan = iteration(plan._replace(deviation=jnp.full_like(plan.mean, settings.deviation)), first, settings.population)
    if not others:
        return plan
    return jax.lax.scan(lambda plan, key: (iteration(plan, key, settings.refining), None), plan, jnp.stack(others))[0]


@functools.cache
def coloured_basis(horizon: int, colour: float) -> np.ndarray:
    """The real Fourier modes as rows, weighted so that white noise times this matrix has variance 1 and power f^−β."""
    time, modes, frequencies = np.arange(horizon), [], []
    for f in range(horizon // 2 + 1):
        for wave in (np.cos, np.sin):
            mode = wave(2 * np.pi * f * time / horizon)
            if (norm := np.linalg.norm(mode)) > 1e-6:
                modes.append(mode / norm)
                frequencies.append(max(f, 1))
    weighted = np.asarray(modes) * np.asarray(frequencies, float)[:, None] ** (-colour / 2)
    return (weighted / np.linalg.norm(weighted, axis=0)).astype(np.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class Planner:
    """A policy that plans: its parameters are those of the ensemble, its memory is what is left of the last plan."""

    observations: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    ensemble: Ensemble
    options: Options | None
    settings: CemSettings = CEM

    def init(self, key: PRNGKeyArray) -> Parameters:
        return self.ensemble.init(key)

    def distribution(self, parameters: Parameters, obs: Float[Array, "*batch obs"]) -> Plan:
        """A new plan for each observation, always with the same random numbers."""
        many = jnp.atleast_2d(obs)
        plans = self.plan(parameters, many, self.memory(len(many)), jax.random.key(0))
        return plans if obs.ndim == 2 else jax.tree.map(lambda leaf: leaf[0], plans)

    def mode(self, dist: Dist) -> Float[Array, "*batch action"]:
        """The first action of the best sequence."""
        return self.scale(dist.best[..., 0, :])

    def sample(self, dist: Dist, key: PRNGKeyArray) -> Float[Array, "*batch action"]:
        """A first action, drawn as the search would draw the next one."""
        mean, deviation = dist.mean[..., 0, :], dist.deviation[..., 0, :]
        return self.scale(jnp.clip(mean + deviation * jax.random.normal(key, mean.shape), -1.0, 1.0))

    def scale(self, unit: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """Scale actions from (−1, 1) to their bounds."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        return (high + low) / 2 + (high - low) / 2 * unit

    def described(self) -> dict[str, Any]:
        """Plain values from which `planner_of` makes the same planner."""
        if self.ensemble.known != NOTHING:
            raise ValueError("known functions cannot be saved with a planner; train without out=, or let the model learn them")
        options = None
        if self.options is not None:
            ends = {name: np.asarray(getattr(self.options, name)).tolist() for name in ("low", "high", "reference")}
            options = dataclasses.asdict(self.options) | ends
        return {
            **{"observations": self.observations, "low": list(self.low), "high": list(self.high)},
            **{"options": options, "learned_budget": self.ensemble.learned_budget},
            "model": dataclasses.asdict(self.ensemble.settings) | {"hidden": list(self.ensemble.settings.hidden)},
            "planner": dataclasses.asdict(self.settings),
            **({"cost_shape": list(self.ensemble.cost_shape)} if self.options is None and self.ensemble.cost_shape else {}),
        }

    def memory(self, count: int) -> Plan:
        """The memory before the first plan, for `count` episodes."""
        zero = jnp.zeros((count, self.settings.horizon, len(self.low)))
        return Plan(zero, zero, jnp.zeros((count, self.settings.reused, *zero.shape[1:])), zero)

    def decide(self, parameters: Parameters, memory: Plan, obs: Float[Array, "env obs"]) -> tuple[Array, Plan]:
        """Continue each plan, as in training; return its first action, and what is left of it."""
        plans = self.plan(parameters, obs, memory, jax.random.key(0))
        return self.mode(plans), plans.shifted()

    def plan(self, parameters: Parameters, obs: Float[Array, "plan obs"], plans: Plan, key: PRNGKeyArray) -> Plan:
        """Continue a plan for each observation: maximise the mean of Σ r̃ over particles, each imagined by one elite member."""
        one = functools.partial(self._plan, parameters, key)
        if len(obs) <= TOGETHER:
            return jax.vmap(one)(obs, plans)
        return jax.lax.map(lambda pair: one(*pair), (obs, plans), batch_size=TOGETHER)

    def _plan(self, parameters: Parameters, key: PRNGKeyArray, obs: Float[Array, " obs"], plan: Plan) -> Plan:
        search_key, model_key = jax.random.split(key)
        particles = jnp.arange(self.settings.particles)
        members = parameters.elites[particles % len(parameters.elites)]
        keys = jax.random.split(model_key, self.settings.particles)

        def score(candidates: Array) -> Array:
            futures = jax.vmap(lambda member, key: self._returns(parameters, member, obs, candidates, key))
            return futures(members, keys).mean(0)

        return cem(score, plan, search_key, self.settings)

    def _returns(
        self, parameters: Parameters, member: Array, obs: Array, candidates: Array, key: PRNGKeyArray
    ) -> Float[Array, " candidate"]:
        """The imagined Σ r̃ of every candidate; all have the same noise, which makes them comparable."""
        env = imagination(self.ensemble, parameters, member, self.settings.horizon, self.options)
        start = imagined(env, *split_budget(obs, self.options))
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(candidates), *leaf.shape)), start)

        def one(carry: tuple[Any, Array], now: tuple[Array, PRNGKeyArray]) -> tuple[tuple[Any, Array], Array]:
            (states, going), (actions, key) = carry, now
            step: Step = jax.vmap(env.step, in_axes=(0, 0, None))(states, self.scale(actions), key)
            return (step.state, going & ~step.terminated), jnp.where(going, step.reward, 0.0)

        keys = jax.random.split(key, self.settings.horizon)
        going = jnp.ones(len(candidates), bool)
        return jax.lax.scan(one, (states, going), (jnp.moveaxis(candidates, 1, 0), keys))[1].sum(0)


def planner_for(
    observations: int,
    bounds: tuple[tuple[float, ...], tuple[float, ...]],
    options: Options | None,
    model: ModelSettings,
    settings: CemSettings,
    known: Known = NOTHING,
    learned_budget: bool = False,
    cost_shape: tuple[int, ...] = (),
) -> Planner:
    """The planner for observations of this size, which end with z if there are options, and actions within the bounds."""
    learned = learned_budget and options is not None
    computed = 0 if options is None or learned else options.constraints
    costs = cost_shape if options is None else options.budget_shape
    ensemble = Ensemble(observations - computed, len(bounds[0]), costs, known, learned, model)
    return Planner(observations, *bounds, ensemble, options, settings)


def planner_of(described: dict[str, Any]) -> Planner:
    """The planner that was described by `Planner.described`."""
    options = described["options"]
    if options is not None:
        several = {name: np.asarray(end) for name in ("low", "high", "reference") if isinstance(end := options[name], list)}
        options = Options(**options | several)
    model = ModelSettings(**described["model"] | {"hidden": tuple(described["model"]["hidden"])})
    bounds, settings = (tuple(described["low"]), tuple(described["high"])), CemSettings(**described["planner"])
    learned, costs = described["learned_budget"], tuple(described.get("cost_shape", ()))
    return planner_for(described["observations"], bounds, options, model, settings, NOTHING, learned, costs)


def split_budget(obs: Array, options: Options | None) -> tuple[Array, Any]:
    """The observation of the bare environment, and the remaining budget w = z · d_ref."""
    if options is None:
        return obs, None
    z = obs[-options.constraints :].reshape(options.budget_shape)
    return obs[: -options.constraints], z * jnp.asarray(options.reference, obs.dtype)
