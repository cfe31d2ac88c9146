"""A policy as an ONNX graph, of MatMul, Add, Tanh or Relu, and what clips and chooses actions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from saute.core.encoder import layers_of, pixels_of
from saute.serve.nets import Network

__all__ = ["onnx_bytes"]

OPSET, IR = 17, 8
"""The versions of ONNX of 2022, which runtimes of today read."""


def onnx_bytes(network: Network, facts: Mapping[str, str]) -> bytes:
    """The file: rows of observation, and of remaining if it observes its budget, in; rows of action out; facts as metadata."""
    from onnx import TensorProto, checker, helper

    about, graph = network.about, Graph()
    seen = "observation"
    inputs = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["rows", about.bare])]
    if about.reference is not None:
        inputs.append(helper.make_tensor_value_info("remaining", TensorProto.FLOAT, ["rows", about.constraints]))
        z = graph.add("Div", "remaining", network.reference)
        seen = graph.add("Concat", "observation", z, axis=1)
    _head(graph, network, _outputs(graph, network, seen))
    kind, shape = (TensorProto.INT64 if about.low is None else TensorProto.FLOAT), ["rows"]
    one = helper.make_tensor_value_info("action", kind, [*shape, about.actions] if about.low or about.several else shape)
    made = helper.make_model(
        helper.make_graph(graph.nodes, "policy", inputs, [one], graph.constants),
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


def _head(graph: Graph, network: Network, x: str) -> None:
    """From what the last layer gives to the action."""
    about = network.about
    if about.low is not None:
        if about.kind == "squashed":
            unit = graph.add("Tanh", _part(graph, x, 0, about.actions))
            x = graph.add("Add", graph.add("Mul", unit, network.half), network.centre)
        graph.add("Min", graph.add("Max", x, network.low), network.high, name="action")
    elif about.several:
        ends = itertools.pairwise(np.cumsum((0, *about.choices)).tolist())
        each = [graph.add("ArgMax", _part(graph, x, begin, end), axis=1, keepdims=1) for begin, end in ends]
        graph.add("Add", graph.add("Concat", *each, axis=1), np.array(about.start, np.int64), name="action")
    else:
        graph.add("Add", graph.add("ArgMax", x, axis=1, keepdims=0), np.array(about.start, np.int64), name="action")


def _part(graph: Graph, x: str, begin: int, end: int) -> str:
    """Some of the columns."""
    return graph.add("Slice", x, np.array([begin]), np.array([end]), np.array([1]))
