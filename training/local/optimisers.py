"""Local optimisers other than SGD: AdamW and Muon on flat vectors, step for step those of ``torch.optim``.

They are written out, because the first use of torch's own loads its compiler, which takes seconds, and because AdamW
also steps several clients at once, a row a client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.trainable_parameters import trains_nothing
from ..guards.returned_arrays import is_own_method
from ..rng import BESIDE
from ..settings.own_code import OwnCode, short_name
from .to_device import send

if TYPE_CHECKING:
    from ...checkpoints import Layout
    from ..methods.base import ClientMethod, ClientState
    from .local_training import LocalTask

#: what clients keep for an optimiser is called so, then its name and what it is: ``optimiser.adamw.first``
PREFIX = "optimiser."
#: those that are written out here
OWN = ("adamw", "muon")
#: β₁, β₂ and ε of AdamW, torch's defaults
BETAS, EPSILON = (0.9, 0.999), 1e-8
#: Muon's momentum, Newton-Schulz coefficients, their number of steps, and what its norm is at least: torch's defaults
MUON_MOMENTUM, NEWTON_SCHULZ, NEWTON_SCHULZ_STEPS, SMALLEST_NORM = 0.95, (3.4445, -4.7750, 2.0315), 5, 1e-7


class LocalOptimiser(Protocol):
    """Steps a client's parameters along a gradient, and holds what it needs from step to step."""

    def step(self, w: Tensor, g: Tensor, eta: Any) -> None:
        """One step of ``w`` along ``g``, in place, at the rate eta."""

    def state(self) -> Mapping[str, np.ndarray]:
        """Return what it would need to go on, by name."""


def stepper(task: LocalTask, method: ClientMethod) -> LocalOptimiser | None:
    """Make the optimiser of a client's round, with the state that the client kept; None for SGD.

    Raises:
        FedscopeError: code of the user's own that is not here, or is no optimiser.
    """
    name = method.local_optimiser
    if name == "sgd":
        return None
    bench = task.place
    kept = _kept(task.state, name) if keeps(task, method) else {}
    if name == "adamw":
        return AdamW(bench.w, method.weight_decay, kept)
    if name == "muon":
        matrices = hidden_matrices(bench.module, task.facts.head)
        return Muon(bench.w, task.facts.layout, matrices, method.weight_decay, kept)
    from .own_optimiser import OwnOptimiser, factory_of

    return OwnOptimiser(bench, factory_of(name), name, kept)


def keeps(task: LocalTask, method: ClientMethod) -> bool:
    """Check whether a client goes on with its optimiser's state: models that it trains beside begin anew."""
    return method.optimiser_state == "kept" and task.draw < BESIDE


def left_by(optimiser: LocalOptimiser | None, task: LocalTask, method: ClientMethod) -> dict[str, np.ndarray]:
    """Return what a client keeps of its optimiser for its next participation, by the names in its state."""
    if optimiser is None or not keeps(task, method):
        return {}
    return _to_all_names(optimiser.state(), state_name(method.local_optimiser), task)


def state_name(optimiser: str) -> str:
    """Return how the names of an optimiser's state begin: with the module that defines it, for two of one name are two,
    and one may be spelled in several ways.

    >>> state_name("adamw"), state_name("torch.optim:Adam(betas=(0.9, 0.95))")
    ('optimiser.adamw.', 'optimiser.torch.optim:Adam.')
    """
    if isinstance(optimiser, OwnCode):
        from .own_optimiser import defined_as

        return f"{PREFIX}{defined_as(optimiser)}."
    return f"{PREFIX}{str(optimiser).partition('(')[0]}."


def _kept(state: ClientState, optimiser: str) -> dict[str, np.ndarray]:
    """Return what a client kept of this optimiser; of another one nothing is gone on with.

    Runs of an earlier fedscope say the class alone, and are gone on with as they were. A class of a script is another
    module's once the script is imported.
    """
    own, earlier = state_name(optimiser), short_name(optimiser)
    if earlier in OWN:
        return _named(state, own)
    script = f"{PREFIX}__main__:"
    begins = [own, f"{PREFIX}{earlier}.", f"{script}{earlier}."]
    if own.startswith(script):
        modules = {name.partition(":")[0] for name in state if ":" in name}
        begins += [f"{module}:{earlier}." for module in sorted(modules)]
    return next((kept for begin in begins if (kept := _named(state, begin))), {})


