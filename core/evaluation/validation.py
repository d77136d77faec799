"""Validation: that models fit each other, the module and the data, before anything is computed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..checkpoints import FedscopeError, Layout, Model
from ..checkpoints.io.errors import list_few
from .accelerators import is_out_of_memory, refuse_without_memory
from .criteria import LabelCriterion
from .image_axes import MOVED, has_channels_last
from .layered_replica import replica_for
from .model_replica import Replica
from .module_copy import refuse_borrowed
from .samples import Samples
from .standard_tasks import Classification, is_own_task
from .tasks import Task
from .uint8_images import Inputs

#: of torch's sentences where tensors of several types meet
_TYPES = re.compile(r"dtype|scalar type|Double|Float")

#: samples on which a module must answer the same twice
TRIED = 8


def refuse_shapeless(module: nn.Module) -> None:
    """Refuse a module that has no parameters to vary, not yet, or none that are real numbers.

    Raises:
        FedscopeError: no parameters, and what :func:`refuse_unreadable` refuses.
    """
    if next(module.parameters(), None) is None:
        raise FedscopeError("the module has no parameters, so it has no loss surface; give one that can be trained")
    refuse_unreadable(module)


def refuse_unreadable(module: nn.Module, whose: str = "the module's ") -> None:
    """Refuse a module whose parameters hold no real numbers, or cannot be put in place.

    Args:
        whose: begins the sentence; the name of a parameter follows.

    Raises:
        FedscopeError: one compiled by torch.jit; lazy tensors, sparse ones, or those of the meta device; parameters
            that are whole or complex numbers.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise FedscopeError(
            f"a {type(module).__name__} is compiled by torch.jit, which lets no weights be put in their place; give "
            "the module that it was made from"
        )
    refuse_numberless((*module.named_parameters(), *module.named_buffers()), whose)
    for name, values in module.named_parameters():
        kind = str(values.dtype).removeprefix("torch.")
        if values.is_complex():
            raise FedscopeError(
                f"{whose}{name} is {kind}, and a loss surface is over real numbers; keep the real and the "
                "imaginary parts as parameters (torch.view_as_real)"
            )
        if not values.is_floating_point():
            raise FedscopeError(
                f"{whose}{name} is a parameter of type {kind}, and only floats can be varied; keep it as a buffer "
                "(register_buffer)"
            )


def refuse_numberless(tensors: Iterable[tuple[str, Any]], whose: str) -> None:
    """Refuse tensors by name that hold no numbers, or none in place.

    Raises:
        FedscopeError: lazy tensors, sparse ones, or those of the meta device.
    """
    for name, values in tensors:
        if not isinstance(values, Tensor):
            continue
        if is_lazy(values):
            raise FedscopeError(
                f"{whose}{name} has no shape yet; name its sizes (nn.Linear for nn.LazyLinear), or call the "
                "module once on a sample first"
            )
        if values.is_meta:
            raise FedscopeError(
                f"{whose}{name} is on the meta device, which keeps no numbers; make the module on the CPU"
            )
        if values.layout is not torch.strided:
            raise FedscopeError(f"{whose}{name} is a sparse tensor; give it dense ({name}.to_dense())")


def same_layout(models: Sequence[Model]) -> None:
    """Refuse models that do not have the same parameters and buffers.

    Raises:
        FedscopeError: the first two that differ, and where.
    """
    for model in models[1:]:
        difference = models[0].weights.layout.difference(model.weights.layout)
        if difference is not None:
            raise FedscopeError(
                f"{models[0].label} and {model.label} are models of different architectures: {difference}; "
                "a line or a plane needs models with the same layout"
            )


def same_model(one: Model, other: Model) -> str | None:
    """Say of two models of one layout that nothing lies between them, their parameters being the same; None where they
    differ."""
    a, b = one.weights, other.weights
    if not np.array_equal(a.parameters, b.parameters):
        return None
    unlike = [name for name in a.buffers if not np.array_equal(a.buffers[name], b.buffers[name])]
    if unlike:
        return f"{one.label} and {other.label} differ in buffers alone ({list_few(unlike, 3)}; distance 0)"
    return f"{one.label} and {other.label} are the same model (distance 0)"


