"""What PPO, TRPO and CPO share: advantages, the constraint's multiplier, value fits; they differ in `improve` only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saute.core.encoder import Image, pixels_of
from saute.core.masks import along
from saute.core.protocol import Episodes, Spec, Transition
from saute.learn.agent import Acted, Metrics, named, unchanged
from saute.learn.constraint import Constraint, check_limits, mean, penalise
from saute.learn.nets import MLP, ActorNet, Normaliser, init_mlp, mlp, normaliser, policy_for
from saute.learn.returns import advantages
from saute.learn.statistics import Statistics, check_discount, inputs_of, nothing, return_scale, updated

__all__ = ["Data", "Improve", "OnPolicy", "OnPolicyAgent", "OnPolicySettings", "OnPolicyState"]


@dataclasses.dataclass(frozen=True)
class OnPolicySettings:
    """Settings of the paper's on-policy learners (Sootla et al. 2022, table 1; 4000 steps per epoch as in its experiments)."""

    hidden: tuple[int, ...] = (64, 64)
    steps_per_epoch: int = 4000
    num_envs: int | None = None
    """JAX-native environments side by side, by default as many as whole episodes fit into an epoch; a vector of Gymnasium's
    has its own number."""
    discount: float = 0.99
    trace: float = 0.97
    cost_discount: float = 0.99
    cost_trace: float = 0.97
    value_rate: float = 1e-3
    value_iterations: int = 80
    value_scale: float = 1.0
    """V(s) = scale · MLP(s): returns near 1/(1 − γ) are fitted in far fewer iterations if the net need not grow to them."""
    target_kl: float = 0.01
    kl_epochs: int | None = None
    """Epochs in which the trust region shrinks, δ_k = δ max(.1, 1 − k/K): large steps learn fast, small ones settle."""
    normalise: bool = False
    """Whether observations are normalised by the mean and standard deviation of those before training; z never is."""
    running_normaliser: bool = False
    """Whether observations are normalised by the mean and standard deviation of all so far, updated after every epoch; z and
    pictures never are."""
    scale_rewards: bool = False
    """Whether the learner sees rewards divided by the size of discounted returns so far; reported ones are not divided. Leave
    value_scale at 1 then."""
    minibatches: int = 1
    """Parts of the data that value fits and PPO's steps use in turn; Fisher products use the first. The paper has one part."""
    clip: float = 0.2
    """ε of PPO."""
    policy_rate: float = 3e-4
    """Learning rate of PPO's Adam."""
    policy_iterations: int = 80
    """PPO makes at most so many steps in an epoch."""
    kl_margin: float = 1.2
    """PPO stops once the divergence is beyond this multiple of its target."""
    cg_iterations: int = 10
    """Conjugate gradient steps of TRPO and CPO."""
    damping: float = 0.1
    """δ in H + δI, by which TRPO and CPO damp the Fisher matrix H."""
    shrink: float = 0.8
    """β of the line search of TRPO and CPO, which tries the steps 1, β, β², …"""
    tries: int = 10
    """How many steps it tries."""


class Data(NamedTuple):
    """A batch as `improve` sees it, all steps of all environments in one row each, the rows in minibatches."""

    obs: Float[Array, "minibatch row obs"]
    action: Array
    old: PyTree
    advantage: Float[Array, "minibatch row"]
    cost_advantage: Float[Array, "minibatch row ..."]
    """With a last axis for several constraints, like the excess."""
    objective: Float[Array, "minibatch row"]
    """Advantage that is to be maximised: the reward's, less λ times the cost's."""
    excess: Float[Array, ...]
    """(mean cost of an episode − limit) / mean length of an episode."""
    known: Bool[Array, ""]
    """Whether an episode was counted, so that the excess is known."""
    target_kl: Float[Array, ""] | float
    """δ of this epoch."""


Improve = Callable[[ActorNet, PyTree, PyTree, Data], tuple[PyTree, PyTree, Metrics]]
"""(policy, parameters, optimiser state, data) → (parameters, optimiser state, metrics)."""


