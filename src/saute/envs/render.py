"""Pictures of the tasks, drawn with Pillow (hazard red, goal green, robot blue), and a window to show them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.error import DependencyNotInstalled

try:
    from PIL import Image, ImageDraw
except ModuleNotFoundError as missing:
    raise DependencyNotInstalled("drawing tasks needs Pillow, which is not installed: pip install 'saute[render]'") from missing

if TYPE_CHECKING:
    import mujoco

    from saute.envs.car_goal import CarGoal
    from saute.envs.point_goal import PointGoal
    from saute.envs.point_goals import PointGoal1
    from saute.envs.safe_double_pendulum import DoublePendulum
    from saute.envs.safe_pendulum import Pendulum
    from saute.envs.safe_reacher import Reacher
    from saute.envs.velocity import Velocity


__all__ = ["Window", "draw", "picture_of"]

Place = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in metres."""
Colour = tuple[int, ...]
Strength = Callable[[np.ndarray, np.ndarray], np.ndarray]

PAPER, GROUND, FAINT = (247, 248, 250), (237, 239, 243), (221, 225, 232)
INK, STEEL = (38, 45, 61), (138, 148, 164)
ROBOT, ROBOT_DARK, ROBOT_LIGHT = (52, 104, 190), (32, 66, 128), (176, 200, 238)
HAZARD, GOAL = (214, 58, 58), (44, 160, 98)

CART = 0.17
"""Half the width of the double pendulum's cart; the cart meets a stop at the positions ±1."""
LEAST_SIZE = 32
OVERSAMPLING = 3
"""Everything is painted this many times larger and then averaged, which smooths the edges."""


class View(NamedTuple):
    """The part of the plane that a picture shows, a square: its centre, and half its width, in metres."""

    x: float
    y: float
    half: float


SWING, RAIL_VIEW, TABLE, ARENA = View(0.0, 0.0, 1.4), View(0.0, 0.5, 1.75), View(0.0, 0.0, 0.28), View(0.0, 0.0, 1.75)
"""The views of the pendulum, the double pendulum, the reacher, and the arena of Point and Car."""
BESIDE, ABOVE, POOL = View(0.0, 1.0, 1.25), View(0.0, 0.0, 1.75), View(0.0, 0.0, 2.25)
"""The views of robots that run, from the side, of the Ant and of the Swimmer, from above; they follow the robot."""


class Disc(NamedTuple):
    """A filled disc, or a ring if it has a line width."""

    centre: Place
    radius: float
    colour: Colour
    line: float = 0.0

    @property
    def bounds(self) -> Box:
        (x, y), r = self.centre, self.radius + self.line / 2
        return x - r, y - r, x + r, y + r

    def paint(self, canvas: Canvas) -> None:
        left, bottom, right, top = self.bounds
        # Pillow counts the last pixel of a box as inside.
        (x0, y0), (x1, y1) = canvas.pixel((left, top)), canvas.pixel((right, bottom))
        box = (x0, y0, max(x0, x1 - 1), max(y0, y1 - 1))
        if self.line:
            canvas.pen.ellipse(box, outline=self.colour, width=max(1, round(self.line * canvas.scale)))
        else:
            canvas.pen.ellipse(box, fill=self.colour)


class Stroke(NamedTuple):
    """A line through some points, with round joints and ends; its colour must be opaque, because its parts overlap."""

    points: Sequence[Place]
    width: float
    colour: Colour

    @property
    def bounds(self) -> Box:
        return _around(self.points, self.width)

    def paint(self, canvas: Canvas) -> None:
        for start, end in itertools.pairwise(self.points):
            along = _pose(start, math.atan2(end[1] - start[1], end[0] - start[0]))
            _box(along, math.dist(start, end) / 2, 0.0, math.dist(start, end) / 2, self.width / 2, self.colour).paint(canvas)
        for point in self.points:
            Disc(point, self.width / 2, self.colour).paint(canvas)


