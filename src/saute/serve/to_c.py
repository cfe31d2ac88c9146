"""A policy as one C99 file without dependencies: begin, act and spend."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from string import Template
from typing import NamedTuple

import numpy as np

from saute.serve.description import Description
from saute.serve.nets import Network
from saute.serve.shield import Shield

__all__ = ["c_source"]

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;+-=_()[]{}<>'|%@")
"""Characters that mean nothing in a comment or in a text of C."""
ACTIVATE = """/* What stands between layers. */
static void saute_{}(float *x, int count)
{{
    int i;
    for (i = 0; i < count; i++)
        x[i] = {};
}}"""
ACTIVATIONS = {"relu": "x[i] > 0.0f ? x[i] : 0.0f", "tanh": "tanhf(x[i])"}
LARGEST = """/* The place of the largest number. */
static int saute_largest(const float *x, int count)
{
    int i, best = 0;
    for (i = 1; i < count; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}"""
NET = """/* {what} */
static void saute_{name}(const float *seen, {number} *out)
{{
    float {scratch};
    int i;
{layers}
{head}
}}"""
CHOSEN = """    for (i = 0; i < {count}; i++)
        out[i] = saute_start[i] + saute_largest({last} + saute_first[i], saute_choices[i]);"""
SQUASHED = """    for (i = 0; i < {count}; i++)
        {last}[i] = saute_{name}_centre[i] + saute_{name}_half[i] * tanhf({last}[i]);
"""
CLIPPED = """    for (i = 0; i < {count}; i++) {{
        out[i] = {last}[i] < saute_{name}_low[i] ? saute_{name}_low[i] : {last}[i];
        out[i] = out[i] > saute_{name}_high[i] ? saute_{name}_high[i] : out[i];
    }}"""
SEEN = """    for (i = 0; i < SAUTE_CONSTRAINTS; i++)
        x[SAUTE_OBSERVATIONS + i] = (float)remaining[i] / saute_reference[i];"""
UNSEEN = "    (void)remaining; /* it does not observe its budget */"
AS_VECTOR = """    for (i = 0; i < SAUTE_ACTIONS; i++)
        x[SAUTE_OBSERVATIONS + i] = action[i];"""
AS_PLACES = """    for (i = SAUTE_OBSERVATIONS; i < {inputs}; i++)
        x[i] = 0.0f;
    for (i = 0; i < SAUTE_ACTIONS; i++)
        x[SAUTE_OBSERVATIONS + saute_first[i] + action[i] - saute_start[i]] = 1.0f;"""
COUNTER = "\n    long interventions; /* steps of this episode in which the shield stepped in */"

DECLARED = """enum saute_result saute_shielded(
    const float *observation, const double *remaining, saute_number *action, long *interventions);
"""


class Part(NamedTuple):
    """One of the nets of a file."""

    name: str
    net: Network
    what: str


def c_source(network: Network, facts: Mapping[str, str], discount: float, shield: Shield | None = None) -> str:
    """The file; the facts are in it as a comment and as JSON."""
    about = network.about
    if about.image is not None:
        raise ValueError("a policy that sees pictures has no form in C; use --format onnx or --format numpy")
    parts = [Part("net", network, "The net of the policy.")]
    if shield is not None:
        backup, needs = shield.networks
        parts.append(Part("backup", backup, "Spends as little as it can, and does not see what remains."))
        parts.append(Part("needs", needs, "b(s, a): what is needed in shares of the budgets, if the backup follows."))
    used = sorted({_activation(part.net.about) for part in parts if part.net.hidden})
    functions = [ACTIVATE.format(name, ACTIVATIONS[name]) for name in used]
    functions += [LARGEST] if about.low is None else []
    reference = network.reference if shield is None else shield.reference
    return _template("policy").substitute(
        facts="\n".join(f" * {name}: {_text(value)}" for name, value in facts.items()),
        about=f'"{_text(json.dumps(dict(facts)))}"',
        observations=about.bare,
        constraints=max(1, len(reference)),
        actions=about.actions,
        number=_number(about),
        arrays="\n".join([*_shared(about, reference), *(array for part in parts for array in _arrays(part))]),
        functions="\n\n".join([*functions, *map(_net, parts)]),
        inputs=about.observations,
        seen=SEEN if about.reference else UNSEEN,
        discount=repr(float(discount)),
        **_guard(about, shield),
    )


def _guard(about: Description, shield: Shield | None) -> dict[str, str]:
    """What a shield changes of the file."""
    if shield is None:
        return {
            "counter": "",
            "shielded": "",
            "declared": "",
            "cleared": "",
            "acted": "saute_policy(observation, books->remaining, action)",
        }
    inputs = shield.needs.about.observations
    added = AS_PLACES.format(inputs=inputs) if about.low is None else AS_VECTOR
    margin = _decimal(float(shield.margin))
    return {
        "counter": COUNTER,
        "shielded": "\n" + _template("shield").substitute(inputs=inputs, added=added, margin=f"{margin}f"),
        "declared": DECLARED,
        "cleared": "    books->interventions = 0;\n",
        "acted": "saute_shielded(observation, books->remaining, action, &books->interventions)",
    }


def _template(name: str) -> Template:
    return Template(resources.files("saute.serve").joinpath(f"templates/{name}.c.txt").read_text())


def _number(about: Description) -> str:
    return "int" if about.low is None else "float"


def _activation(about: Description) -> str:
    return "relu" if about.relu else "tanh"


def _net(part: Part) -> str:
    """The function of a net."""
    about = part.net.about
    sizes = (about.observations, *(about.hidden or ()), about.outputs)
    width, last = max(sizes[1:]), "xy"[(len(sizes) - 2) % 2]
    head = CHOSEN if about.low is None else SQUASHED + CLIPPED if about.kind == "squashed" else CLIPPED
    return NET.format(
        what=part.what,
        name=part.name,
        number=_number(about),
        scratch=f"x[{width}]" + (f", y[{width}]" if len(sizes) > 2 else ""),
        layers="\n".join(_layers(part.name, sizes, _activation(about))),
        head=head.format(name=part.name, last=last, count=about.actions),
    )


def _layers(name: str, sizes: Sequence[int], activation: str) -> Iterator[str]:
    """Calls of all layers, of which the first reads what is seen, and the others x and y in turn."""
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        source, target = ("yx"[i % 2] if i else "seen"), "xy"[i % 2]
        yield f"    saute_layer({source}, {inputs}, saute_{name}_weight_{i}, saute_{name}_bias_{i}, {outputs}, {target});"
        if i < len(sizes) - 2:
            yield f"    saute_{activation}({target}, {outputs});"


def _shared(about: Description, reference: np.ndarray) -> Iterator[str]:
    """What all nets have in common."""
    if len(reference):
        yield _array("reference", reference)
    if about.low is None:
        starts = np.cumsum((0, *about.choices[:-1]))
        for name, numbers in {"choices": about.choices, "first": starts, "start": about.start}.items():
            yield f"static const int saute_{name}[] = {{{', '.join(map(str, numbers))}}};"


def _arrays(part: Part) -> Iterator[str]:
    name, net = part.name, part.net
    for i, layer in enumerate((*net.hidden, net.last)):
        yield _array(f"{name}_weight_{i}", layer.weight)
        yield _array(f"{name}_bias_{i}", layer.bias)
    if net.about.low is not None:
        yield _array(f"{name}_low", net.low)
        yield _array(f"{name}_high", net.high)
    if net.about.kind == "squashed":
        yield _array(f"{name}_centre", net.centre)
        yield _array(f"{name}_half", net.half)


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
