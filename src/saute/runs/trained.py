"""Policies between training and files: what is written of them, and how JAX computes them again."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, PRNGKeyArray, PyTree

from saute.core.protocol import Spec
from saute.learn.nets import Categorical, Net, SquashedGaussian, policy_for, squashed_for
from saute.learn.planner import Planner, planner_of
from saute.learn.soft import weighing
from saute.runs.checkpoint import CheckpointError, named_leaves, restore, save
from saute.runs.policy import stored
from saute.serve.description import LARGEST, described
from saute.serve.nets import network_of
from saute.serve.policy import Policy

__all__ = [
    "compiled",
    "finite",
    "net_of",
    "nets_of",
    "planner_layout",
    "policy_description",
    "policy_of",
    "save_policies",
    "tree_of",
]


def policy_description(spec: Spec, net: Net | Planner, epochs: int) -> dict[str, Any]:
    """What is needed to act with stored parameters."""
    options, actions = spec.options, spec.action_space
    kind = (
        {"planner": net.described()}
        if isinstance(net, Planner)
        else {"hidden": list(net.hidden), "squashed": isinstance(net, SquashedGaussian)}
    )
    return {
        "epochs": epochs,
        **kind,
        "observations": net.observations,
        "discrete": int(actions.n) if isinstance(actions, spaces.Discrete) else None,
        "low": actions.low.tolist() if isinstance(actions, spaces.Box) else None,
        "high": actions.high.tolist() if isinstance(actions, spaces.Box) else None,
        "reference": np.atleast_1d(options.reference).tolist() if options is not None and options.augment else None,
        **_peculiar(spec, net),
    }


def _peculiar(spec: Spec, net: Net | Planner) -> dict[str, Any]:
    """What only some policies have."""
    actions, relu = spec.action_space, isinstance(net, Categorical) and net.relu
    start = actions.start if isinstance(actions, spaces.Discrete | spaces.MultiDiscrete) else 0
    return {
        **({"choices": actions.nvec.tolist()} if isinstance(actions, spaces.MultiDiscrete) else {}),
        **({"start": np.asarray(start).tolist()} if np.any(start) else {}),
        **({"image": list(spec.image)} if spec.image is not None else {}),
        **({"relu": True} if relu else {}),
    }


def save_policies(path: pathlib.Path, policies: list[PyTree], description: dict[str, Any]) -> None:
    """All seeds' policy parameters and what is needed to act with them."""
    finite(policies, path)
    save(path, {str(seed): parameters for seed, parameters in enumerate(policies)}, description)


def finite(parameters: PyTree, where: str | pathlib.Path) -> PyTree:
    """The same parameters, if all of them are finite: others would act without knowing what they do."""
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(parameters)):
        raise CheckpointError(f"{where}: parameters are not finite; restore a copy, or train anew")
    return parameters


def policy_of(parameters: PyTree, description: Mapping[str, Any]) -> Policy:
    """The policy of these parameters, by its `policy_description`."""
    about = described(description)
    if about.hidden is None:
        return Policy(about, functools.partial(_act, net_of(description), parameters))
    return Policy(about, network_of(about, {name: np.asarray(leaf) for name, leaf in named_leaves(parameters).items()}))


def nets_of(path: str | pathlib.Path) -> tuple[Net | Planner, dict[int, PyTree]]:
    """The net of a stored run, and its parameters for every seed, to evaluate them with JAX."""
    meta, seeds = stored(path)
    net = net_of(meta)
    return net, {seed: tree_of(net, arrays, path) for seed, arrays in seeds.items()}


def tree_of(net: Net | Planner, arrays: dict[str, np.ndarray], path: str | pathlib.Path) -> PyTree:
    """The stored parameters of a net."""
    return restore(jax.eval_shape(net.init, jax.random.key(0)), arrays, path)


def compiled(meta: Mapping[str, Any], arrays: dict[str, np.ndarray], path: str | pathlib.Path) -> Policy:
    """A stored policy that JAX computes."""
    net = net_of(meta)
    return Policy(described(meta), functools.partial(_act, net, tree_of(net, arrays, path)))


def planner_layout(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that a planner has to have, by name, shape and type."""
    _refuse_huge(meta)
    return named_leaves(jax.eval_shape(net_of(meta).init, jax.random.key(0)))


def _refuse_huge(described: object) -> None:
    """Refuse sizes that no planner has, before anything is made of them."""
    parts = described.values() if isinstance(described, dict) else described if isinstance(described, list) else ()
    for part in parts:
        _refuse_huge(part)
    if isinstance(described, int) and abs(described) > LARGEST:
        raise ValueError(f"{described} is larger than {LARGEST}")


def net_of(meta: Mapping[str, Any]) -> Net | Planner:
    """The net, or the planner, of a stored description."""
    if "planner" in meta:
        return planner_of(meta["planner"])
    about = described(meta)
    observations = spaces.Box(-np.inf, np.inf, (about.observations,), np.float32)
    actions: spaces.Space[Any]
    if about.low is not None and about.high is not None:
        actions = spaces.Box(np.array(about.low, np.float32), np.array(about.high, np.float32), dtype=np.float32)
    else:
        actions = spaces.MultiDiscrete(list(about.choices)) if about.several else spaces.Discrete(about.choices[0])
    if about.relu and about.low is None:
        return weighing(observations, actions, about.hidden or (), about.image).policy
    return (squashed_for if about.relu else policy_for)(observations, actions, about.hidden or (), about.image)


@functools.partial(jax.jit, static_argnums=0)
def _compute(net: Net | Planner, parameters: PyTree, obs: Array, key: PRNGKeyArray | None) -> Array:
    distribution = net.distribution(parameters, obs)
    return net.mode(distribution) if key is None else net.sample(distribution, key)


def _act(net: Net | Planner, parameters: PyTree, obs: np.ndarray, key: PRNGKeyArray | None) -> np.ndarray:
    return np.asarray(_compute(net, parameters, obs, key))
