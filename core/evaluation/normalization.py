"""Running statistics (BatchNorm) of models that are combinations of a few.

Parameters are combined; running means and variances are no parameters, and a combination of them is not what the
combined model would have measured itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..checkpoints import FedscopeError, Model, Weights
from .calibration_batches import calibration_batches
from .uint8_images import Inputs
from .unlike_buffers import Answers, statistics_names, unlike_buffers

if TYPE_CHECKING:
    from .model_replica import Replica
    from .samples import Samples

#: how a combination gets its statistics
POLICIES = ("interpolate", "re-estimate", "keep")

#: samples on which it is tried out whether outputs depend on a buffer
TRIED = 256


@dataclass(frozen=True, eq=False)
class Normalization:
    """The policy by which points of a surface get their normalization statistics.

    Attributes:
        policy: ``interpolate``: combined like the parameters, running variances not below 0; ``keep``: the first
            model's; ``re-estimate``: measured anew on ``x``, as Izmailov et al., "Averaging Weights Leads to Wider
            Optima and Better Generalization", UAI 2018, section 3.2, do for an average; ``none``: the module has none.
            Statistics that cannot be measured, of instance normalization, are interpolated then.
        x: inputs as the evaluator keeps them, [n, ...], for ``re-estimate``.
        calibration: the samples that these are of.
        statistics: the buffers that are such statistics, by name.
        others: floating buffers besides them that differ between the models; they are combined like the parameters,
            whatever the policy.
    """

    policy: str
    x: Tensor | None = None
    calibration: Samples | None = None
    statistics: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()

    @property
    def leaves_own(self) -> bool:
        """True if a model keeps its own statistics, being the combination that has a share of 1 of it alone."""
        return self.policy in ("none", "interpolate")

    def combined(self, bases: Sequence[Weights]) -> frozenset[str]:
        """Name the buffers that a combination of models combines; all others are the first model's. Directions have
        none."""
        names = frozenset(self.others) | (frozenset() if self.policy == "keep" else self.statistics)
        # looked at where there are any alone: a stored model may be read for it
        return names if names and all(base.buffers.keys() >= names for base in bases) else frozenset()

    def cut_variances(
        self, bases: Sequence[Weights], points: Iterable[Sequence[float]], names: Collection[str] | None = None
    ) -> dict[str, int]:
        """Count the combinations Σ_j c_j w_j with a running variance below 0, which is taken as 0, for the attributes
        of a result; nothing where there are none.

        Args:
            points: c of each.
            names: of what is combined; None: all that the policy combines.
        """
        if self.policy != "interpolate" or not (beyond := [c for c in points if min(c) < 0]):
            return {}
        combined = self.combined(bases) if names is None else names
        held = [name for name in bases[0].buffers if name in combined and name.endswith("running_var")]
        values = [np.concatenate([[0.0], *(np.ravel(base.buffers[name]) for name in held)]) for base in bases]
        count = sum(bool((np.tensordot(np.asarray(c), values, 1) < 0).any()) for c in beyond)
        return {"cut_variances": count} if count else {}

    def among(
        self, models: Sequence[Model], answers: Callable[[Weights, int], np.ndarray], what: str = "between them"
    ) -> Normalization:
        """Add which buffers besides the statistics differ between models.

        Args:
            answers: the evaluator's.
            what: where a model would have to lie that cannot, for a sentence.

        Raises:
            FedscopeError: masks or whole numbers that differ; see :func:`~.unlike_buffers.unlike_buffers`.
        """
        outputs: Answers = lambda model: answers(model, TRIED)  # noqa: E731
        found = unlike_buffers(models, self.statistics, outputs, what)
        return replace(self, others=tuple(dict.fromkeys((*self.others, *found))))

    def provenance(self, kept_from: str, *, directions: bool = False) -> dict[str, Any]:
        """Give the attributes of a result that go with the policy: the samples measured on, or whose statistics were
        kept; and what became of other buffers.

        Args:
            directions: whether points lie along directions, which have no buffers.
        """
        said: dict[str, Any] = {}
        if self.others:
            said = {"other_buffers": list(self.others), **({"other_buffers_of": kept_from} if directions else {})}
        if self.policy == "keep" and self.statistics:
            said["statistics_of"] = kept_from
        if self.calibration is not None:
            said |= {"calibration_samples": len(self.calibration), "calibration_split": self.calibration.split}
        return said

    @classmethod
    def of(
        cls,
        module: nn.Module,
        buffers: Mapping[str, np.ndarray],
        policy: str,
        calibration: Samples | None,
        prepare: Callable[[Inputs], Inputs],
    ) -> Normalization:
        """Resolve the policy for a module, ``none`` where its models keep no statistics; ``prepare`` is the
        evaluator's.

        Raises:
            FedscopeError: an unknown policy; ``re-estimate`` without two samples, or without a layer that could.
        """
        if policy not in POLICIES:
            raise FedscopeError(f"normalization {policy!r} is unknown; take one of {', '.join(POLICIES)}")
        names = statistics_names(module) & buffers.keys()
        if not any(np.asarray(buffers[name]).dtype.kind == "f" for name in names):
            return cls("none")
        if policy != "re-estimate":
            return cls(policy, statistics=names)
        if not statistics_of(module):
            raise FedscopeError(
                "the model's statistics are in no BatchNorm layer, so they cannot be measured again; "
                "take --normalization interpolate or keep"
            )
        if calibration is None:
            raise FedscopeError("re-estimated statistics need inputs to measure them on; give calibration samples")
        if len(calibration) < 2:  # one sample has no variance
            raise FedscopeError(
                f"re-estimated statistics need at least 2 samples, but got {len(calibration)}; "
                "give --limit 2 or more, or more calibration samples"
            )
        return cls(policy, prepare(calibration.x)[:], calibration, names)


def statistics_of(module: nn.Module) -> list[_BatchNorm]:
    """Find the layers of a module that keep running statistics."""
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.running_mean is not None]


def re_estimate(module: nn.Module, x: Tensor) -> None:
    """Set a module's running statistics to the mean over batches of ``x`` of what each batch has.

    The batches are those of :func:`~.calibration_batches.calibration_batches`, so that the order of ``x`` makes no
    difference but that of a draw; other layers stay in evaluation mode, so dropout does not act.

    >>> layer = nn.BatchNorm1d(1).eval()
    >>> re_estimate(layer, torch.tensor([[1.0], [3.0]]))
    >>> layer.running_mean.tolist(), layer.running_var.tolist()
    ([2.0], [2.0])
    """
    layers = statistics_of(module)
    before = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a cumulative mean
        layer.train()
    try:
        with torch.no_grad():
            batches = calibration_batches(len(x))
            for batch in batches:
                at = torch.from_numpy(batch).to(x.device)
                # into an empty one like it, which keeps the channels of a pixel side by side
                module(x if len(batches) == 1 else torch.index_select(x, 0, at, out=torch.empty_like(x[: len(at)])))
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum
            layer.eval()


@dataclass(frozen=True, eq=False)
class Points:
    """Point i is Σ_j c_j(i) w_j: of a line two models, of a plane three, or one and two directions.

    Attributes:
        bases: w_j, [P] each; directions are float64 and have no buffers.
        coefficients: c(i), one number a base.
        normalization: where the statistics of a combination come from.
    """

    bases: Sequence[Weights]
    coefficients: Callable[[int], Sequence[float]]
    normalization: Normalization

    def combined(self) -> Collection[str]:
        """Name the buffers that are combined."""
        return self.normalization.combined(self.bases)

    def interpolate_into(self, i: int, replica: Replica) -> None:
        """Write point i into a worker's replica."""
        replica.combine(self.bases, self.coefficients(i), buffers=self.combined())
        self.re_estimate(replica)

    def load(self, model: Weights, replica: Replica) -> None:
        """Write a model itself, with buffers of the same policy: what the surface has where the model lies on it."""
        buffers = model.buffers
        if not self.normalization.leaves_own:
            names = self.combined()
            first = {name: values for name, values in self.bases[0].buffers.items() if name not in names}
            buffers = {**buffers, **first}
        replica.load(model.parameters, buffers)
        self.re_estimate(replica)

    def re_estimate(self, replica: Replica) -> None:
        """Measure the statistics of a worker's present model, where that is the policy."""
        if self.normalization.policy == "re-estimate" and self.normalization.x is not None:
            replica.re_estimate(self.normalization.x)