class Area(NamedTuple):
    """A filled polygon."""

    points: Sequence[Place]
    colour: Colour

    @property
    def bounds(self) -> Box:
        return _around(self.points, 0.0)

    def paint(self, canvas: Canvas) -> None:
        canvas.pen.polygon([canvas.pixel(point) for point in self.points], fill=self.colour)


class Haze(NamedTuple):
    """A red haze around a place, more opaque where the strength ∈ [0, 1] of the hazard is greater; none where it is 0."""

    centre: Place
    radius: float
    strength: Strength

    @property
    def bounds(self) -> Box:
        return _around([self.centre], self.radius)

    def paint(self, canvas: Canvas) -> None:
        mask, (across, down) = _haze(self.strength, self.radius, canvas.scale)
        x, y = canvas.pixel(self.centre)
        canvas.image.paste(HAZARD, (round(x + across), round(y + down)), mask)


Shape = Disc | Stroke | Area | Haze


@functools.lru_cache(maxsize=8)
def _haze(strength: Strength, radius: float, scale: float) -> tuple[Image.Image, Place]:
    """The opacity of a haze, and where its upper left pixel is; cached, because a haze that follows its robot only moves."""
    n = math.ceil(2 * radius * scale)
    axis = (np.arange(n) + 0.5 - n / 2) / scale
    x, y = axis[None, :], -axis[:, None]
    values = strength(x, y)
    opacity = np.where((values > 0) & (np.hypot(x, y) <= radius), 0.1 + 0.55 * values, 0.0)
    mask = Image.fromarray(np.rint(255 * opacity).astype(np.uint8))
    box = mask.getbbox() or (0, 0, 1, 1)
    return mask.crop(box), (box[0] - n / 2, box[1] - n / 2)


@dataclasses.dataclass(frozen=True)
class Sector:
    """Strength (w − |θ° − δ|)/w of an angle cost; θ is 0 upright and positive to the right if lean = 1, to the left if −1."""

    centre: float
    width: float
    lean: int

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        θ = np.rad2deg(np.arctan2(self.lean * x, y))
        return np.maximum(0.0, (self.width - np.abs(θ - self.centre)) / self.width)


@dataclasses.dataclass(frozen=True)
class Cone:
    """Strength 1 − d/R at the distance d from the centre of a hazard with the radius R."""

    radius: float

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.maximum(0.0, 1.0 - np.hypot(x, y) / self.radius)


class Canvas:
    """Part of an oversampled picture, whose corner is the pixel `origin` of the whole; shapes are given in metres."""

    def __init__(self, image: Image.Image, view: View, size: int, origin: tuple[int, int] = (0, 0)):
        self.image, self.view, self.origin = image, view, origin
        self.scale = OVERSAMPLING * size / (2 * view.half)
        self.pen = ImageDraw.Draw(image, "RGBA")

    def pixel(self, place: Place) -> Place:
        x = (place[0] - self.view.x + self.view.half) * self.scale - self.origin[0]
        y = (self.view.y + self.view.half - place[1]) * self.scale - self.origin[1]
        return x, y

    def paint(self, shapes: Iterable[Shape]) -> None:
        for shape in shapes:
            if _visible(shape.bounds, self.view):
                shape.paint(self)


class Picture(NamedTuple):
    """What a task looks like: the view, the scene that does not move, and the robot, for the numbers of a state."""

    view: View
    scene: Callable[..., list[Shape]]
    robot: Callable[..., list[Shape]]


