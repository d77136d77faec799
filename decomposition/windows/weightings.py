"""Windows over checkpoints and their weightings, as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.number_words import exact
from ...training.methods.shared.checkpoint_weights import SHAPES, Shape

#: β of ``ema`` where none is given
BETA = 0.9


@dataclass(frozen=True)
class Weighting:
    """How checkpoints weigh by their age; ``beta`` is that of ``ema``.

    >>> str(Weighting("linear")), str(Weighting("ema")), str(Weighting("ema", 0.5))
    ('linear', 'ema', 'ema:0.5')
    """

    shape: Shape
    beta: float = BETA

    def __str__(self) -> str:
        return self.shape if self.shape != "ema" or self.beta == BETA else f"ema:{exact(self.beta)}"


def weightings_of(given: str | Sequence[str] | None) -> tuple[Weighting, ...]:
    """``uniform,linear,ema:0.99`` as weightings; None for all shapes.

    Raises:
        FedscopeError: an unknown shape; a β that is none.

    >>> [str(one) for one in weightings_of("ema:0.99,uniform,ema:0.9")]
    ['ema:0.99', 'uniform', 'ema']
    """
    words = SHAPES if given is None else given.split(",") if isinstance(given, str) else given
    found = []
    for word in words:
        name, colon, number = str(word).strip().partition(":")
        shape = next((one for one in SHAPES if one == name), None)
        if shape is None or (colon and shape != "ema"):
            known = f"{', '.join(SHAPES)}; ema takes its β, as ema:0.99"
            raise FedscopeError(f"--weights {word} is none of {known}{nearest(name, SHAPES) if shape is None else ''}")
        found.append(Weighting(shape, _beta(number) if colon else BETA))
    return tuple(dict.fromkeys(found))


def _beta(text: str) -> float:
    try:
        beta = float(text)
    except ValueError:
        beta = 0.0
    if not 0 < beta < 1:
        raise FedscopeError(f"--weights ema:{text}: β is a number between 0 and 1, as in ema:0.99")
    return beta


def windows_over(given: str | Sequence[int | str] | None, count: int, where: str) -> tuple[int, ...]:
    """``2,4,all`` as lengths of windows over ``count`` checkpoints, ascending; None for 2, 4, 8, ... and all.

    Args:
        where: whose checkpoints, for sentences.

    Raises:
        FedscopeError: what is no number from 2 on; more than there are.

    >>> windows_over(None, 12, "ckpt"), windows_over("all,3", 12, "ckpt")
    ((2, 4, 8, 12), (3, 12))
    """
    if given is None:
        return tuple(sorted({count, *(2**k for k in range(1, count.bit_length()) if 2**k < count)}))
    words = given.split(",") if isinstance(given, str) else given if isinstance(given, Iterable) else [given]
    found = set()
    for word in words:
        text = str(word).strip()
        window = count if text == "all" else int(text) if text.isdecimal() else 0
        if window < 2:
            raise FedscopeError(
                f"--windows {text}: that is no number of checkpoints from 2 on (the newest alone is always there); "
                "write 2,4,all"
            )
        if window > count:
            raise FedscopeError(
                f"--windows {text}: {where} has {count} checkpoints; give numbers up to {count}, or all"
            )
        found.add(window)
    return tuple(sorted(found))
