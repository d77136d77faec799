"""Whether torch's second derivatives of a network are those of its loss, asked on a few samples before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...checkpoints import FedscopeError
from ...checkpoints.io.warn_user import warn_user

#: samples on which it is asked, and directions
FEW, DIRECTIONS = 4, 3
#: a share that no rounding explains: of float64 it is below 1e-8, of a network that computes in float32 below 1e-3
ROUNDING = 1e-2
#: of two finite differences that are one, as a share; steps as shares of the parameters' root mean square, so short
#: that nearly no kink lies within them and so long that rounding is below 1e-7 of what they give
ALIKE, STEPS = 1e-3, (1e-7, 3e-7)
#: how far beside the model it is asked, as such a share: a model may begin at kinks of its gradient, as of ELU at 0, on
#: whose two sides differences are others; so far that the steps do not lead back to them
BESIDE = 1e-4


class PlainWeightNorm(TorchFunctionMode):
    """Weight normalization w = v g / |v| by plain operations, while this is entered.

    The second derivative of torch's own (``torch._weight_norm``, in both of its forms) is wrong: it is not symmetric.

    Attributes:
        met: whether there was any.
    """

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") != "_weight_norm":
            return func(*args, **(kwargs or {}))
        self.met = True
        return _weight_norm(*args, **(kwargs or {}))


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    return v * (g / torch.norm_except_dim(v, 2, dim))


def check_products(
    name: str,
    vectors: np.ndarray,
    products: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray] | None = None,
    scale: float = 1.0,
) -> None:
    """Refuse products H v of a matrix that is not symmetric, and warn of one that is not the gradient's derivative.

    The latter is what a gradient that is another by intention has. Kinks, as of ReLU and max-pooling, are neither:
    second derivatives beside them are symmetric, and differences across one are of another size with another step.

    Args:
        name: of the network, in sentences.
        vectors: v, +-1 in what derivatives are taken in, else 0, [K, P].
        products: [K, P].
        gradient: at the parameters plus so much, [P], in float64; None asks for symmetry alone.
        scale: the size of a parameter.

    Raises:
        FedscopeError: it is not symmetric.

    >>> v, hessian = np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[2.0, 1.0], [1.0, 0.0]])
    >>> check_products("Net", v, v @ hessian, lambda moved: hessian @ moved)
    >>> check_products("Net", v, v @ np.array([[2.0, 1.0], [0.0, 0.0]]))
    Traceback (most recent call last):
    fedscope.checkpoints.io.errors.FedscopeError: torch's second derivative of the Net is wrong, ...
    """
    if not np.isfinite(products).all():  # which measuring it says
        return
    both, length = vectors @ products.T, np.linalg.norm(products, axis=1)
    if (abs(both - both.T) > ROUNDING * np.maximum(length[:, None], length)).any():
        raise FedscopeError(
            f"torch's second derivative of the {name} is wrong, for its matrix is not symmetric, as behind an "
            "autograd.Function whose backward cannot be differentiated again; write that in torch's own operations, or "
            "leave the Hessian out (--no-hessian)"
        )
    pairs = zip(vectors, products, strict=True)
    if gradient is not None and all(_differs(v, product, gradient, scale) for v, product in pairs):
        warn_user(
            f"the Hessian of the {name} is not that of its loss: gradients nearby differ by something else, as behind "
            "detach(), a straight-through gradient or an autograd.Function that saves what it has computed; write that "
            "in torch's own operations, or leave the Hessian out (--no-hessian)"
        )


def _differs(v: np.ndarray, product: np.ndarray, gradient: Callable[[np.ndarray], np.ndarray], scale: float) -> bool:
    """Check whether two central differences of gradients along v are the same, and not H v."""
    sides = [(gradient(step * scale * v), gradient(-step * scale * v), 2 * step * scale) for step in STEPS]
    near, far = ((above - below) / width for above, below, width in sides)
    length = float(np.linalg.norm(near))
    # of a Hessian of 0 what is left is rounding, whatever its steps
    least = 1e-6 * float(np.linalg.norm(sides[0][0])) / scale
    return bool(
        0 < length < np.inf
        and np.linalg.norm(near - far) <= ALIKE * length
        and np.linalg.norm(near - product) > max(ROUNDING * max(length, float(np.linalg.norm(product))), least)
    )
