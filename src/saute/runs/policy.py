"""Trained policies, apart from training: observation and remaining budget in, action out."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium as gym
import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy.typing import ArrayLike

from saute import budget as B
from saute.core.names import nearest
from saute.core.protocol import Spec
from saute.learn.nets import Categorical, Net, SquashedGaussian, policy_for, squashed_for
from saute.learn.pictures import pixels_of
from saute.learn.planner import Planner, planner_of
from saute.learn.soft import weighing
from saute.runs.checkpoint import CheckpointError, digest_beside, load, refuse_odd, restore, save
from saute.runs.pretrained import located

__all__ = [
    "BudgetedPolicy",
    "Policy",
    "finite",
    "load_policies",
    "load_policy",
    "policy_description",
    "policy_of",
    "save_policies",
]

LARGEST = 10_000_000
"""Of the numbers that describe a stored policy: observations, layers, actions."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """A policy for the observations of the bare environment; a sautéed one also takes the remaining budget.

    `policy(obs, remaining=12.5)` acts deterministically on one observation (d,) or on many (N, d), with one remaining budget
    or one each; `key` makes it draw from its distribution instead. With m constraints `remaining` is (m,) or (N, m). If all
    that the environment observes is a picture, it may be given as such, (H, W, C) or (N, H, W, C).
    """

    net: Net | Planner
    parameters: PyTree
    action_low: np.ndarray | None
    action_high: np.ndarray | None
    reference: np.ndarray | None
    """Reference budgets of the constraints, or None for a policy that does not observe its budget."""
    start: np.ndarray | int = 0
    """What discrete actions are counted from."""
    brake: np.ndarray | None = None
    """The action for inputs that are not finite; None if they are refused."""

    def __call__(self, obs: ArrayLike, remaining: ArrayLike | None = None, key: PRNGKeyArray | None = None) -> np.ndarray:
        seen = self._augmented(obs, remaining)
        known = np.isfinite(seen)
        if not known.all() and self.brake is None:
            bad = sorted({int(place[-1]) for place in np.argwhere(~known)})
            raise ValueError(
                f"inputs {bad} of the policy, the last ones being z, are not finite; stop, or load it with on_nan='brake'"
            )
        action = np.asarray(_act(self.net, self.parameters, np.where(known, seen, np.float32(0.0)), key))
        if self.action_low is None:
            action = action + np.asarray(self.start, action.dtype)
        else:
            action = np.clip(action, self.action_low, self.action_high)
        if known.all():
            return action
        whole = known.all(-1).reshape(known.shape[:-1] + (1,) * (action.ndim - known.ndim + 1))
        return np.where(whole, action, np.asarray(self.brake, action.dtype))

    def braking(self, brake: ArrayLike) -> Policy:
        """The same policy, which gives this action where an observation or remaining budget is not finite."""
        ours, action = self(np.zeros(self._bare), None if self.reference is None else self.reference), np.asarray(brake)
        within = self.action_low is None or bool(np.all((action >= self.action_low) & (action <= self.action_high)))
        if action.shape != ours.shape or not np.isfinite(action).all() or not within:
            raise ValueError(
                f"brake={brake!r} is not an action: expected shape {ours.shape}"
                + ("" if self.action_low is None else f", from {self.action_low} to {self.action_high}")
            )
        return dataclasses.replace(self, brake=action.astype(ours.dtype))

    @property
    def _bare(self) -> int:
        """Numbers that the bare environment observes."""
        return self.net.observations - (0 if self.reference is None else len(self.reference))

    def _augmented(self, obs: ArrayLike, remaining: ArrayLike | None) -> np.ndarray:
        obs = np.asarray(obs, np.float32)
        extra = 0 if self.reference is None else len(self.reference)
        size, image = self._bare, _image(self.net)
        if size == pixels_of(image) and obs.shape[-3:] == image:
            obs = obs.reshape(*obs.shape[:-3], size)
        if obs.ndim not in (1, 2) or obs.shape[-1] != size:
            raise ValueError(f"observation has shape {obs.shape}, expected ({size},) or (N, {size}) of the bare environment")
        if self.reference is None:
            if remaining is not None:
                raise ValueError("this policy does not observe its budget; call it without remaining")
            return obs
        if remaining is None:
            raise ValueError(
                "this policy needs its remaining budget: policy(obs, remaining=12.5), or let BudgetedPolicy keep it"
            )
        left = np.asarray(remaining, np.float32)
        left = left[..., None] if extra == 1 and left.shape[-1:] != (1,) else left
        if left.shape not in ((extra,), (*obs.shape[:-1], extra)):
            wanted = "one number, or one per observation" if extra == 1 else f"({extra},) or (N, {extra}), one per constraint"
            raise ValueError(f"remaining has shape {np.shape(remaining)}, expected {wanted}")
        z = np.broadcast_to(B.observe(left, self.reference), (*obs.shape[:-1], extra))
        return np.concatenate([obs, z], axis=-1, dtype=np.float32)


class BudgetedPolicy:
    """A policy that keeps its own books on a real plant: `begin(budget)`, then `act(obs)` and `spend(cost)` in turn.

    Several constraints have one budget and one cost each: `begin([30.0, 5.0])`, `spend([1.0, 0.0])`.

    Example:
        >>> keeper = BudgetedPolicy(lambda obs, remaining: remaining, discount=1.0)
        >>> keeper.begin(2.0)
        >>> keeper.act(None), keeper.spend(0.5), keeper.act(None), keeper.violated
        (2.0, 1.5, 1.5, False)
    """

    def __init__(self, policy: Callable[..., Any], discount: float = 1.0):
        self.policy, self.discount = policy, discount
        self.remaining: Any = None

    def begin(self, budget: ArrayLike) -> None:
        """Start an episode with its full budget."""
        if not np.all((np.asarray(budget) > 0) & np.isfinite(budget)):
            raise ValueError(f"budget={budget!r} must be positive and finite")
        self.remaining = budget if np.ndim(budget) == 0 else np.array(budget, np.float64)

    def act(self, obs: ArrayLike) -> Any:
        if self.remaining is None:
            raise gym.error.ResetNeeded("act was called before begin; call begin(budget) to start an episode")
        return self.policy(obs, remaining=self.remaining)

    def spend(self, cost: ArrayLike) -> Any:
        """Book the cost of the last step, and return what remains."""
        if self.remaining is None:
            raise gym.error.ResetNeeded("spend was called before begin; call begin(budget) to start an episode")
        if not np.all((np.asarray(cost) >= 0) & np.isfinite(cost)):
            raise ValueError(f"cost={cost!r} must be finite and ≥ 0")
        if np.shape(cost) != np.shape(self.remaining):
            raise ValueError(
                f"cost={cost!r} does not fit the budgets, of which {self.remaining} remain; pass one cost for each"
            )
        self.remaining = B.spend(self.remaining, cost if np.ndim(cost) == 0 else np.asarray(cost, np.float64), self.discount)
        return self.remaining

    @property
    def violated(self) -> bool:
        return self.remaining is not None and not np.all(B.safe(self.remaining))


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


def _image(net: Net | Planner) -> tuple[int, int, int] | None:
    return None if isinstance(net, Planner) else net.image


def save_policies(path: pathlib.Path, policies: list[PyTree], description: dict[str, Any]) -> None:
    """All seeds' policy parameters and what is needed to act with them."""
    finite(policies, path)
    save(path, {str(seed): parameters for seed, parameters in enumerate(policies)}, description)