def _named(state: ClientState, begin: str) -> dict[str, np.ndarray]:
    """Return what is called so, by what it is called further: a word, which a class within a class is not."""
    kept: dict[str, np.ndarray] = {}
    for name in state:
        rest = name.removeprefix(begin)
        if name.startswith(begin) and rest.isidentifier():
            value = state[name]
            assert isinstance(value, np.ndarray | np.generic)
            kept[rest] = np.asarray(value)
    return kept


def left_by_cohort(optimiser: CohortAdamW | None, task: LocalTask, method: ClientMethod) -> dict[str, np.ndarray]:
    """As :func:`left_by`, of several clients at once, a row a client."""
    if optimiser is None or not keeps(task, method):
        return {}
    return _to_all_names(optimiser.states(), state_name("adamw"), task)


def _to_all_names(state: Mapping[str, np.ndarray], begin: str, task: LocalTask) -> dict[str, np.ndarray]:
    """Name what an optimiser holds; a parameter's names hold the same."""
    bench = task.place
    whole = (bench.layout.size,)
    return {
        f"{begin}{name}": bench.to_all_names(value) if value.shape[-1:] == whole else value
        for name, value in state.items()
    }


class AdamW:
    """AdamW (Loshchilov and Hutter, ICLR 2019), as ``torch.optim.AdamW`` with its default β₁, β₂ and ε.

    ``m ← β₁ m + (1 − β₁) g``, ``v ← β₂ v + (1 − β₂) g²``; ``w ← (1 − η λ) w − η m̂/(√v̂ + ε)``, with m̂ and v̂ divided by
    1 − β₁ᵏ and 1 − β₂ᵏ at step k.
    """

    def __init__(self, w: Tensor, decay: float, kept: Mapping[str, np.ndarray]) -> None:
        self.decay = decay
        self.first, self.second = (_tensor(w, kept.get(name)) for name in ("first", "second"))
        self.steps = int(kept.get("steps", 0))

    def step(self, w: Tensor, g: Tensor, eta: Any) -> None:
        """See :class:`LocalOptimiser`."""
        self.steps += 1
        adamw(w, g, self.first, self.second, self.steps, eta, self.decay)

    def state(self) -> Mapping[str, np.ndarray]:
        """See :class:`LocalOptimiser`."""
        return {"first": _array(self.first), "second": _array(self.second), "steps": np.array(self.steps)}


def adamw(w: Tensor, g: Tensor, first: Tensor, second: Tensor, k: int, eta: float, decay: float) -> None:
    """Step k = 1, 2, ... of AdamW, in place, in the order in which torch does it."""
    beta1, beta2 = BETAS
    w.mul_(1 - eta * decay)
    first.lerp_(g, 1 - beta1)
    second.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    root = (second.sqrt() / (1 - beta2**k) ** 0.5).add_(EPSILON)
    w.addcdiv_(first, root, value=-eta / (1 - beta1**k))