class OnPolicyState(NamedTuple):
    """Everything that training changes."""

    policy: PyTree
    value: MLP
    cost_value: MLP
    """Of several constraints one each, stacked along the first axis."""
    policy_optimiser: PyTree
    value_optimiser: PyTree
    cost_value_optimiser: PyTree
    constraint: PyTree
    normaliser: Normaliser | tuple[()]
    epoch: Int[Array, ""]
    observed: Statistics | tuple[()] = ()
    """Of all observations so far; the normaliser is made of them when an epoch ends."""
    rewards: Statistics | tuple[()] = ()


@dataclasses.dataclass(frozen=True)
class OnPolicy:
    """A way to improve the policy, with its settings and its constraint."""

    name: str
    settings: OnPolicySettings
    constraint: Constraint
    improve: Improve
    init_optimiser: Callable[[PyTree], PyTree] = lambda parameters: ()

    def agent(self, spec: Spec) -> OnPolicyAgent:
        """The learner for an environment's spaces."""
        check_limits(self.name, self.constraint.limit, spec.cost_shape)
        check_discount(self.settings.scale_rewards, self.settings.discount)
        budgets = spec.options.constraints if spec.options is not None and spec.options.augment else 0
        policy = policy_for(spec.observation_space, spec.action_space, self.settings.hidden, spec.image)
        return OnPolicyAgent(self, policy, budgets)


