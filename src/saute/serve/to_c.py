"""A policy as one C99 file without dependencies: begin, act and spend."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from string import Template

import numpy as np

from saute.serve.description import Description
from saute.serve.nets import Network

__all__ = ["c_source"]

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;+-=_()[]{}<>'|%@")
"""Characters that mean nothing in a comment or in a text of C."""
ACTIVATE = """/* What stands between the layers. */
static void saute_activate(float *x, int count)
{{
    int i;
    for (i = 0; i < count; i++)
        x[i] = {};
}}"""
LARGEST = """/* The place of the largest number. */
static int saute_largest(const float *x, int count)
{
    int i, best = 0;
    for (i = 1; i < count; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}"""
CHOSEN = """    for (i = 0; i < SAUTE_ACTIONS; i++)
        action[i] = saute_start[i] + saute_largest({0} + saute_first[i], saute_choices[i]);"""
SQUASHED = """    for (i = 0; i < SAUTE_ACTIONS; i++)
        {0}[i] = saute_centre[i] + saute_half[i] * tanhf({0}[i]);
"""
CLIPPED = """    for (i = 0; i < SAUTE_ACTIONS; i++) {{
        action[i] = {0}[i] < saute_low[i] ? saute_low[i] : {0}[i];
        action[i] = action[i] > saute_high[i] ? saute_high[i] : action[i];
    }}"""
SEEN = """    for (i = 0; i < SAUTE_CONSTRAINTS; i++)
        x[SAUTE_OBSERVATIONS + i] = (float)remaining[i] / saute_reference[i];"""
UNSEEN = "    (void)remaining; /* it does not observe its budget */"


def c_source(network: Network, facts: Mapping[str, str], discount: float) -> str:
    """The file; the facts are in it as a comment and as JSON."""
    about = network.about
    if about.image is not None:
        raise ValueError("a policy that sees pictures has no form in C; use --format onnx or --format numpy")
    sizes = (about.observations, *(about.hidden or ()), about.outputs)
    result = "xy"[(len(sizes) - 1) % 2]
    functions = [ACTIVATE.format("x[i] > 0.0f ? x[i] : 0.0f" if about.relu else "tanhf(x[i])")] if about.hidden else []
    template = resources.files("saute.serve").joinpath("templates/policy.c.txt").read_text()
    return Template(template).substitute(
        facts="\n".join(f" * {name}: {_text(value)}" for name, value in facts.items()),
        about=f'"{_text(json.dumps(dict(facts)))}"',
        observations=about.bare,
        constraints=max(1, about.constraints),
        actions=about.actions,
        number="int" if about.low is None else "float",
        arrays="\n".join(_arrays(network)),
        functions="\n\n".join([*functions, *([LARGEST] if about.low is None else [])]),
        width=max(sizes),
        inputs=about.observations,
        seen=SEEN if about.reference else UNSEEN,
        layers="\n".join(_layers(sizes)),
        head=_head(about).format(result),
        discount=repr(float(discount)),
    )


def _head(about: Description) -> str:
    """From what the last layer gives to the action."""
    return CHOSEN if about.low is None else SQUASHED + CLIPPED if about.kind == "squashed" else CLIPPED


def _layers(sizes: Sequence[int]) -> Iterator[str]:
    """Calls of all layers, which read x and write y, or the other way round."""
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        source, target = "xy"[i % 2], "yx"[i % 2]
        yield f"    saute_layer({source}, {inputs}, saute_weight_{i}, saute_bias_{i}, {outputs}, {target});"
        if i < len(sizes) - 2:
            yield f"    saute_activate({target}, {outputs});"


def _arrays(network: Network) -> Iterator[str]:
    about = network.about
    for i, layer in enumerate((*network.hidden, network.last)):
        yield _array(f"weight_{i}", layer.weight)
        yield _array(f"bias_{i}", layer.bias)
    if len(network.reference):
        yield _array("reference", network.reference)
    if about.low is None:
        for name, numbers in {
            "choices": about.choices,
            "first": np.cumsum((0, *about.choices[:-1])),
            "start": about.start,
        }.items():
            yield f"static const int saute_{name}[] = {{{', '.join(map(str, numbers))}}};"
    else:
        yield _array("low", network.low)
        yield _array("high", network.high)
    if about.kind == "squashed":
        yield _array("centre", network.centre)
        yield _array("half", network.half)


def _array(name: str, values: np.ndarray) -> str:
    """Numbers with nine digits, from which every float is read again as it was."""
    words = [f"{_decimal(float(value))}f" for value in values.ravel()]
    lines = ",\n    ".join(", ".join(words[i : i + 8]) for i in range(0, len(words), 8))
    return f"static const float saute_{name}[] = {{\n    {lines}\n}};"


def _decimal(value: float) -> str:
    text = f"{value:.9g}"
    return text if set(text) & set(".e") else f"{text}.0"


def _text(value: str) -> str:
    """A text that cannot end the comment or string that it is written into: all other characters by their octal codes."""
    return "".join(chr(byte) if chr(byte) in PLAIN else f"\\{byte:03o}" for byte in value.encode())
