"""How pictures are encoded, as sizes: the layers of filters, and how many numbers go in and come out."""

from __future__ import annotations

import math

__all__ = ["Image", "check_image", "encoded_size", "layers_of", "pixels_of"]

Image = tuple[int, int, int] | None
"""Height, width and channels of the picture that an observation begins with; None if it has none."""
LARGE = ((16, 8, 4), (32, 4, 2), (32, 3, 1))
"""Filters, their side and their stride, layer by layer (Mnih et al. 2015, with half of the filters)."""
SMALL = ((16, 4, 2), (32, 3, 2))
FROM, LEAST = 48, 8
"""Side of a picture from which on the encoder is the large one; and the least side, for which the small one has one feature."""


def pixels_of(image: Image) -> int:
    """How many of the first observations are pixels."""
    return 0 if image is None else math.prod(image)


def check_image(image: Image, observations: int) -> None:
    """Refuse pictures that are too small for the encoder, or that do not fit into the observations."""
    if image is None:
        return
    if min(image[:2]) < LEAST:
        height, width, _ = image
        raise ValueError(
            f"pictures of {height}×{width} are below the encoder's minimum of {LEAST}×{LEAST}; enlarge them, or leave "
            "image=None to take their pixels as plain numbers"
        )
    if pixels_of(image) > observations:
        raise ValueError(f"image={image} has {pixels_of(image)} pixels, but there are only {observations} observations")


def layers_of(image: Image) -> tuple[tuple[int, int, int], ...]:
    """Filters, side and stride of each layer of the encoder; none without a picture."""
    return () if image is None else LARGE if min(image[:2]) >= FROM else SMALL


def encoded_size(inputs: int, image: Image) -> int:
    """How many numbers the encoder makes of so many inputs: the features of the picture, and all that is not picture."""
    if image is None:
        return inputs
    height, width, _ = image
    layers = layers_of(image)
    for _, side, stride in layers:
        height, width = (height - side) // stride + 1, (width - side) // stride + 1
    return height * width * layers[-1][0] + inputs - pixels_of(image)
