"""Checks that modules that were given as models answer as their weights do in the one architecture that all are
measured in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError, Layout, Model

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...evaluation.samples import Samples

#: samples that both are asked
ASKED = 4


def refuse_other_functions(
    module: nn.Module, samples: Samples, models: Sequence[Model], given: Sequence[object], first: str
) -> None:
    """Refuse a module whose own outputs are others than the architecture's with its weights.

    What is measured is the architecture with a model's ``state_dict``. A module that computes something else with the
    same tensors (another activation, a temperature, a buffer that is not persistent) would be measured as what it is
    not. A module that fails, or that is no module of the architecture's tensors, is not judged here.

    Args:
        module: the architecture.
        models: as they were read; given: as they were handed over, in the same order.
        first: where the architecture is from, for the sentence.

    Raises:
        FedscopeError: names the first of them.
    """
    import torch

    from ...evaluation.model_replica import Replica
    from ...evaluation.module_copy import refuse_borrowed

    replica: Replica | None = None
    for model, own in zip(models, given, strict=True):
        if not isinstance(own, torch.nn.Module) or own is module:
            continue
        if (theirs := _own_outputs(own, samples, Layout.of(module))) is None:
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
            return
        if outputs.shape == theirs.shape and _alike(outputs, theirs):
            continue
        if not _alike(outputs, replica.logits(replica.prepare(samples.x[:ASKED])).double()):
            return  # the architecture answers differently each time: the evaluator says that
        raise FedscopeError(
            f"{model.address} answers otherwise than its tensors do in the architecture of {first}, so it would be "
            "measured as another network than it is; give models of one class and one set of its arguments, keep what "
            "differs in a buffer (register_buffer), or ask one at a time"
        )


def _alike(outputs: Tensor, theirs: Tensor) -> bool:
    import torch

    scale = float(torch.nan_to_num(theirs.abs()).max())
    # float32 against half precision, which modules may be in
    return torch.allclose(outputs, theirs, rtol=2e-2, atol=2e-2 * scale, equal_nan=True)


def _own_outputs(own: nn.Module, samples: Samples, layout: Layout) -> Tensor | None:
    """Compute the outputs of a module itself in evaluation mode, its own state left as it is; None where it does
    not."""
    import torch

    from ...evaluation.module_copy import copy_module

    try:
        if Layout.of(own).names != layout.names:
            return None
        copy = copy_module(own).cpu().eval()
        x = samples.x[:ASKED]
        x = x.to(next(copy.parameters()).dtype) if x.is_floating_point() else x
        with torch.no_grad():
            outputs: object = copy(x)
    except Exception:  # whatever the user's code or torch raises
        return None
    return outputs.double() if isinstance(outputs, torch.Tensor) and not outputs.is_complex() else None
