"""Checks that modules that were given as models answer as their weights do in the one architecture that all are
measured in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError, Layout, Model
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.wrappers import unwrap

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...evaluation.samples import Samples

#: samples that both are asked
ASKED = 4
#: how far outputs may lie apart, relative to their length: float32 rounds by 6e-8, and kernels that sum in another
#: order lie some 1e-6 apart, which is more in a deep network; a temperature of 1.01 instead of 1 is 1e-2
ROUNDING = 1e-4
#: the same in half precision, of every output and relative to the largest: bfloat16 rounds by 4e-3
HALF_ROUNDING = 2e-2
#: how far outputs of one module that is asked twice may lie apart: less, as chance may have them lie closer together
#: than those of another
REPEATED = ROUNDING / 10
#: models that the warning names
NAMED = 3


def refuse_other_functions(
    module: nn.Module,
    samples: Samples,
    models: Sequence[Model],
    given: Sequence[object],
    first: str,
    *,
    named: bool = False,
) -> None:
    """Refuse a module whose own outputs are others than the architecture's with its weights.

    What is measured is the architecture with a model's ``state_dict``. A module that computes something else with the
    same tensors (another activation, a temperature, a buffer that is not persistent) would be measured as what it is
    not. Of one that is as near as half precision rounds, a warning says how far off it is: a module may round within,
    as quantised ones do. A module that fails, answers differently each time or overflows in half precision is not
    judged here, nor one that is no module of the architecture's tensors. Only modules have a function of their own: it
    takes two passes over four samples of each, and none of addresses and state dicts.

    Args:
        module: the architecture.
        models: as they were read; given: as they were handed over, in the same order.
        first: where the architecture is from, for the sentence; named: whether it was given as ``model=``.

    Raises:
        FedscopeError: names the first of them.
    """
    import torch

    from ...evaluation.model_replica import Replica
    from ...evaluation.module_copy import refuse_borrowed

    replica: Replica | None = None
    off: dict[str, float] = {}
    for model, own in zip(models, given, strict=True):
        if not isinstance(own, torch.nn.Module) or (own := unwrap(own)) is module:
            continue
        if (copy := _copy_of(own, Layout.of(module))) is None or (theirs := _outputs(copy, samples)) is None:
            continue
        try:
            if replica is None:
                replica = Replica(module)
                refuse_borrowed(module, replica.module, replica.prepare(samples.x[:1]))
            replica.load(model.weights.parameters, model.weights.buffers)
            outputs = replica.logits(replica.prepare(samples.x[:ASKED])).double()
        except FedscopeError:
            raise
        except Exception:  # the evaluator says what is wrong
            break
        alike = outputs.shape == theirs.shape
        if alike and _is_same_function(outputs, theirs, replica.module, copy, samples):
            continue
        if not _equal(outputs, replica.logits(replica.prepare(samples.x[:ASKED])).double(), REPEATED):
            break  # the architecture answers differently each time: the evaluator says that
        again = _outputs(copy, samples)
        if again is None or not _equal(theirs, again, REPEATED):
            continue
        if alike and (_overflows(replica.module, outputs, theirs) or _overflows(copy, theirs, outputs)):
            continue
        if not alike or not _nearly(outputs, theirs):
            raise FedscopeError(
                f"{model.address} answers otherwise than its tensors do in the architecture of {first}, so it would be "
                "measured as another network than it is; give models of one class and one set of its arguments, keep "
                "what differs in a buffer (register_buffer), or ask one at a time"
                f"{' and leave model= out' if named else ''}"
            )
        off[model.address] = _apart(outputs, theirs)
    if off:
        _warn_of(off, first)


def _warn_of(off: Mapping[str, float], first: str) -> None:
    """Warn of models that are as near to the architecture as half precision rounds.

    Args:
        off: how far each is off, by its name.
    """
    most = f"{100 * max(off.values()):.2g} %"
    names, more = list(off)[:NAMED], len(off) - NAMED
    if len(off) == 1:
        said = f"{names[0]} answers {most} otherwise than its tensors do"
    else:
        listed = [*names, f"{more} more"] if more > 0 else names
        said = f"{', '.join(listed[:-1])} and {listed[-1]} answer up to {most} otherwise than their tensors do"
    warn_user(f"{said} in the architecture of {first}, which is what is measured")


def _is_same_function(outputs: Tensor, theirs: Tensor, module: nn.Module, own: nn.Module, samples: Samples) -> bool:
    """Check whether two modules of the same numbers differ by rounding alone.

    Where they lie further apart than float32 does, but no further than half precision, both are asked in float64: what
    rounding has done is gone there, also that of ``torch.autocast`` and of networks that make much of it.
    """
    if not _nearly(outputs, theirs):
        return False
    if _has_halves(module) or _has_halves(own) or _equal(outputs, theirs):
        return True
    from ...evaluation.module_copy import copy_module

    exact = [_outputs(copy_module(one, hooked=False).double(), samples) for one in (module, own)]
    # a module may compute in float32 alone
    return exact[0] is None or exact[1] is None or _equal(exact[0], exact[1])


def _has_halves(module: nn.Module) -> bool:
    values = (*module.parameters(), *module.buffers())
    return any(value.is_floating_point() and value.dtype.itemsize < 4 for value in values)


def _nearly(outputs: Tensor, theirs: Tensor) -> bool:
    """Check whether each output is the same in half precision."""
    import torch

    # of those alone that are finite: a class that is masked by -inf makes no others alike
    scale = float(torch.where(theirs.isfinite(), theirs.abs(), 0.0).max())
    return torch.allclose(outputs, theirs, rtol=HALF_ROUNDING, atol=HALF_ROUNDING * scale, equal_nan=True)


def _equal(outputs: Tensor, theirs: Tensor, within: float = ROUNDING) -> bool:
    """Check whether outputs, of which the same are finite, are the same but for rounding."""
    return outputs.shape == theirs.shape and _apart(outputs, theirs) <= within


def _apart(outputs: Tensor, theirs: Tensor) -> float:
    """Measure how far outputs lie apart, relative to the length of theirs; of those alone that are finite there."""
    there = theirs.isfinite()
    apart, length = (float(values[there].norm()) for values in (outputs - theirs, theirs))
    if not length:
        return float("inf") if apart else 0.0
    return apart / length


def _overflows(module: nn.Module, outputs: Tensor, others: Tensor) -> bool:
    """Check whether a module has outputs that half precision does not hold, where the other one's are finite; it is
    measured in float32."""
    return _has_halves(module) and not bool(outputs.isfinite()[others.isfinite()].all())


def _copy_of(own: nn.Module, layout: Layout) -> nn.Module | None:
    """Copy a module on the processor in evaluation mode; None where it has other tensors, or cannot be copied."""
    from ...evaluation.module_copy import copy_module

    try:
        return copy_module(own).cpu().eval() if set(Layout.of(own).names) == set(layout.names) else None
    except Exception:  # whatever the user's code or torch raises
        return None


def _outputs(module: nn.Module, samples: Samples) -> Tensor | None:
    """Compute the outputs of a module in its own precision; None where it fails."""
    import torch

    try:
        x = samples.x[:ASKED]
        x = x.to(next(module.parameters()).dtype) if x.is_floating_point() else x
        with torch.no_grad():
            outputs: object = module(x)
    except Exception:  # whatever the user's code or torch raises
        return None
    return outputs.double() if isinstance(outputs, torch.Tensor) and not outputs.is_complex() else None
