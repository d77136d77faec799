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
#: and numbers in their outputs, of which a language model has many for a sample
MOST = 2**25


def say_odd_outputs(module: nn.Module, samples: Samples, weights: Weights) -> list[str]:
    """Warn of a module of the user's own whose outputs for samples depend on the others in their batch, or are
    probabilities where the loss takes logits.

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
        if not said and (made := _takes_logits(samples)) and _are_shares(together, made):
            few = few.limit(max(ASKED, MOST // together[0].numel()))
            parts = [replica.logits(replica.prepare(few.x[i : i + ASKED])) for i in range(0, len(few), ASKED)]
            said = _about_shares(_joined(parts), few, made)
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


def _takes_logits(samples: Samples) -> str:
    """Name what a loss makes of outputs, where these are logits: "softmax" of a cross-entropy of classes, a sample's or
    at its positions, "sigmoid" of one of entries; "" of other losses."""
    from torch import nn

    from ...evaluation.criteria import EntryCriterion, LabelCriterion, PositionCriterion
    from ...evaluation.standard_tasks import TASKS, Sequences

    task = samples.task
    labels = task.labels if isinstance(task, PositionCriterion) else task
    if isinstance(labels, LabelCriterion | EntryCriterion):
        if isinstance(labels.criterion, nn.CrossEntropyLoss):
            return "softmax"
        of_entries = isinstance(labels.criterion, nn.BCEWithLogitsLoss | nn.MultiLabelSoftMarginLoss)
        return "sigmoid" if of_entries else ""
    has_classes = task.has_classes or isinstance(task, Sequences)
    return "softmax" if has_classes and type(task) in map(type, TASKS.values()) else ""


def _are_shares(outputs: Tensor, made: str) -> bool:
    """Check whether all are from 0 to 1, of classes of more than one."""
    several = made == "sigmoid" or (outputs.ndim > 1 and outputs.shape[1:].numel() > 1)
    return several and -1e-6 <= float(outputs.min()) <= float(outputs.max()) <= 1.00001


def _about_shares(outputs: Tensor, samples: Samples, made: str) -> list[str]:
    """Say that outputs are probabilities: rows that sum to 1, or numbers that come close to 0 and to 1 and never go
    beyond, as sigmoids do."""
    if not _are_shares(outputs, made):
        return []
    loss = float(samples.task.reduced(outputs, samples.y, "mean"))
    of, count = ("cross-entropy", "CrossEntropyLoss") if made == "softmax" else ("loss", _criterion_name(samples))
    measured = f"as nn.{count} does: a loss of {loss:.4g} on {len(samples.y)} samples"
    if made == "softmax" and (right := _of_probabilities(outputs, samples)) is not None:
        whose = "each position's" if samples.y.dim() > 1 and not samples.y.is_floating_point() else "each sample's"
        return [
            f"outputs are probabilities ({whose} sum to 1), of which the cross-entropy takes a softmax, {measured}, "
            f"where -log p is {right:.4g}; for that give a module that returns logits, or log p"
        ]
    if float(outputs.min()) < 0.1 and float(outputs.max()) > 0.9:
        return [
            f"outputs all lie from 0 to 1, as of a sigmoid, and the {of} takes them as logits, {measured}; give a "
            "module without the sigmoid, or the --task that it was trained with"
        ]
    return []


def _criterion_name(samples: Samples) -> str:
    from ...evaluation.criteria import EntryCriterion

    task = samples.task
    return type(task.criterion).__name__ if isinstance(task, EntryCriterion) else ""


def _of_probabilities(outputs: Tensor, samples: Samples) -> float | None:
    """Compute the mean of -log p where outputs are probabilities of classes that sum to 1, of a sample or a position;
    None of other outputs."""
    from ...evaluation.standard_tasks import PADDED

    y = samples.y
    if y.is_floating_point():  # probabilities, as the outputs
        rows, sums = outputs.double().clamp(min=1e-38), outputs.sum(dim=1)
        right = -(y * rows.log()).sum(dim=1)
    else:
        own, targets, _ = samples.task.positions(outputs[None], y)
        there = targets != PADDED
        rows, sums = own[0].double()[there], own[0].sum(dim=1)
        right = -rows.gather(1, targets[there][:, None]).clamp(min=1e-38).log()
    return float(right.mean()) if float((sums - 1).abs().max()) < 1e-4 else None
