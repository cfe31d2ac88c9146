"""Multilayer perceptrons and the policies on top of them; every leaf is an array, so plain `jit`, `vmap` and `grad` apply."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

__all__ = [
    "Categorical",
    "Gaussian",
    "Layer",
    "Net",
    "Normaliser",
    "SquashedGaussian",
    "init_mlp",
    "mlp",
    "normaliser",
    "policy_for",
    "squashed_for",
]


class Layer(NamedTuple):
    """y = x W + b."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]


MLP = tuple[Layer, ...]
Dist: TypeAlias = PyTree
"""What a policy makes of an observation, and draws from: means and log σ, or the logarithms of probabilities."""
LOG_STD = (-20.0, 2.0)
"""Bounds of log σ of a squashed policy."""


def init_mlp(key: PRNGKeyArray, sizes: Sequence[int]) -> MLP:
    """Weights by Glorot & Bengio 2010, W ~ U(±√(6/(in + out))), zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)

    def layer(key: PRNGKeyArray, inputs: int, outputs: int) -> Layer:
        extent = math.sqrt(6.0 / (inputs + outputs))
        return Layer(jax.random.uniform(key, (inputs, outputs), minval=-extent, maxval=extent), jnp.zeros(outputs))

    return tuple(layer(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True))


def mlp(
    net: MLP, x: Float[Array, "*batch inputs"], activation: Callable[[Array], Array] = jnp.tanh
) -> Float[Array, "*batch out"]:
    """The network's output; the activation stands between the layers."""
    # One matrix of all rows, which XLA multiplies a quarter faster than a stack of matrices.
    rows = x.reshape(-1, x.shape[-1])
    for layer in net[:-1]:
        rows = activation(rows @ layer.weight + layer.bias)
    return (rows @ net[-1].weight + net[-1].bias).reshape(*x.shape[:-1], len(net[-1].bias))


class Normaliser(NamedTuple):
    """x ↦ (x − mean) · scale."""

    mean: Float[Array, " inputs"]
    scale: Float[Array, " inputs"]

    def __call__(self, x: Array) -> Array:
        return (x - self.mean) * self.scale

    def absorbed(self, net: MLP) -> MLP:
        """The net that gives for x what the given one gives for (x − mean) · scale."""
        first = net[0]
        weight = self.scale[:, None] * first.weight
        return (Layer(weight, first.bias - self.mean @ weight), *net[1:])


def normaliser(x: Float[Array, "... inputs"], untouched: int = 0, pixels: int = 0) -> Normaliser:
    """Mean 0 and deviation 1 for each input that varies in the sample; the last `untouched` ones, and the first `pixels`, stay
    as they are."""
    rows = x.reshape(-1, x.shape[-1])
    mean, deviation = rows.mean(0), rows.std(0)
    place = jnp.arange(x.shape[-1])
    kept = (place >= x.shape[-1] - untouched) | (place < pixels)
    scale = jnp.where(deviation > 1e-3, 1.0 / jnp.maximum(deviation, 1e-3), 1.0)
    return Normaliser(jnp.where(kept, 0.0, mean), jnp.where(kept, 1.0, scale))


class Memoryless:
    """A policy net carries nothing from step to step."""

    def memory(self, count: int) -> tuple[()]:
        return ()

    def decide(self, parameters: PyTree, memory: tuple[()], obs: Float[Array, "*batch obs"]) -> tuple[Array, tuple[()]]:
        """The most likely action."""
        return self.mode(self.distribution(parameters, obs)), memory  # type: ignore[attr-defined]


class GaussianParameters(NamedTuple):
    mean: MLP
    log_std: Float[Array, " action"]


@dataclasses.dataclass(frozen=True)
class Gaussian(Memoryless):
    """a ~ N(μ(s), diag σ²) with σ independent of the state, initially e^−½."""

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)

    def init(self, key: PRNGKeyArray) -> GaussianParameters:
        return GaussianParameters(
            init_mlp(key, (self.observations, *self.hidden, self.actions)), jnp.full(self.actions, -0.5, float)
        )

    def distribution(self, parameters: GaussianParameters, obs: Array) -> tuple[Array, Array]:
        """What `sample`, `log_prob` and `divergence` work on: means and log σ."""
        mean = mlp(parameters.mean, obs)
        return mean, jnp.broadcast_to(parameters.log_std, mean.shape)

    def absorb(self, parameters: GaussianParameters, inputs: Normaliser) -> GaussianParameters:
        return parameters._replace(mean=inputs.absorbed(parameters.mean))

    def mode(self, dist: Dist) -> Array:
        return dist[0]

    def sample(self, dist: Dist, key: PRNGKeyArray) -> Array:
        mean, log_std = dist
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def log_prob(self, dist: Dist, action: Array) -> Array:
        """log π(a|s) = −Σ ½((a − μ)/σ)² + log σ + ½ log 2π."""
        mean, log_std = dist
        z = (action - mean) * jnp.exp(-log_std)
        return -jnp.sum(0.5 * z**2 + log_std + 0.5 * math.log(2 * math.pi), axis=-1)

    def divergence(self, old: Dist, new: Dist) -> Array:
        """KL(old ‖ new) = Σ log(σ'/σ) + (σ² + (μ − μ')²)/(2σ'²) − ½."""
        (mean, log_std), (mean_new, log_std_new) = old, new
        ratio = (jnp.exp(2 * log_std) + (mean - mean_new) ** 2) * jnp.exp(-2 * log_std_new)
        return jnp.sum(log_std_new - log_std + 0.5 * ratio - 0.5, axis=-1)


