"""Some test samples in the scale that a data set has them in, and the same in others that a model may have learnt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...evaluation.uint8_images import Uint8Images
from .given_scale import as_given, standardised_as_given

if TYPE_CHECKING:
    from ...evaluation.samples import Samples
    from .. import Dataset

#: training samples that say a scale, at most, and numbers in them; large images have many pixels each
SCALED_BY, NUMBERS = 2000, 1 << 24
#: the greatest byte; whole numbers above the other one that are no more than it are pixels
PIXEL, COUNTS = 255, 16


@dataclass(frozen=True, eq=False)
class OtherScale:
    """The same samples in another scale.

    Attributes:
        words: how they are there, after "the same".
        asked: whether an option asks for it, ``--standardise`` or ``--no-standardise``.
        axes: whether their axes are other ones, and their numbers the same.
    """

    samples: Samples
    words: str
    asked: bool
    axes: bool = False


def asked_scale(dataset: Dataset, samples: Samples) -> OtherScale | None:
    """Return samples as they are of a data set that is standardised, and standardised of one that is not; None where
    there is no other scale: tokens, and no training samples to standardise by."""
    train = len(dataset.y_train)
    if not samples.x.is_floating_point() or not (dataset.means or train):
        return None
    rows = np.arange(0)
    if not dataset.means:  # undoing it takes none
        count = min(train, SCALED_BY, max(50, NUMBERS // prod(dataset.shape)))
        rows = np.sort(np.random.default_rng(0).choice(train, count, replace=False))
    few = replace(
        dataset,
        x_train=np.asarray(dataset.x_train[rows]),
        y_train=dataset.y_train[rows],
        x_test=np.asarray(samples.x),
        y_test=samples.y.numpy(),
    )
    if dataset.means:
        return OtherScale(_with(samples, as_given(few).x_test), "as they are", True)
    whole = isinstance(dataset.x_test, Uint8Images)  # bytes of a file, which have one scale in all where they are rows
    other = standardised_as_given(few, whole=whole)
    return OtherScale(_with(samples, other.x_test), "standardised by the training split", True)


def usual_scales(dataset: Dataset, samples: Samples) -> Iterator[OtherScale]:
    """Yield samples in the scales that pixels usually have: 0 to 1, -1 to 1, 0 to 255, and standardised by themselves
    where there are no training samples.

    Only of numbers from 0 on, or from -1 to 1: those that are standardised already are neither, whatever they were
    drawn from.

    Args:
        samples: of the data set, as they are measured.
    """
    if not samples.x.is_floating_point():
        return
    given = asked_scale(dataset, samples) if dataset.means else None
    x = np.asarray(samples.x if given is None else given.samples.x)
    # what was standardised and undone is off by rounding
    greatest, slack = float(x.max()), 1e-5 * float(np.abs(x).max())
    if max(abs(float(x.min()) + 1), abs(greatest - 1)) <= slack:
        yield OtherScale(_with(samples, (x + 1) / 2), "from 0 to 1", False)
    if float(x.min()) < -slack or not greatest > 0.5:
        return
    unit = x if greatest <= 1 + slack else None
    if unit is None and greatest <= PIXEL + slack:
        whole = np.allclose(x, np.round(x), atol=1e-4)
        if (top := PIXEL if greatest > COUNTS else round(greatest) if whole else 0) > 0:
            unit = x / np.float32(top)
            yield OtherScale(_with(samples, unit), f"divided by {top}", False)
    elif unit is not None and np.allclose(PIXEL * x, np.round(PIXEL * x), atol=1e-2):
        yield OtherScale(_with(samples, x * np.float32(PIXEL)), f"from 0 to {PIXEL}", False)
    if unit is not None:
        yield OtherScale(_with(samples, 2 * unit - 1), "from -1 to 1", False)
    if not len(dataset.y_train) and not dataset.means:
        alone = replace(dataset, x_train=x, y_train=samples.y.numpy(), x_test=x, y_test=samples.y.numpy())
        yield OtherScale(_with(samples, standardised_as_given(alone).x_test), "standardised by themselves", False)


def other_axes(samples: Samples) -> Iterator[OtherScale]:
    """Yield images as measured with their channels last, or first, and with rows and columns exchanged: in the shape
    that they have, so that networks take them which make a vector of an image.
    """
    x = np.asarray(samples.x)
    if not samples.x.is_floating_point() or x.ndim not in (3, 4):
        return
    if x.ndim == 4 and min(x.shape[1], x.shape[3]) in (2, 3, 4):
        first = x.shape[1] <= 4
        moved = np.moveaxis(x, 1, 3) if first else np.moveaxis(x, 3, 1)
        words = f"with the channels {'last' if first else 'first'} where an image is made a vector"
        yield OtherScale(_with(samples, np.ascontiguousarray(moved).reshape(x.shape)), words, False, True)
    if x.shape[-1] == x.shape[-2]:
        yield OtherScale(_with(samples, np.swapaxes(x, -1, -2)), "with rows and columns exchanged", False, True)


def _with(samples: Samples, x: np.ndarray | Uint8Images) -> Samples:
    import torch

    return replace(samples, x=torch.from_numpy(np.ascontiguousarray(x, np.float32)))
