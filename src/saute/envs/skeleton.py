"""Bodies joined by hinges below one that moves freely: where each is, how fast, and its inertia, as MuJoCo tells them.

All in arrays of NumPy or of JAX: written out in single numbers, as other tasks are, these long chains take minutes to compile.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saute.envs.goal import rotation
from saute.envs.rigid import sin_cos

if TYPE_CHECKING:
    import mujoco

__all__ = ["Placed", "Skeleton", "skeleton_of"]

Vectors = Float[Array | np.ndarray, "... 3"]
Matrices = Float[Array | np.ndarray, "... 3 3"]
Positions = Float[Array | np.ndarray, " position"]
Speeds = Float[Array | np.ndarray, " speed"]
CROSS = np.array([[[0, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [-1, 0, 0]], [[0, -1, 0], [1, 0, 0], [0, 0, 0]]])
"""[a]ₓ = Σ aᵢ CROSS[i], the matrix with [a]ₓ b = a × b."""


class Hinge(NamedTuple):
    """A joint of a bone: its axis (of length 1) and a point on it, in the bone's frame, and its number in qpos."""

    axis: Vectors
    anchor: Vectors
    angle: int


class Bone(NamedTuple):
    """A body of a model: how it hangs on another, in the frame of that, and its hinges."""

    parent: int
    place: Vectors
    turn: Matrices
    hinges: tuple[Hinge, ...]


class Placed(NamedTuple):
    """Origins, frames and centres of mass of all bones; axes and anchors of all hinges; the centre of mass of the whole."""

    origins: Vectors
    frames: Matrices
    centres: Vectors
    axes: Vectors
    anchors: Vectors
    centre: Vectors


@dataclasses.dataclass(frozen=True)
class Skeleton:
    """The bones of a model, the free one first; per bone its mass, its centre of mass and its inertia about that."""

    bones: tuple[Bone, ...]
    masses: Float[np.ndarray, " bone"]
    centres: Vectors
    tensors: Matrices
    moves: Float[np.ndarray, "bone hinge"]
    """1 where a bone hangs on a hinge, else 0."""

    def placed(self, q: Positions) -> Placed:
        """Where every bone is; q begins with place and quaternion of the free bone."""
        xp: Any = np if isinstance(q, np.ndarray) else jnp
        origins, frames, axes, anchors = [q[:3]], [_matrix(q[3:7])], [], []
        for bone in self.bones[1:]:
            above = frames[bone.parent]
            origin, frame = origins[bone.parent] + above @ bone.place, above @ bone.turn
            for hinge in bone.hinges:
                anchor = origin + frame @ hinge.anchor
                axes.append(frame @ hinge.axis)
                anchors.append(anchor)
                frame = frame @ _turned(hinge.axis, q[hinge.angle])
                origin = anchor - frame @ hinge.anchor
            origins.append(origin)
            frames.append(frame)
        places, turns = xp.stack(origins), xp.stack(frames)
        centres = places + (turns @ self.centres[..., None])[..., 0]
        centre = (self.masses / self.masses.sum()) @ centres
        return Placed(places, turns, centres, xp.stack(axes), xp.stack(anchors), centre)

    def inertias(self, at: Placed) -> Float[Array | np.ndarray, "bone 10"]:
        """R I Rᵀ + m (|d|² 1 − d dᵀ) as (xx, yy, zz, xy, xz, yz), m d, m: MuJoCo's `cinert`, d from the whole's centre."""
        xp: Any = np if isinstance(at.frames, np.ndarray) else jnp
        d = at.centres - at.centre
        about = at.frames @ self.tensors @ xp.swapaxes(at.frames, 1, 2)
        square = (d * d).sum(1)[:, None, None] * np.eye(3)
        whole = about + self.masses[:, None, None] * (square - d[:, :, None] * d[:, None, :])
        rows, columns = (0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2)
        return xp.concatenate([whole[:, rows, columns], self.masses[:, None] * d, self.masses[:, None] + 0 * d[:, :1]], axis=1)

    def velocities(self, at: Placed, v: Speeds) -> Float[Array | np.ndarray, "bone 6"]:
        """ω, and the velocity of what of the bone is at the whole's centre c: MuJoCo's `cvel`.

        A hinge with the axis a through p adds a θ̇ and a θ̇ × (c − p) to all that hangs on it.
        """
        xp: Any = np if isinstance(at.frames, np.ndarray) else jnp
        spin = at.frames[0] @ v[3:6]  # MuJoCo tells the spin of a free body in that body's frame
        turning = at.axes * v[6:, None]
        moved = xp.cross(turning, at.centre - at.anchors)
        speed = v[:3] + xp.cross(spin, at.centre - at.origins[0])
        return xp.concatenate([spin + self.moves @ turning, speed + self.moves @ moved], axis=1)


def skeleton_of(model: mujoco.MjModel) -> Skeleton:
    """The skeleton of a model whose first body is free and whose other joints are hinges."""
    bones, moves = [], np.zeros((model.nbody - 1, model.njnt - 1))
    for body in range(1, model.nbody):
        parent, first = int(model.body_parentid[body]) - 1, int(model.body_jntadr[body])
        joints = range(first, first + int(model.body_jntnum[body])) if body > 1 else range(0)
        hinges = tuple(Hinge(model.jnt_axis[j], model.jnt_pos[j], int(model.jnt_qposadr[j])) for j in joints)
        bones.append(Bone(parent, model.body_pos[body], _matrix(model.body_quat[body]), hinges))
        if parent >= 0:
            moves[body - 1] = moves[parent]
        moves[body - 1, [j - 1 for j in joints]] = 1
    axes = np.stack([_matrix(quaternion) for quaternion in model.body_iquat[1:]])
    tensors = axes @ (model.body_inertia[1:, :, None] * np.swapaxes(axes, 1, 2))
    return Skeleton(tuple(bones), model.body_mass[1:], model.body_ipos[1:], tensors, moves)


def _turned(axis: Vectors, angle: Any) -> Matrices:
    """1 + sin θ [a]ₓ + (1 − cos θ) [a]ₓ² (Rodrigues)."""
    (sin, cos), across = sin_cos(angle), np.tensordot(axis, CROSS, 1)
    return np.eye(3) + sin * across + (1 - cos) * (across @ across)


def _matrix(quaternion: Float[Array | np.ndarray, " 4"]) -> Matrices:
    if not isinstance(quaternion, np.ndarray):
        return rotation(quaternion)
    numbers: Any = tuple(quaternion.tolist())
    return np.array(rotation(numbers))