@dataclasses.dataclass(frozen=True)
class OnPolicyAgent:
    """A learner from whole epochs: the multiplier first, then the policy, then both value functions."""

    algorithm: OnPolicy
    policy: ActorNet
    budgets: int
    """How many of the last observations are remaining budgets, which are never normalised."""

    begin = observe = staticmethod(unchanged)

    @property
    def settings(self) -> OnPolicySettings:
        return self.algorithm.settings

    @property
    def several(self) -> int | None:
        """How many constraints there are, if there are several limits."""
        limit = self.algorithm.constraint.limit
        return len(limit) if isinstance(limit, Sequence) else None

    def init(self, key: PRNGKeyArray) -> OnPolicyState:
        policy_key, value_key, cost_key = jax.random.split(key, 3)
        sizes, image = (self.policy.observations, *self.settings.hidden, 1), self.policy.image
        parameters, adam = self.policy.init(policy_key), optax.adam(self.settings.value_rate)
        value = init_mlp(value_key, sizes, image)

        def of_cost(key: PRNGKeyArray) -> tuple[MLP, PyTree]:
            net = init_mlp(key, sizes, image)
            return net, adam.init(net)

        cost_value, cost_optimiser = (
            of_cost(cost_key) if self.several is None else jax.vmap(of_cost)(jax.random.split(cost_key, self.several))
        )
        return OnPolicyState(
            policy=parameters,
            value=value,
            cost_value=cost_value,
            policy_optimiser=self.algorithm.init_optimiser(parameters),
            value_optimiser=adam.init(value),
            cost_value_optimiser=cost_optimiser,
            constraint=self.algorithm.constraint.init(),
            normaliser=(),
            epoch=jnp.zeros((), jnp.int32),
            rewards=nothing() if self.settings.scale_rewards else (),
        )

    @property
    def prepare(self) -> Callable[[OnPolicyState, Array], tuple[OnPolicyState, Metrics]]:
        """Takes the normaliser from what the untrained policy sees, if the settings ask for one."""
        if self.settings.running_normaliser:
            return self._watched
        return self._normalised if self.settings.normalise else unchanged

    def memory(self, count: int) -> tuple[()]:
        return ()

    def act(self, state: OnPolicyState, memory: tuple[()], obs: Float[Array, "env obs"], key: PRNGKeyArray) -> Acted:
        """Actions drawn from the policy."""
        return Acted(self.policy.sample(self.policy.distribution(state.policy, _seen(state, obs)), key))

    def export(self, state: OnPolicyState) -> PyTree:
        """Parameters of the policy for plain observations."""
        return self.policy.absorb(state.policy, state.normaliser) if state.normaliser else state.policy

    def vital(self, state: OnPolicyState) -> PyTree:
        return state.policy, state.value, state.cost_value, state.observed, state.rewards

    def objection(self, metrics: dict[str, float]) -> str | None:
        return None

    def learn(
        self, state: OnPolicyState, rows: Transition, episodes: Episodes, key: PRNGKeyArray
    ) -> tuple[OnPolicyState, Metrics]:
        """One epoch: the multiplier from whole episodes, then the policy, then both value functions.

        The whole epoch sees observations through one normaliser, so that the old and the new policy are compared as functions
        of the same inputs. It is updated afterwards, which changes a little how the next epoch acts.
        """
        settings, constrained, image = self.settings, self.algorithm.constraint.limit is not None, self.policy.image
        constraint, multiplier = self.algorithm.constraint.update(state.constraint, episodes.cost, episodes.counted)
        met, state, rows = rows.obs, *self._scaled(state, rows)
        estimates = self._estimates(state, rows, episodes)
        parts = interleave((rows.obs, rows.action, *estimates), settings.minibatches)
        obs, action, advantage, target, cost_advantage, cost_target = parts
        data = Data(
            obs=obs,
            action=action,
            old=jax.lax.stop_gradient(self.policy.distribution(state.policy, obs)),
            advantage=advantage,
            cost_advantage=cost_advantage,
            objective=penalise(advantage, cost_advantage, multiplier),
            excess=self._excess(episodes) if constrained else jnp.zeros(()),
            known=episodes.counted.any(),
            target_kl=settings.target_kl * _shrunk(state.epoch, settings.kl_epochs),
        )
        policy, policy_optimiser, metrics = self.algorithm.improve(self.policy, state.policy, state.policy_optimiser, data)
        value, value_optimiser = fit(state.value, state.value_optimiser, obs, target, settings, image)
        cost_value, cost_optimiser = state.cost_value, state.cost_value_optimiser
        if constrained:
            cost_value, cost_optimiser = self._fit_costs(state, obs, cost_target)
        nets = (policy, value, cost_value, policy_optimiser, value_optimiser, cost_optimiser)
        after = OnPolicyState(*nets, constraint, state.normaliser, state.epoch + 1, state.observed, state.rewards)
        if settings.running_normaliser:
            after, _ = self._watched(after, met)
        return after, metrics | named("multiplier", multiplier)

    def _scaled(self, state: OnPolicyState, rows: Transition) -> tuple[OnPolicyState, Transition]:
        """Rows as the nets see them: normalised observations and, if the settings ask for it, r/σ, where σ is of all rewards so
        far, those of this epoch included; costs are never scaled."""
        rows = rows._replace(obs=_seen(state, rows.obs), next_obs=_seen(state, rows.next_obs))
        if not state.rewards:
            return state, rows
        rewards = updated(state.rewards, rows.reward)
        scaled = rows.reward / return_scale(rewards, self.settings.discount)
        return state._replace(rewards=rewards), rows._replace(reward=scaled)

    def _estimates(self, state: OnPolicyState, rows: Transition, episodes: Episodes) -> tuple[Array, Array, Array, Array]:
        """Advantage and value target of the reward, then of the cost, or each cost: 0 without a constraint."""
        settings, constraint, image = self.settings, self.algorithm.constraint, self.policy.image

        def estimate(net: MLP, signal: Array, discount: float, trace: float) -> tuple[Array, Array]:
            value, next_value = (settings.value_scale * mlp(net, obs, image=image)[..., 0] for obs in (rows.obs, rows.next_obs))
            return advantages(signal, value, next_value, rows.terminated, episodes.ended, discount, trace)

        advantage, target = estimate(state.value, rows.reward, settings.discount, settings.trace)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        advantage = _own(rows, advantage)
        if constraint.limit is None:
            return advantage, target, jnp.zeros_like(advantage), jnp.zeros_like(advantage)

        def of_cost(net: MLP, cost: Array) -> tuple[Array, Array]:
            return estimate(net, cost, settings.cost_discount, settings.cost_trace)

        if self.several is not None:
            of_cost = jax.vmap(of_cost, in_axes=(0, -1), out_axes=-1)
        cost_advantage, cost_target = of_cost(state.cost_value, rows.cost)
        weights = constraint.weights(episodes)
        if weights is not None:
            cost_advantage = cost_advantage * weights
        return advantage, target, _own(rows, cost_advantage - cost_advantage.mean((0, 1))), cost_target

    def _fit_costs(self, state: OnPolicyState, obs: Array, target: Array) -> tuple[MLP, PyTree]:
        """The value net of the cost, or of each, after its fit, with its optimiser."""
        if self.several is None:
            return fit(state.cost_value, state.cost_value_optimiser, obs, target, self.settings, self.policy.image)

        def fitted(net: MLP, optimiser: PyTree, target: Array) -> tuple[MLP, PyTree]:
            return fit(net, optimiser, obs, target, self.settings, self.policy.image)

        one = jax.vmap(fitted, in_axes=(0, 0, -1))
        return one(state.cost_value, state.cost_value_optimiser, target)

    def _excess(self, episodes: Episodes) -> Float[Array, ...]:
        length = mean(episodes.length.astype(jnp.float32), episodes.counted)
        limit = jnp.asarray(self.algorithm.constraint.limit or 0.0, float)
        return (mean(episodes.cost, episodes.counted) - limit) / jnp.maximum(1.0, length)

    def _normalised(self, state: OnPolicyState, obs: Float[Array, "*batch obs"]) -> tuple[OnPolicyState, Metrics]:
        return state._replace(normaliser=normaliser(obs, self.budgets, self.policy.image)), {}

    def _watched(self, state: OnPolicyState, obs: Float[Array, "*batch obs"]) -> tuple[OnPolicyState, Metrics]:
        """The state with these observations added to the statistics, and with the normaliser that follows from them."""
        start, end = pixels_of(self.policy.image), self.policy.observations - self.budgets
        known = updated(state.observed or nothing(end - start), obs[..., start:end])
        return state._replace(observed=known, normaliser=inputs_of(known, start, self.budgets)), {}