def load_policy(
    path: str | pathlib.Path, seed: int = 0, on_nan: Literal["refuse", "brake"] = "refuse", brake: ArrayLike | None = None
) -> Policy:
    """The policy of one seed of a run folder, of a policy file, or of pretrained:NAME.

    An observation or remaining budget that is not finite is refused; with on_nan="brake" the action `brake` is given for it.
    """
    nearest(on_nan, ("refuse", "brake"), "on_nan")
    if (on_nan == "brake") != (brake is not None):
        raise ValueError(f"on_nan={on_nan!r} with brake={brake!r}: pass both on_nan='brake' and the action to give, or neither")
    policies = load_policies(path)
    if seed not in policies:
        raise CheckpointError(f"{path} has no seed {seed}; it has {', '.join(map(str, policies))}")
    return policies[seed] if brake is None else policies[seed].braking(brake)


def load_policies(path: str | pathlib.Path) -> dict[int, Policy]:
    """The policies of all seeds, if they belong to the config.json beside them."""
    path = located(path)
    try:
        file = path / "policy.safetensors" if path.is_dir() else path
    except OSError as problem:
        raise CheckpointError(f"{path} cannot be read ({problem.strerror}); check the name") from None

    def fits(meta: dict[str, Any], table: Mapping[str, Any]) -> None:
        refuse_odd(_template(file, meta, table), table, file)

    arrays, meta = load(file, fits, digest_beside(file))
    stored = finite(restore(_template(file, meta, arrays), arrays, file), file)
    return {int(seed): policy_of(parameters, meta) for seed, parameters in stored.items()}