@functools.cache
def _pictures() -> dict[type, Picture]:
    """The picture of each class of task; the classes are imported when the first picture is drawn, since they need JAX."""
    from saute.envs.car_goal import CarGoal
    from saute.envs.point_goal import PointGoal
    from saute.envs.point_goals import PointGoal1
    from saute.envs.safe_double_pendulum import DoublePendulum
    from saute.envs.safe_pendulum import Pendulum
    from saute.envs.safe_reacher import Reacher
    from saute.envs.velocity import Ant, Swimmer, Velocity

    return {
        Pendulum: Picture(SWING, _pendulum_scene, _pendulum),
        DoublePendulum: Picture(RAIL_VIEW, _double_pendulum_scene, _double_pendulum),
        Reacher: Picture(TABLE, _reacher_scene, _reacher),
        PointGoal: Picture(ARENA, _goal_scene, _point),
        CarGoal: Picture(ARENA, _goal_scene, _car),
        PointGoal1: Picture(ARENA, _goals_scene, _point_goals),
        Velocity: Picture(BESIDE, _track, functools.partial(_robot, BESIDE)),
        Ant: Picture(ABOVE, _track, functools.partial(_robot, ABOVE)),
        Swimmer: Picture(POOL, _track, functools.partial(_robot, POOL)),
    }


def picture_of(task: Any) -> Picture:
    """How a task, or one derived from it, is drawn."""
    known = _pictures()
    kind = next((kind for kind in type(task).__mro__ if kind in known), None)
    if kind is None:
        names = ", ".join(one.__name__ for one in known)
        raise TypeError(f"cannot draw a {type(task).__name__}; the tasks that can be drawn are {names}")
    return known[kind]


def draw(task: Any, x: Any, size: int = 480) -> np.ndarray:
    """The physical state x of a task as a picture, uint8 of shape (size, size, 3); needs neither display nor GPU."""
    view, _, robot = picture_of(task)
    if size < LEAST_SIZE:
        raise ValueError(f"size={size!r} is too small for a picture; use at least {LEAST_SIZE} pixels")
    state = np.asarray(x, dtype=np.float64)
    if state.shape != (task.state_size,) or not np.isfinite(state).all():
        raise ValueError(f"x={x!r} is not a state of {type(task).__name__}; pass {task.state_size} finite numbers")
    large, small = _scene(task, size)
    frame = small.copy()
    moving = [shape for shape in robot(task, *state.tolist()) if _visible(shape.bounds, view)]
    if moving:
        # Only the part that the robot covers is painted again.
        rows, columns = _cover(moving, view, size)
        corner = (columns.start * OVERSAMPLING, rows.start * OVERSAMPLING)
        image = large.crop((*corner, columns.stop * OVERSAMPLING, rows.stop * OVERSAMPLING))
        Canvas(image, view, size, corner).paint(moving)
        frame[rows, columns] = np.asarray(image.reduce(OVERSAMPLING))
    return frame


@functools.lru_cache(maxsize=8)
def _scene(task: Any, size: int) -> tuple[Image.Image, np.ndarray]:
    """The scene that does not move: oversampled, to paint the robot on, and as a picture."""
    view, scene, _ = picture_of(task)
    image = Image.new("RGB", (size * OVERSAMPLING,) * 2, PAPER)
    Canvas(image, view, size).paint(scene(task))
    return image, np.asarray(image.reduce(OVERSAMPLING))


def _cover(shapes: Sequence[Shape], view: View, size: int) -> tuple[slice, slice]:
    """The rows and columns of the picture that the shapes touch."""
    left, bottom, right, top = zip(*(shape.bounds for shape in shapes), strict=True)
    scale, x0, y0 = size / (2 * view.half), view.x - view.half, view.y + view.half

    def span(low: float, high: float) -> slice:
        return slice(max(0, math.floor(low * scale) - 1), min(size, math.ceil(high * scale) + 1))

    return span(y0 - max(top), y0 - min(bottom)), span(min(left) - x0, max(right) - x0)


def _visible(bounds: Box, view: View) -> bool:
    left, bottom, right, top = bounds
    across = view.x - view.half < right and left < view.x + view.half
    return across and view.y - view.half < top and bottom < view.y + view.half


def _around(points: Sequence[Place], margin: float) -> Box:
    x, y = zip(*points, strict=True)
    return min(x) - margin, min(y) - margin, max(x) + margin, max(y) + margin


