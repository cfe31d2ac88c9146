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

from saute.core.encoder import Image, check_image, encoded_size, pixels_of
from saute.learn.pictures import Filters, encoded, init_filters

__all__ = [
    "Categorical",
    "Gaussian",
    "Layer",
    "MultiCategorical",
    "Net",
    "Normaliser",
    "SquashedGaussian",
    "init_mlp",
    "mlp",
    "normaliser",
    "policy_for",
    "product",
    "rectified",
    "squashed_for",
]


class Layer(NamedTuple):
    """y = x W + b."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]


MLP = tuple[Filters | Layer, ...]
"""Layers, after those of the encoder if the inputs begin with a picture."""
Dist: TypeAlias = PyTree
"""What a policy makes of an observation, and draws from: means and log σ, or the logarithms of probabilities."""
PICTURE = 0x91C
"""Which key the encoder is drawn with: a number that no layer has."""
LOG_STD = (-20.0, 2.0)
"""Bounds of log σ of a squashed policy."""


def init_mlp(key: PRNGKeyArray, sizes: Sequence[int], image: Image = None) -> MLP:
    """Weights by Glorot & Bengio 2010, W ~ U(±√(6/(in + out))), zero biases; inputs may begin with a picture."""
    keys = jax.random.split(key, len(sizes) - 1)
    sizes = (encoded_size(sizes[0], image), *sizes[1:])

    def layer(key: PRNGKeyArray, inputs: int, outputs: int) -> Layer:
        extent = math.sqrt(6.0 / (inputs + outputs))
        return Layer(jax.random.uniform(key, (inputs, outputs), minval=-extent, maxval=extent), jnp.zeros(outputs))

    layers = tuple(layer(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True))
    return (*init_filters(jax.random.fold_in(key, PICTURE), image), *layers)


def mlp(
    net: MLP,
    x: Float[Array, "*batch inputs"],
    activation: Callable[[Array], Array] = jnp.tanh,
    image: Image = None,
    times: Callable[[Array, Array], Array] = jnp.matmul,
) -> Float[Array, "*batch out"]:
    """The network's output; the activation stands between the layers."""
    # One matrix of all rows, which XLA multiplies a quarter faster than a stack of matrices.
    filters, net = _parts(net)
    rows = encoded(filters, x.reshape(-1, x.shape[-1]), image)
    for layer in net[:-1]:
        rows = activation(times(rows, layer.weight) + layer.bias)
    return (times(rows, net[-1].weight) + net[-1].bias).reshape(*x.shape[:-1], len(net[-1].bias))


def rectified(net: MLP, x: Float[Array, "*batch inputs"], image: Image = None) -> Float[Array, "*batch out"]:
    """The network's output with rectifiers between the layers, as in soft actor-critic; it has gradients, but no tangents."""
    return mlp(net, x, jax.nn.relu, image, product)


@jax.custom_vjp
def product(x: Float[Array, "row in"], weight: Float[Array, "in out"]) -> Float[Array, "row out"]:
    """x W, whose gradient in W is of the only form that XLA multiplies fast on a CPU: rows of the left one times columns."""
    return x @ weight


