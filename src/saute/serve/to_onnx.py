"""A policy as an ONNX graph, of MatMul, Add, Tanh or Relu, and what clips and chooses actions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from saute.core.encoder import layers_of, pixels_of
from saute.serve.description import Description
from saute.serve.nets import Network
from saute.serve.shield import Shield

__all__ = ["onnx_bytes"]

OPSET, IR = 17, 8
"""The versions of ONNX of 2022, which runtimes of today read."""


def onnx_bytes(network: Network, facts: Mapping[str, str], shield: Shield | None = None) -> bytes:
    """The file: rows of observation and, if it is asked for, of remaining in; rows of action out; facts as metadata.

    Under a shield it also says in which rows that stepped in.
    """
    from onnx import TensorProto, checker, helper

    about, graph = network.about, Graph()
    reference = network.reference if shield is None else shield.reference
    inputs = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["rows", about.bare])]
    if len(reference):
        inputs.append(helper.make_tensor_value_info("remaining", TensorProto.FLOAT, ["rows", len(reference)]))
    seen = "observation"
    if about.reference is not None:
        z = graph.add("Div", "remaining", network.reference)
        seen = graph.add("Concat", "observation", z, axis=1)
    kind, shape = (TensorProto.INT64 if about.low is None else TensorProto.FLOAT), ["rows"]
    outputs = [helper.make_tensor_value_info("action", kind, [*shape, about.actions] if about.low or about.several else shape)]
    if shield is None:
        _action(graph, network, seen, "action")
    else:
        _shielded(graph, shield, _action(graph, network, seen))
        outputs.append(helper.make_tensor_value_info("stepped_in", TensorProto.BOOL, shape))
    made = helper.make_model(
        helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="saute",
    )
    helper.set_model_props(made, dict(facts))
    checker.check_model(made)
    return bytes(made.SerializeToString())


class Graph:
    """Nodes and constants, which get names as they come."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._numbers = itertools.count()

    def add(self, kind: str, *inputs: str | np.ndarray, name: str | None = None, **attributes: Any) -> str:
        """A node of these inputs, arrays among them as constants; the name of what it gives."""
        from onnx import helper

        name = name or f"{kind.lower()}_{next(self._numbers)}"
        names = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        self.nodes.append(helper.make_node(kind, names, [name], **attributes))
        return name

    def _constant(self, values: np.ndarray) -> str:
        from onnx import numpy_helper

        name = f"constant_{next(self._numbers)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def _shielded(graph: Graph, shield: Shield, action: str) -> None:
    """The backup's action where b(s, a) and its margin are more than what remains, and where that is."""
    from onnx import TensorProto

    backup, needs = shield.networks
    about = backup.about
    b = _action(graph, needs, graph.add("Concat", "observation", *_as_inputs(graph, about, action), axis=1))
    need = graph.add("Mul", graph.add("Add", b, np.array([shield.margin], np.float32)), shield.reference)
    lacking = graph.add("Not", graph.add("GreaterOrEqual", "remaining", need))
    some = graph.add("ReduceMax", graph.add("Cast", lacking, to=TensorProto.INT32), axes=[1], keepdims=0)
    stops = wide = graph.add("Cast", some, to=TensorProto.BOOL, name="stepped_in")
    if about.low is not None or about.several:
        wide = graph.add("Unsqueeze", stops, np.array([1]))
    graph.add("Where", wide, _action(graph, backup, "observation"), action, name="action")


def _as_inputs(graph: Graph, about: Description, action: str) -> list[str]:
    """An action as a net takes it: a vector as it is; of each discrete one, which of its values it has."""
    if about.low is not None:
        return [action]
    each = [action]
    if about.several:
        each = [graph.add("Squeeze", _part(graph, action, i, i + 1), np.array([1])) for i in range(about.actions)]
    places = [graph.add("Sub", one, np.array(start, np.int64)) for one, start in zip(each, about.start, strict=True)]
    return [graph.add("Gather", np.eye(n, dtype=np.float32), one) for n, one in zip(about.choices, places, strict=True)]


def _outputs(graph: Graph, network: Network, x: str) -> str:
    """What the last layer gives."""
    if network.filters:
        x = _encoded(graph, network, x)
    for layer in network.hidden:
        x = graph.add("Add", graph.add("MatMul", x, layer.weight), layer.bias)
        x = graph.add("Relu" if network.about.relu else "Tanh", x)
    return graph.add("Add", graph.add("MatMul", x, network.last.weight), network.last.bias)


def _encoded(graph: Graph, network: Network, x: str) -> str:
    """Features of the picture, and after them what is not picture; ONNX has channels before rows and columns."""
    image, pixels = network.about.image or (), pixels_of(network.about.image)
    picture = _part(graph, x, 0, pixels)
    picture = graph.add("Reshape", graph.add("Div", picture, np.array([255.0], np.float32)), np.array([-1, *image]))
    picture = graph.add("Transpose", picture, perm=[0, 3, 1, 2])
    for layer, (_, _, stride) in zip(network.filters, layers_of(network.about.image), strict=True):
        weight = np.transpose(layer.weight, (3, 2, 0, 1))
        picture = graph.add("Relu", graph.add("Conv", picture, weight, layer.bias, strides=[stride, stride]))
    features = graph.add("Flatten", graph.add("Transpose", picture, perm=[0, 2, 3, 1]), axis=1)
    return graph.add("Concat", features, _part(graph, x, pixels, network.about.observations), axis=1)


def _action(graph: Graph, network: Network, seen: str, name: str | None = None) -> str:
    """What the net gives, within its bounds."""
    about, x = network.about, _outputs(graph, network, seen)
    if about.low is not None:
        if about.kind == "squashed":
            unit = graph.add("Tanh", _part(graph, x, 0, about.actions))
            x = graph.add("Add", graph.add("Mul", unit, network.half), network.centre)
        return graph.add("Min", graph.add("Max", x, network.low), network.high, name=name)
    start = np.array(about.start, np.int64)
    if not about.several:
        return graph.add("Add", graph.add("ArgMax", x, axis=1, keepdims=0), start.reshape(()), name=name)
    ends = itertools.pairwise(np.cumsum((0, *about.choices)).tolist())
    each = [graph.add("ArgMax", _part(graph, x, begin, end), axis=1, keepdims=1) for begin, end in ends]
    return graph.add("Add", graph.add("Concat", *each, axis=1), start, name=name)


def _part(graph: Graph, x: str, begin: int, end: int) -> str:
    """Some of the columns."""
    return graph.add("Slice", x, np.array([begin]), np.array([end]), np.array([1]))