def _dashed(start: Place, end: Place, width: float, dash: float, colour: Colour) -> list[Shape]:
    count = max(1, round(math.dist(start, end) / (2 * dash)))

    def at(t: float) -> Place:
        return start[0] + t * (end[0] - start[0]), start[1] + t * (end[1] - start[1])

    return [Stroke([at((i + 0.25) / count), at((i + 0.75) / count)], width, colour) for i in range(count)]


def _arrow(start: Place, heading: float, length: float, width: float, colour: Colour) -> list[Shape]:
    """An arrow in one piece, so that it can be translucent."""
    ahead, head = _pose(start, heading), 5 * width
    shaft = [ahead(0.0, -width / 2), ahead(length - head, -width / 2), ahead(length - head, width / 2), ahead(0.0, width / 2)]
    tip = [ahead(length - head, -0.6 * head), ahead(length, 0.0), ahead(length - head, 0.6 * head)]
    return [Area([shaft[0], shaft[1], *tip, shaft[2], shaft[3]], colour)]


def _pose(place: Place, heading: float) -> Callable[[float, float], Place]:
    """From a robot's own frame, whose first axis points along the heading, to the plane."""
    cos, sin = math.cos(heading), math.sin(heading)
    return lambda x, y: (place[0] + cos * x - sin * y, place[1] + sin * x + cos * y)


def _box(to_plane: Callable[[float, float], Place], x: float, y: float, half_x: float, half_y: float, colour: Colour) -> Area:
    return Area([to_plane(x + i * half_x, y + j * half_y) for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))], colour)


def _pendulum_scene(task: Pendulum) -> list[Shape]:
    return [
        Disc((0.0, 0.0), 1.0, FAINT, line=0.012),
        Haze((0.0, 0.0), 1.2, Sector(task.unsafe_angle, task.unsafe_width, lean=-1)),
        Disc((0.0, 1.0), 0.135, GOAL, line=0.022),
    ]


def _pendulum(task: Pendulum, θ: float, speed: float) -> list[Shape]:
    """As in Gymnasium, positive angles are counter-clockwise."""
    bob = (-math.sin(θ), math.cos(θ))
    return [
        Stroke([(0.0, 0.0), bob], 0.07, INK),
        Disc((0.0, 0.0), 0.075, INK),
        Disc((0.0, 0.0), 0.03, PAPER),
        Disc(bob, 0.115, ROBOT_DARK),
        Disc(bob, 0.093, ROBOT),
    ]


def _double_pendulum_scene(task: DoublePendulum) -> list[Shape]:
    from saute.envs.safe_double_pendulum import RAIL

    view, height, stop, floor = RAIL_VIEW, task.least_height, RAIL + CART + 0.0225, -0.32
    left, right, bottom = view.x - view.half, view.x + view.half, view.y - view.half
    return [
        Area([(left, bottom), (right, bottom), (right, floor), (left, floor)], GROUND),
        Stroke([(left, floor), (right, floor)], 0.012, FAINT),
        *_dashed((left, height), (right, height), 0.012, 0.05, STEEL),
        Stroke([(-stop, floor), (-stop, 0.0), (stop, 0.0), (stop, floor)], 0.03, STEEL),
        *(Stroke([(side, -0.1), (side, 0.1)], 0.045, INK) for side in (-stop, stop)),
    ]


def _double_pendulum(task: DoublePendulum, s: float, θ1: float, θ2: float, *speeds: float) -> list[Shape]:
    from saute.envs.safe_double_pendulum import LENGTH

    joint = (s + LENGTH * math.sin(θ1), LENGTH * math.cos(θ1))
    tip = (joint[0] + LENGTH * math.sin(θ1 + θ2), joint[1] + LENGTH * math.cos(θ1 + θ2))
    return [
        Haze((s, 0.0), 0.78, Sector(task.unsafe_angle, task.unsafe_width, lean=1)),
        _box(_pose((s, 0.0), 0.0), 0.0, 0.0, CART, CART / 2, INK),
        Stroke([(s, 0.0), joint], 0.075, ROBOT_DARK),
        Stroke([joint, tip], 0.06, ROBOT),
        Disc((s, 0.0), 0.028, PAPER),
        Disc(joint, 0.022, PAPER),
        Disc(tip, 0.05, ROBOT_DARK),
    ]