def fits_module(layout: Layout, models: Sequence[Model]) -> None:
    """Refuse models whose parameters are not the module's.

    Raises:
        FedscopeError: the first that does not fit, and where.
    """
    for model in models:
        difference = layout.difference(model.weights.layout)
        if difference is not None:
            raise FedscopeError(f"{model.label} does not fit the module: {difference}; build the module it was made by")


def try_out(replica: Replica, data: Sequence[tuple[Samples, Inputs, Tensor]]) -> None:
    """Refuse a module that does not fit the data (samples, inputs and targets as evaluated), or is no function of them.

    Raises:
        FedscopeError: it fails on the data, returns other than a tensor that the task takes ([n, classes]), or not the
            same twice; it computes with weights that are not its own; data of one class, on which loss and error are 0
            whatever is answered; a task of the user's own that gives no loss a sample.
    """
    for part, x, y in data:
        _fitting(replica, x[:2], part)
        if is_own_task(part.task):
            few = min(len(x), 2)
            outputs = _answer(replica, x[:few], part)
            with refuse_without_memory(str(replica.device), f"try out the task {part.task.name} on {part.label}"):
                try_task(part.task, outputs, y[:few], part.label)
                refuse_mixing(part.task, _answer(replica, x[:TRIED], part), y[:TRIED], part.label)
    part, x, _ = data[0]
    with refuse_without_memory(str(replica.device), f"try out the module on {part.label}"):
        refuse_borrowed(replica.original, replica.module, x[:1])
    once, again = (_answer(replica, x[:TRIED], part).cpu().double() for _ in range(2))
    # a GPU may round a sum differently the second time; dropout changes it by far more
    scale = float(torch.nan_to_num(once.abs()).max())
    if not torch.allclose(once, again, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
        raise FedscopeError(
            "the module returns different outputs for the same input, so it has no loss surface; "
            "switch its randomness off in evaluation mode (functional.dropout wants training=self.training)"
        )


def with_outputs(module: nn.Module, samples: Samples) -> Samples:
    """Samples whose number of classes is that of a module's outputs, where their own is counted by their labels.

    Raises:
        FedscopeError: as :func:`try_out`, where the module fails or does not fit.
    """
    if not samples.classes_seen:
        return samples
    refuse_shapeless(module)
    replica = replica_for(module, samples.x[:1])
    outputs = _fitting(replica, replica.prepare(samples.x[:2]), samples)
    found = samples.task.classes_of(outputs, samples)
    return samples if found is None else replace(samples, classes=found, classes_seen=False)


def _fitting(replica: Replica, two: Tensor, part: Samples) -> Tensor:
    """Return the outputs of the first of two samples (of one where there is no other), which fit the task.

    Raises:
        FedscopeError: they do not, or the module takes no sample alone. Any analysis may give it one: the last of a
            data set is alone in its batch where their number wants it.
    """
    try:
        outputs = _answer(replica, two[:1], part)
        part.task.fit(outputs, part)
    except FedscopeError as error:
        try:
            together = _answer(replica, two, part)
            part.task.fit(together[:1], part)
        except Exception:  # what it fails with on one is said
            raise error from error.__cause__
        if len(together) < 2:
            raise
        if error.__cause__ is not None:
            raise FedscopeError(_not_alone(part, error.__cause__)) from error.__cause__
        raise FedscopeError(
            f"the module returns outputs of shape {list(outputs.shape)} for one sample of {part.label} and "
            f"{list(together.shape)} for two, as .squeeze() does, which takes the axis of samples away where there is "
            "one; write .flatten(1) in its place"
        ) from None
    return outputs


def _not_alone(part: Samples, error: BaseException) -> str:
    """Say that a module takes two samples and no single one."""
    begin = f"the module takes two samples of {part.label} and fails on one"
    if "more than 1 value per channel" in str(error):
        return (
            f"{begin}: a batch normalization without running statistics takes mean and variance of the batch, and one "
            "value has no variance; give it track_running_stats=True (training=self.training), or take nn.LayerNorm"
        )
    return (
        f"{begin} ({_reason(error)}), as behind .squeeze(), which takes the axis of samples away where there is one; "
        "write .flatten(1) in its place"
    )


def _answer(replica: Replica, x: Tensor, part: Samples) -> Tensor:
    """Call the module on a copy of a few samples, which it must leave as they are: other models are given them."""
    lent = _Lent(x)
    try:
        output: object = replica.logits(lent.alias)
    except Exception as error:  # whatever the user's code or torch raises
        if is_out_of_memory(error):
            few = "even one sample" if len(x) == 1 else f"{len(x)} samples"
            raise FedscopeError(
                f"{replica.device} has no memory left for {few} of {part.label}; --device cpu always can"
            ) from None
        shape = list(x.shape[1:])
        if _TYPES.search(str(error)) and any(value.dtype == torch.float64 for value in replica.module.parameters()):
            raise FedscopeError(
                f"the module is in float64, as its weights are, and fails on {part.label} ({_reason(error)}): its "
                "forward makes tensors of another type; give them that of its input, as torch.zeros(n, dtype=x.dtype), "
                "or set torch.set_default_dtype(torch.float64) as when they were trained"
            ) from error
        if not (x.is_floating_point() or x.is_complex()) and _TYPES.search(str(error)):
            raise FedscopeError(
                f"the module fails on {len(x)} of {part.label}, whole numbers of shape {shape} a sample, which are "
                f"taken as tokens ({_reason(error)}); give measurements as floats, or a module that takes tokens, as "
                "nn.Embedding does"
            ) from error
        if x.is_floating_point() and _is_embedding(error, replica):
            raise FedscopeError(
                f"the module fails on {len(x)} of {part.label}, each of shape {shape} ({_reason(error)}): its "
                f"embedding takes token ids, which are whole numbers [n, L]; give them so{_as_tokens(part.task)}"
            ) from error
        axes = f" (convolutions take [c, h, w], of these images {MOVED})" if has_channels_last(shape) else ""
        raise FedscopeError(
            f"the module fails on {len(x)} of {part.label}, each of shape {shape} ({_reason(error)}); give data that "
            f"it takes{axes}, or a module that takes these (nn.Flatten() makes a vector of an image)"
        ) from error
    if lent.is_changed:
        raise FedscopeError(
            f"the module changes its input in place, and the samples of {part.label} are for other models, too; give "
            "its forward a copy (x = x.clone()), or leave inplace=True out of the layer that meets them"
        )
    if not isinstance(output, Tensor):
        raise FedscopeError(
            f"the module returns a value of type {type(output).__name__}{_held(output)}, not a tensor of "
            f"{f'logits [n, {part.classes}]' if part.task.has_classes else 'outputs'}, nor such a tensor as .logits, "
            '"logits", "out", the only one of a mapping or the first of a tuple; wrap it in a module whose '
            f"forward returns {'the logits' if part.task.has_classes else 'that'} alone"
        )
    return output


def _is_embedding(error: Exception, replica: Replica) -> bool:
    """Check whether a module failed because its embedding was given floats."""
    there = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in replica.module.modules())
    return there and "indices" in str(error)