def _template(file: pathlib.Path, meta: dict[str, Any], table: Mapping[str, Any]) -> dict[str, PyTree]:
    """The parameters of every seed by shape and type, for which no memory is taken."""
    try:
        _refuse_huge(meta)
        seeds = sorted({int(name.split("'")[1]) for name in table})
        shapes = jax.eval_shape(policy_of((), meta).net.init, jax.random.key(0))
    except Exception as problem:  # whatever a stranger may have written there
        raise CheckpointError(f"{file} does not describe a policy ({problem}); restore a copy, or train anew") from None
    return {str(seed): shapes for seed in seeds}


def _refuse_huge(described: Any) -> None:
    """Refuse sizes that no policy has, before anything is made of them."""
    parts = described.values() if isinstance(described, dict) else described if isinstance(described, list) else ()
    for part in parts:
        _refuse_huge(part)
    if isinstance(described, int) and abs(described) > LARGEST:
        raise ValueError(f"{described} is larger than {LARGEST}")


def finite(parameters: PyTree, where: str | pathlib.Path) -> PyTree:
    """The same parameters, if all of them are finite: others would act without knowing what they do."""
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(parameters)):
        raise CheckpointError(f"{where}: parameters are not finite; restore a copy, or train anew")
    return parameters


def policy_of(parameters: PyTree, description: dict[str, Any]) -> Policy:
    """The policy of these parameters, by its `policy_description`."""
    low, high = (None if description[end] is None else np.asarray(description[end], np.float32) for end in ("low", "high"))
    reference = None if description["reference"] is None else np.asarray(description["reference"], np.float32)
    start = np.asarray(description.get("start", 0))
    return Policy(_net(description, low, high), parameters, low, high, reference, start)


def _net(meta: dict[str, Any], low: np.ndarray | None, high: np.ndarray | None) -> Net | Planner:
    if "planner" in meta:
        return planner_of(meta["planner"])
    observations = spaces.Box(-np.inf, np.inf, (meta["observations"],), np.float32)
    actions: spaces.Space[Any]
    if "choices" in meta:
        actions = spaces.MultiDiscrete(meta["choices"])
    elif low is None or high is None:
        actions = spaces.Discrete(meta["discrete"])
    else:
        actions = spaces.Box(low, high, dtype=np.float32)
    image = tuple(meta["image"]) if "image" in meta else None
    if meta.get("relu"):
        return weighing(observations, actions, tuple(meta["hidden"]), image).policy
    return (squashed_for if meta["squashed"] else policy_for)(observations, actions, tuple(meta["hidden"]), image)


@functools.partial(jax.jit, static_argnums=0)
def _act(net: Net | Planner, parameters: PyTree, obs: Array, key: PRNGKeyArray | None) -> Array:
    distribution = net.distribution(parameters, obs)
    return net.mode(distribution) if key is None else net.sample(distribution, key)
