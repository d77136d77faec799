"""Buffers of models that are no statistics of normalization layers: what is done where they differ between models.

Running statistics belong to the normalization layers, and ``--normalization`` is about them. Of the others, floating
ones (the vectors u and v of spectral normalization, means over training) are combined as weights are. Whole numbers,
truth values and masks of 0 and 1 have nothing between two of them: where outputs depend on them, there is no model
between the models. Counters differ as a matter of course, and nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ..checkpoints import FedscopeError, Layout, Model, Weights
from ..checkpoints.io.warn_user import warn_user
from ..checkpoints.models.expected import STATISTICS
from .recorded_names import name_in_layer

#: of a model the outputs on a few samples
Answers = Callable[[Weights], np.ndarray]
#: a change of outputs by less, as a share of the greatest, is rounding
ROUNDING = 1e-6


def statistics_names(module: nn.Module) -> frozenset[str]:
    """Find the buffers of a module that are running statistics of normalization layers: of torch's by their class, of
    layers of one's own by the names that torch gives them.

    >>> sorted(statistics_names(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))))
    ['1.num_batches_tracked', '1.running_mean', '1.running_var']
    """
    layers = [name for name, layer in module.named_modules() if isinstance(layer, _NormBase)]
    of_layers = {name_in_layer(module, layer, leaf) for layer in layers for leaf in STATISTICS}
    names = [entry.name for entry in Layout.of(module).buffers]
    return frozenset(name for name in names if name in of_layers or name.rpartition(".")[2] in STATISTICS)


def unlike_buffers(
    models: Sequence[Model], statistics: Collection[str], answers: Answers, what: str = "between them"
) -> tuple[str, ...]:
    """Find the floating buffers besides statistics that differ between models, by name; they are combined as weights.

    Args:
        answers: computes outputs, to see whether they depend on what cannot be combined.
        what: where a model would have to lie, for the sentence.

    Raises:
        FedscopeError: whole numbers, truth values or masks of 0 and 1 that differ, on which outputs depend; names the
            buffer and two models.
    """
    found = []
    names = [entry.name for entry in models[0].weights.layout.buffers if entry.name not in statistics]
    held = [model.weights.buffers for model in models if names]  # of each once: it may be read from a file
    for name in names:
        values = [np.asarray(buffers[name]) for buffers in held]
        if all(_is_same(values[0], other) for other in values[1:]):
            continue
        if values[0].dtype.kind == "f" and not all(is_mask(one) for one in values):
            found.append(name)
        else:
            _refuse_where_it_matters(models, name, values, answers, what)
    return tuple(found)


def is_mask(values: np.ndarray) -> bool:
    """Check whether all numbers are 0 or 1.

    >>> is_mask(np.array([0.0, 1.0])), is_mask(np.array([0.5, 1.0]))
    (True, False)
    """
    return bool(np.isin(values, (0, 1)).all())


def kind_of(values: np.ndarray) -> str:
    """Describe numbers that have nothing between them.

    >>> kind_of(np.array([True])), kind_of(np.array([0.0, 1.0])), kind_of(np.array([3]))
    ('truth values', 'a mask of 0 and 1', 'whole numbers')
    """
    if values.dtype.kind == "b":
        return "truth values"
    return "whole numbers" if values.dtype.kind in "iu" else "a mask of 0 and 1" if is_mask(values) else "numbers"


def remedy_for(name: str, names: Collection[str]) -> str:
    """Say what to do about a buffer that cannot be combined: a mask of torch's pruning becomes part of the weights.

    >>> remedy_for("0.weight_mask", ["0.weight_orig", "0.weight_mask"])
    "make the mask part of the weights before, with torch.nn.utils.prune.remove(layer, 'weight')"
    """
    pruned = name.removesuffix("_mask")
    if pruned != name and f"{pruned}_orig" in names:
        leaf = pruned.rpartition(".")[2]
        return f"make the mask part of the weights before, with torch.nn.utils.prune.remove(layer, '{leaf}')"
    return "give the models the same, or make a mask part of the weights before"


def _refuse_where_it_matters(
    models: Sequence[Model], name: str, values: Sequence[np.ndarray], answers: Answers, what: str
) -> None:
    """Refuse a buffer that a model has otherwise than the first, where either answers otherwise with the other's."""
    (one, own), *rest = zip(models, values, strict=True)
    for other, others in rest:
        for model, theirs in () if _is_same(own, others) else ((one, others), (other, own)):
            if _depends(model.weights, {name: theirs}, answers):
                raise FedscopeError(
                    f"{one.label} and {other.label} differ in the buffer {name} ({kind_of(own)}), on which outputs "
                    f"depend, so there is no model {what}; {remedy_for(name, model.weights.layout.names)}"
                )


def _depends(model: Weights, changed: Mapping[str, np.ndarray], answers: Answers) -> bool:
    own = answers(model)
    other = answers(Weights(model.layout, model.parameters, {**model.buffers, **changed}))
    scale = float(np.nan_to_num(np.abs(own), posinf=0.0).max(initial=0.0))
    return not np.allclose(own, other, rtol=0.0, atol=ROUNDING * scale, equal_nan=True)


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Compare numbers, floating ones up to what rounding makes of a mean of equal ones."""
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    return np.allclose(one, other, rtol=4 * float(np.finfo(one.dtype).eps), atol=0.0, equal_nan=True)


def warn_of_averaged(
    models: Mapping[str, Sequence[np.ndarray] | np.ndarray],
    names: Collection[str],
    p: Sequence[float] | np.ndarray | None = None,
) -> None:
    """Warn where models that are averaged differ in masks, which have no mean: truth values, numbers that are 0 or 1.

    Other whole numbers are counters as a rule, on which no output depends. Single numbers that are not floating are no
    matter, and neither are statistics, which are averaged.

    Args:
        models: of each buffer by name what each of the models has.
        names: of all tensors of a model.
        p: their weights; a model of weight 0 has no part.
    """
    for name, rows in models.items():
        there = range(len(rows)) if p is None else np.flatnonzero(p).tolist()
        if len(there) < 2 or name.rpartition(".")[2] in STATISTICS:
            continue
        first = np.asarray(rows[there[0]])
        floating = first.dtype.kind == "f"
        if not floating and first.size == 1:
            continue
        # by their bits first: training asks in each round, and masks of attention are large and the same
        others = [one for one in (np.asarray(rows[k]) for k in there[1:]) if not _has_same_bits(first, one)]
        if not others or not all(map(is_mask, (first, *others))) or all(np.array_equal(first, one) for one in others):
            continue
        kind = "truth values" if first.dtype.kind == "b" else "a mask of 0 and 1"
        has = "the mean of all, which is no mask" if floating else "that of one of them"
        warn_user(
            f"models that are averaged differ in the buffer {name} ({kind}), and their average has {has}; if outputs "
            f"depend on it, {remedy_for(name, names)}"
        )


def _has_same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Compare arrays by 64 bits at a time, where they can be."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if not (one.flags.c_contiguous and other.flags.c_contiguous and one.size):
        return np.array_equal(one, other)
    word = np.uint8 if one.nbytes % 8 else np.uint64
    return np.array_equal(one.reshape(-1).view(word), other.reshape(-1).view(word))
