"""``rotated-digits``: the embedded digits in six domains, turned by 0, 15, ..., 75 degrees: feature skew."""

from __future__ import annotations

import numpy as np

from ....checkpoints import FedscopeError
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import SPLITS, Dataset, Groups
from ..standardize import standardize
from .digits import split_digits

ANGLES = (0, 15, 30, 45, 60, 75)
#: pixels are whole multiples of 1 / STEPS, so that processors whose last bits differ store the same ones
STEPS = 256


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """The training and test samples of ``digits``, each in one domain: turned counter-clockwise by the domain's angle.

    Chosen: the angles; which sample is of which domain (:func:`domains_of`, always the same); linear interpolation
    between pixels, 0 beyond the image's edge.

    >>> data = load("")
    >>> data.x_train.shape, data.groups["domain"].names[:2]
    ((1437, 1, 8, 8), ('0 deg', '15 deg'))
    """
    if argument:
        raise FedscopeError(f"--data rotated-digits:{argument} takes no argument; give --data rotated-digits")
    arrays = split_digits()
    domains = [domains_of(arrays[f"y_{split}"]) for split in SPLITS]
    for split, domain in zip(SPLITS, domains, strict=True):
        x = arrays[f"x_{split}"]
        for number, angle in enumerate(ANGLES):
            x[domain == number] = rotate(x[domain == number], angle)
    groups = {"domain": Groups(tuple(f"{angle} deg" for angle in ANGLES), *domains)}
    return standardize("rotated-digits", "", arrays, task=task, groups=groups)


def domains_of(labels: np.ndarray) -> np.ndarray:
    """A domain for each sample, int64 [n]: each class is shuffled and dealt out to the domains in turn, so that in any
    class, and in all, two domains differ by one sample at most.

    >>> np.bincount(domains_of(np.zeros(20, int))).tolist()
    [4, 4, 3, 3, 3, 3]
    """
    mixed = np.random.default_rng(0).permutation(len(labels))
    dealt = mixed[np.argsort(labels[mixed], kind="stable")]
    domain = np.empty(len(labels), np.int64)
    domain[dealt] = np.arange(len(labels)) % len(ANGLES)
    return domain


def rotate(x: np.ndarray, angle: float) -> np.ndarray:
    """Images [n, H, W] within 0..1, turned by so many degrees about their middle."""
    from scipy.ndimage import rotate

    turned: np.ndarray = rotate(x.astype(np.float64), angle, axes=(1, 2), reshape=False, order=1)
    return (np.round(turned * STEPS) / STEPS).astype(x.dtype)


PROVIDES = load
