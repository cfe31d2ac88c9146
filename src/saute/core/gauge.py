"""A gauge of the remaining budget, painted on the frames of any environment; it needs only NumPy."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_SIZE", "colour", "layout", "margin", "paint"]

LEAST_SIZE = 40
"""Frames with fewer pixels than this in height or width are left as they are: there is no room for a gauge."""

LEVELS = (0.0, 0.5, 1.0)
COLOURS = np.array([(214, 58, 58), (240, 173, 60), (44, 160, 98)], float)
"""Red when empty, amber at half, green when full."""
OVERSPENT, PALE = np.array((122, 16, 26), float), np.array((246, 190, 190), float)
PANEL, TRACK = np.array((255, 255, 255), float), np.array((213, 218, 226), float)


def colour(z: float) -> np.ndarray:
    """The RGB colour of a gauge at level z: green, amber or red, or between them."""
    return np.array([np.interp(z, LEVELS, channel) for channel in COLOURS.T])


def layout(height: int, width: int, bars: int) -> tuple[int, int, list[int], int]:
    """The top and the bottom row of the bars, their left columns, and their width."""
    thick = max(4, round(0.024 * min(height, width)))
    top = round(0.2 * height)
    return top, height - top, [thick + 2 * thick * i for i in range(bars)], thick


def margin(height: int, width: int, bars: int) -> int:
    """The columns at the left of a frame that so many bars take, with white space around them."""
    _, _, columns, thick = layout(height, width, bars)
    return columns[-1] + 2 * thick if columns else 0


def paint(frame: np.ndarray, z: npt.ArrayLike) -> np.ndarray:
    """A copy of an RGB frame with one bar per constraint, filled up to z ∈ [0, 1], and striped dark red where z < 0."""
    painted = np.array(frame)
    values = np.atleast_1d(np.asarray(z, dtype=np.float64)).ravel()
    if painted.ndim != 3 or painted.shape[2] != 3 or painted.dtype != np.uint8 or min(painted.shape[:2]) < LEAST_SIZE:
        return painted
    height, width, _ = painted.shape
    top, bottom, columns, thick = layout(height, width, len(values))
    if not columns or columns[-1] + 2 * thick > width:
        return painted
    margin = max(2, thick // 2)
    panel = (slice(top - margin, bottom + margin), slice(columns[0] - margin, columns[-1] + thick + margin))
    _blend(painted, panel, PANEL, _rounded(bottom - top + 2 * margin, panel[1].stop - panel[1].start, margin))
    for value, left in zip(values, columns, strict=True):
        bar = (slice(top, bottom), slice(left, left + thick))
        _blend(painted, bar, _bar(float(value), bottom - top, thick), _rounded(bottom - top, thick, thick / 2))
    return painted


def _bar(z: float, height: int, width: int) -> np.ndarray:
    """The pixels of one bar; it is empty if z is NaN."""
    if z < 0:
        rows, columns = np.indices((height, width))
        stripes = (rows + columns) // max(3, width // 2) % 2 == 0
        stripes[:, [0, -1]] = stripes[[0, -1]] = True
        return np.where(stripes[..., None], OVERSPENT, PALE)
    z = 0.0 if np.isnan(z) else min(z, 1.0)
    # The row at the level is filled partly, so that the gauge sinks smoothly.
    filled = np.clip(z * height - np.arange(height)[::-1], 0.0, 1.0)[:, None, None]
    return np.broadcast_to(TRACK + filled * (colour(z) - TRACK), (height, width, 3))


def _blend(frame: np.ndarray, where: tuple[slice, slice], pixels: np.ndarray, opacity: np.ndarray) -> None:
    below = frame[where].astype(float)
    frame[where] = np.rint(below + opacity[..., None] * (pixels - below)).astype(np.uint8)


@functools.lru_cache(maxsize=64)
def _rounded(height: int, width: int, radius: float) -> np.ndarray:
    """The opacity of a rectangle with round corners, smooth at its edges."""
    y = np.abs(np.arange(height) + 0.5 - height / 2)[:, None] - (height / 2 - radius)
    x = np.abs(np.arange(width) + 0.5 - width / 2) - (width / 2 - radius)
    outside = np.hypot(np.maximum(x, 0.0), np.maximum(y, 0.0)) - radius
    return np.asarray(np.clip(0.5 - outside, 0.0, 1.0))