class CohortAdamW:
    """:class:`AdamW` of several clients, [C, P], each with its own number of steps; those that wait stay as they
    are."""

    def __init__(self, w: Tensor, decay: float, kept: Sequence[Mapping[str, np.ndarray]]) -> None:
        self.decay = decay
        self.first, self.second = (
            torch.stack([_tensor(row, own.get(name)) for row, own in zip(w, kept, strict=True)])
            for name in ("first", "second")
        )
        self.steps = np.array([[int(own.get("steps", 0))] for own in kept])

    def step(self, w: Tensor, g: Tensor, eta: Any, active: np.ndarray) -> None:
        """One step of the clients that are ``active`` [C, 1], at the rate eta: a number, or [C, 1]."""
        self.steps = self.steps + active
        if active.all():
            self._step(w, g, self.first, self.second, self.steps, eta)
            return
        where = np.flatnonzero(active)
        rows = send(where, w.device)
        stepped, first, second = w[rows], self.first[rows], self.second[rows]
        own = eta[where] if isinstance(eta, np.ndarray) else eta
        self._step(stepped, g[rows], first, second, self.steps[where], own)
        w[rows], self.first[rows], self.second[rows] = stepped, first, second

    def _step(self, w: Tensor, g: Tensor, first: Tensor, second: Tensor, k: np.ndarray, eta: Any) -> None:
        beta1, beta2 = BETAS
        columns = (1 - eta * self.decay, (1 - beta2**k) ** 0.5, eta / (1 - beta1**k))
        together = np.stack([np.broadcast_to(values, k.shape).astype(np.float64) for values in columns])
        shrink, bias, rate = send(torch.from_numpy(together).to(w.dtype), w.device)
        w.mul_(shrink)
        first.lerp_(g, 1 - beta1)
        second.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        root = second.sqrt().div_(bias).add_(EPSILON)
        w.sub_(first.div(root).mul_(rate))

    def states(self) -> Mapping[str, np.ndarray]:
        """Return what the clients would need to go on, a row a client."""
        return {"first": _array(self.first), "second": _array(self.second), "steps": self.steps[:, 0]}


def cohort_stepper(tasks: tuple[LocalTask, ...], method: ClientMethod, w: Tensor) -> CohortAdamW | None:
    """As :func:`stepper`, of several clients at once."""
    if method.local_optimiser == "sgd":
        return None
    assert method.takes_several, "others are trained one by one"
    kept = [_kept(task.state, "adamw") if keeps(task, method) else {} for task in tasks]
    return CohortAdamW(w, method.weight_decay, kept)


class Muon:
    """Muon (Jordan et al., 2024) on the matrices of hidden layers, AdamW on everything else, as the authors advise.

    A matrix M [a, b] with its gradient G: ``B ← μ B + (1 − μ) G``, ``O`` = Newton-Schulz of (1 − μ) G + μ B,
    ``M ← (1 − η λ) M − 0.2 √max(a, b) η O``: ``torch.optim.Muon(adjust_lr_fn="match_rms_adamw")``, whose steps are as
    long as AdamW's (Liu et al., "Muon is Scalable for LLM Training", arXiv:2502.16982), so that one rate serves both.

    A convolution's kernels count as the matrix [out, rest], as in the authors' code.
    """

    def __init__(
        self,
        w: Tensor,
        layout: Layout,
        matrices: Mapping[str, tuple[int, int]],
        decay: float,
        kept: Mapping[str, np.ndarray],
    ) -> None:
        self.decay = decay
        #: momentum of the matrices and m of the rest; v of the rest
        self.first, self.second = (_tensor(w, kept.get(name)) for name in ("first", "second"))
        self.steps = int(kept.get("steps", 0))
        self._matrices = [(layout.slices[name], shape) for name, shape in matrices.items()]
        self._rest = _between(sorted(where.start for where, _ in self._matrices), self._matrices, layout.size)

    def step(self, w: Tensor, g: Tensor, eta: Any) -> None:
        """See :class:`LocalOptimiser`."""
        self.steps += 1
        for at in self._rest:
            adamw(w[at], g[at], self.first[at], self.second[at], self.steps, eta, self.decay)
        for at, shape in self._matrices:
            momentum, gradient = self.first[at].view(shape), g[at].view(shape)
            momentum.lerp_(gradient, 1 - MUON_MOMENTUM)
            orthogonal = newton_schulz(gradient.lerp(momentum, MUON_MOMENTUM))
            matrix = w[at].view(shape)
            matrix.mul_(1 - eta * self.decay)
            matrix.add_(orthogonal, alpha=-eta * 0.2 * math.sqrt(max(shape)))

    def state(self) -> Mapping[str, np.ndarray]:
        """See :class:`LocalOptimiser`."""
        return {"first": _array(self.first), "second": _array(self.second), "steps": np.array(self.steps)}