def _as_tokens(task: Task) -> str:
    """Say what else keeps whole numbers tokens."""
    if task.tokens:
        return ""
    if isinstance(task, LabelCriterion):  # which has no word for tokens
        return (
            ", and leave standardising out (--no-standardise, standardise=False; to train on them, give a function "
            "for --data, which is taken as it is)"
        )
    if isinstance(task, Classification):
        return ", and --task sequence-classification"
    return ", and a task of tokens (tokens = True)"


def _held(output: object) -> str:
    """Name what a mapping holds, in a clause."""
    return f" with {list_few(map(str, output), 4)}" if isinstance(output, Mapping) and output else ""


def try_task(task: Task, outputs: Tensor, y: Tensor, label: str) -> None:
    """Look at the losses and errors of a task of the user's own on a few samples.

    Raises:
        FedscopeError: it fails, or gives something else than one number a sample; errors outside of 0..1; it changes
            what it is given.
    """
    for name, call in (("loss", task.loss), ("error", task.error)):
        what, lent = f"the {name} of task {task.name}", {"outputs": _Lent(outputs), "y": _Lent(y)}
        try:
            values: Any = call(lent["outputs"].alias, lent["y"].alias)
        except Exception as error:  # whatever the user's code or torch raises
            if is_out_of_memory(error):
                raise
            raise FedscopeError(
                f"{what} fails on outputs of shape {list(outputs.shape)} for {label} ({_reason(error)})"
            ) from error
        _refuse_changed(what, lent, label)
        if values is None and name == "error":
            continue
        if not isinstance(values, Tensor) or tuple(values.shape) != (len(y),):
            got = f"a tensor of shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise FedscopeError(
                f"{what} is {got} for {len(y)} samples of {label}; return one number a sample, [{len(y)}] (a mean over "
                "samples is taken by fedscope)"
            )
        if name == "error" and bool(((values < 0) | (values > 1)).any()):
            most = float(values.cpu().double().max())
            raise FedscopeError(
                f"{what} is {most:g} for a sample of {label}; an error is a share, 0 to 1 (return None if there is "
                "none)"
            )
    for name, weights in (("weights", task.weights), ("error_weights", task.error_weights)):
        lent = {"y": _Lent(y)}
        with suppress(Exception):  # what it fails with is said where it is measured
            weights(lent["y"].alias)
        _refuse_changed(f"{name} of task {task.name}", lent, label)


