"""A small convolutional encoder for observations that begin with a picture of 0 to 255, row by row."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saute.core.encoder import Image, layers_of, pixels_of

__all__ = ["Filters", "encoded", "init_filters"]


class Filters(NamedTuple):
    """y = relu(x ∗ W + b)."""

    weight: Float[Array, "height width inputs outputs"]
    bias: Float[Array, " outputs"]


def init_filters(key: PRNGKeyArray, image: Image) -> tuple[Filters, ...]:
    """Weights by Glorot & Bengio 2010, zero biases; without a picture there are no filters."""
    if image is None:
        return ()
    inputs, filters = image[2], []
    for outputs, side, _ in layers_of(image):
        key, own = jax.random.split(key)
        extent = math.sqrt(6.0 / (side**2 * (inputs + outputs)))
        weight = jax.random.uniform(own, (side, side, inputs, outputs), minval=-extent, maxval=extent)
        filters.append(Filters(weight, jnp.zeros(outputs)))
        inputs = outputs
    return tuple(filters)


def encoded(filters: tuple[Filters, ...], rows: Float[Array, "row inputs"], image: Image) -> Float[Array, "row encoded"]:
    """Features of the picture, whose pixels are divided by 255, and after them what is not picture, as it is."""
    if image is None:
        return rows
    picture = rows[:, : pixels_of(image)].reshape(-1, *image) / 255.0
    for layer, (_, _, stride) in zip(filters, layers_of(image), strict=True):
        picture = jax.nn.relu(convolved(picture, layer.weight, stride) + layer.bias)
    features = picture.reshape(len(rows), math.prod(picture.shape[1:]))
    return jnp.concatenate([features, rows[:, pixels_of(image) :]], axis=1)


def convolved(
    x: Float[Array, "row height width inputs"], weight: Float[Array, "side side inputs outputs"], stride: int
) -> Float[Array, "row down across outputs"]:
    """x ∗ W without padding, as one product of matrices.

    On a processor, inside a loop, that takes a twentieth of the time of XLA's own convolution and its gradient.
    """
    side, (down, across) = len(weight), ((size - len(weight)) // stride + 1 for size in x.shape[1:3])
    shifts = [(i, j) for i in range(side) for j in range(side)]
    ends = stride * (down - 1) + 1, stride * (across - 1) + 1
    patches = [x[:, i : i + ends[0] : stride, j : j + ends[1] : stride] for i, j in shifts]
    rows = jnp.concatenate(patches, axis=-1).reshape(-1, side * side * x.shape[-1])
    return (rows @ weight.reshape(-1, weight.shape[-1])).reshape(len(x), down, across, weight.shape[-1])
