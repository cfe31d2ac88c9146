"""A small convolutional encoder for observations that begin with a picture of 0 to 255, row by row."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

__all__ = ["Filters", "Image", "check_image", "encoded", "encoded_size", "init_filters", "pixels_of"]

Image = tuple[int, int, int] | None
"""Height, width and channels of the picture that an observation begins with; None if it has none."""
LARGE = ((16, 8, 4), (32, 4, 2), (32, 3, 1))
"""Filters, their side and their stride, layer by layer (Mnih et al. 2015, with half of the filters)."""
SMALL = ((16, 4, 2), (32, 3, 2))
FROM, LEAST = 48, 8
"""Side of a picture from which on the encoder is the large one; and the least side, for which the small one has one feature."""


class Filters(NamedTuple):
    """y = relu(x ∗ W + b)."""

    weight: Float[Array, "height width inputs outputs"]
    bias: Float[Array, " outputs"]


def pixels_of(image: Image) -> int:
    """How many of the first observations are pixels."""
    return 0 if image is None else math.prod(image)


def check_image(image: Image, observations: int) -> None:
    """Refuse pictures that are too small for the encoder, or that do not fit into the observations."""
    if image is None:
        return
    if min(image[:2]) < LEAST:
        height, width, _ = image
        raise ValueError(
            f"pictures of {height}×{width} are below the encoder's minimum of {LEAST}×{LEAST}; enlarge them, or leave "
            "image=None to take their pixels as plain numbers"
        )
    if pixels_of(image) > observations:
        raise ValueError(f"image={image} has {pixels_of(image)} pixels, but there are only {observations} observations")


def _layers(image: tuple[int, int, int]) -> tuple[tuple[int, int, int], ...]:
    return LARGE if min(image[:2]) >= FROM else SMALL


def encoded_size(inputs: int, image: Image) -> int:
    """How many numbers come out of `encoded` for so many inputs: the features of the picture, and all that is not picture."""
    if image is None:
        return inputs
    height, width, _ = image
    layers = _layers(image)
    for _, side, stride in layers:
        height, width = (height - side) // stride + 1, (width - side) // stride + 1
    return height * width * layers[-1][0] + inputs - pixels_of(image)


def init_filters(key: PRNGKeyArray, image: Image) -> tuple[Filters, ...]:
    """Weights by Glorot & Bengio 2010, zero biases; without a picture there are no filters."""
    if image is None:
        return ()
    inputs, filters = image[2], []
    for outputs, side, _ in _layers(image):
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
    for layer, (_, _, stride) in zip(filters, _layers(image), strict=True):
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
