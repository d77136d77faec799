"""Outputs that a loss can be measured on, though it is hardly the one that is meant: probabilities where logits are
taken, and answers that depend on the other samples in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoints.io.warn_user import warn_user

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...checkpoints import Weights
    from ...evaluation.samples import Samples

#: samples that are asked, together and in two halves; and of probabilities
ASKED, MEASURED = 8, 100


def say_odd_outputs(module: nn.Module, samples: Samples, weights: Weights) -> list[str]:
    """Warn of a module of the user's own whose outputs for samples depend on the others in their batch, or are
    probabilities in a classification by cross-entropy.

    Returns:
        what was said, for a result's provenance.
    """
    from ...evaluation.layered_replica import replica_for

    try:
        replica = replica_for(module, samples.x[:1])
        replica.load(weights.parameters, weights.buffers)
        few = samples.limit(MEASURED)
        x = replica.prepare(few.x[:ASKED])
        together, again = (replica.logits(x).double() for _ in range(2))
        if len(x) < 2 or not _alike(together, again):
            return []  # the evaluator says that
        halves = [replica.logits(part).double() for part in (x[: len(x) // 2], x[len(x) // 2 :])]
        said = [] if _alike(together, _joined(halves)) else [_about_batches()]
        if not said and _takes_logits(samples) and _are_shares(together):
            parts = [replica.logits(replica.prepare(few.x[i : i + ASKED])) for i in range(0, len(few), ASKED)]
            said = _about_shares(_joined(parts), few)
    except Exception:  # whatever the user's code or torch raises, the evaluator says
        return []
    for sentence in said:
        warn_user(f"the module's {sentence}")
    return said


def _joined(parts: list[Tensor]) -> Tensor:
    import torch

    return torch.cat(parts)


def _alike(outputs: Tensor, others: Tensor) -> bool:
    import torch

    scale = float(torch.nan_to_num(outputs.abs()).max())
    same = outputs.shape == others.shape
    return same and torch.allclose(outputs, others, rtol=1e-3, atol=1e-3 * scale, equal_nan=True)


def _about_batches() -> str:
    return (
        "outputs for a sample depend on the others in its batch (a mean over the batch, BatchNorm without running "
        "statistics), so its losses are those of fedscope's batches, and others in other ones; give a module that "
        "answers each sample by itself"
    )


def _takes_logits(samples: Samples) -> bool:
    """Check whether the loss is the cross-entropy of a softmax of outputs [n, C]."""
    from torch import nn

    from ...evaluation.criteria import LabelCriterion
    from ...evaluation.standard_tasks import TASKS

    task = samples.task
    if isinstance(task, LabelCriterion):
        return isinstance(task.criterion, nn.CrossEntropyLoss)
    return task.has_classes and type(task) in map(type, TASKS.values())


def _are_shares(outputs: Tensor) -> bool:
    """Check whether all are from 0 to 1."""
    return (
        outputs.ndim == 2 and outputs.shape[1] > 1 and -1e-6 <= float(outputs.min()) <= float(outputs.max()) <= 1.00001
    )


def _about_shares(outputs: Tensor, samples: Samples) -> list[str]:
    """Say that outputs are probabilities: rows that sum to 1, or numbers that come close to 0 and to 1 and never go
    beyond, as sigmoids do."""
    from ...evaluation.standard_tasks import PADDED

    if not _are_shares(outputs):
        return []
    y = samples.y
    there = y != PADDED
    loss = float(samples.task.reduced(outputs, y, "mean"))
    if float((outputs.sum(dim=1) - 1).abs().max()) < 1e-4:
        right = outputs.double()[there].gather(1, y[there][:, None]).clamp(min=1e-38)
        return [
            "outputs are probabilities (each sample's sum to 1), of which the cross-entropy takes a softmax, as "
            f"nn.CrossEntropyLoss does: a loss of {loss:.4g} on {len(y)} samples, where -log p is "
            f"{float(-right.log().mean()):.4g}; for that give a module that returns logits, or log p"
        ]
    if float(outputs.min()) < 0.1 and float(outputs.max()) > 0.9:
        return [
            "outputs all lie from 0 to 1, as of a sigmoid, and the cross-entropy takes them as logits, as "
            f"nn.CrossEntropyLoss does: a loss of {loss:.4g} on {len(y)} samples; give a module without the sigmoid, "
            "or the --task that it was trained with"
        ]
    return []