def _reacher_scene(task: Reacher) -> list[Shape]:
    from saute.envs.safe_reacher import LENGTH, TIP_LENGTH

    far = math.atan2(task.goal[1], task.goal[0])
    edge = TABLE.half / max(abs(math.cos(far)), abs(math.sin(far)))
    start = ((edge - 0.085) * math.cos(far), (edge - 0.085) * math.sin(far))
    return [
        Disc((0.0, 0.0), LENGTH + TIP_LENGTH, FAINT, line=0.0024),
        Haze(task.hazard_centre[:2], task.hazard_radius, Cone(task.hazard_radius)),
        Disc(task.hazard_centre[:2], task.hazard_radius, (*HAZARD, 110), line=0.0024),
        *_arrow(start, far, 0.065, 0.006, GOAL),
    ]


def _reacher(task: Reacher, shoulder: float, elbow: float, *others: float) -> list[Shape]:
    from saute.envs.safe_reacher import LENGTH, TIP_LENGTH

    middle = (LENGTH * math.cos(shoulder), LENGTH * math.sin(shoulder))
    tip = (middle[0] + TIP_LENGTH * math.cos(shoulder + elbow), middle[1] + TIP_LENGTH * math.sin(shoulder + elbow))
    return [
        Stroke([(0.0, 0.0), middle], 0.02, ROBOT_DARK),
        Stroke([middle, tip], 0.017, ROBOT),
        Disc((0.0, 0.0), 0.0165, INK),
        Disc((0.0, 0.0), 0.006, PAPER),
        Disc(middle, 0.013, INK),
        Disc(middle, 0.005, PAPER),
        Disc(tip, 0.011, INK),
    ]


def _goal_scene(task: PointGoal | CarGoal) -> list[Shape]:
    e = task.start_extent
    corners = [(-e, -e), (e, -e), (e, e), (-e, e), (-e, -e)]
    return [
        Stroke(corners, 0.012, FAINT),
        Disc(task.hazard, task.hazard_radius, (*HAZARD, 90)),
        Disc(task.hazard, task.hazard_radius, (*HAZARD, 170), line=0.018),
        Disc(task.goal, task.goal_radius, (*GOAL, 110)),
        Disc(task.goal, task.goal_radius, (*GOAL, 200), line=0.018),
    ]


def _point(task: PointGoal | PointGoal1, x: float, y: float, heading: float, *speeds: float) -> list[Shape]:
    from saute.envs.point_goal import NOSE, NOSE_AT, RADIUS

    body = _pose((x, y), heading)
    return _signpost(x, y) or [
        *_arrow(body(0.18, 0.0), heading, 0.22, 0.022, (*ROBOT, 110)),
        _box(body, NOSE_AT, 0.0, NOSE, NOSE, ROBOT_DARK),
        Disc((x, y), RADIUS, ROBOT_DARK),
        Disc((x, y), 0.8 * RADIUS, ROBOT),
    ]


