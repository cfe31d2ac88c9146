"""The nets of stored policies in NumPy: what `learn.nets` compiles for training, for one observation at a time or for many."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from saute.core.encoder import layers_of, pixels_of
from saute.serve.description import Description, layout

__all__ = ["Layer", "Network", "network_of"]

LOG_STD = (-20.0, 2.0)
"""Bounds of log σ of a squashed policy."""


class Layer(NamedTuple):
    """y = x W + b, or x ∗ W + b for filters of pictures."""

    weight: np.ndarray
    bias: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """The parameters of a policy, and the action that they give for what it sees: the most likely one, or a drawn one."""

    about: Description
    filters: tuple[Layer, ...]
    hidden: tuple[Layer, ...]
    last: Layer
    log_std: np.ndarray | None
    """Of a Gaussian policy."""
    low: np.ndarray
    high: np.ndarray
    """Bounds of a vector of actions; empty for discrete ones."""
    reference: np.ndarray
    """Reference budgets of the constraints; empty if it does not observe its budget."""

    @functools.cached_property
    def centre(self) -> np.ndarray:
        return (self.high + self.low) / 2

    @functools.cached_property
    def half(self) -> np.ndarray:
        """Half of the range of the actions."""
        return (self.high - self.low) / 2

    def __call__(self, seen: np.ndarray, rng: object = None) -> np.ndarray:
        """(d,) → action or (N, d) → actions, before they are clipped; with a NumPy generator they are drawn."""
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise TypeError(f"key={rng!r} is not a np.random.Generator; pass one, or load the policy with backend='jax'")
        out = self.outputs(seen)
        if self.about.kind == "categorical":
            return self._chosen(out if rng is None else out + rng.gumbel(size=out.shape))
        if self.about.kind == "gaussian":
            return out if rng is None else _drawn(out, self.log_std, rng)
        count = len(self.low)
        mean = out[..., :count] if rng is None else _drawn(out[..., :count], np.clip(out[..., count:], *LOG_STD), rng)
        return self.centre + self.half * np.tanh(mean)

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """What the last layer gives."""
        if self.filters:
            x = self._encoded(x)
        relu = self.about.relu
        for weight, bias in self.hidden:
            x = x.dot(weight)
            x += bias
            if relu:
                np.maximum(x, ZERO, out=x)
            else:
                np.tanh(x, out=x)
        x = x.dot(self.last.weight)
        x += self.last.bias
        return x

    def _chosen(self, out: np.ndarray) -> np.ndarray:
        """The largest of the numbers of each discrete action."""
        if not self.about.several:
            return np.asarray(out.argmax(-1), np.int32)
        each = np.split(out, np.cumsum(self.about.choices)[:-1], axis=-1)
        return np.stack([own.argmax(-1) for own in each], axis=-1).astype(np.int32)

    def _encoded(self, x: np.ndarray) -> np.ndarray:
        """Features of the picture, whose pixels are divided by 255, and after them what is not picture, as it is."""
        image = self.about.image or ()
        pixels = pixels_of(self.about.image)
        rows = x.reshape(-1, x.shape[-1])
        picture = rows[:, :pixels].reshape(-1, *image) / np.float32(255.0)
        for layer, (_, _, stride) in zip(self.filters, layers_of(self.about.image), strict=True):
            picture = np.maximum(_convolved(picture, layer.weight, stride) + layer.bias, ZERO)
        rows = np.concatenate([picture.reshape(len(rows), -1), rows[:, pixels:]], axis=1)
        return rows.reshape(*x.shape[:-1], -1)


ZERO = np.float32(0.0)


def _drawn(mean: np.ndarray, log_std: Any, rng: np.random.Generator) -> np.ndarray:
    """μ + σε."""
    return mean + np.exp(log_std) * rng.standard_normal(mean.shape, np.float32)


def _convolved(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """x ∗ W without padding, as one product of matrices."""
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[:2], (1, 2))[:, ::stride, ::stride]
    rows = np.moveaxis(windows, 3, -1).reshape(-1, weight[..., 0].size)  # row, down, across, height, width, channel
    return (rows @ weight.reshape(-1, weight.shape[-1])).reshape(*windows.shape[:3], weight.shape[-1])


def network_of(about: Description, arrays: Mapping[str, np.ndarray]) -> Network:
    """The network with these arrays, which have the names and shapes of `layout`."""
    place, count = (".mean" if about.kind == "gaussian" else ""), len(layers_of(about.image))
    numbers = range(len(layout(about)) // 2)
    layers = [Layer(arrays[f"{place}[{i}].weight"], arrays[f"{place}[{i}].bias"]) for i in numbers]
    ends = [np.array(numbers or (), np.float32) for numbers in (about.low, about.high, about.reference)]
    return Network(about, tuple(layers[:count]), tuple(layers[count:-1]), layers[-1], arrays.get(".log_std"), *ends)
