"""Images whose axes are in another order than networks take them in. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence

#: channels of an image, at most: red, green, blue and how opaque it is
MOST_CHANNELS = 4
#: what moves the channels of a batch of images to where networks take them
MOVED = "np.moveaxis(x, 3, 1)"


def has_channels_last(shape: Sequence[int]) -> bool:
    """Check whether a sample's shape is that of an image [h, w, c], as TensorFlow and Pillow have it.

    >>> has_channels_last((32, 32, 3)), has_channels_last((3, 32, 32)), has_channels_last((3, 3, 3))
    (True, False, False)
    """
    return len(shape) == 3 and shape[2] <= MOST_CHANNELS < min(shape[:2])
