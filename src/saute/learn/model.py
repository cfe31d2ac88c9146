"""A learned model: a bootstrapped ensemble of nets that predict Gaussians, fitted in one compiled call (Chua et al. 2018).

A model is an environment: `model_env` makes an ensemble an `Env`, so imagination is sautéed like reality.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from saute import budget as B
from saute.core.masks import along
from saute.core.native import Sauted, SauteEnv, begun
from saute.core.options import Options
from saute.core.protocol import Env, Step, Transition
from saute.learn.agent import Metrics
from saute.learn.nets import MLP, Normaliser, init_mlp, mlp
from saute.learn.replay import Replay, Rows, sauted

__all__ = [
    "MODEL", "NOTHING", "Ensemble", "Imagined", "Known", "LearnedBudget", "ModelEnv", "ModelSettings", "Parameters",
    "imagination", "imagined", "model_env", "nll", "refuse_unspent", "unknown_ends",
]  # fmt: skip

Heads = tuple[MLP, Array, Array]
"""A net and the bounds of its log-variance, for one member, or for all with a leading axis."""

Function = Callable[[Array, Array, Array], Array]
"""(observation, action, next observation) → reward, cost or end of one step."""


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """How large the ensemble is and how it is fitted."""

    hidden: tuple[int, ...] = (64, 64)
    members: int = 7
    elites: int = 5
    """How many members imagine: those with the least held-out error."""
    batch: int = 128
    """Rows of a gradient step; each member draws its own."""
    rate: float = 2e-3
    beta: float = 0.5
    """β of β-NLL (Seitzer et al. 2022); with 0, the plain likelihood, rare costs are taken for noise and never learned."""
    held_out: int = 10
    """One row in this many is held out; a row is held out, or not, for as long as it is stored."""
    steps: int = 50
    """Gradient steps of a round; after each round the held-out error is measured."""
    patience: int = 5
    """Fitting stops after this many rounds in which no member improved by 1 %."""
    rounds: int = 10
    """Fitting stops after this many rounds in any case."""
    pessimism: float = 0.0
    """κ: imagined costs are l + κ · disagreement, the standard deviation of the cost over the members that imagine."""

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden={self.hidden} of the dynamics model needs at least one layer, each of at least one unit")
        for name in ("members", "elites", "batch", "steps", "patience", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} of the dynamics model must be at least 1")
        if self.elites > self.members:
            raise ValueError(f"elites={self.elites} are more than members={self.members}; choose at most as many")
        if not 0.0 <= self.pessimism < math.inf:
            raise ValueError(f"pessimism={self.pessimism} of the dynamics model must be a finite number ≥ 0; 1 to 3 is usual")
        if self.held_out < 2:
            raise ValueError(f"held_out={self.held_out} leaves nothing to fit; hold out every second row or fewer")


MODEL = ModelSettings()


@dataclasses.dataclass(frozen=True)
class Known:
    """Functions that need not be learned; without `terminated`, imagined episodes end only at their horizon."""

    reward: Function | None = None
    cost: Function | None = None
    terminated: Function | None = None


NOTHING = Known()


class Parameters(NamedTuple):
    """Nets and bounds of the log-variances, with a leading axis for the members; the rest is shared by all members."""

    net: MLP
    least: Float[Array, "member output"]
    most: Float[Array, "member output"]
    inputs: Normaliser
    outputs: Normaliser
    elites: Int[Array, " elite"]

    def of(self, member: Int[Array, ""] | int) -> Parameters:
        """An ensemble of this one member."""
        net, least, most = jax.tree.map(lambda leaf: leaf[member][None], (self.net, self.least, self.most))
        return Parameters(net, least, most, self.inputs, self.outputs, jnp.zeros(1, jnp.int32))


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """(s' − s, r, l) ~ N(μ(s, a), diag σ²(s, a)) for each member, without r or l if they are known (Chua et al. 2018)."""

    observations: int
    actions: int
    cost_shape: tuple[int, ...] = ()
    known: Known = NOTHING
    learned_budget: bool = False
    """Whether the observations end with z, so that the model learns how the budget is spent (the paper's variant)."""
    settings: ModelSettings = MODEL

    @property
    def outputs(self) -> int:
        costs = math.prod(self.cost_shape) if self.known.cost is None else 0
        return self.observations + (self.known.reward is None) + costs

    def init(self, key: PRNGKeyArray) -> Parameters:
        settings, size = self.settings, self.outputs
        sizes = (self.observations + self.actions, *settings.hidden, 2 * size)
        nets = jax.vmap(lambda k: init_mlp(k, sizes))(jax.random.split(key, settings.members))
        least, most = (jnp.full((settings.members, size), bound, jnp.float32) for bound in (-10.0, 0.5))
        inputs, outputs = (Normaliser(jnp.zeros(n), jnp.ones(n)) for n in (sizes[0], size))
        return Parameters(nets, least, most, inputs, outputs, jnp.arange(settings.elites, dtype=jnp.int32))

    def frequencies(self, key: PRNGKeyArray, capacity: int) -> Float[Array, "member row"]:
        """How often each row is in each member's bootstrap sample, ~ Poisson(1) (Oza & Russell 2001); drawn only once."""
        # By inversion, because jax.random.poisson takes longer to compile than everything else here.
        at_most = [sum(1 / math.factorial(i) for i in range(k + 1)) / math.e for k in range(9)]
        u = jax.random.uniform(key, (self.settings.members, capacity))
        return jnp.sum(u[..., None] > jnp.asarray(at_most), axis=-1).astype(jnp.float32)

    def unfitted(self) -> Metrics:
        """The metrics of `fit` if nothing was fitted: NaN."""
        return dict.fromkeys(("model_error", "model_rounds"), jnp.full((), jnp.nan))

    def objection(self, unknown_ends: float, name: str) -> str | None:
        """Why such a model cannot be used if episodes terminate: it would imagine steps after their end."""
        if not unknown_ends:
            return None
        return (
            f"the environment terminated an episode, but a learned model only knows that they end by time; pass"
            f" saute.{name}(known=Known(terminated=…)) in Python, or use sac"
        )

    def predict(self, parameters: Parameters, member: Int[Array, ""] | int, obs: Array, action: Array) -> tuple[Array, Array]:
        """One member's mean and standard deviation of (s' − s, r, l), for one observation and action."""
        chosen = jax.tree.map(lambda leaf: leaf[member], (parameters.net, parameters.least, parameters.most))
        mean, log_variance = _heads(chosen, parameters.inputs(jnp.concatenate([obs, action])))
        scale = parameters.outputs.scale
        return mean / scale + parameters.outputs.mean, jnp.exp(0.5 * log_variance) / scale

    def cost(self, moved: tuple[Array, Array, Array], predicted: Array) -> Float[Array, "*constraint"]:
        """The cost of an imagined step: known from (s, a, s'), or as it is predicted, but never negative."""
        if self.known.cost is not None:
            return self.known.cost(*moved)
        return jnp.maximum(predicted[self.outputs - math.prod(self.cost_shape) :].reshape(self.cost_shape), 0.0)

    def disagreement(self, parameters: Parameters, obs: Array, action: Array) -> Float[Array, "*constraint"]:
        """std over the elite members i of the cost that i expects: of l(s, a, s + Δᵢ) if costs are known, else of lᵢ."""

        def expected(member: Array) -> Array:
            mean = self.predict(parameters, member, obs, action)[0]
            return self.cost((obs, action, obs + mean[: self.observations]), mean)

        return jax.vmap(expected)(parameters.elites).std(axis=0)

    def rows(self, rows: Rows, options: Options | None) -> tuple[Float[Array, "row input"], Float[Array, "row output"]]:
        """The inputs of the nets, and the outputs that they should predict."""
        batch = sauted(rows, options) if self.learned_budget else rows
        outputs = [batch.next_obs - batch.obs]
        if self.known.reward is None:
            outputs.append(rows.task_reward[:, None])
        if self.known.cost is None:
            outputs.append(rows.cost.reshape(len(rows.cost), -1))
        return jnp.concatenate([batch.obs, rows.action], axis=1), jnp.concatenate(outputs, axis=1)

    def fit(
        self,
        parameters: Parameters,
        frequencies: Float[Array, "member row"],
        replay: Replay,
        key: PRNGKeyArray,
        options: Options | None = None,
    ) -> tuple[Parameters, dict[str, Float[Array, ""]]]:
        """Continue from the parameters until no member improves on the held-out rows; each member keeps its best ones."""
        settings, every = self.settings, self.settings.held_out
        inputs, outputs = self.rows(replay.rows, options)
        filled = jnp.arange(replay.capacity) < replay.size
        normalisers = _normaliser(inputs, filled), _normaliser(outputs, filled)
        x, y = normalisers[0](inputs), normalisers[1](outputs)
        adam = optax.adam(settings.rate)
        held = (x[::every], y[::every], filled[::every])
        fitting = replay.size - (replay.size + every - 1) // every

        def gradient_step(carry: tuple[Any, Any], key: PRNGKeyArray) -> tuple[tuple[Any, Any], None]:
            heads, optimiser = carry
            drawn = jax.random.randint(key, (settings.members, settings.batch), 0, fitting)
            rows = drawn // (every - 1) * every + drawn % (every - 1) + 1
            weight = jnp.take_along_axis(frequencies, rows, axis=1)
            updates, optimiser = adam.update(jax.grad(_loss)(heads, x[rows], y[rows], weight, settings.beta), optimiser)
            return (optax.apply_updates(heads, updates), optimiser), None

        def fit_round(carry: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
            heads, optimiser, best, least, since, rounds = carry
            keys = jax.random.split(jax.random.fold_in(key, rounds), settings.steps)
            (heads, optimiser), _ = jax.lax.scan(gradient_step, (heads, optimiser), keys)
            error = _held_out_error(heads, *held)
            better = error < 0.99 * least
            best = jax.tree.map(lambda new, old: jnp.where(along(better, new), new, old), heads, best)
            since = jnp.where(better.any(), 0, since + 1)
            return heads, optimiser, best, jnp.where(better, error, least), since, rounds + 1

        heads, zero = (parameters.net, parameters.least, parameters.most), jnp.zeros((), jnp.int32)
        first = (heads, adam.init(heads), heads, _held_out_error(heads, *held), zero, zero)
        _, _, best, error, _, rounds = jax.lax.while_loop(
            lambda carry: (carry[4] < settings.patience) & (carry[5] < settings.rounds), fit_round, first
        )
        elites = jnp.argsort(error)[: settings.elites].astype(jnp.int32)
        return Parameters(*best, *normalisers, elites), {
            "model_error": error[elites].mean(),
            "model_rounds": rounds.astype(jnp.float32),
        }


def nll(mean: Array, log_variance: Array, y: Array) -> Array:
    """−log N(y; μ, σ²) = ½((y − μ)²/σ² + log σ² + log 2π)."""
    return 0.5 * ((y - mean) ** 2 * jnp.exp(-log_variance) + log_variance + math.log(2 * math.pi))


def _heads(heads: Heads, x: Array) -> tuple[Array, Array]:
    """The mean, and log σ² kept softly between its learned bounds (Chua et al. 2018, appendix A.1)."""
    net, least, most = heads
    mean, log_variance = jnp.split(mlp(net, x, jax.nn.silu), 2, axis=-1)
    log_variance = most - jax.nn.softplus(most - log_variance)
    return mean, least + jax.nn.softplus(log_variance - least)


def _loss(heads: Heads, x: Array, y: Array, weight: Array, beta: float) -> Array:
    """Σ over members and outputs of E w σ^2β·nll, plus 0.01 · Σ(most − least), which pulls the bounds together."""
    mean, log_variance = jax.vmap(_heads)(heads, x)
    scaled = jax.lax.stop_gradient(jnp.exp(beta * log_variance)) * nll(mean, log_variance, y)
    return jnp.sum(jnp.mean(weight[..., None] * scaled, axis=1)) + 0.01 * jnp.sum(heads[2] - heads[1])


def _held_out_error(heads: Heads, x: Array, y: Array, filled: Array) -> Float[Array, " member"]:
    """The mean squared error of each member, in units of the outputs' variance."""
    mean, _ = jax.vmap(_heads, in_axes=(0, None))(heads, x)
    return jnp.sum(jnp.mean((mean - y) ** 2, axis=2) * filled, axis=1) / filled.sum()


def _normaliser(rows: Float[Array, "row column"], filled: Array) -> Normaliser:
    """Gives each column that varies the mean 0 and the standard deviation 1, over the filled rows."""
    weight = filled[:, None] / filled.sum()
    mean = jnp.sum(weight * rows, axis=0)
    deviation = jnp.sqrt(jnp.sum(weight * (rows - mean) ** 2, axis=0))
    return Normaliser(mean, jnp.where(deviation > 1e-6, 1.0 / jnp.maximum(deviation, 1e-6), 1.0))


class Imagined(NamedTuple):
    """The state of a `ModelEnv`; each episode uses one member (trajectory sampling TS∞ of Chua et al. 2018)."""

    obs: Float[Array, " obs"]
    time: Int[Array, ""]
    member: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class ModelEnv:
    """An `Env` with the dynamics of an ensemble: s' = s + Δ, with (Δ, r, l) ~ N(μ, σ²) of the member drawn at the reset.

    Starts, spaces and budget are those of the real environment `env`; `step` alone does not need it.
    """

    ensemble: Ensemble
    parameters: Parameters
    horizon: int
    env: Any = None
    crowd: Parameters | None = None
    """The whole ensemble, if `parameters` are those of one member, which may ask how far the others agree."""

    @property
    def observation_space(self) -> spaces.Box:
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Box:
        return self.env.action_space

    @property
    def budget(self) -> float | None:
        return getattr(self.env, "budget", None)

    @property
    def unsafe_reward(self) -> float:
        return getattr(self.env, "unsafe_reward", 0.0)

    def reset(self, key: PRNGKeyArray) -> tuple[Imagined, Array]:
        """A start of the real environment; from there one of the elite members goes on."""
        start_key, member_key = jax.random.split(key)
        obs = self.env.reset(start_key)[1]
        return Imagined(obs, jnp.zeros((), jnp.int32), jax.random.choice(member_key, self.parameters.elites)), obs

    def step(self, state: Imagined, action: Array, key: PRNGKeyArray) -> Step:
        ensemble, known, size = self.ensemble, self.ensemble.known, self.ensemble.observations
        # An ensemble of one member is not indexed, so that vmap over states does not copy its weights.
        member = 0 if len(self.parameters.least) == 1 else state.member
        mean, deviation = ensemble.predict(self.parameters, member, state.obs, action)
        drawn = mean + deviation * jax.random.normal(key, mean.shape, mean.dtype)
        obs, time = state.obs + drawn[:size], state.time + 1
        moved = (state.obs, action, obs)
        reward = drawn[size] if known.reward is None else known.reward(*moved)
        cost = ensemble.cost(moved, drawn)
        if ensemble.settings.pessimism:
            crowd = self.parameters if self.crowd is None else self.crowd
            cost = cost + ensemble.settings.pessimism * ensemble.disagreement(crowd, state.obs, action)
        ended = jnp.zeros((), bool) if known.terminated is None else known.terminated(*moved)
        return Step(Imagined(obs, time, state.member), obs, reward, cost, ended, (time >= self.horizon) & ~ended)


@dataclasses.dataclass(frozen=True)
class LearnedBudget:
    """The paper's variant: the model learns z as part of the state, and r̃ = r if the predicted z' ≥ 0 else n."""

    env: ModelEnv
    options: Options

    def step(self, state: Sauted, action: Array, key: PRNGKeyArray) -> Step:
        step = self.env.step(state.state, action, key)
        z = step.obs[-self.options.constraints :].reshape(self.options.budget_shape)
        is_safe = jnp.all(B.safe(z))
        reward = B.shape(step.reward, is_safe, self.options.unsafe_reward) if self.options.shape else step.reward
        sauted = Sauted(step.state, z * self.options.reference, jnp.zeros_like(z), step.reward, ~is_safe)
        return step._replace(state=sauted, reward=reward)


def model_env(ensemble: Ensemble, parameters: Parameters, env: Env) -> ModelEnv:
    """The learned model of a bare environment as an `Env`; `saute.saute(model_env(…), budget=30.0)` sautés imagination."""
    if (size := env.observation_space.shape[0]) != ensemble.observations:
        raise ValueError(f"the ensemble predicts {ensemble.observations} observations, but the environment has {size}")
    return ModelEnv(ensemble, parameters, env.horizon, env)


def imagination(
    ensemble: Ensemble, parameters: Parameters, member: Int[Array, ""], horizon: int, options: Options | None
) -> ModelEnv | SauteEnv | LearnedBudget:
    """One member's world, sautéed if there are options: w' = (w − l)/γ exactly for the predicted cost, unless z is learned."""
    model = ModelEnv(ensemble, parameters.of(member), horizon, crowd=parameters)
    if options is None:
        return model
    return LearnedBudget(model, options) if ensemble.learned_budget else SauteEnv(model, options)


def refuse_unspent(pessimism: float, options: Options | None, learned_budget: bool) -> None:
    """Refuse pessimism where imagined costs are not spent, so that it could not change anything."""
    if pessimism and (options is None or learned_budget):
        why = "a learned budget does not spend them" if learned_budget else "without a budget nothing spends them"
        raise ValueError(f"model.pessimism={pessimism} raises imagined costs, but {why}; use method saute, or pessimism 0")


def unknown_ends(rows: Transition, ensemble: Ensemble, options: Options | None) -> Float[Array, ""]:
    """How many episodes terminated that the model, which was never told when episodes end, imagines to go on.

    The end at a violation, with `terminate=True`, is known, unless the model learns the budget.
    """
    ended = rows.terminated
    if options is not None and options.terminate and not ensemble.learned_budget:
        ended = ended & B.safe(rows.next_remaining).reshape(len(ended), -1).all(1)
    return jnp.sum(ended).astype(jnp.float32) if ensemble.known.terminated is None else jnp.zeros(())


def imagined(env: ModelEnv | SauteEnv | LearnedBudget, obs: Array, remaining: Array | None) -> PyTree:
    """The first state of imagination, from an observation of the bare environment, and a remaining budget if sautéed."""
    clock, member = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
    if isinstance(env, ModelEnv):
        return Imagined(obs, clock, member)
    if isinstance(env, LearnedBudget):
        obs = jnp.concatenate([obs, jnp.atleast_1d(B.observe(remaining, env.options.reference)).astype(obs.dtype)])
    return begun(Imagined(obs, clock, member), remaining, obs.dtype)
