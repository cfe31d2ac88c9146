"""Observations of any kind as flat vectors: a picture first, then all other numbers, the remaining budgets last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from saute.core.observation import KEY

__all__ = ["Flat", "flat"]

Path = tuple[Any, ...]


class Flat(NamedTuple):
    """How the observations of a space become vectors."""

    space: spaces.Box
    image: tuple[int, int, int] | None
    """Height, width and channels, if the vector begins with a picture."""
    batch: Callable[[Any, int], np.ndarray]
    """(observations of n environments, n) → (n, size)."""

    def one(self, obs: Any) -> np.ndarray:
        """A single observation as a vector."""
        return self.batch(_batched(obs), 1)[0]


def flat(space: spaces.Space[Any]) -> Flat:
    """Vectors for Box, Discrete (one-hot), MultiBinary, MultiDiscrete (one-hot), and any Dict or Tuple of them.

    A picture is a Box of bytes with two or three dimensions; its channels may come first or last.

    Example:
        >>> from gymnasium import spaces
        >>> sensors = flat(spaces.Dict({"gear": spaces.Discrete(3), "speed": spaces.Box(0.0, 9.0, (1,))}))
        >>> sensors.one({"gear": 1, "speed": [5.0]})
        array([0., 1., 0., 5.], dtype=float32)
    """
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return Flat(space, None, lambda obs, count: np.asarray(obs, np.float32))
    leaves = sorted(_leaves(space, ()), key=lambda leaf: 2 if leaf[0][-1:] == (KEY,) else 0 if _image(leaf[1]) else 1)
    images = [_image(leaf) for _, leaf in leaves if _image(leaf)]
    if len(images) > 1:
        raise ValueError(f"observations have {len(images)} pictures; keep one, with gymnasium.wrappers.FilterObservation")
    bounds = np.concatenate([_bounds(leaf) for _, leaf in leaves], axis=1).astype(np.float32)

    def batch(obs: Any, count: int) -> np.ndarray:
        rows = [_encoded(leaf, _at(obs, path), count) for path, leaf in leaves]
        return np.concatenate(rows, axis=1, dtype=np.float32)

    return Flat(spaces.Box(*bounds, dtype=np.float32), images[0] if images else None, batch)


def _leaves(space: spaces.Space[Any], path: Path) -> Iterator[tuple[Path, spaces.Space[Any]]]:
    """The simple spaces that a space is made of, and where in an observation they are."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for name, part in parts:
            yield from _leaves(part, (*path, name))
    elif isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        yield path, space
    else:
        raise ValueError(
            f"observations {space} cannot be flattened; use Box, Discrete, MultiBinary, MultiDiscrete, Dict or Tuple"
        )


def _image(space: spaces.Space[Any]) -> tuple[int, int, int] | None:
    """Height, width and channels of a picture; None for everything else."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return None
    height, width, channels = (*space.shape, 1)[:3]
    return (width, channels, height) if _channels_first(space.shape) else (height, width, channels)


def _channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] <= 4 < shape[2]


def _bounds(space: spaces.Space[Any]) -> np.ndarray:
    """Lowest and highest values of the flat vector, as two rows."""
    if isinstance(space, spaces.Box):
        return np.stack([space.low.ravel(), space.high.ravel()])
    size = _encoded(space, np.zeros((1, *(space.shape or ())), int) + getattr(space, "start", 0), 1).shape[1]
    return np.stack([np.zeros(size), np.ones(size)])


def _encoded(space: spaces.Space[Any], values: Any, count: int) -> np.ndarray:
    """A row of numbers for each environment."""
    rows = np.asarray(values).reshape(count, *(space.shape or ()))
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n))[rows - space.start]
    if isinstance(space, spaces.MultiDiscrete):
        columns = (rows - space.start).reshape(count, -1).T
        return np.concatenate([np.eye(int(n))[column] for n, column in zip(space.nvec.ravel(), columns, strict=True)], axis=1)
    if _image(space) and _channels_first(space.shape or ()):
        rows = np.moveaxis(rows, 1, -1)
    return rows.reshape(count, -1)


def _at(obs: Any, path: Path) -> Any:
    for name in path:
        obs = obs[name]
    return obs


def _batched(obs: Any) -> Any:
    """An observation as a batch of one."""
    if isinstance(obs, dict):
        return {name: _batched(part) for name, part in obs.items()}
    return tuple(map(_batched, obs)) if isinstance(obs, tuple) else np.asarray(obs)[None]