def _car(task: CarGoal, x: float, y: float, _: float, *rest: float) -> list[Shape]:
    """The Car from above; forwards is the body's −y, and heights do not matter."""
    w, i, j, k = rest[:4]
    # The direction of the body's −y, from the second column of the rotation matrix.
    heading = math.atan2(k * k + i * i - j * j - w * w, 2 * (w * k - i * j))
    body = _pose((x, y), heading)
    return _signpost(x, y) or [
        *_arrow(body(0.23, 0.0), heading, 0.22, 0.022, (*ROBOT, 110)),
        *(_box(body, -0.1, side * 0.13, 0.05, 0.025, INK) for side in (-1, 1)),
        _box(body, -0.15, 0.0, 0.01, 0.1, ROBOT_DARK),
        _box(body, -0.125, 0.0, 0.025, 0.01, ROBOT_DARK),
        _box(body, 0.13, 0.0, 0.03, 0.05, ROBOT_DARK),
        _box(body, 0.165, 0.0, 0.01, 0.05, ROBOT_DARK),
        _box(body, 0.0, 0.0, 0.1, 0.1, ROBOT_DARK),
        _box(body, 0.0, 0.0, 0.08, 0.08, ROBOT),
        Disc(body(0.1, 0.0), 0.05, INK),
        Disc(body(0.1, 0.0), 0.03, ROBOT_LIGHT),
    ]


def _goals_scene(task: PointGoal1) -> list[Shape]:
    e = task.extent
    return [Stroke([(-e, -e), (e, -e), (e, e), (-e, e), (-e, -e)], 0.012, FAINT)]


def _point_goals(task: PointGoal1, *x: float) -> list[Shape]:
    """Hazards, the goal of now, and the Point."""
    hazards = list(zip(x[8::2], x[9::2], strict=True))
    circles = [(place, task.hazard_radius, HAZARD) for place in hazards] + [((x[6], x[7]), task.goal_radius, GOAL)]
    discs = [Disc(place, radius, (*colour, 110)) for place, radius, colour in circles]
    rings = [Disc(place, radius, (*colour, 190), line=0.018) for place, radius, colour in circles]
    return [*discs, *rings, *_point(task, *x[:6])]


def _track(task: Velocity) -> list[Shape]:
    """Nothing stands still where the camera follows."""
    return []


def _robot(view: View, task: Velocity, *x: float) -> list[Shape]:
    """The robot's geoms from the side, or from above, in a frame that follows it; marks on the ground, 1 m apart; its speed."""
    import mujoco

    model, data = _simulated(task)
    data.qpos[:] = x[: model.nq]
    mujoco.mj_kinematics(model, data)
    up = 2 if view is BESIDE else 1
    centre = (float(data.xpos[1, 0]), 0.0 if view is BESIDE else float(data.xpos[1, 1]))
    speed = math.hypot(*x[model.nq : model.nq + 2]) if task.planar else x[model.nq]
    return [*_ground(view, *centre), *_limbs(model, data, centre, up), *_speed(view, speed / task.threshold)]


@functools.cache
def _simulated(task: Velocity) -> tuple[Any, Any]:
    import mujoco

    model = task.model()
    return model, mujoco.MjData(model)


def _limbs(model: mujoco.MjModel, data: mujoco.MjData, centre: Place, up: int) -> list[Shape]:
    """Capsules as strokes and spheres as discs, those that are farther from the eye first and darker."""
    shapes: list[tuple[float, Shape]] = []
    for geom in range(model.ngeom):
        if not model.geom_bodyid[geom]:
            continue  # the floor
        place, (radius, half, _) = data.geom_xpos[geom], model.geom_size[geom]
        along = data.geom_xmat[geom].reshape(3, 3)[:, 2] * half
        depth = place[2] if up == 1 else -place[1]
        colour = ROBOT if depth >= 0 or up == 1 else ROBOT_DARK
        ends = [(float(end[0] - centre[0]), float(end[up] - centre[1])) for end in (place - along, place + along)]
        capsule = model.geom_type[geom] == 3
        shapes.append((depth, Stroke(ends, 2 * float(radius), colour) if capsule else Disc(ends[0], float(radius), colour)))
    return [shape for _, shape in sorted(shapes, key=lambda pair: pair[0])]