def _refuse_changed(what: str, lent: Mapping[str, _Lent], label: str) -> None:
    """Refuse a function that has changed outputs or targets."""
    for name, one in lent.items():
        if one.is_changed:
            raise FedscopeError(
                f"{what} changes {name} of {label} in place, which is read again afterwards; copy it before you change "
                f"it ({name} = {name}.clone())"
            )


class _Lent:
    """A tensor that code of the user's own may look at: a copy, under another name, so that a new shape in place
    (``unsqueeze_``) stays that name's."""

    def __init__(self, value: Tensor) -> None:
        self._before, self._copy = value, value.clone()
        self.alias = self._copy.detach().view_as(self._copy)
        self._shape, self._count = (self.alias.shape, self.alias.stride()), _changes(self._copy)

    @property
    def is_changed(self) -> bool:
        """Whether its numbers were changed in place, or might have been: of few samples some changes cannot be seen."""
        same = torch.equal(torch.nan_to_num(self._copy), torch.nan_to_num(self._before))
        shaped = (self.alias.shape, self.alias.stride()) != self._shape
        return not same or (_changes(self._copy) != self._count and not shaped)


def _changes(value: Tensor) -> int:
    """Count how often a tensor was changed in place; 0 of one that does not know, made in torch's inference mode."""
    return 0 if value.is_inference() else value._version


def refuse_mixing(task: Task, outputs: Tensor, y: Tensor, label: str) -> None:
    """Refuse a task of the user's own whose loss or error of a sample depends on the samples beside it: with another
    batch it would be another number.

    Raises:
        FedscopeError: says where that comes from, [n] against [n, 1] or a mean over a batch.
    """
    for name, call in (("loss", task.loss), ("error", task.error)):
        try:
            together, again = call(outputs, y), call(outputs, y)
            if together is None or again is None:
                continue
            together, again = together.double(), again.double()
            alone = torch.cat([call(outputs[i : i + 1], y[i : i + 1]).double() for i in range(len(y))])  # type: ignore[union-attr]
        except Exception:  # one that takes no single sample is measured as it is
            continue
        scale = float(torch.nan_to_num(together.detach().abs()).max())

        def alike(others: Tensor, scale: float = scale, together: Tensor = together) -> bool:
            same = others.shape == together.shape
            return same and torch.allclose(together, others, rtol=1e-3, atol=1e-3 * scale, equal_nan=True)

        if alike(again) and not alike(alone):
            raise FedscopeError(
                f"the {name} of task {task.name} of a sample of {label} depends on the samples beside it, so it would "
                f"change with the batch; outputs are {list(outputs.shape)} and targets {list(y.shape)}: give them one "
                "shape if [n] meets [n, 1], and take no mean or maximum over samples"
            )


def _reason(error: BaseException) -> str:
    """Return the class and the first line of what was raised."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason given'])[0]}"
