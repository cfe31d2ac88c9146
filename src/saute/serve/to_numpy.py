"""A policy as one Python file that needs NumPy only, and that a person can read."""

from __future__ import annotations

import base64
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from importlib import resources
from string import Template

import numpy as np

from saute.core.encoder import layers_of, pixels_of
from saute.serve.nets import Network

__all__ = ["numpy_source"]

SEEN = """    z = np.asarray(remaining, np.float32).reshape(*x.shape[:-1], CONSTRAINTS) / REFERENCE
    x = np.concatenate([x, z], axis=-1)"""
UNSEEN = """    if remaining is not None:
        raise ValueError("this policy does not observe its budget; call it without remaining")"""
ENCODED = """    picture = x[..., :{pixels}].reshape(-1, *{image}) / np.float32(255.0)
{filters}
    x = np.concatenate([picture.reshape(*x.shape[:-1], -1), x[..., {pixels}:]], axis=-1)"""
CONVOLVED = '''

def convolved(picture, weight, bias, stride):
    """Filters without padding: (N, height, width, channels) to (N, less, less, filters), and no number below 0."""
    windows = np.lib.stride_tricks.sliding_window_view(picture, weight.shape[:2], (1, 2))[:, ::stride, ::stride]
    return np.maximum(np.einsum("nabchw,hwcf->nabf", windows, weight, optimize=True) + bias, 0)
'''


def numpy_source(network: Network, facts: Mapping[str, str], discount: float) -> str:
    """The file; the facts are in it as a dictionary."""
    about = network.about
    template = resources.files("saute.serve").joinpath("templates/policy.py.txt").read_text()
    return Template(template).substitute(
        about="{\n" + "".join(f"    {name!a}: {value!a},\n" for name, value in facts.items()) + "}",
        observations=about.bare,
        constraints=max(1, about.constraints),
        discount=repr(float(discount)),
        seen=SEEN if about.reference else UNSEEN,
        layers="\n".join(_layers(network)),
        head=textwrap.indent("\n".join(_head(network)), "    "),
        acted="act(observation, self.remaining)" if about.reference else "act(observation)",
        functions=CONVOLVED if network.filters else "",
        arrays="\n".join(_arrays(network)),
    )


def _layers(network: Network) -> Iterator[str]:
    about = network.about
    if network.filters:
        strides = [stride for _, _, stride in layers_of(about.image)]
        filters = [f"    picture = convolved(picture, FILTER_{i}, OFFSET_{i}, {stride})" for i, stride in enumerate(strides)]
        yield ENCODED.format(pixels=pixels_of(about.image), image=about.image, filters="\n".join(filters))
    for i, _ in enumerate(network.hidden):
        inner = f"x @ WEIGHT_{i} + BIAS_{i}"
        yield f"    x = np.maximum({inner}, 0)" if about.relu else f"    x = np.tanh({inner})"
    yield f"    x = x @ WEIGHT_{len(network.hidden)} + BIAS_{len(network.hidden)}"


def _head(network: Network) -> Iterator[str]:
    """From what the last layer gives to the action."""
    about = network.about
    if about.low is not None:
        if about.kind == "squashed":
            yield f"x = CENTRE + HALF * np.tanh(x[..., :{about.actions}])"
        yield "return np.minimum(np.maximum(x, LOW), HIGH)"
    elif about.several:
        ends = np.cumsum((0, *about.choices)).tolist()
        each = ", ".join(f"x[..., {a}:{b}].argmax(-1)" for a, b in itertools.pairwise(ends))
        yield f"return np.stack([{each}], axis=-1) + np.array({list(about.start)})"
    else:
        yield f"return x.argmax(-1) + {about.start[0]}"


def _arrays(network: Network) -> Iterator[str]:
    about = network.about
    for i, layer in enumerate(network.filters):
        yield _array(f"FILTER_{i}", layer.weight)
        yield _array(f"OFFSET_{i}", layer.bias)
    for i, layer in enumerate((*network.hidden, network.last)):
        yield _array(f"WEIGHT_{i}", layer.weight)
        yield _array(f"BIAS_{i}", layer.bias)
    small = {"REFERENCE": network.reference}
    small |= {} if about.low is None else {"LOW": network.low, "HIGH": network.high}
    small |= {"CENTRE": network.centre, "HALF": network.half} if about.kind == "squashed" else {}
    for name, values in small.items():
        if len(values):
            yield f"{name} = np.array({[float(value) for value in values]}, np.float32)"


def _array(name: str, values: np.ndarray) -> str:
    text = base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()
    shape = ", ".join(map(str, values.shape))
    return f'{name} = numbers(\n    """\n{textwrap.indent(textwrap.fill(text, 120), "    ")}\n    """,\n    {shape},\n)'
