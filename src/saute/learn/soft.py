"""How soft actor-critic weighs actions: a vector by drawing one of them, discrete ones by the exact mean over all."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Float, Int, PRNGKeyArray

from saute.core.encoder import Image
from saute.learn.nets import MLP, Categorical, SquashedGaussian, init_mlp, rectified, squashed_for, vector_size

__all__ = ["Drawn", "Enumerated", "Weighed", "weighing"]

EXPLORING = 0.03
"""How often a discrete policy of the target entropy takes another action than its best one."""


class Weighed(NamedTuple):
    """Actions that values are wanted of, and log π of each: of every row one that was drawn, or all that there are."""

    action: Any
    log_prob: Float[Array, "row ..."]


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A vector of actions: E_π f(a) by one action in (−1, 1) that was drawn, and critics Q(s, a) that take it as input."""

    policy: SquashedGaussian

    @property
    def target_entropy(self) -> float:
        """H̄ = −(number of actions) (Haarnoja et al. 2018)."""
        return -float(self.policy.actions)

    @property
    def blank(self) -> Float[Array, " action"]:
        """What the replay keeps of an action, empty."""
        return jnp.zeros(self.policy.actions)

    def init_critic(self, key: PRNGKeyArray) -> MLP:
        policy = self.policy
        return init_mlp(key, (policy.observations + policy.actions, *policy.hidden, 1), policy.image)

    def sample(self, parameters: MLP, obs: Float[Array, "row obs"], key: PRNGKeyArray) -> Float[Array, "row action"]:
        return self.weighed(parameters, obs, self.noise(key, len(obs))).action

    def noise(self, key: PRNGKeyArray, count: int) -> Float[Array, "row action"]:
        """What `weighed` makes actions of."""
        return jax.random.normal(key, (count, self.policy.actions))

    def uniform(self, key: PRNGKeyArray, count: int) -> Float[Array, "row action"]:
        return jax.random.uniform(key, (count, self.policy.actions), minval=-1.0, maxval=1.0)

    def scale(self, action: Float[Array, "row action"]) -> Float[Array, "row action"]:
        """The action that is taken, for one in (−1, 1)."""
        return self.policy.scale(action)

    def unscaled(self, action: Float[Array, "row action"]) -> Float[Array, "row action"]:
        """The one in (−1, 1), for an action that somebody else chose."""
        low, high = jnp.asarray(self.policy.low), jnp.asarray(self.policy.high)
        return jnp.clip((2.0 * action - high - low) / jnp.maximum(high - low, 1e-9), -1.0, 1.0)

    def weighed(self, parameters: MLP, obs: Float[Array, "row obs"], noise: Float[Array, "row action"]) -> Weighed:
        dist = self.policy.distribution(parameters, obs)
        u = self.policy.unsquashed(dist, noise)
        return Weighed(jnp.tanh(u), self.policy.log_prob(dist, u))

    def mean(self, weighed: Weighed, values: Float[Array, " row"]) -> Float[Array, " row"]:
        """E_π of the values of weighed actions."""
        return values

    def chased(self, weighed: Weighed, worth: Float[Array, " row"], α: Float[Array, ""]) -> Float[Array, " row"]:
        """The E log π that the temperature compares with H̄: of the policy as it is."""
        return weighed.log_prob

    def values(self, critic: MLP, obs: Float[Array, "row obs"], weighed: Weighed) -> Float[Array, " row"]:
        """Q(s, a) of weighed actions."""
        return self.value(critic, obs, weighed.action)

    def value(self, critic: MLP, obs: Float[Array, "row obs"], action: Float[Array, "row action"]) -> Float[Array, " row"]:
        """Q(s, a) of given actions."""
        return rectified(critic, jnp.concatenate([obs, action], axis=1), self.policy.image)[:, 0]


@dataclasses.dataclass(frozen=True)
class Enumerated:
    """Discrete actions: E_π f(a) = Σ π(a|s) f(a), and critics that give Q(s, a) of every a at once (Christodoulou 2019)."""

    policy: Categorical

    @property
    def target_entropy(self) -> float:
        """H̄ = −(1 − ε) log(1 − ε) − ε log(ε/(n − 1)), ε = 0.03: of a policy that takes its best action 97 times in 100.

        The 0.98 log n of Christodoulou 2019 is almost uniform, which a policy beside its budget's end cannot be.
        """
        n, ε = self.policy.actions, EXPLORING
        return 0.0 if n == 1 else -(1 - ε) * math.log(1 - ε) - ε * math.log(ε / (n - 1))

    @property
    def blank(self) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)

    def init_critic(self, key: PRNGKeyArray) -> MLP:
        policy = self.policy
        return init_mlp(key, (policy.observations, *policy.hidden, policy.actions), policy.image)

    def sample(self, parameters: MLP, obs: Float[Array, "row obs"], key: PRNGKeyArray) -> Int[Array, " row"]:
        return self.policy.sample(self.policy.distribution(parameters, obs), key)

    def uniform(self, key: PRNGKeyArray, count: int) -> Int[Array, " row"]:
        return jax.random.randint(key, (count,), 0, self.policy.actions)

    def scale(self, action: Int[Array, " row"]) -> Int[Array, " row"]:
        return action

    def unscaled(self, action: Int[Array, " row"]) -> Int[Array, " row"]:
        return action

    def noise(self, key: PRNGKeyArray, count: int) -> tuple[()]:
        return ()

    def weighed(self, parameters: MLP, obs: Float[Array, "row obs"], noise: tuple[()]) -> Weighed:
        return Weighed(None, self.policy.distribution(parameters, obs))

    def mean(self, weighed: Weighed, values: Float[Array, "row choice"]) -> Float[Array, " row"]:
        return jnp.sum(jnp.exp(weighed.log_prob) * values, axis=-1)

    def chased(self, weighed: Weighed, worth: Float[Array, "row choice"], α: Float[Array, ""]) -> Float[Array, " row"]:
        """Σ π* log π* of the best policy at this temperature, π* = softmax(Q/α), towards which π is on its way.

        Where π is sure of an action its gradient vanishes, and where actions are worth the same its entropy hardly falls: a
        temperature that waits for either would go to infinity, or to zero.
        """
        log_best = jax.nn.log_softmax(worth / α)
        return jnp.sum(jnp.exp(log_best) * log_best, axis=-1)

    def values(self, critic: MLP, obs: Float[Array, "row obs"], weighed: Weighed) -> Float[Array, "row choice"]:
        return rectified(critic, obs, self.policy.image)

    def value(self, critic: MLP, obs: Float[Array, "row obs"], action: Int[Array, " row"]) -> Float[Array, " row"]:
        every = rectified(critic, obs, self.policy.image)
        return jnp.take_along_axis(every, action[:, None], axis=1)[:, 0]


def weighing(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], hidden: tuple[int, ...], image: Image = None
) -> Drawn | Enumerated:
    """The way that fits the spaces, with its policy."""
    if isinstance(action_space, spaces.MultiDiscrete):
        raise ValueError(f"actions {action_space} are several discrete ones; soft actor-critic takes one, use ppo, trpo or cpo")
    if isinstance(action_space, spaces.Discrete):
        return Enumerated(Categorical(vector_size(observation_space, image), int(action_space.n), hidden, image, relu=True))
    return Drawn(squashed_for(observation_space, action_space, hidden, image))