def _between(starts: list[int], matrices: list[tuple[slice, tuple[int, int]]], size: int) -> list[slice]:
    """Return what lies before, between and after the matrices in the flat vector."""
    ends = {where.start: where.stop for where, _ in matrices}
    edges = [0, *(edge for start in starts for edge in (start, ends[start])), size]
    return [slice(a, b) for a, b in list(pairwise(edges))[::2] if a < b]


def newton_schulz(matrix: Tensor) -> Tensor:
    """Return about U Vᵀ of a matrix U S Vᵀ, in bfloat16, as torch's Muon does."""
    a, b, c = NEWTON_SCHULZ
    x = matrix.bfloat16()
    tall = x.size(0) > x.size(1)
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=SMALLEST_NORM)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def hidden_matrices(module: nn.Module, head: str | None) -> dict[str, tuple[int, int]]:
    """Return the parameters that Muon steps, and their shapes as matrices: those of two dimensions or more, but for
    embeddings and the head.

    >>> hidden_matrices(nn.Sequential(nn.Conv2d(3, 8, 5), nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, 2)), "3")
    {'0.weight': (8, 75), '2.weight': (4, 8)}
    """
    tables = {
        id(value)
        for place, layer in module.named_modules(remove_duplicate=False)
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) or (head is not None and place == head)
        for value in layer.parameters(recurse=False)
    }
    # of several names of one parameter the last, whose place in the flat vector the module computes with
    found = {id(value): (name, value) for name, value in module.named_parameters(remove_duplicate=False)}
    return {
        name: (len(value), value[0].numel())
        for name, value in found.values()
        if value.dim() >= 2 and id(value) not in tables
    }


def may_need_no_gradient(method: ClientMethod) -> bool:
    """Check whether somebody's own code trains, which may do without the gradient of the task's loss: a client method
    with an objective of its own or a closed form, or an optimiser. Those of torch step along a gradient.

    >>> from fedscope.training.methods.clients.sgd import SGD
    >>> may_need_no_gradient(SGD()), may_need_no_gradient(SGD(optimiser="adamw"))
    (False, False)
    """
    if is_own_method(method):
        return True
    name = method.local_optimiser
    if not isinstance(name, OwnCode):
        return ":" in name
    from .own_optimiser import defined_as

    return not defined_as(name).startswith("torch.optim.")


def refuse_useless(method: ClientMethod, module: nn.Module, head: str | None, model: str) -> None:
    """Refuse an optimiser that does not go with a model, and a model that nothing moves, before anybody trains.

    Where :func:`may_need_no_gradient`, a model that is frozen whole is warned of instead: the client may move it
    without a gradient.

    Raises:
        FedscopeError: a model all of whose parameters are frozen; Muon, and no matrix in a hidden layer; code of the
            user's own that is not here, is no optimiser, or does not step.
    """
    if trains_nothing(module) and may_need_no_gradient(method):
        warn_user(
            f"{model} trains none of its parameters (requires_grad is False for all), so that nothing but the client's "
            "own code moves them; for gradients, set module.requires_grad_(True) where the model is made"
        )
    elif trains_nothing(module):
        raise FedscopeError(
            f"{model} trains none of its parameters (requires_grad is False for all); set it where the model is made: "
            "module.requires_grad_(True)"
        )
    if method.local_optimiser == "muon" and not hidden_matrices(module, head):
        raise FedscopeError(
            f"client.optimiser = 'muon' steps the matrices of hidden layers, and {model} has none; give --set "
            "client.optimiser=adamw"
        )
    if isinstance(method.local_optimiser, OwnCode) or ":" in method.local_optimiser:
        from .own_optimiser import refuse_other

        refuse_other(method, module)


def _tensor(w: Tensor, kept: np.ndarray | None) -> Tensor:
    if kept is None:
        return torch.zeros_like(w)
    return torch.from_numpy(np.array(kept)).to(device=w.device, dtype=w.dtype)


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.cpu().numpy()
    return array.copy() if values.device.type == "cpu" else array
