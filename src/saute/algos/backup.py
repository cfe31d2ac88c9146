"""What a shield is learned from: a backup that spends as little as it can, and an upper estimate of what it needs.

The backup is a soft actor-critic with the reward −Σᵢ lᵢ/dᵢ. Wherever trained policies go, it takes over: episodes begin with
them, arbitrary actions and the backup in turn, and from a random step on only the backup acts. So nothing has to be put into
the middle of an episode, and every environment will do. From that step on the costs to go are

    G_t = l_t + γ G_{t+1},

and b(s, a) is fitted to their τ-quantile (Koenker & Bassett 1978): mean of max(τ (G − b), (τ − 1)(G − b)).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saute.algos.sac import Luck, Sac, SacAgent, SacSettings, SacState
from saute.core.protocol import Episodes, Spec, Transition
from saute.learn.agent import Acted, Decider, Metrics, unchanged
from saute.learn.constraint import Free
from saute.learn.nets import Gaussian, GaussianParameters, SquashedGaussian
from saute.learn.soft import Drawn
from saute.learn.statistics import Statistics, inputs_of, nothing, updated

__all__ = ["Backup", "Needs", "NeedsSettings", "Restless", "Together", "backup_for", "costs_to_go", "evenly", "inputs"]

POLICY, BACKUP, ANYTHING, MENACE = 0, 1, 2, 3
"""Who acts before the backup takes over; the menace only where it is known what is needed."""
CANDIDATES = 8
"""Of so many arbitrary actions the menace takes the one after which most is needed."""
SPARE = 0.3
"""Guarded episodes spare up to this share of the budgets."""
CHANGES = 1 / 25
"""How often it is decided anew who that is; the trained policy in every second case."""


class Roles(NamedTuple):
    """Of each episode: who acts, the arbitrary action that is held, the step, and that from which on the backup acts."""

    role: Int[Array, " env"]
    held: Any
    time: Int[Array, " env"]
    takeover: Int[Array, " env"]
    spare: Float[Array, " env"]
    """Shares of the budgets that a guarded episode has left when the backup takes over; −∞ in those that nobody guards."""


class Noted(NamedTuple):
    """What is kept with a step: the action as soft actor-critic takes it, the step, and when the backup takes over."""

    unit: Any
    time: Int[Array, " env"]
    takeover: Int[Array, " env"]


Left = Callable[[Float[Array, "env obs"], Any], Float[Array, " env"]]
"""(observations, actions) → the share of the budgets that is left if the backup follows, the least of all constraints."""


@dataclasses.dataclass(frozen=True)
class Together:
    """Trained policies, of one or several seeds, and the backup, in the same episodes."""

    policy: Decider
    trained: tuple[PyTree, ...]
    """Parameters of each seed; the environments are parted among them."""
    learner: SacAgent
    """Of the bare observations."""
    horizon: int
    reference: tuple[float, ...]
    discount: float

    @property
    def bare(self) -> int:
        """Observations without remaining budgets, which come after them."""
        return self.learner.policy.observations

    def memory(self, count: int) -> Roles:
        zero = jnp.zeros(count, jnp.int32)
        return Roles(zero, self.learner.weighing.uniform(jax.random.key(0), count), zero, zero, jnp.zeros(count))

    def act(
        self,
        backup: Any,
        roles: Roles,
        obs: Float[Array, "env obs"],
        key: PRNGKeyArray,
        menace: Any = None,
        left: Left | None = None,
    ) -> Acted:
        """The action of whoever's turn it is; `backup` is what that would do, `menace` what would need most afterwards.

        Half of the episodes are guarded if it is known what would be `left` after an action: there the backup takes over after
        the first action that leaves less than is to be spared.
        """
        count, keys = len(obs), jax.random.split(key, 5)
        first = roles.time == 0
        takeover = jnp.where(first, jax.random.randint(keys[0], (count,), 0, self.horizon), roles.takeover)
        spare = jax.random.uniform(keys[4], (count,), minval=-SPARE, maxval=SPARE)
        spare = jnp.where(first, jnp.where(spare < 0.0, -jnp.inf, spare), roles.spare)
        changes = first | (jax.random.uniform(keys[1], (count,)) < CHANGES)
        others = ANYTHING if menace is None else MENACE
        role = jnp.where(changes, jnp.maximum(0, jax.random.randint(keys[2], (count,), 1 - others, others + 1)), roles.role)
        held = _where(changes, self.learner.weighing.uniform(keys[3], count), roles.held)
        # The first action of every takeover is not the backup's: what it would need after others is what is asked of b(s, a).
        role = jnp.where((roles.time == takeover) & (role == BACKUP), POLICY, role)
        role = jnp.where(roles.time > takeover, BACKUP, role)
        unit = _where(role == POLICY, self._trained(obs), _where(role == BACKUP, backup, held))
        unit = unit if menace is None else _where(role == MENACE, menace, unit)
        if left is not None:
            lacking = (left(obs, unit) < spare) & (role != BACKUP)
            takeover = jnp.where(lacking, jnp.minimum(takeover, roles.time), takeover)
        memory = Roles(role, held, roles.time + 1, takeover, spare)
        return Acted(self.learner.weighing.scale(unit), memory, Noted(unit, roles.time, takeover))

    def menace(self, worth: Callable[[Any], Float[Array, " env"]], count: int, key: PRNGKeyArray) -> Any:
        """Of some arbitrary actions the one that is worth least, in each of so many environments."""
        each = jax.vmap(lambda key: self.learner.weighing.uniform(key, count))(jax.random.split(key, CANDIDATES))
        return each[jax.vmap(worth)(each).argmin(0), jnp.arange(count)]

    def spending_least(self, backup: PyTree, obs: Float[Array, "env obs"]) -> Any:
        """What a finished backup does, as soft actor-critic has it."""
        policy = self.learner.policy
        dist = policy.distribution(backup, obs[:, : self.bare])
        return jnp.tanh(dist[0]) if isinstance(policy, SquashedGaussian) else policy.mode(dist)

    def _trained(self, obs: Float[Array, "env obs"]) -> Any:
        """Actions of the trained policies, as soft actor-critic takes them."""
        obs = obs[:, : self.policy.observations]
        parts = zip(self.trained, jnp.array_split(obs, len(self.trained)), strict=True)
        action = jnp.concatenate([self.policy.decide(parameters, (), part)[0] for parameters, part in parts])
        return self.learner.weighing.unscaled(action)

    def shares(self, cost: Float[Array, "*time_env_constraint"], batch: int) -> Float[Array, "*time_env constraint"]:
        """Costs in shares of the budgets; one constraint is a column too."""
        return cost.reshape(*cost.shape[:batch], len(self.reference)) / jnp.asarray(self.reference)


def _where(mask: Bool[Array, " env"], new: Any, old: Any) -> Any:
    return jnp.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def backup_for(spec: Spec, settings: SacSettings) -> SacAgent:
    """The learner of a backup, for the spaces of the bare environment."""
    return Sac(settings, Free()).agent(spec)


@dataclasses.dataclass(frozen=True)
class Backup:
    """The learner of the backup, from every step of whoever acts."""

    together: Together

    prepare = begin = learn = staticmethod(unchanged)

    @property
    def settings(self) -> SacSettings:
        return self.together.learner.settings

    @property
    def policy(self) -> Decider:
        return self.together.learner.policy

    def init(self, key: PRNGKeyArray) -> SacState:
        return self.together.learner.init(key)

    def memory(self, count: int) -> Roles:
        return self.together.memory(count)

    def act(self, state: SacState, memory: Roles, obs: Float[Array, "env obs"], key: PRNGKeyArray) -> Acted:
        own_key, key = jax.random.split(key)
        backup = self.together.learner.act(state, (), obs[:, : self.together.bare], own_key).extras
        return self.together.act(backup, memory, obs, key)

    def luck(self, key: PRNGKeyArray, count: int) -> Luck:
        return self.together.learner.luck(key, count)

    def observe(self, state: SacState, rows: Transition, luck: Luck) -> tuple[SacState, Metrics]:
        bare, reward = self.together.bare, -self.together.shares(rows.cost, 1).sum(-1)
        own = rows._replace(obs=rows.obs[:, :bare], next_obs=rows.next_obs[:, :bare], reward=reward, task_reward=reward)
        none = rows.obs[:, :0]
        return self.together.learner.observe(
            state, own._replace(remaining=none, next_remaining=none, extras=rows.extras.unit), luck
        )

    def export(self, state: SacState) -> PyTree:
        return self.together.learner.export(state)

    def vital(self, state: SacState) -> PyTree:
        return self.together.learner.vital(state)

    def objection(self, metrics: dict[str, float]) -> str | None:
        return None


@dataclasses.dataclass(frozen=True)
class NeedsSettings:
    """Settings of the estimate b(s, a)."""

    steps_per_epoch: int = 400_000
    num_envs: int | None = None
    hidden: tuple[int, ...] = (128, 128)
    quantile: float = 0.99
    rate: float = 2e-3
    updates: int = 3000
    """After every epoch."""
    epochs: int = 10
    batch: int = 512


class NeedsState(NamedTuple):
    """Everything that fitting changes."""

    parameters: GaussianParameters
    optimiser: PyTree
    observed: Statistics
    """Of all inputs so far."""


@dataclasses.dataclass(frozen=True)
class Needs:
    """The learner of b(s, a), from what a finished backup needs."""

    settings: NeedsSettings
    together: Together
    backup: PyTree
    """Parameters of the backup."""

    prepare = begin = observe = staticmethod(unchanged)

    @property
    def policy(self) -> Gaussian:
        """The net, whose inputs are an observation and an action, and whose most likely action is b."""
        weighing = self.together.learner.weighing
        action = weighing.policy.actions
        return Gaussian(self.together.bare + action, len(self.together.reference), self.settings.hidden)

    @property
    def adam(self) -> optax.GradientTransformation:
        settings = self.settings
        return optax.adam(optax.linear_schedule(settings.rate, 0.0, settings.epochs * settings.updates))

    def init(self, key: PRNGKeyArray) -> NeedsState:
        parameters = self.policy.init(key)
        return NeedsState(parameters, self.adam.init(parameters), nothing(self.policy.observations))

    def memory(self, count: int) -> Roles:
        return self.together.memory(count)

    def act(self, state: NeedsState, memory: Roles, obs: Float[Array, "env obs"], key: PRNGKeyArray) -> Acted:
        together, (worst_key, key) = self.together, jax.random.split(key)

        def left(obs: Float[Array, "env obs"], unit: Any) -> Float[Array, " env"]:
            x = inputs_of(state.observed)(inputs(together.learner, obs[:, : together.bare], unit))
            return jnp.min(obs[:, together.bare :] - self.policy.distribution(state.parameters, x)[0], axis=1)

        menace = together.menace(lambda unit: left(obs, unit), len(obs), worst_key)
        return together.act(together.spending_least(self.backup, obs), memory, obs, key, menace, left)

    def learn(self, state: NeedsState, rows: Transition, episodes: Episodes, key: PRNGKeyArray) -> tuple[NeedsState, Metrics]:
        """Fit steps from the takeover on: every second row is the takeover itself, and every second one needs much."""
        togo, known = costs_to_go(self.together.shares(rows.cost, 2), episodes.ended, self.together.discount)
        x = inputs(self.together.learner, rows.obs[..., : self.together.bare], rows.extras.unit)
        first, later = rows.extras.time == rows.extras.takeover, rows.extras.time > rows.extras.takeover
        mean = jnp.sum(togo, axis=(0, 1), where=(first & known)[..., None]) / jnp.maximum(1, (first & known).sum())
        much = (togo > mean).any(-1)
        share = evenly(*(kind & known & half for kind in (first, later) for half in (much, ~much)))
        x, togo = x.reshape(-1, x.shape[-1]), togo.reshape(-1, togo.shape[-1])
        state = state._replace(observed=updated(state.observed, x))
        places, seen = jnp.cumsum(share.ravel()), inputs_of(state.observed)

        def one(state: NeedsState, key: PRNGKeyArray) -> tuple[NeedsState, Array]:
            drawn = jax.random.uniform(key, (self.settings.batch,)) * places[-1]
            chosen = jnp.clip(jnp.searchsorted(places, drawn), 0, len(places) - 1)
            loss, gradient = jax.value_and_grad(self._loss)(state.parameters, seen(x[chosen]), togo[chosen])
            change, optimiser = self.adam.update(gradient, state.optimiser)
            parameters: GaussianParameters = optax.apply_updates(state.parameters, change)
            return state._replace(parameters=parameters, optimiser=optimiser), loss

        state, losses = jax.lax.scan(one, state, jax.random.split(key, self.settings.updates))
        return state, {"needs_loss": losses.mean(), "need": mean.sum()}

    def _loss(
        self, parameters: GaussianParameters, x: Float[Array, "row in"], togo: Float[Array, "row constraint"]
    ) -> Float[Array, ""]:
        τ, missed = self.settings.quantile, togo - self.policy.distribution(parameters, x)[0]
        return jnp.maximum(τ * missed, (τ - 1.0) * missed).mean()

    def export(self, state: NeedsState) -> GaussianParameters:
        return self.policy.absorb(state.parameters, inputs_of(state.observed))

    def vital(self, state: NeedsState) -> PyTree:
        return state.parameters

    def objection(self, metrics: dict[str, float]) -> str | None:
        return None


@dataclasses.dataclass(frozen=True)
class Restless:
    """Trained policies that arbitrary actions interrupt, as a policy for a shield to be tried on: nobody takes over."""

    together: Together
    backup: PyTree

    @property
    def observations(self) -> int:
        return self.together.bare + len(self.together.reference)

    def init(self, key: PRNGKeyArray) -> tuple[()]:
        return ()

    def memory(self, count: int) -> Roles:
        return self.together.memory(count)

    def decide(self, parameters: tuple[()], memory: Roles, obs: Float[Array, "env obs"]) -> tuple[Any, Roles]:
        """An action, drawn with random numbers that depend on the step only."""
        key = jax.random.fold_in(jax.random.key(0), memory.time.max())
        never = jnp.full_like(memory.takeover, self.together.horizon + 1)
        acted = self.together.act(self.together.spending_least(self.backup, obs), memory, obs, key)
        return acted.action, acted.memory._replace(takeover=never)


def evenly(*kinds: Bool[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Of each row, how often it is to be drawn, so that all kinds of rows that there are come up equally often."""
    return jnp.stack([jnp.where(kind, 1.0 / jnp.maximum(1, kind.sum()), 0.0) for kind in kinds]).sum(0)


def inputs(learner: SacAgent, obs: Float[Array, "*batch obs"], unit: Any) -> Float[Array, "*batch in"]:
    """What b(s, a) is a function of: the observation, and the action as it is taken, or which one of discrete ones it is."""
    weighing = learner.weighing
    action = weighing.scale(unit) if isinstance(weighing, Drawn) else jnp.eye(weighing.policy.actions)[unit]
    return jnp.concatenate([obs, action], axis=-1)


def costs_to_go(
    cost: Float[Array, "time env constraint"], ended: Bool[Array, "time env"], discount: float
) -> tuple[Float[Array, "time env constraint"], Bool[Array, "time env"]]:
    """G_t = l_t + γ G_{t+1} within each episode, and where it is known because the episode ends in the window."""

    def back(ahead: tuple[Array, Array], step: tuple[Array, Array]) -> Any:
        now, last = step
        togo = now + jnp.where(last[:, None], 0.0, discount * ahead[0])
        known = last | ahead[1]
        return (togo, known), (togo, known)

    nothing_ahead = jnp.zeros_like(cost[0]), jnp.zeros_like(ended[0])
    return jax.lax.scan(back, nothing_ahead, (cost, ended), reverse=True)[1]
