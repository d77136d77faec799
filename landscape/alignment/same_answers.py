"""Whether a network answers what it did once its units are permuted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from .groups import Specification

#: how far a sample's answers may change, as a share of what answers are usually: sums in another order round otherwise.
#: Layers of a network in float64 may compute in float32, too, and those in half precision round by a hundredth
SAME, SAME_OF_HALF = 1e-3, 0.1
#: of so many samples one may answer otherwise: where one of two equals is chosen (an expert), rounding may choose
EQUALS = 1000
#: samples at a time: three answers of a language model to them are held
FEW = 100
#: names of parameters in a sentence
FEW_NAMES = 3
OTHERWISE = "align other models, or ask without aligning them"

Call = Callable[[Tensor], Any]


def refuse_other_answers(own: nn.Module, moved: nn.Module, x: Tensor, label: str, specification: Specification) -> None:
    """Refuse a network that answers otherwise with its units permuted: on other samples than those with which its units
    were followed it may compute by other layers.

    Args:
        x: inputs; label: of the network.

    Raises:
        FedscopeError: names the layers that were not met then.
    """
    others = count_others(own, moved, torch.split(x, FEW), tolerance(own))
    if others <= (0 if specification.unmet else len(x) // EQUALS):
        return
    why = unmet_words(specification) or "it may compute by the values of its weights"
    raise FedscopeError(
        f"{label} answers otherwise on {others:,} of {len(x):,} samples when its units are permuted, so its layers "
        f"cannot be aligned: {why}; {OTHERWISE}"
    )


def unmet_words(specification: Specification) -> str:
    """Say which parameters were not met when units were followed; "" where all were."""
    unmet = specification.unmet
    many = f" ({len(unmet):,} in all)" if len(unmet) > FEW_NAMES else ""
    return f"its first samples do not reach {list_few(unmet, most=FEW_NAMES)}{many}" if unmet else ""


def tolerance(module: nn.Module) -> float:
    """Return how far answers of a module may change by rounding, as a share of what they are.

    >>> tolerance(nn.Linear(2, 2)), tolerance(nn.Linear(2, 2).bfloat16())
    (0.001, 0.1)
    """
    coarse = [one.dtype for one in module.parameters() if one.is_floating_point() and one.dtype.itemsize < 4]
    return SAME_OF_HALF if coarse else SAME


def count_others(before: Call, after: Call, batches: Iterable[Tensor], share: float) -> int:
    """Count the samples to which two calls answer otherwise, by more than a share of what answers are in the root of
    the mean square. Samples to which the first answers no finite numbers are left out.
    """
    apart, own = list[Tensor](), list[Tensor]()
    with torch.no_grad():
        for x in batches:
            one, two = (_rows(first_tensor(call(x)), len(x)) for call in (before, after))
            own.append(torch.linalg.vector_norm(one, dim=1).double().cpu())
            apart.append(torch.linalg.vector_norm(one - two, dim=1).double().cpu())
    norms, differences = torch.cat(own), torch.cat(apart)
    known = norms.isfinite()
    usual = float(norms[known].square().mean().sqrt()) if known.any() else 0.0
    # not >, which is not true of NaN
    return int((~(differences[known] <= share * usual)).sum())


def _rows(answers: Tensor, samples: int) -> Tensor:
    """Answers as a row a sample; as one row where they are none of samples."""
    answers = answers if answers.dtype in (torch.float32, torch.float64) else answers.float()
    one_each = answers.dim() > 0 and len(answers) == samples
    return answers.reshape(samples if one_each else 1, -1)


def first_tensor(outputs: Any) -> Tensor:
    """Return the first tensor of outputs."""
    while not isinstance(outputs, Tensor):
        outputs = fields_of(outputs)
        outputs = next(iter(outputs.values() if isinstance(outputs, dict) else outputs))
    return outputs


def fields_of(outputs: Any) -> Any:
    """Return outputs as a tree: of a class of its own its fields."""
    return vars(outputs) if hasattr(outputs, "__dict__") and not isinstance(outputs, Tensor | dict) else outputs