def _ground(view: View, x: float, y: float) -> list[Shape]:
    """The floor with posts from the side, a grid from above; both move past as the robot goes."""
    left, right = view.x - view.half, view.x + view.half
    marks = [mark - x for mark in range(math.ceil(x + left), math.floor(x + right) + 1)]
    if view is BESIDE:
        floor = Area([(left, view.y - view.half), (right, view.y - view.half), (right, 0.0), (left, 0.0)], GROUND)
        return [floor, *(Stroke([(mark, -0.16), (mark, -0.04)], 0.02, STEEL) for mark in marks)]
    rows = [mark - y for mark in range(math.ceil(y - view.half), math.floor(y + view.half) + 1)]
    lines = [[(mark, -view.half), (mark, view.half)] for mark in marks] + [[(left, row), (right, row)] for row in rows]
    return [Stroke(line, 0.012, FAINT) for line in lines]


def _speed(view: View, share: float) -> list[Shape]:
    """A bar at the top, half of whose width is the threshold: what is beyond is red."""
    top, half = view.y + 0.9 * view.half, 0.8 * view.half
    thick, reach = 0.05 * view.half, min(max(share, 0.0), 2.0)
    shown = [Stroke([(-half, top), (half, top)], thick, FAINT)]
    if reach > 0:
        shown.append(Stroke([(-half, top), (half * (min(reach, 1.0) - 1), top)], thick, GOAL))
    if reach > 1:
        shown.append(Stroke([(0.0, top), (half * (reach - 1), top)], thick, HAZARD))
    return [*shown, Stroke([(0.0, top - thick), (0.0, top + thick)], 0.2 * thick, INK)]


def _signpost(x: float, y: float) -> list[Shape]:
    """An arrow head at the edge, which points to a robot that has left the picture; nothing if the robot is in it."""
    if max(abs(x), abs(y)) < ARENA.half:
        return []
    inside = ARENA.half - 0.16
    at = (min(max(x, -inside), inside), min(max(y, -inside), inside))
    post = _pose(at, math.atan2(y - at[1], x - at[0]))
    return [Area([post(0.1, 0.0), post(-0.07, 0.08), post(-0.03, 0.0), post(-0.07, -0.08)], ROBOT)]


class Window:
    """A window that shows at most `fps` frames per second; without a display nothing is seen, and nothing fails."""

    def __init__(self, fps: float):
        self.fps = fps
        self._screen: Any = None
        self._clock: Any = None
        self._dismissed = False

    def show(self, frame: np.ndarray) -> None:
        """Show an RGB frame; a window that the user has closed stays closed."""
        if self._dismissed:
            return
        pygame = _pygame()
        height, width = frame.shape[:2]
        if self._screen is None or not pygame.display.get_init():
            _open_display(pygame)
            self._screen = pygame.display.set_mode((width, height))
            self._clock = pygame.time.Clock()
            pygame.display.set_caption("saute")
        elif self._screen.get_size() != (width, height):
            self._screen = pygame.display.set_mode((width, height))
        self._screen.blit(pygame.image.frombuffer(np.ascontiguousarray(frame).tobytes(), (width, height), "RGB"), (0, 0))
        pygame.display.flip()
        self._clock.tick(self.fps)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
            self._dismissed = True

    def close(self) -> None:
        if self._screen is not None:
            _pygame().display.quit()
            self._screen = self._clock = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the open window: a copy of an environment opens its own."""
        return {"fps": self.fps, "_screen": None, "_clock": None, "_dismissed": self._dismissed}


def _pygame() -> ModuleType:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ModuleNotFoundError as missing:
        raise DependencyNotInstalled("a window needs pygame, which is not installed: pip install 'saute[render]'") from missing
    return pygame


def _open_display(pygame: ModuleType) -> None:
    """Open the display, or SDL's dummy driver if there is no display."""
    headless = sys.platform.startswith("linux") and not {"DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"} & set(os.environ)
    if headless:
        os.environ["SDL_VIDEODRIVER"] = "dummy"
    try:
        pygame.display.init()
    finally:
        if headless:
            del os.environ["SDL_VIDEODRIVER"]