@dataclasses.dataclass(frozen=True)
class Categorical(Memoryless):
    """a ~ softmax of the logits, for discrete actions."""

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)

    def init(self, key: PRNGKeyArray) -> MLP:
        return init_mlp(key, (self.observations, *self.hidden, self.actions))

    def distribution(self, parameters: MLP, obs: Array) -> Array:
        return jax.nn.log_softmax(mlp(parameters, obs))

    def absorb(self, parameters: MLP, inputs: Normaliser) -> MLP:
        return inputs.absorbed(parameters)

    def mode(self, dist: Dist) -> Array:
        return jnp.argmax(dist, axis=-1)

    def sample(self, dist: Dist, key: PRNGKeyArray) -> Array:
        return jax.random.categorical(key, dist)

    def log_prob(self, dist: Dist, action: Array) -> Array:
        return jnp.take_along_axis(dist, action[..., None].astype(int), axis=-1)[..., 0]

    def divergence(self, old: Dist, new: Dist) -> Array:
        return jnp.sum(jnp.exp(old) * (old - new), axis=-1)


@dataclasses.dataclass(frozen=True)
class SquashedGaussian(Memoryless):
    """a = centre + half · tanh(u), u ~ N(μ(s), diag σ(s)²); one net gives μ and log σ, which is kept in [−20, 2]."""

    observations: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    hidden: tuple[int, ...] = (256, 256)

    @property
    def actions(self) -> int:
        return len(self.low)

    def init(self, key: PRNGKeyArray) -> MLP:
        return init_mlp(key, (self.observations, *self.hidden, 2 * self.actions))

    def distribution(self, parameters: MLP, obs: Array) -> tuple[Array, Array]:
        """What `mode`, `sample` and `log_prob` work on: means and log σ before squashing."""
        mean, log_std = jnp.split(mlp(parameters, obs, jax.nn.relu), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD)

    def absorb(self, parameters: MLP, inputs: Normaliser) -> MLP:
        return inputs.absorbed(parameters)

    def mode(self, dist: Dist) -> Array:
        return self.scale(jnp.tanh(dist[0]))

    def sample(self, dist: Dist, key: PRNGKeyArray) -> Array:
        return self.scale(jnp.tanh(self.unsquashed(dist, key)))

    def unsquashed(self, dist: Dist, key: PRNGKeyArray) -> Array:
        """u = μ + σε, differentiable in μ and σ."""
        mean, log_std = dist
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def log_prob(self, dist: Dist, u: Float[Array, "*batch action"]) -> Float[Array, "*batch"]:
        """log π(tanh u) = Σ log N(u; μ, σ) − log(1 − tanh² u), with log(1 − tanh² u) = 2(log 2 − u − softplus(−2u)).

        That is the density in units of half the action range, (−1, 1) (Haarnoja et al. 2018, appendix C).
        """
        mean, log_std = dist
        gauss = -0.5 * ((u - mean) * jnp.exp(-log_std)) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
        return jnp.sum(gauss - 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u)), axis=-1)

    def scale(self, unit: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """From (−1, 1) to the bounds of the actions."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        return (high + low) / 2 + (high - low) / 2 * unit


Net = Gaussian | Categorical | SquashedGaussian


def policy_for(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], hidden: tuple[int, ...] = (64, 64)
) -> Gaussian | Categorical:
    """The policy that fits the spaces: Gaussian for a vector of actions, categorical for a discrete one."""
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 1:
        raise ValueError(f"observations {observation_space} are not a vector; flatten them with FlattenObservation first")
    size = observation_space.shape[0]
    if isinstance(action_space, spaces.Discrete):
        return Categorical(size, int(action_space.n), hidden)
    if isinstance(action_space, spaces.Box) and len(action_space.shape) == 1:
        return Gaussian(size, int(np.prod(action_space.shape)), hidden)
    raise ValueError(f"actions {action_space} are neither a vector nor discrete; wrap the environment to make them so")


def squashed_for(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], hidden: tuple[int, ...] = (256, 256)
) -> SquashedGaussian:
    """The squashed policy that fits the spaces: vectors, the actions bounded."""
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 1:
        raise ValueError(f"observations {observation_space} are not a vector; flatten them with FlattenObservation first")
    if not isinstance(action_space, spaces.Box) or len(action_space.shape) != 1:
        raise ValueError(f"actions {action_space} are not a vector; soft actor-critic needs continuous ones, use ppo or trpo")
    if not (np.isfinite(action_space.low).all() and np.isfinite(action_space.high).all()):
        raise ValueError(f"actions {action_space} are unbounded; bound them with RescaleAction first")
    low, high = (tuple(map(float, end)) for end in (action_space.low, action_space.high))
    return SquashedGaussian(observation_space.shape[0], low, high, hidden)