def _product_and_factors(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _gradients(factors: tuple[Array, Array], slope: Float[Array, "row out"]) -> tuple[Array, Array]:
    """∂/∂x = G Wᵀ and ∂/∂W = xᵀ G = (Gᵀ x)ᵀ, by turning the narrower of x and G."""
    x, weight = factors
    if x.shape[1] < slope.shape[1]:
        return slope @ weight.T, _turned(x) @ slope
    return slope @ weight.T, jax.lax.optimization_barrier(_turned(slope) @ x).T


def _turned(x: Float[Array, "row column"]) -> Float[Array, "column row"]:
    """The transpose, written out: XLA would make it a part of the product otherwise, which is what is slow."""
    return jax.lax.optimization_barrier(jax.lax.optimization_barrier(x).T)


product.defvjp(_product_and_factors, _gradients)


def _parts(net: MLP) -> tuple[tuple[Filters, ...], tuple[Layer, ...]]:
    """The encoder's layers, and those after them."""
    filters = tuple(layer for layer in net if isinstance(layer, Filters))
    return filters, tuple(layer for layer in net if isinstance(layer, Layer))


class Normaliser(NamedTuple):
    """x ↦ (x − mean) · scale."""

    mean: Float[Array, " inputs"]
    scale: Float[Array, " inputs"]

    def __call__(self, x: Array) -> Array:
        return (x - self.mean) * self.scale

    def absorbed(self, net: MLP, image: Image = None) -> MLP:
        """The net that gives for x what the given one gives for (x − mean) · scale; that of pixels must be x itself."""
        filters, (first, *others) = _parts(net)
        mean, scale = self.mean[pixels_of(image) :], self.scale[pixels_of(image) :]
        features = len(first.weight) - len(mean)
        weight = scale[:, None] * first.weight[features:]
        absorbed = Layer(jnp.concatenate([first.weight[:features], weight]), first.bias - mean @ weight)
        return (*filters, absorbed, *others)


def normaliser(x: Float[Array, "... inputs"], untouched: int = 0, image: Image = None) -> Normaliser:
    """Mean 0 and deviation 1 for each input that varies in the sample; pixels and the last `untouched` stay as they are."""
    rows = x.reshape(-1, x.shape[-1])
    mean, deviation = rows.mean(0), rows.std(0)
    place = jnp.arange(x.shape[-1])
    kept = (place >= x.shape[-1] - untouched) | (place < pixels_of(image))
    scale = jnp.where(deviation > 1e-3, 1.0 / jnp.maximum(deviation, 1e-3), 1.0)
    return Normaliser(jnp.where(kept, 0.0, mean), jnp.where(kept, 1.0, scale))


class Memoryless:
    """A policy net, most often one whose parameters are those of an MLP; it carries nothing from step to step."""

    image: Image

    def memory(self, count: int) -> tuple[()]:
        return ()

    def decide(self, parameters: PyTree, memory: tuple[()], obs: Float[Array, "*batch obs"]) -> tuple[Array, tuple[()]]:
        """The most likely action."""
        return self.mode(self.distribution(parameters, obs)), memory  # type: ignore[attr-defined]

    def absorb(self, parameters: PyTree, inputs: Normaliser) -> PyTree:
        """Parameters that give for plain observations what these give for normalised ones."""
        return inputs.absorbed(parameters, self.image)


class GaussianParameters(NamedTuple):
    mean: MLP
    log_std: Float[Array, " action"]


@dataclasses.dataclass(frozen=True)
class Gaussian(Memoryless):
    """a ~ N(μ(s), diag σ²) with σ independent of the state, initially e^−½."""

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    image: Image = None

    def init(self, key: PRNGKeyArray) -> GaussianParameters:
        sizes = (self.observations, *self.hidden, self.actions)
        return GaussianParameters(init_mlp(key, sizes, self.image), jnp.full(self.actions, -0.5, float))

    def distribution(self, parameters: GaussianParameters, obs: Array) -> tuple[Array, Array]:
        """What `sample`, `log_prob` and `divergence` work on: means and log σ."""
        mean = mlp(parameters.mean, obs, image=self.image)
        return mean, jnp.broadcast_to(parameters.log_std, mean.shape)

    def absorb(self, parameters: GaussianParameters, inputs: Normaliser) -> GaussianParameters:
        return parameters._replace(mean=inputs.absorbed(parameters.mean, self.image))

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
    image: Image = None
    relu: bool = False
    """Whether the net has rectifiers, as those of soft actor-critic, instead of tanh."""

    def init(self, key: PRNGKeyArray) -> MLP:
        return init_mlp(key, (self.observations, *self.hidden, self.actions), self.image)

    def distribution(self, parameters: MLP, obs: Array) -> Array:
        return jax.nn.log_softmax((rectified if self.relu else mlp)(parameters, obs, image=self.image))

    def mode(self, dist: Dist) -> Array:
        return jnp.argmax(dist, axis=-1)

    def sample(self, dist: Dist, key: PRNGKeyArray) -> Array:
        return jax.random.categorical(key, dist)

    def log_prob(self, dist: Dist, action: Array) -> Array:
        return jnp.take_along_axis(dist, action[..., None].astype(int), axis=-1)[..., 0]

    def divergence(self, old: Dist, new: Dist) -> Array:
        return jnp.sum(jnp.exp(old) * (old - new), axis=-1)


@dataclasses.dataclass(frozen=True)
class MultiCategorical(Memoryless):
    """Several discrete actions at once, each drawn by itself: π(a|s) = Π πᵢ(aᵢ|s), πᵢ the softmax of its own logits."""

    observations: int
    choices: tuple[int, ...]
    """How many values each of the actions has."""
    hidden: tuple[int, ...] = (64, 64)
    image: Image = None

    def init(self, key: PRNGKeyArray) -> MLP:
        return init_mlp(key, (self.observations, *self.hidden, sum(self.choices)), self.image)

    def distribution(self, parameters: MLP, obs: Array) -> Array:
        """The log πᵢ of all actions, one after the other."""
        logits = self.split(mlp(parameters, obs, image=self.image))
        return jnp.concatenate([jax.nn.log_softmax(own) for own in logits], axis=-1)

    def split(self, dist: Dist) -> list[Array]:
        """Those of each action."""
        return jnp.split(dist, np.cumsum(self.choices)[:-1], axis=-1)

    def mode(self, dist: Dist) -> Array:
        return jnp.stack([jnp.argmax(own, axis=-1) for own in self.split(dist)], axis=-1)

    def sample(self, dist: Dist, key: PRNGKeyArray) -> Array:
        keys = jax.random.split(key, len(self.choices))
        drawn = [jax.random.categorical(k, own) for k, own in zip(keys, self.split(dist), strict=True)]
        return jnp.stack(drawn, axis=-1)

    def log_prob(self, dist: Dist, action: Array) -> Array:
        """log π(a|s) = Σ log πᵢ(aᵢ|s)."""
        firsts = np.cumsum((0, *self.choices[:-1]))
        return jnp.take_along_axis(dist, action.astype(int) + firsts, axis=-1).sum(axis=-1)

    def divergence(self, old: Dist, new: Dist) -> Array:
        """KL(old ‖ new) = Σ KL(oldᵢ ‖ newᵢ)."""
        return jnp.sum(jnp.exp(old) * (old - new), axis=-1)


@dataclasses.dataclass(frozen=True)
class SquashedGaussian(Memoryless):
    """a = centre + half · tanh(u), u ~ N(μ(s), diag σ(s)²); one net gives μ and log σ, which is kept in [−20, 2]."""

    observations: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    hidden: tuple[int, ...] = (256, 256)
    image: Image = None

    @property
    def actions(self) -> int:
        return len(self.low)

    def init(self, key: PRNGKeyArray) -> MLP:
        return init_mlp(key, (self.observations, *self.hidden, 2 * self.actions), self.image)

    def distribution(self, parameters: MLP, obs: Array) -> tuple[Array, Array]:
        """What `mode`, `sample` and `log_prob` work on: means and log σ before squashing."""
        mean, log_std = jnp.split(rectified(parameters, obs, self.image), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD)

    def mode(self, dist: Dist) -> Array:
        return self.scale(jnp.tanh(dist[0]))

    def sample(self, dist: Dist, key: PRNGKeyArray) -> Array:
        return self.scale(jnp.tanh(self.unsquashed(dist, jax.random.normal(key, dist[0].shape, dist[0].dtype))))

    def unsquashed(self, dist: Dist, noise: Float[Array, "*batch action"]) -> Array:
        """u = μ + σε, differentiable in μ and σ."""
        mean, log_std = dist
        return mean + jnp.exp(log_std) * noise

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


ActorNet = Gaussian | Categorical | MultiCategorical
"""Policies of learners that learn from whole epochs."""
Net = ActorNet | SquashedGaussian


def policy_for(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    hidden: tuple[int, ...] = (64, 64),
    image: Image = None,
) -> ActorNet:
    """The policy that fits the spaces: Gaussian for a vector of actions, categorical for a discrete one or for several."""
    size = vector_size(observation_space, image)
    if isinstance(action_space, spaces.Discrete):
        return Categorical(size, int(action_space.n), hidden, image)
    if isinstance(action_space, spaces.MultiDiscrete) and len(action_space.shape) == 1:
        return MultiCategorical(size, tuple(map(int, action_space.nvec)), hidden, image)
    if isinstance(action_space, spaces.Box) and len(action_space.shape) == 1:
        return Gaussian(size, int(np.prod(action_space.shape)), hidden, image)
    raise ValueError(f"actions {action_space} are neither a vector nor discrete; wrap the environment to make them so")


def squashed_for(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    hidden: tuple[int, ...] = (256, 256),
    image: Image = None,
) -> SquashedGaussian:
    """The squashed policy that fits the spaces: vectors, the actions bounded."""
    size = vector_size(observation_space, image)
    if not isinstance(action_space, spaces.Box) or len(action_space.shape) != 1:
        raise ValueError(f"actions {action_space} are not a vector; this learner needs continuous ones, use ppo or trpo")
    if not (np.isfinite(action_space.low).all() and np.isfinite(action_space.high).all()):
        raise ValueError(f"actions {action_space} are unbounded; bound them with RescaleAction first")
    low, high = (tuple(map(float, end)) for end in (action_space.low, action_space.high))
    return SquashedGaussian(size, low, high, hidden, image)


def vector_size(observation_space: spaces.Space[Any], image: Image) -> int:
    """How many observations there are, if they are a vector, which may begin with a picture."""
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 1:
        raise ValueError(f"observations {observation_space} are not a vector; flatten them with FlattenObservation first")
    check_image(image, observation_space.shape[0])
    return observation_space.shape[0]
