"""Films: frames in the order of time, with numbers above and the gauge beside them, written as GIF or MP4."""

from __future__ import annotations

import pathlib
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from saute.core.errors import UserError
from saute.core.gauge import margin, paint

__all__ = ["GIF_FPS", "Film", "write_gif", "write_mp4"]

GIF_FPS = 50.0
"""Browsers play faster GIFs too slowly."""
EXACT_COLOURS = 32
"""Entries of a GIF's palette that are reserved for its most frequent colours."""
PAPER, INK = (247, 248, 250), (38, 45, 61)
LETTERS = 42
"""Letters of a line that fit into the width of a film."""


class Film:
    """Frames in the order of time, kept compressed, because the pictures of a whole episode are large."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self._picture: tuple[int, ...] = ()
        self._frames: list[bytes] = []

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (np.frombuffer(zlib.decompress(frame), np.uint8).reshape(self.shape) for frame in self._frames)

    def add(self, picture: object, numbers: str, levels: ArrayLike = ()) -> None:
        """One more frame: the picture, a line of numbers above it, and one bar of the gauge for each level at its left."""
        if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            kind = type(picture).__name__
            raise UserError(f"the environment renders a {kind} instead of RGB pictures of type uint8, so it cannot be watched")
        self._picture = self._picture or picture.shape
        if picture.shape != self._picture:
            raise UserError(
                f"the pictures change their size from {self._picture} to {picture.shape}; use --size to make them equal"
            )
        frame = _framed(picture, numbers, np.atleast_1d(levels))
        self.shape = frame.shape
        self._frames.append(zlib.compress(frame.tobytes(), 1))


def _framed(picture: np.ndarray, numbers: str, levels: np.ndarray) -> np.ndarray:
    """The whole picture, with the numbers and the gauge where it is not."""
    from PIL import Image, ImageDraw, ImageFont

    height, width, _ = picture.shape
    left = margin(height, width, len(levels))
    letters = max(9, min(round(0.05 * height), round((left + width) / LETTERS / 0.52)))
    top = round(1.6 * letters)
    page = Image.new("RGB", (left + width, top + height), PAPER)
    page.paste(Image.fromarray(paint(np.full((height, left + width, 3), PAPER, np.uint8), levels)), (0, top))
    page.paste(Image.fromarray(picture), (left, top))
    ImageDraw.Draw(page).text((letters // 2, top // 2), numbers, INK, ImageFont.load_default(letters), anchor="lm")
    return np.asarray(page)


def write_gif(path: pathlib.Path, film: Film, fps: float) -> None:
    """Write a GIF that repeats for ever; all frames share one palette, so that nothing flickers."""
    from PIL import Image

    every = max(1, len(film) // 16)
    sample = np.concatenate([frame for i, frame in enumerate(film) if i % every == 0])
    # Pillow rounds colours to fit a palette, which would tint the background, so the most frequent colours are kept exactly.
    codes, counts = np.unique(_code(sample), return_counts=True)
    exact = codes[np.argsort(-counts, kind="stable")[:EXACT_COLOURS]]
    rest = Image.fromarray(sample).quantize(256 - EXACT_COLOURS, Image.Quantize.FASTOCTREE).getpalette() or []
    rest += rest[:3] * (256 - EXACT_COLOURS - len(rest) // 3)
    palette = Image.new("P", (1, 1))
    palette.putpalette(rest + [int(code) >> shift & 255 for code in exact for shift in (16, 8, 0)])

    def indexed(frame: np.ndarray) -> Image.Image:
        pixels = np.array(Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE))
        code = _code(frame)
        for index, colour in enumerate(exact, start=256 - EXACT_COLOURS):
            pixels[code == colour] = index
        image = Image.fromarray(pixels)
        image.putpalette(palette.getpalette() or [])
        return image

    first, *others = map(indexed, film)
    first.save(path, save_all=True, append_images=others, duration=1000 / fps, loop=0)


def _code(frame: np.ndarray) -> np.ndarray:
    """One number per pixel, 0xRRGGBB."""
    return frame @ np.array([65536, 256, 1], np.uint32)


def write_mp4(path: pathlib.Path, film: Film, fps: float) -> None:
    """Write H.264, which every player can show; the format needs an even height and width, so edges are repeated."""
    import imageio_ffmpeg

    height, width = (side + side % 2 for side in film.shape[:2])
    sink = imageio_ffmpeg.write_frames(str(path), (width, height), fps=fps, quality=8, macro_block_size=2)
    try:
        with warnings.catch_warnings():
            # JAX warns of every fork, but this one only starts ffmpeg.
            warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
            sink.send(None)
    except RuntimeError as problem:
        raise UserError(f"cannot write an MP4: {problem}; choose a file --out NAME.gif") from problem
    for frame in film:
        padding = ((0, height - frame.shape[0]), (0, width - frame.shape[1]), (0, 0))
        sink.send(np.ascontiguousarray(np.pad(frame, padding, mode="edge")))
    sink.close()