def _own(rows: Transition, advantage: Array) -> Array:
    """0 where somebody else chose the action: a policy that never draws it has nothing to learn from what came of it."""
    if isinstance(rows.foreign, tuple):
        return advantage
    return jnp.where(along(rows.foreign, advantage), 0.0, advantage)


def _shrunk(epoch: Int[Array, ""], epochs: int | None) -> Float[Array, ""] | float:
    return 1.0 if epochs is None else jnp.maximum(0.1, 1.0 - epoch / epochs)


def _seen(state: OnPolicyState, obs: Array) -> Array:
    return state.normaliser(obs) if state.normaliser else obs


def interleave(tree: PyTree, minibatches: int) -> PyTree:
    """(step, env, …) → (minibatch, row, …): step t of environment e goes to minibatch (e − t) mod k, so each sees all times.

    There are at most as many minibatches as environments. If their number does not divide that of the environments, some steps
    are left out, at every time those of other environments.
    """

    def split(leaf: Array) -> Array:
        steps, envs = leaf.shape[:2]
        parts = min(minibatches, envs)
        turned = (jnp.arange(envs) + jnp.arange(steps)[:, None]) % envs
        rows = leaf[jnp.arange(steps)[:, None], turned] if parts > 1 else leaf
        rows = rows[:, : envs // parts * parts].reshape(steps, -1, parts, *leaf.shape[2:])
        return jnp.moveaxis(rows, 2, 0).reshape(parts, -1, *leaf.shape[2:])

    return jax.tree.map(split, tree)


def fit(
    net: MLP, optimiser_state: PyTree, obs: Array, target: Array, settings: OnPolicySettings, image: Image = None
) -> tuple[MLP, PyTree]:
    """Adam on E(V(s) − G)², one minibatch after the other."""
    adam = optax.adam(settings.value_rate)

    def loss(net: MLP, i: Array) -> Array:
        return jnp.mean((mlp(net, obs[i], image=image)[..., 0] - target[i] / settings.value_scale) ** 2)

    def iterate(carry: tuple[MLP, PyTree], i: Array) -> tuple[tuple[MLP, PyTree], None]:
        net, state = carry
        updates, state = adam.update(jax.grad(loss)(net, i), state)
        return (optax.apply_updates(net, updates), state), None

    turns = jnp.arange(settings.value_iterations) % len(obs)
    return jax.lax.scan(iterate, (net, optimiser_state), turns)[0]
