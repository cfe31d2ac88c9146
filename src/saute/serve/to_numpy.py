"""A policy as one Python file that needs NumPy only, and that a person can read."""

from __future__ import annotations

import base64
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from importlib import resources
from string import Template
from typing import NamedTuple

import numpy as np

from saute.core.encoder import layers_of, pixels_of
from saute.serve.description import Description
from saute.serve.nets import Network
from saute.serve.shield import Shield

__all__ = ["numpy_source"]

SEEN = """    z = np.asarray(remaining, np.float32).reshape(*x.shape[:-1], CONSTRAINTS) / REFERENCE
    x = np.concatenate([x, z], axis=-1)"""
UNSEEN = """    if remaining is not None:
        raise ValueError("this policy does not observe its budget; call it without remaining")"""
NET = '''def {name}(x):
    """{what}"""
{layers}
{head}
'''
ENCODED = """    picture = x[..., :{pixels}].reshape(-1, *{image}) / np.float32(255.0)
{filters}
    x = np.concatenate([picture.reshape(*x.shape[:-1], -1), x[..., {pixels}:]], axis=-1)"""
CONVOLVED = '''def convolved(picture, weight, bias, stride):
    """Filters without padding: (N, height, width, channels) to (N, less, less, filters), and no number below 0."""
    windows = np.lib.stride_tricks.sliding_window_view(picture, weight.shape[:2], (1, 2))[:, ::stride, ::stride]
    return np.maximum(np.einsum("nabchw,hwcf->nabf", windows, weight, optimize=True) + bias, 0)
'''
SHIELDED = '''def shielded(observation, remaining):
    """The action under the shield, and whether it stepped in: where b(s, a) and its margin are more than what remains."""
    action, x = act({asked}), np.asarray(observation, np.float32)
    need = (needs(np.concatenate([x, {action}], axis=-1)) + MARGIN) * REFERENCE
    stops = ~(np.asarray(remaining, float).reshape(need.shape) >= need).all(-1)
    return np.where({stops}, backup(x), action), stops


'''
FREE = "        action = act({asked})"
COUNTED = """        action, stepped_in = shielded(observation, self.remaining)
        self.interventions += int(stepped_in)"""


class Part(NamedTuple):
    """One of the nets of a file."""

    name: str
    net: Network
    what: str


def numpy_source(network: Network, facts: Mapping[str, str], discount: float, shield: Shield | None = None) -> str:
    """The file; the facts are in it as a dictionary."""
    about = network.about
    parts = [Part("policy", network, "What the net of the policy gives.")]
    if shield is not None:
        backup, needs = shield.networks
        parts.append(Part("backup", backup, "Spends as little as it can, and does not see what remains."))
        parts.append(Part("needs", needs, "b(s, a): what is needed in shares of the budgets, if the backup follows."))
    reference = network.reference if shield is None else shield.reference
    asked = "observation, {}" if about.reference else "observation"
    functions = [CONVOLVED] if network.filters else []
    template = resources.files("saute.serve").joinpath("templates/policy.py.txt").read_text()
    return Template(template).substitute(
        about="{\n" + "".join(f"    {name!a}: {value!a},\n" for name, value in facts.items()) + "}",
        observations=about.bare,
        constraints=max(1, len(reference)),
        discount=repr(float(discount)),
        seen=SEEN if about.reference else UNSEEN,
        shielded="" if shield is None else _guard(about, asked.format("remaining")),
        cleared="" if shield is None else "\n        self.interventions = 0",
        acted=FREE.format(asked=asked.format("self.remaining")) if shield is None else COUNTED,
        functions="\n\n".join([*functions, *map(_net, parts)]),
        arrays="\n".join([*_shared(reference, shield), *(array for part in parts for array in _arrays(part))]),
    )


def _guard(about: Description, asked: str) -> str:
    """The function that asks the shield."""
    action, stops = "action", "stops[..., None]"
    if about.several:
        ones = [f"np.eye({n}, dtype=np.float32)[action[..., {i}] - {about.start[i]}]" for i, n in enumerate(about.choices)]
        action = ", ".join(ones)
    elif about.low is None:
        action, stops = f"np.eye({about.choices[0]}, dtype=np.float32)[action - {about.start[0]}]", "stops"
    return SHIELDED.format(asked=asked, action=action, stops=stops)


def _net(part: Part) -> str:
    """The function of a net."""
    head = textwrap.indent("\n".join(_head(part)), "    ")
    return NET.format(name=part.name, what=part.what, layers="\n".join(_layers(part)), head=head)


def _layers(part: Part) -> Iterator[str]:
    network, about, name = part.net, part.net.about, part.name.upper()
    if network.filters:
        strides = [stride for _, _, stride in layers_of(about.image)]
        filters = [
            f"    picture = convolved(picture, {name}_FILTER_{i}, {name}_OFFSET_{i}, {stride})"
            for i, stride in enumerate(strides)
        ]
        yield ENCODED.format(pixels=pixels_of(about.image), image=about.image, filters="\n".join(filters))
    for i, _ in enumerate(network.hidden):
        inner = f"x @ {name}_WEIGHT_{i} + {name}_BIAS_{i}"
        yield f"    x = np.maximum({inner}, 0)" if about.relu else f"    x = np.tanh({inner})"
    yield f"    x = x @ {name}_WEIGHT_{len(network.hidden)} + {name}_BIAS_{len(network.hidden)}"


def _head(part: Part) -> Iterator[str]:
    """From what the last layer gives to the action."""
    about, name = part.net.about, part.name.upper()
    if about.low is not None:
        if about.kind == "squashed":
            yield f"x = {name}_CENTRE + {name}_HALF * np.tanh(x[..., :{about.actions}])"
        yield f"return np.minimum(np.maximum(x, {name}_LOW), {name}_HIGH)"
    elif about.several:
        ends = np.cumsum((0, *about.choices)).tolist()
        each = ", ".join(f"x[..., {a}:{b}].argmax(-1)" for a, b in itertools.pairwise(ends))
        yield f"return np.stack([{each}], axis=-1) + np.array({list(about.start)})"
    else:
        yield f"return x.argmax(-1) + {about.start[0]}"


def _shared(reference: np.ndarray, shield: Shield | None) -> Iterator[str]:
    """What all nets have in common."""
    if len(reference):
        yield _numbers("REFERENCE", reference)
    if shield is not None:
        yield f"MARGIN = np.float32({float(shield.margin)!r})"


def _arrays(part: Part) -> Iterator[str]:
    network, about, name = part.net, part.net.about, part.name.upper()
    for i, layer in enumerate(network.filters):
        yield _array(f"{name}_FILTER_{i}", layer.weight)
        yield _array(f"{name}_OFFSET_{i}", layer.bias)
    for i, layer in enumerate((*network.hidden, network.last)):
        yield _array(f"{name}_WEIGHT_{i}", layer.weight)
        yield _array(f"{name}_BIAS_{i}", layer.bias)
    small = {} if about.low is None else {"LOW": network.low, "HIGH": network.high}
    small |= {"CENTRE": network.centre, "HALF": network.half} if about.kind == "squashed" else {}
    for ending, values in small.items():
        yield _numbers(f"{name}_{ending}", values)


def _numbers(name: str, values: np.ndarray) -> str:
    """A few numbers, to be read."""
    return f"{name} = np.array({[float(value) for value in values]}, np.float32)"


def _array(name: str, values: np.ndarray) -> str:
    text = base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()
    shape = ", ".join(map(str, values.shape))
    return f'{name} = numbers(\n    """\n{textwrap.indent(textwrap.fill(text, 120), "    ")}\n    """,\n    {shape},\n)'
